"""How a router process is told to end, at once or when its clients have moved to other routers, and to follow a changed
topology. For who asks and who obeys.

A signal may come before the router can take it, and when it takes none any more: the kernel's answer is to end the
process. A signal that does not ask for that at once waits instead. It loads nothing that takes long, as `put_off` comes
first.
"""

import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final

STOP: Final = signal.SIGTERM
DRAIN: Final = signal.SIGUSR1
APPLY: Final = signal.SIGUSR2
"""Tells a router that the topology in its run directory is what its mesh is to be."""

STOP_S: Final = 5.0
"""For which whoever asked a router to stop waits for its end."""
DRAIN_S: Final = 10.0
"""For which a draining router waits for its clients to be attached elsewhere."""

_early: Final[set[int]] = set()
"""Signals that have come and were not taken."""


def put_off() -> None:
    """At the very beginning of a router's process: its children, if it has any, have no part in this."""
    for number in (DRAIN, APPLY, signal.SIGHUP):
        signal.signal(number, lambda number, _: _early.add(number))


@contextmanager
def taken(*numbers: signal.Signals) -> Iterator[AsyncIterator[int]]:
    """The signals as they come. One that was put off comes again."""
    import trio

    with trio.open_signal_receiver(*numbers) as signals:
        for number in _early.intersection(numbers):
            _early.discard(number)
            signal.raise_signal(number)
        yield signals
