"""Decides when a silent router counts as gone.

Routers believe each other dead after the time that their topology names, and tell clients this time in their open. A
client trusts its router no longer than the other routers do: the client attaches to the next router when that router
has given up the lost one, too. But no router sends more often than the client's own idle timeout demands, so the client
waits at least half of this timeout.
"""

from collections.abc import Mapping
from typing import Any, Final

import trio

from router.amqp.connection import Connection
from topic.properties import DEAD

GRACE_S: Final = 0.02  # for frames that have come while this process did not run
HEARD: Final = 0.5  # of the idle timeout: a live router sends a heartbeat within this part


class Patience:
    """The silence that one client allows. `idle`: its idle timeout in seconds, as its open announces it."""

    def __init__(self, idle: float) -> None:
        self._idle = idle
        self.least = HEARD * idle  # seconds; `learn` never sets a shorter `limit`
        self.limit = idle  # seconds of silence

    def learn(self, properties: Mapping[str, Any]) -> None:
        """Set `limit` from the properties of a router's open."""
        dead_ms = properties.get(DEAD)
        if isinstance(dead_ms, int) and dead_ms > 0:
            self.limit = min(self._idle, max(dead_ms / 1000, self.least))


async def silence(connection: Connection, patience: Patience) -> None:
    """Wait until the peer has been silent for `patience.limit`. The limit comes with the peer's open, perhaps only
    while this function waits. So the function sleeps for `patience.least` first, and reads the limit only if nothing
    has come."""
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
