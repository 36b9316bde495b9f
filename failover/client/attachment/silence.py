"""When a router that says nothing counts as gone.

Routers believe each other dead after the time that their topology names, and say so to clients as they open. A client
believes no longer in its router than the other routers do: it is at the next one when that has given up the lost one
too. But it cannot expect to hear from a router more often than it has asked for, which is what its own idle timeout is.
"""

from collections.abc import Mapping
from typing import Any, Final

import trio

from router.amqp.connection import Connection
from topic.properties import DEAD

GRACE_S: Final = 0.02  # for what has come while we did not run ourselves
HEARD: Final = 0.5  # of the idle timeout: within that a router that lives is heard, its heartbeats come more often


class Patience:
    """Of one client. `idle` is in seconds, and what it announces to its routers."""

    def __init__(self, idle: float) -> None:
        self._idle = idle
        self.least = HEARD * idle  # seconds: the limit is never below
        self.limit = idle  # seconds of silence

    def learn(self, properties: Mapping[str, Any]) -> None:
        """From the properties of a router's open."""
        dead_ms = properties.get(DEAD)
        if isinstance(dead_ms, int) and dead_ms > 0:
            self.limit = min(self._idle, max(dead_ms / 1000, self.least))


async def silence(connection: Connection, patience: Patience) -> None:
    """Wait until nothing has come from the peer for so long. For how long it says as it opens, which may take a while:
    until then, and whenever something else has come, only the least time is slept for."""
    begun = trio.current_time()

    def heard() -> float:
        return connection.last_received or begun

    while True:
        last = heard()
        await trio.sleep_until(last + patience.least)
        if heard() == last:
            await trio.sleep_until(last + patience.limit)
            await trio.sleep(GRACE_S)
            if heard() == last:
                return
