"""How a router takes signals: as they come, and those that were put off (`router.mesh.stopping`)."""

import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import trio

from router.mesh.stopping import early


@contextmanager
def taken(*numbers: signal.Signals) -> Iterator[AsyncIterator[int]]:
    """What has come of these before is to come again."""
    with trio.open_signal_receiver(*numbers) as signals:
        for number in early.intersection(numbers):
            early.discard(number)
            signal.raise_signal(number)
        yield signals
