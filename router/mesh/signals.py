"""The signals that tell a router process to stop, to drain, or to apply a changed topology; for the processes that send
them and for the routers.

If a signal comes while the router does not handle it, the kernel ends the process. So signals other than STOP are put
off until the router takes them. This module imports nothing slow, because `put_off` has to run first.
"""

import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final

STOP: Final = signal.SIGTERM
STOP_ALL: Final = signal.SIGQUIT
"""Tells a router to stop together with all routers of its mesh."""
DRAIN: Final = signal.SIGUSR1
APPLY: Final = signal.SIGUSR2
"""Tells a router that its mesh is to match the topology in its run directory."""

STOP_S: Final = 5.0
"""A router has this many seconds to end after a stop signal."""
DRAIN_S: Final = 10.0
"""A draining router waits this many seconds for other routers to take its clients."""

_early: Final[set[int]] = set()
"""Signals that have arrived and that `arrivals` has not yielded yet."""


def put_off() -> None:
    """Collect signals until `taken` handles them. The router calls this at the very beginning of its process. Child
    processes do not inherit the handlers."""
    for number in (STOP_ALL, DRAIN, APPLY, signal.SIGHUP):
        signal.signal(number, lambda number, _: _early.add(number))


@contextmanager
def taken(*numbers: signal.Signals) -> Iterator[AsyncIterator[int]]:
    """Yield the signals as they come. A signal that was put off comes again."""
    import trio

    with trio.open_signal_receiver(*numbers) as signals:
        for number in _early.intersection(numbers):
            _early.discard(number)
            signal.raise_signal(number)
        yield signals
