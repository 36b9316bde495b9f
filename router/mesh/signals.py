"""How a router takes signals, which are put off (`router/mesh/stopping.py`) before it does and afterwards."""

import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import trio


@contextmanager
def taken(*numbers: signal.Signals) -> Iterator[AsyncIterator[int]]:
    """Signals as they come, and those that were put off."""
    with trio.open_signal_receiver(*numbers) as signals:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
        try:
            yield signals
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
