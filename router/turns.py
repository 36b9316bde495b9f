"""Decides when clients have their turns in the loop, so that neighbours and timers do not wait for them.

Trio runs all tasks that are ready, and only then looks at sockets and deadlines again: this is one *pass*. When a
router has died, its clients attach at the other routers all at once. A pass that handled the input of all of them would
last for seconds. Meanwhile the neighbours would hear nothing, and give up this router, too. So a pass that has lasted
for `PASS_S` handles no further client's input. Clients that wait go on in a later pass.

Neighbours never wait here. `router.amqp.transport` limits how much of a client's input is handled at once.
"""

import math
from typing import Final

import trio

PASS_S: Final = 0.05
"""The seconds of a pass after which no further client gets a turn in it."""


class ClientTurns(trio.abc.Instrument):
    """The turns of one trio run. Trio calls this object as its instrument."""

    def __init__(self) -> None:
        self._began = math.inf

    def after_io_wait(self, timeout: float) -> None:
        """A pass begins."""
        self._began = trio.current_time()

    async def turn(self) -> None:
        """Wait for a pass that has not yet lasted for `PASS_S`."""
        while trio.current_time() > self._began + PASS_S:
            await trio.lowlevel.checkpoint()


async def next_look(period_s: float) -> None:
    """Sleep until the next multiple of `period_s`. All timers wake at the same instants (`Engine.tick`), so that an
    idle process wakes once for all of them."""
    await trio.sleep_until((trio.current_time() // period_s + 1) * period_s)
