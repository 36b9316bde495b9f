"""Which kinds addresses have, by a topology: the longest prefix counts."""

from pathlib import Path

import pytest

from router.mesh.planned import settings_of
from router.mesh.topology import TopologyError, load
from topic.delivery.kinds import AddressKinds

TEXT = """\
mesh: one
routers: {a: {amqp: 127.0.0.1:5672}}
addresses:
  - {prefix: work/, kind: balanced}
  - {prefix: work/news/, kind: topic}
  - {prefix: "", kind: closest}
  - {prefix: top, kind: topic}
"""


def test_the_longest_prefix_of_a_topology_counts(tmp_path: Path) -> None:
    path = tmp_path / "mesh.yaml"
    path.write_text(TEXT)
    kinds = AddressKinds(settings_of(load(path)).kinds)
    found = {address: kinds.of(address).name for address in ("work/a", "work/news/a", "tops", "any/a")}
    assert found == {"work/a": "balanced", "work/news/a": "topic", "tops": "topic", "any/a": "closest"}


def test_a_prefix_has_one_rule(tmp_path: Path) -> None:
    path = tmp_path / "mesh.yaml"
    path.write_text(TEXT + '  - {prefix: "", kind: topic}\n')
    with pytest.raises(TopologyError) as caught:
        load(path)
    assert [message.replace(f"{tmp_path}/", "") for message in caught.value.messages] == [
        'mesh.yaml:8: addresses[4]: prefix "" has two rules, expected one',
    ]
