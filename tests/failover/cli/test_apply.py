"""What a topology file may say of replica sets when it is applied to a mesh that runs."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from failover.cli.plan.apply import _check_voters, _fixed, _without
from router.mesh.config import Topology
from router.mesh.errors import RunError
from router.mesh.rundir import MeshRecord, RunDirectory
from router.mesh.topology import load
from tests.router.mesh.test_shown_sets import shown

EU = {"name": "eu", "prefix": "queue/eu/", "voters": ["a", "b", "c"], "prefer": "c"}


def topology(folder: Path, routers: str, **queues: Any) -> Topology:
    """A mesh in which each router is a neighbour of the first one. Named sets are like `eu`."""
    first, *others = list(routers)
    said = {
        "mesh": "m", "routers": {name: {"amqp": "127.0.0.1:0"} for name in routers},
        "links": [[first, other] for other in others],
        "addresses": [{"prefix": "queue/", "kind": "queue"}],
        "queues": {"sets": 1, "named": [EU]} | queues,
    }  # fmt: skip
    path = folder / f"{routers}.yaml"
    path.write_text(yaml.safe_dump(said))
    return load(path)


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    found = RunDirectory(tmp_path / "run")
    found.make()
    found.write(MeshRecord("m", "mesh.yaml", {}, str(tmp_path)))
    return found


def test_a_router_that_was_replaced_leaves_the_topology_too(tmp_path: Path, directory: RunDirectory) -> None:
    """Its named set has the voters of its log there, of which the first is preferred."""
    former = topology(tmp_path, "abcd")
    left = _without(former, "c", directory, [shown("eu", ring=list("bad"))])
    assert [*left.routers] == ["a", "b", "d"] and left.queues is not None
    assert [one.ring for one in left.queues.named] == [("b", "a", "d")]
    assert _fixed(left, "queues") == _fixed(former, "queues")


def test_a_voter_that_leaves_by_force_is_none_in_the_file(tmp_path: Path, directory: RunDirectory) -> None:
    """Its set has it in name, until others are chosen."""
    left = _without(topology(tmp_path, "abcd"), "c", directory, [shown("eu", ring=list("abc"))])
    assert left.queues is not None and [one.voters for one in left.queues.named] == [("a", "b")]


def test_there_are_not_more_replicas_than_routers_left(tmp_path: Path, directory: RunDirectory) -> None:
    former = topology(tmp_path, "abcde", replicas=5, named=[])
    left = _without(former, "e", directory, [shown(ring=list("abc"))])
    assert left.queues is not None and left.queues.replicas == 3
    assert _fixed(left, "queues") == _fixed(former, "queues")


def test_a_file_may_say_other_voters_if_the_set_has_them(tmp_path: Path) -> None:
    former, sets = topology(tmp_path, "abcd"), [shown("eu", ring=list("bad")), shown("q0")]
    _check_voters(former, former, sets, ())  # as it began
    wanted = topology(tmp_path, "abd", named=[{**EU, "voters": ["a", "b", "d"], "prefer": "a"}])
    _check_voters(wanted, former, sets, ("c",))
    with pytest.raises(RunError) as refused:
        _check_voters(wanted, former, [shown("eu")], ())
    assert "replica set eu has the voters a, b, c, expected these" in str(refused.value)
    assert str(refused.value).endswith("oncemesh queue voters eu a b d does")


@pytest.mark.parametrize("queues", [{"sets": 2}, {"sync": "memory"}, {"named": [{**EU, "prefix": "queue/us/"}]}])
def test_which_set_has_which_queue_does_not_change(tmp_path: Path, queues: dict[str, Any]) -> None:
    assert _fixed(topology(tmp_path, "abc", **queues), "queues") != _fixed(topology(tmp_path, "abcd"), "queues")
