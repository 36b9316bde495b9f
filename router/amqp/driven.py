"""The contract between a connection, which does no I/O, and the driver of its stream (`router.amqp.transport`). Also
decides when the connections of a process write their output.

A *step* is one call of an engine or a core, with everything that follows from it. No connection writes during a step,
for two reasons: the output may state facts that the store does not have yet, and writing makes proton free objects that
a callback may still use. When the step ends, each connection with output writes as much as its stream takes at once. No
other task runs before that, so the kernel has the output when the step is over.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol

from router.amqp.format.values import HeldBytes, StreamFigures, Uncounted


class StreamDriver(Protocol):
    """Moves the bytes of one connection."""

    def wake(self) -> None:
        """Let the driver write the output that the connection has now."""

    def figures(self) -> StreamFigures | None:
        """The kernel's figures of the stream; None if it has none."""


class _NoDriver:
    """Stands in for the driver while a connection has no stream. It does nothing."""

    def wake(self) -> None: ...
    def figures(self) -> StreamFigures | None: ...


_NO_DRIVER = _NoDriver()


class DrivenConnection(ABC):
    """A connection of AMQP or MQTT."""

    heartbeat: bytes
    """Bytes that change nothing at the peer. The driver sends them for `prove`, so that the kernel of the peer's
    machine has something to acknowledge."""

    def __init__(self) -> None:
        self.context: Any = None  # an object of the owner, with the owner's state for this connection
        self.account: HeldBytes = Uncounted()  # counts the bytes of messages held for the peer; the owner sets it
        self.remote_container = ""
        self.remote_properties: Mapping[str, Any] = {}
        self.user = ""  # the user that the peer has proven to be; empty: anonymous
        self.last_received: float | None = None  # the time (`now`) at which the last bytes of the peer arrived
        # True once the peer has opened. In MQTT: once we have accepted the peer's CONNECT.
        self.opened = False
        self.closing = False  # True after a call of `close`
        self.closed = False  # True once the connection has ended and `on_close` was called
        self.origin = ""  # the name of the other end in the log
        self.address = ""  # the host and port of the other end
        # The cipher of TLS: its name, its protocol, and the bits of its secret. None: the connection has no TLS.
        self.cipher: tuple[str, str, int] | None = None
        self.can_prove = False  # whether the stream supports `prove`
        self.is_behind = False  # True if the stream did not take all of the last output at once
        self.proofs: dict[Callable[[], None], None] = {}
        self._driver: StreamDriver = _NO_DRIVER

    def begin(
        self, driver: StreamDriver, origin: str, address: str, cipher: tuple[str, str, int] | None, *, can_prove: bool
    ) -> None:
        """Give the connection its stream."""
        self._driver, self.can_prove = driver, can_prove
        self.origin, self.address, self.cipher = origin, address, cipher

    def lose_stream(self) -> None:
        """Detach the connection from its stream, which has ended."""
        self._driver = _NO_DRIVER

    def wake(self) -> None:
        """Let the driver write the output soon. The owner calls this after it has used the connection outside of its
        callbacks. A repeated call costs little."""
        self._driver.wake()

    def measure(self) -> StreamFigures | None:
        """The kernel's figures of the stream; None if it has none."""
        return self._driver.figures()

    def prove(self, told: Callable[[], None]) -> None:
        """Call `told` once it is proven that the peer still has this connection. The proof: the peer's machine has
        acknowledged bytes that we wrote after this call, and all input that came before the acknowledgement is handled.
        `told` is never called if the stream does not show acknowledgements, or if the connection ends first. Calls with
        the same `told` count as one until the driver begins the proof."""
        self.proofs[told] = None
        self.wake()

    @property
    def has_failed(self) -> bool:
        """Whether the connection has lost the ability to write. The driver then calls `tick` at once, which ends the
        connection."""
        return False

    @property
    @abstractmethod
    def has_output(self) -> bool:
        """Whether the connection has output. The driver reads this after each `tick`, because `tick` does not call
        `wake`."""

    @abstractmethod
    def receive(self, data: bytes, now: float) -> None: ...
    @abstractmethod
    def receive_eof(self) -> None: ...
    @abstractmethod
    def tick(self, now: float) -> float | None:
        """Apply the timeouts. Returns the time of the next call, or None."""

    @abstractmethod
    def data_to_send(self) -> bytes:
        """Take the output so far."""

    @abstractmethod
    def release(self) -> None: ...


class Writer(Protocol):
    """The part of a driver that writes the output."""

    def flush(self) -> None:
        """Write as much output as the stream takes at once. The rest follows when there is room."""

    def request_write(self) -> None:
        """Write the output soon."""


class Outbound:
    """The output of a process, or of one connection. A `with` block is one step."""

    __slots__ = ("_is_stepping", "_woken")

    def __init__(self) -> None:
        self._woken: dict[Writer, None] = {}
        self._is_stepping = False

    def wake(self, writer: Writer) -> None:
        """Let the writer write its output: at the end of the step, or soon if no step is running."""
        if self._is_stepping:
            self._woken[writer] = None
        else:
            writer.request_write()

    def __enter__(self) -> None:
        assert not self._is_stepping, "steps follow each other"
        self._is_stepping = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Write the output of the step. After an error nothing is written, because the error ends the process."""
        self._is_stepping = False
        woken, self._woken = self._woken, {}
        if error is None:
            for writer in woken:
                writer.flush()
