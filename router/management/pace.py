"""The pace of work that is not urgent: it never blocks the loop for long.

After `SLICE_S` of work it rests, `SHARE` times as long: so it takes a fifth of the time of a router at most.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import trio

SLICE_S: Final = 0.002
SHARE: Final = 4
LOOKS: Final = 20
"""Entities that are looked at between two looks at the clock."""


class WorkPace:
    """The pace of work that is done by one task at a time."""

    def __init__(self, turn: Callable[[], Awaitable[None]]) -> None:
        """Work waits for its `turn` in the loop."""
        self._turn = turn
        self._began = 0.0

    async def begin(self) -> None:
        await self._turn()
        self._began = trio.current_time()

    async def breathe(self) -> None:
        """Rest, if it is time to."""
        if trio.current_time() - self._began > SLICE_S:
            await self.rest()

    async def rest(self) -> None:
        await trio.sleep(SHARE * (trio.current_time() - self._began))
        await self.begin()
