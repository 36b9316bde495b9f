"""Limits the pace of work that is not urgent, so that the work never blocks the loop for long.

After `SLICE_S` of work, the task rests for `SHARE` times as long. So the work takes at most a fifth of the router's
time.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import trio

SLICE_S: Final = 0.002
SHARE: Final = 4
LOOKS: Final = 20
"""The number of entities that are read between two looks at the clock."""


class WorkPace:
    """The pace of work that one task at a time does."""

    def __init__(self, turn: Callable[[], Awaitable[None]]) -> None:
        """`turn`: the work awaits it before it continues, so that the loop can do urgent work first."""
        self._turn = turn
        self._began = 0.0

    async def begin(self) -> None:
        await self._turn()
        self._began = trio.current_time()

    async def breathe(self) -> None:
        """Rest, if the work has used up its slice of time."""
        if trio.current_time() - self._began > SLICE_S:
            await self.rest()

    async def rest(self) -> None:
        await trio.sleep(SHARE * (trio.current_time() - self._began))
        await self.begin()
