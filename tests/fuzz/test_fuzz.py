"""A little of each kind of fuzz; `python -m tests.fuzz` goes on."""

import pytest

from tests.fuzz.__main__ import KINDS, play

ROUNDS = {"frames": 6, "maps": 6, "queues": 3, "shared": 3, "odd": 80, "wrong": 30, "routers": 6, "logs": 6, "yaml": 25}
FOUND = [
    ("maps", 2, 55),
    ("frames", 2, 236),
    ("routers", 2, 65),
    ("routers", 2501, 3239),
    ("maps", 2601, 2264),
    ("odd", 9941, 15386),
    ("queues", 3, 24),
    ("queues", 3, 43),
    ("queues", 12, 609),
]
"""Rounds that have ended a router: by transfers on a link whose attach had not been answered; by the end of a session
with a link that had been attached again and detached, while what it continued had a delivery; by a publisher that at
once settled what had an outcome and what had none. And a round that kept a gate closed: by a publisher that settled a
delivery, and in the same write told its state without settling it. The rounds of queues: a message stayed reserved for
a consumer that had ended behind a cut; a drain and a close in one write ended a router, and so did a message behind the
answer to a drain."""


@pytest.mark.parametrize("kind", KINDS)
def test_random_input_of_every_kind_does_no_harm(kind: str) -> None:
    for number in range(ROUNDS[kind]):
        play(kind, 1, number)


@pytest.mark.parametrize(("kind", "seed", "number"), FOUND)
def test_what_has_done_harm_does_none_any_more(kind: str, seed: int, number: int) -> None:
    play(kind, seed, number)
