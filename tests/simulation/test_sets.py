"""Meshes with replica sets: one log for each set whatever fails, and answers to all who ask."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.parties import Violation
from tests.simulation.test_simulation import run
from topic.queues.moving.policy import FOLLOW, PREFER, SHARE
from topic.queues.operations import Done, RefusedFor
from topic.raft.life import SetLife
from topic.raft.log import Entry, RaftLog
from topic.raft.messages import Hard

FIRST = 17
"""The first seeds, of which is asked what happens in them."""
CHANGES = 21
"""A seed in which a client asks for a change of settings that have changed meanwhile."""
COUNT = 20
MOVING = range(1000, 1003)
COPIED = (1, 5, 9)
"""Seeds of meshes whose sets have asynchronous copies."""
GROWING = 3
"""Seeds of a mesh that grows, and whose sets get other voters."""


def test_sets_decide_one_log_whatever_fails() -> None:
    for seed in range(FIRST, COUNT):
        run(seed, odd=("sets",))


@pytest.mark.parametrize("seed", [9, 27, 100_009, 100_048])
def test_it_holds_in_runs_that_have_failed(seed: int) -> None:
    """An acknowledgement came after a later one; two replicas began anew at once, and did not hear of each other; a
    store that a beginning named was gone; a state was put aside before an earlier one was the snapshot."""
    run(seed, odd=("sets",))


@pytest.mark.parametrize(
    ("seed", "odd"),
    [(8_930_054, ("sets",)), (7, ("sets", "grow")), (13, ("sets", "grow")), (9_200_137, ("sets", "voters"))],
)
def test_it_holds_in_runs_of_which_the_judge_was_wrong(seed: int, odd: tuple[str, ...]) -> None:
    """Two stores were lost before the life that they had accepted took effect elsewhere; a store was lost that was one
    of two voters a moment later; a disk still hung when the sets were asked for the last time; a set was recovered
    before it had an entry."""
    run(seed, odd=odd)


def test_sets_hold_in_a_mesh_that_grows() -> None:
    for seed in range(GROWING):
        run(seed, odd=("sets", "grow", "voters"))


def test_sets_hold_whose_lead_moves_and_whose_routers_are_about_to_stop() -> None:
    worlds = [run(seed, trace=True, odd=("queues", "moves")) for seed in MOVING]
    worlds += [run(seed, trace=True, odd=("sets", "voters", "moves")) for seed in MOVING]
    lines = [what for world in worlds for _, _, what in world.trace]
    for happens in ("is about to stop", "leaves=True", "StandNow("):
        assert any(happens in line for line in lines), f"no run has: {happens}"
    policies = {world.sets.map.plans["eu"].policy.kind for world in worlds if world.sets is not None}
    assert policies == {PREFER, FOLLOW, SHARE}


def test_operators_of_sets_are_worth_their_name() -> None:
    worlds = [run(seed, trace=True, odd=("sets", "voters")) for seed in range(3000, 3008)]
    lines = [what for world in worlds for _, _, what in world.trace]
    for happens in ("the voters of", "recovers set", "an older copy of itself, without", "Piece("):
        assert any(happens in line for line in lines), f"no run has: {happens}"


def test_sets_hold_with_asynchronous_copies_from_which_operators_recover_them() -> None:
    worlds = [run(seed, trace=True, odd=("sets", "copies")) for seed in COPIED]
    worlds += [run(seed, trace=True, odd=("queues", "voters", "copies")) for seed in COPIED[:2]]
    lines = [what for world in worlds for _, _, what in world.trace]
    for happens in ("with copies at", "lose what they have of it", "becomes the set", "Piece("):
        assert any(happens in line for line in lines), f"no run has: {happens}"


def test_a_mesh_with_sets_is_worth_its_name() -> None:
    worlds = [run(seed, trace=True, odd=("sets",)) for seed in (*range(FIRST), CHANGES)]
    lines = [what for world in worlds for _, _, what in world.trace]
    for happens in (
        "disk is replaced", "has damaged rows", "hangs until", "is slow", "is killed",
        "Vote(", "Piece(", "Resigned(", "Lacking(",
    ):  # fmt: skip
        assert any(happens in line for line in lines), f"no run has: {happens}"
    answers = [one.answer for world in worlds if world.sets for one in world.sets.requests]
    assert sum(isinstance(answer, Done) for answer in answers) > 300
    reasons = {answer.reason for answer in answers if answer is not None and not isinstance(answer, Done)}
    assert reasons == {RefusedFor.DIFFERS, RefusedFor.CHANGED, RefusedFor.NOT_FOUND, RefusedFor.NO_ANSWER}


def test_a_leader_is_judged_by_what_was_decided_in_earlier_terms() -> None:
    """A vote may arrive when a leader of a later term has decided something: its candidate leads without that."""
    judge = run(FIRST, odd=("sets",)).sets
    assert judge is not None
    name, state = next(iter(judge.map.plans)), SimpleNamespace(rows=SimpleNamespace(digest=b""))

    def leads(term: int, *entries: Entry) -> Any:
        raft = SimpleNamespace(
            hard=Hard(life=SetLife(1, "a"), term=term),
            leadership=SimpleNamespace(_handing_over=None),
            log=RaftLog(entries),
        )
        return SimpleNamespace(raft=raft, plan=judge.map.plans[name], state=state)

    judge._apply("a", leads(3), lambda index, entry: None, 1, Entry(3))
    judge._watch_leader("b", name, leads(2))
    with pytest.raises(Violation, match=r"13 complete: c leads .* without entry 1"):
        judge._watch_leader("c", name, leads(4))
    with pytest.raises(Violation, match=r"13 complete: d leads .* at 1"):
        judge._watch_leader("d", name, leads(5, Entry(2)))
