"""The last lines of the router's log, kept for `$management`."""

import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final

from router.management.bounds import bounded
from router.text.printable import printable

MOST_LINES: Final = 500


class RecentLog(logging.Handler):
    """The lines in the form of qpid-dispatch: module, level, text, file, line of the file, seconds since 1970."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._lines: deque[list[Any]] = deque(maxlen=MOST_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        text = bounded(printable(record.getMessage()))
        self._lines.append([record.name, record.levelname.lower(), text, None, None, record.created])

    def last(self, count: int) -> list[list[Any]]:
        return list(islice(self._lines, max(0, len(self._lines) - count), None))

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Record the lines of the router's log while this context is entered."""
        logger = logging.getLogger("oncemesh")
        logger.addHandler(self)
        try:
            yield
        finally:
            logger.removeHandler(self)
