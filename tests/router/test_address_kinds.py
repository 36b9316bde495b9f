"""Which kinds addresses have, by a topology."""

from pathlib import Path

import pytest

from router.mesh.topology import TopologyError, load


def test_addresses_of_two_kinds_are_told_apart(tmp_path: Path) -> None:
    text = """\
mesh: one
routers: {a: {amqp: 127.0.0.1:5672}}
addresses:
  - {prefix: topic/, kind: topic}
  - {prefix: work/, kind: balanced}
  - {prefix: work/old/, kind: balanced}
  - {prefix: work/news/, kind: topic}
  - {prefix: top, kind: balanced}
"""
    path = tmp_path / "mesh.yaml"
    path.write_text(text)
    with pytest.raises(TopologyError) as caught:
        load(path)
    assert [message.replace(f"{tmp_path}/", "") for message in caught.value.messages] == [
        'mesh.yaml:7: addresses[3]: "work/news/" is topic, and "work/" balanced, expected one kind for an address',
        'mesh.yaml:8: addresses[4]: "top" is balanced, and "topic/" topic, expected one kind for an address',
    ]
