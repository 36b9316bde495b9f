"""Clients that lose their connections and resume at their router, in runs drawn from fixed seeds."""

import os

import pytest

from tests.simulation.resuming import World

FIRST, COUNT = (int(text) for text in os.environ.get("RESUMING_SEEDS", "0:1500").split(":"))
PORTIONS = 10


@pytest.mark.parametrize("portion", range(PORTIONS))
def test_everything_is_processed_once_and_in_order_however_often_connections_break(portion: int) -> None:
    for seed in range(FIRST + portion, FIRST + COUNT, PORTIONS):
        try:
            World(seed).run()
        except Exception as error:
            error.add_note(f"replay with: RESUMING_SEEDS={seed}:1 pytest {__file__}")
            raise
