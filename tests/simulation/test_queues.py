"""Clients of queues, in runs of everything that goes wrong: what is promised of a queue holds."""

from collections import Counter
from typing import Any

import pytest

from tests.simulation.evidence import KINDS
from tests.simulation.report import attempt, tell
from tests.simulation.world import World

HAPPENS = (
    "Free", "refused", "left by Purge", "left by Expire", "Configure", "bound", "annotated", "for one",
    "dead: rejected", "dead: redeliveries", "dead: expired", "sent: Posted",
)  # fmt: skip
SEEDS = (0, 1, 2, 3, 4, 5, 7, 18, 44)
COMPANIONS = (("voters",), ("drains", "modes"), ("small frames", "any order"))
OLDER_ANSWER: dict[str, Any] = {
    **KINDS["queues"].knobs,
    "boot_wait": 10.0, "busy": 0.9, "faults": ("kill all", "flap", "kill all", "kill"), "patience": 0.05,
    "think": 0.5, "delay": 0.05, "window": 5, "routers": 3,
}  # fmt: skip
HAS_FAILED: dict[str, Any] = {
    "publishers": 4, "messages": 25, "faults": ("partition", "partition", "flap", "pause", "kill", "pause"),
    "turmoil": 5.0, "grace": 5.0, "sets": 2, "queues": 3, "disk": 0.2, "disk_loss": 1.0,
}  # fmt: skip


def run(seed: int, *odd: str, trace: bool = False) -> World:
    world, failure = attempt(seed, odd=("queues", *odd), trace=trace)
    if failure is not None:
        raise AssertionError(tell(failure, tail=60)) from failure.error
    return world


def test_what_is_promised_of_a_queue_holds_whatever_fails() -> None:
    worlds = [run(seed, trace=True) for seed in SEEDS]
    messages = [message for world in worlds for message in world.judge.queues.messages]
    assert sum(message.is_told for message in messages) > 15 * len(SEEDS)
    assert sum(bool(message.processed) for message in messages) > 15 * len(SEEDS)
    assert sum(message.is_told and not (message.is_loose or message.may_be_gone) for message in messages) > 5 * len(
        SEEDS
    )
    lines = [what for world in worlds for _, _, what in world.trace]
    for happens in ("is killed", "is in doubt", "prank: crash", "hangs until"):
        assert any(happens in line for line in lines), f"no run has: {happens}"
    seen = sum((world.judge.queues.logs.seen for world in worlds), Counter[str]())
    for happens in HAPPENS:
        assert seen[happens], f"no log has: {happens}"


@pytest.mark.parametrize("companions", COMPANIONS, ids=" ".join)
def test_it_holds_whatever_else_is_odd(companions: tuple[str, ...]) -> None:
    for seed in range(2):
        run(seed, *companions)


def test_it_holds_when_a_queue_is_deleted_as_it_gets_a_message_again() -> None:
    """One round of the log has decided both, and a consumer of the deleted queue was offered the message again."""
    run(506)


def test_a_refusal_on_an_earlier_attach_takes_no_room_of_the_next() -> None:
    """The home took the next attach of the consumer for full, and the router of the consumer did not know that."""
    run(9108699)


def test_what_a_consumer_has_of_a_deleted_queue_ends() -> None:
    """Its router had asked the home, and the egress was closed before the answer."""
    run(9107483)


def test_what_an_operator_purges_of_an_outbox_as_its_leader_changes_is_left_nowhere() -> None:
    run(9200095)


def test_an_operator_who_begins_a_set_again_and_again_ends_no_beginning() -> None:
    """A disk hung meanwhile, and had one of these lives when the others had accepted the next one."""
    run(9108343)


@pytest.mark.parametrize("seed", [9108073, 9108610, 9110036, 9110239, 9111591, 9200263])
def test_it_holds_in_runs_of_which_the_judge_was_wrong(seed: int) -> None:
    """A consumer released a message on its next link, and its router counted that it had gone with it; the same of a
    message that its router had yet to transfer; a plain consumer got again what it had on an earlier link; two queues
    that were bound to a topic gave a third one the same dead letter; an older delivery was enqueued when its tag had
    been used again (protocol 14.3, Limit); an operator gave up before a voter had told of its store."""
    run(seed)


@pytest.mark.parametrize(("seed", "knobs"), [(147, HAS_FAILED), (9103035, OLDER_ANSWER)])
def test_it_holds_in_a_run_that_has_failed(seed: int, knobs: dict[str, Any]) -> None:
    """An outcome of one queue was told as that of another one, whose link had the same epoch. An older refusal counted
    for a message whose tag was used again (protocol 14.3, Limit)."""
    _, failure = attempt(seed, knobs=knobs)
    assert failure is None, failure.error
