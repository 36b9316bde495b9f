"""Limits the log lines that strangers can cause. Otherwise a peer that the router refuses again and again would fill
the disk.

Two warnings are of the same *kind* if their texts differ only in the arguments. In each minute the router writes a
limited number of warnings of a kind. It counts the others. At the end of the minute it logs their number and the text
of the last one. `MOST` lists the loggers that strangers can cause to log. The router always logs news of itself and of
other routers.
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
"""Maps a logger to the number of lines of one kind that it may write in a minute."""
LEAST: Final = {"oncemesh.mqtt": logging.INFO}
"""Maps a logger to the lowest level that is limited; WARNING for all other loggers. Clients that come back again and
again also cause lines of this lower level."""


class LogLimit(logging.Filter):
    """Limits the lines of one logger."""

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
        """Log the numbers of suppressed lines; called at the end of each minute."""
        for kind, last in self._last.items():
            log.warning("%d more like this within a minute; the last: %s", self._seen[kind] - self._most, last)
        self._seen.clear()
        self._last.clear()


async def limit_logs() -> None:
    """Limit the loggers in `MOST`, until cancelled."""
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
