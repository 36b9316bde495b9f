"""When clients, neighbours and timers have their turns of the loop.

Trio lets all tasks run that can, and only then looks at sockets and deadlines again: one *pass*. When a router has died
its clients attach at the others all at once, and a pass that handled the input of each would last for seconds: the
neighbours would hear nothing, and give this router up, too. So in a pass that has lasted for long no further client's
input is handled; who waits goes on in the next, or in one after that.

Neighbours never wait here. How much of a client's input is handled at once is `router.amqp.transport`'s business.
"""

import math
from typing import Final

import trio

PASS_S: Final = 0.05
"""Seconds of a pass after which no further client is let in."""


class ClientTurns(trio.abc.Instrument):
    """Of one trio run, where it is an instrument."""

    def __init__(self) -> None:
        self._began = math.inf

    def after_io_wait(self, timeout: float) -> None:
        """A pass begins."""
        self._began = trio.current_time()

    async def turn(self) -> None:
        """Returns in a pass that is young enough."""
        while trio.current_time() > self._began + PASS_S:
            await trio.lowlevel.checkpoint()


async def next_look(period_s: float) -> None:
    """At the same instants for all timers of a period, and those that divide it (`Engine.tick`): who is idle is woken
    once for all of them."""
    await trio.sleep_until((trio.current_time() // period_s + 1) * period_s)
