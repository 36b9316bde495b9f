"""A bound on what strangers can have a router log: a peer that is refused again and again fills no disk.

Of a *kind* of warning, which is its text without what it is about, so many are written in a minute. The others are
counted, and the count is told at the end of the minute, with the last of them. Which loggers write for strangers is
listed here; what routers say of each other and of themselves is never left out.
"""

import logging
from typing import Final

import trio

log = logging.getLogger("oncemesh")

MINUTE_S: Final = 60.0
MOST: Final = {
    "oncemesh.admission": 1,
    "oncemesh.amqp": 60,
    "oncemesh.clients": 60,
    "oncemesh.mqtt": 60,
    "oncemesh.neighbours": 60,
    "oncemesh.notes": 60,
    "oncemesh.security": 60,
}
"""Logger -> lines of a kind in a minute."""
LEAST: Final = {"oncemesh.mqtt": logging.INFO}
"""Logger -> the least of its lines that counts, if it is no warning: who comes back again and again is told of, too."""


class LogLimit(logging.Filter):
    """Of one logger."""

    def __init__(self, most: int, least: int = logging.WARNING) -> None:
        super().__init__()
        self._most = most
        self._least = least
        self._seen: dict[str, int] = {}
        self._last: dict[str, str] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < self._least:
            return True
        kind = str(record.msg)
        self._seen[kind] = self._seen.get(kind, 0) + 1
        if self._seen[kind] <= self._most:
            return True
        self._last[kind] = record.getMessage()
        return False

    def tell(self) -> None:
        """The minute is over."""
        for kind, last in self._last.items():
            log.warning("%d more like this within a minute; the last: %s", self._seen[kind] - self._most, last)
        self._seen.clear()
        self._last.clear()


async def limit_logs() -> None:
    """Until cancelled."""
    limits = {logging.getLogger(name): LogLimit(most, LEAST.get(name, logging.WARNING)) for name, most in MOST.items()}
    for logger, limit in limits.items():
        logger.addFilter(limit)
    try:
        while True:
            await trio.sleep(MINUTE_S)
            for limit in limits.values():
                limit.tell()
    finally:
        for logger, limit in limits.items():
            logger.removeFilter(limit)
            limit.tell()
