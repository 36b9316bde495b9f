"""A little of each kind of fuzz; `python -m tests.fuzz` goes on."""

import pytest

from tests.fuzz.__main__ import KINDS, play

ROUNDS = {"frames": 6, "maps": 6, "routers": 6, "logs": 6, "yaml": 25}


@pytest.mark.parametrize("kind", KINDS)
def test_random_input_of_every_kind_does_no_harm(kind: str) -> None:
    for number in range(ROUNDS[kind]):
        play(kind, 1, number)
