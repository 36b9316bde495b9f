"""Decides after how much silence a client gives up its router.

Routers believe each other dead after the time that their topology names, and tell clients this time in their open. A
client gives up a silent router after the same time. So when the client attaches to the next router, this router has
already given up the lost router, too. But a router without traffic sends heartbeats only as often as the client's idle
timeout demands, so the client waits at least half of this timeout.
"""

from collections.abc import Mapping
from typing import Any, Final

import trio

from router.amqp.connection import Connection
from topic.properties import DEAD

# The seconds for which the client goes on reading after the limit.
# If the client's own process was stopped for a while, frames of the router may still be unread.
GRACE_S: Final = 0.02
# The share of the client's idle timeout within which a live router sends a heartbeat.
HEARD: Final = 0.5


class Patience:
    """How long one client waits for a silent router. `idle` is the idle timeout in seconds that the client's open
    announces."""

    def __init__(self, idle: float) -> None:
        self._idle = idle
        self.least = HEARD * idle  # the least value of `limit`, in seconds
        self.limit = idle  # the seconds of silence after which the router counts as gone

    def learn(self, properties: Mapping[str, Any]) -> None:
        """Set `limit` from the properties of a router's open."""
        dead_ms = properties.get(DEAD)
        if isinstance(dead_ms, int) and dead_ms > 0:
            self.limit = min(self._idle, max(dead_ms / 1000, self.least))


async def silence(connection: Connection, patience: Patience) -> None:
    """Wait until the peer has been silent for `patience.limit`. The peer's open sets the limit, and may come during the
    wait. So the function first sleeps for `patience.least`, and reads the limit only if no bytes have come by then."""
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
