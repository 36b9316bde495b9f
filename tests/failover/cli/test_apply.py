"""What a topology file may say of replica sets when it is applied to a mesh that runs."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from failover.cli.plan.apply import _fixed, _with, _without
from failover.cli.plan.replicas import WantedSets, new_rings
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
    left = _without(former, "c", directory, {"eu": list("bad")})
    assert [*left.routers] == ["a", "b", "d"] and left.queues is not None
    assert [one.ring for one in left.queues.named] == [("b", "a", "d")]
    assert _fixed(left, "queues") == _fixed(former, "queues")


def test_a_voter_that_leaves_by_force_is_none_in_the_file(tmp_path: Path, directory: RunDirectory) -> None:
    """Its set has it in name, until others are chosen."""
    left = _without(topology(tmp_path, "abcd"), "c", directory, {"eu": list("abc")})
    assert left.queues is not None and [one.voters for one in left.queues.named] == [("a", "b")]


def test_there_are_not_more_replicas_than_routers_left(tmp_path: Path, directory: RunDirectory) -> None:
    former = topology(tmp_path, "abcde", replicas=5, named=[])
    left = _without(former, "e", directory, {"q0": list("abc")})
    assert left.queues is not None and left.queues.replicas == 3
    assert _fixed(left, "queues") == _fixed(former, "queues")


def test_a_named_set_gets_the_voters_of_a_file_that_changes_them(tmp_path: Path) -> None:
    """A file that is as it was changes nothing, whatever voters an operator has chosen since."""
    former, sets = (
        topology(tmp_path, "abcd"),
        [shown("eu", ring=list("bad"), voters=list("bad"), prefix="queue/eu/"), shown()],
    )
    assert new_rings(sets, WantedSets.of(former, former, ())) == {}
    wanted = topology(tmp_path, "abd", named=[{**EU, "voters": ["a", "b", "d"], "prefer": "a"}])
    assert new_rings(sets, WantedSets.of(wanted, former, "c")) == {"q0": ["a", "b", "d"]}
    assert new_rings([shown("eu", prefix="queue/eu/")], WantedSets.of(wanted, former, "c")) == {"eu": ["a", "b", "d"]}


def test_routers_with_few_replicas_take_the_places_of_one_that_leaves() -> None:
    sets = [shown(), shown("q1"), shown("q2", ring=list("abe"), voters=list("abe")), shown("q3", ring=list("bcd"))]
    rings = new_rings(sets, WantedSets("abde", "c"))
    assert rings == {"q0": ["a", "b", "d"], "q1": ["a", "b", "e"], "q3": ["b", "d", "e"]}


def test_a_router_that_was_to_be_a_voter_no_more_leaves_when_it_is_none() -> None:
    """It is a voter still: the command waits for that."""
    assert new_rings([shown(ring=list("abd"), voters=list("abcd"))], WantedSets("abd", "c")) == {"q0": ["a", "b", "d"]}


def test_a_router_does_not_leave_if_no_other_takes_its_place() -> None:
    with pytest.raises(RunError, match="router c is a voter of replica set q0: choose others first, for example with"):
        new_rings([shown(), shown("q1", ring=list("bc"))], WantedSets("ab", "c"))
    assert new_rings([shown()], WantedSets("ab", "c", forced=True)) == {}, "it stays a voter in name"
    assert new_rings([shown()], WantedSets("abd", "c", forced=True)) == {"q0": ["a", "b", "d"]}
    with pytest.raises(RunError, match="no majority is left without it"):
        new_rings([shown(may_stop="")], WantedSets("ab", "c", forced=True))


def test_sets_get_the_replicas_that_their_mesh_had_no_routers_for() -> None:
    pair: dict[str, Any] = {"ring": ["a", "b"], "voters": ["a", "b"]}
    assert new_rings([shown(**pair)], WantedSets("abcd", replicas=3)) == {"q0": ["a", "b", "c"]}
    assert new_rings([shown(**pair)], WantedSets("ab", replicas=3)) == {}
    assert new_rings([shown("eu", prefix="queue/eu/", **pair)], WantedSets("abcd", replicas=3)) == {}
    assert new_rings([shown(leader=None, **pair)], WantedSets("abcd", replicas=3)) == {}, "the file may bring one"
    assert new_rings([shown(life=None, **pair)], WantedSets("abcd", replicas=3)) == {}


def test_a_router_with_an_asynchronous_copy_leaves_without_another_in_its_place(
    tmp_path: Path, directory: RunDirectory
) -> None:
    row: dict[str, Any] = {"async": ["d"], "learners": ["d"]}
    one, wanted = shown("eu", prefix="queue/eu/", **row), WantedSets("abc", "d")
    assert new_rings([one], wanted) == {"eu": ["a", "b", "c"]} and wanted.copies_of(one) == []
    former = topology(tmp_path, "abcd", named=[{**EU, "async": ["d"]}])
    left = _without(former, "d", directory, {"eu": list("abc")})
    assert left.queues is not None and left.queues.named[0].copies == ()
    assert _fixed(left, "queues") == _fixed(former, "queues")


def test_a_named_set_gets_the_copies_of_a_file_that_changes_them(tmp_path: Path) -> None:
    former, one = topology(tmp_path, "abcd"), shown("eu", prefix="queue/eu/")
    wanted = WantedSets.of(topology(tmp_path, "abcd", named=[{**EU, "async": ["d"]}]), former, ())
    assert {*new_rings([one], wanted)["eu"]} == {*"abc"} and wanted.copies_of(one) == ["d"]


def test_routers_that_leave_stay_until_their_replicas_have_moved(tmp_path: Path, directory: RunDirectory) -> None:
    wanted = topology(tmp_path, "abde", named=[{**EU, "voters": ["a", "b", "d"], "prefer": "a"}])
    former = topology(tmp_path, "abcd")
    between = _with(wanted, former, ["c"], directory)
    assert {*between.routers} == {*"abcde"}
    assert {(link.a, link.b) for link in between.links} == {("a", other) for other in "bcde"}
    with pytest.raises(RunError, match="router f joined later and has replicas"):
        _with(wanted, former, ["f"], directory)


@pytest.mark.parametrize("queues", [{"sets": 2}, {"sync": "memory"}, {"named": [{**EU, "prefix": "queue/us/"}]}])
def test_which_set_has_which_queue_does_not_change(tmp_path: Path, queues: dict[str, Any]) -> None:
    assert _fixed(topology(tmp_path, "abc", **queues), "queues") != _fixed(topology(tmp_path, "abcd"), "queues")
