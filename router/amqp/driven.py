"""The contract between a connection, which has no I/O, and the driver of its stream (`router.amqp.transport`); and when
the connections of a process write their output.

A *step* is one call of an engine or a core, with everything that follows from it. No connection writes during a step:
the store may not have the facts yet that the output tells, and proton frees objects that a callback may still use. When
the step ends, each connection with output writes as much as its stream takes at once. No other task runs before that,
so the kernel has the output when the step is over.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol

from router.amqp.format.values import HeldBytes, StreamFigures, Uncounted


class StreamDriver(Protocol):
    """Moves the bytes of one connection."""

    def wake(self) -> None:
        """The connection has something to write."""

    def figures(self) -> StreamFigures | None:
        """What the kernel counts of the stream; None if nothing."""


class _NoDriver:
    """The driver of a connection without a stream."""

    def wake(self) -> None: ...
    def figures(self) -> StreamFigures | None: ...


_NO_DRIVER = _NoDriver()


class DrivenConnection(ABC):
    """A connection of AMQP or MQTT."""

    heartbeat: bytes
    """Bytes that mean nothing, but that the kernel of the peer's machine acknowledges."""

    def __init__(self) -> None:
        self.context: Any = None  # the owner's
        self.account: HeldBytes = Uncounted()  # of messages that the peer has us hold; the owner's, from its open on
        self.remote_container = ""
        self.remote_properties: Mapping[str, Any] = {}
        self.user = ""  # who the peer has proven to be; empty: it may be anybody
        self.last_received: float | None = None  # `now` of the last bytes from the peer
        self.opened = False  # by the peer; of a client of MQTT: it was let in
        self.closing = False  # `close` was called
        self.closed = False  # over; `on_close` was called
        self.origin = ""  # where it comes from, for the log
        self.address = ""  # host and port of the other end
        self.cipher: tuple[str, str, int] | None = None  # of TLS: its name, the protocol, bits of its secret
        self.can_prove = False  # whether its stream can tell, see `prove`
        self.is_behind = False  # the stream did not take at once what was written last
        self.proofs: dict[Callable[[], None], None] = {}
        self._driver: StreamDriver = _NO_DRIVER

    def begin(
        self, driver: StreamDriver, origin: str, address: str, cipher: tuple[str, str, int] | None, *, can_prove: bool
    ) -> None:
        """A stream carries the connection from now on."""
        self._driver, self.can_prove = driver, can_prove
        self.origin, self.address, self.cipher = origin, address, cipher

    def lose_stream(self) -> None:
        """The stream is over."""
        self._driver = _NO_DRIVER

    def wake(self) -> None:
        """The owner did something outside of this connection's callbacks: have it flushed. Cheap to repeat."""
        self._driver.wake()

    def measure(self) -> StreamFigures | None:
        """What the kernel counts of the stream; None if nothing."""
        return self._driver.figures()

    def prove(self, told: Callable[[], None]) -> None:
        """Have `told` called as soon as the kernel of the peer's machine has shown that the peer still had this
        connection after now. If the stream cannot show that, `told` is never called. Asking again meanwhile changes
        nothing."""
        self.proofs[told] = None
        self.wake()

    @property
    def has_failed(self) -> bool:
        """The connection can write no more: the next tick ends it, and must be now."""
        return False

    @property
    @abstractmethod
    def has_output(self) -> bool:
        """Whether the connection has output for which it has not woken the driver: after a `tick`."""

    @abstractmethod
    def receive(self, data: bytes, now: float) -> None: ...
    @abstractmethod
    def receive_eof(self) -> None: ...
    @abstractmethod
    def tick(self, now: float) -> float | None:
        """Returns when to call it next."""

    @abstractmethod
    def data_to_send(self) -> bytes:
        """Returns, and forgets, the output so far."""

    @abstractmethod
    def release(self) -> None: ...


class Writer(Protocol):
    """A driver, as far as it writes."""

    def flush(self) -> None:
        """Write as much output as the stream takes at once. The rest follows when there is room."""

    def rouse(self) -> None:
        """Write the output soon."""


class Outbound:
    """The output of a process, or of one connection. A `with` block is one step."""

    __slots__ = ("_is_stepping", "_woken")

    def __init__(self) -> None:
        self._woken: dict[Writer, None] = {}
        self._is_stepping = False

    def wake(self, writer: Writer) -> None:
        """The writer has output."""
        if self._is_stepping:
            self._woken[writer] = None
        else:
            writer.rouse()

    def __enter__(self) -> None:
        assert not self._is_stepping, "steps follow each other"
        self._is_stepping = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """After an error, which ends the process, nothing is written."""
        self._is_stepping = False
        woken, self._woken = self._woken, {}
        if error is None:
            for writer in woken:
                writer.flush()
