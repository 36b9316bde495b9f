"""One AMQP connection, sans-I/O: bytes in, calls of the handler, bytes out.

The contract between a connection and the shell that drives it (`router/amqp/transport.py`, or a test):

1. The shell passes bytes from the peer to `receive`, and calls `receive_eof` at the end of the peer's stream. Each of
   these methods calls the handler (see `router/amqp/handler.py`) before it returns.
2. After each of these calls, and after `wake`, the shell writes the bytes that `data_to_send` returns. The shell never
   calls `data_to_send` inside a callback: in `data_to_send` proton frees settled deliveries, and a handle is an address
   in proton's memory.
3. The shell calls `tick` at the time that the last `tick` returned, and when the peer has opened, because the open has
   the peer's idle timeout.
4. After an `AmqpError` from `receive` or `tick`, or when `closed` is set, the shell writes the output that
   `data_to_send` still has, closes its stream, and calls `release`.

Proton reads all frames of an input before the connection sees the first event of the input. By then the state of a
delivery may have changed several times. `inbox` reads the state when all events are known, and reports each delivery
once.

An exception of the engine ends its connection and never the process (`fault_of`). An exception of an owner is passed on
to the caller.

The connection has no clock and no socket, and decides nothing about deliveries.
"""

import logging
from collections.abc import Callable, Mapping
from math import inf
from sys import stdlib_module_names
from traceback import walk_tb
from typing import Any, Final, Protocol, Unpack

from router.amqp.driven import DrivenConnection
from router.amqp.endpoints import Endpoints, LinkOwner
from router.amqp.format.errors import (
    FRAMING_ERROR,
    INTERNAL_ERROR,
    NOT_ALLOWED,
    OF_PROTON,
    SILENCE_OF_PROTON,
    AmqpError,
    LimitError,
)
from router.amqp.format.values import (
    HEARTBEAT,
    Attach,
    AttachOptions,
    Bounds,
    ErrorCondition,
    Handle,
)
from router.amqp.frames.echo import Echoes, LinkStates
from router.amqp.frames.tap import Tap
from router.amqp.inbox import Inbox, Recipient
from router.amqp.intake import Intake
from router.amqp.output import Output
from router.amqp.proton.deliveries import LinkDeliveries
from router.amqp.proton.engine import Engine
from router.amqp.proton.library import (
    lib,
    read_condition,
    read_map,
    text,
)
from router.amqp.proton.link import Link
from router.amqp.proton.restated import Restated
from router.amqp.sasl.client import SaslClient
from router.amqp.sasl.layer import SaslLayer
from router.amqp.sasl.server import SaslServer
from router.amqp.sessions import Sessions

log = logging.getLogger("oncemesh.amqp")

_ENGINE: Final = "router.amqp."


class Owner(LinkOwner, Recipient, LinkStates, Protocol):
    """Receives the events of the connection (`router.amqp.handler` describes them)."""

    def on_open(self, connection: "Connection") -> None: ...
    def on_close(self, connection: "Connection", condition: ErrorCondition | None) -> None: ...
    def on_echo(self, link: Link) -> None: ...


class Connection(DrivenConnection):
    """One AMQP connection. `handler`: gets the callbacks. `server`: the peer sends its open first, and we answer."""

    def __init__(
        self,
        handler: Owner,
        *,
        container: str,
        server: bool,
        hostname: str | None = None,
        properties: Mapping[str, Any] | None = None,
        offers: str = "",  # the capability that our open frame offers to the peer
        max_frame: int = 64 * 1024,
        max_message: int = 16 * 1024 * 1024,
        # A peer that is silent for this many seconds counts as gone; 0: never.
        idle_timeout: float = 0.0,
        # The engine calls this when the peer asks for an echo. None: the engine answers at once.
        asked: Callable[[Link], None] | None = None,
        # Without a SASL layer (None), the peer stays anonymous.
        sasl: SaslLayer | None = None,
        bounds: Bounds = Bounds(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__()
        self.handler = handler
        self.protocol = "amqp"
        self.heartbeat = HEARTBEAT
        self.remote_hostname: str | None = None
        self._max_message = max_message
        self._idle_timeout = idle_timeout
        self._opening = idle_timeout if bounds.opening is None else bounds.opening
        self._first_tick: float | None = None
        self.error: AmqpError | None = None  # the peer's fault that has ended the connection
        self._released = False
        self._at_eof = False
        self._sasl: SaslLayer = sasl or (SaslServer() if server else SaslClient())
        # Only the engine uses this attribute: the deliveries that we have settled and proton has not freed.
        self.settling: set[Handle] = set()
        self._engine = Engine(container, server, hostname, properties, max_frame, idle_timeout, offers)
        # The engine alone uses the attributes from here on.
        self.tap = Tap(max_frame, bounds.unsettled)
        self._sessions = Sessions(self.tap, bounds)
        self._restated = Restated(self._sessions.senders)
        self.echoes = Echoes(self._engine, self.tap, handler, asked)
        self._endpoints = Endpoints(self, handler, self._sessions, self.tap, max_message, self._engine.push_frame)
        self._inbox = Inbox(self, handler, self.settling, self._restated)
        self._output = Output(
            self, self._engine, self.tap, self._sessions, self._endpoints, self.echoes, self._restated
        )
        self._intake = Intake(
            handler,
            self._engine,
            self.tap,
            self._sessions,
            self._endpoints,
            self.echoes,
            self._inbox,
            self._restated,
            lambda kind, event: _EVENTS[kind](self, event),
            self._output.flush,
        )

    @property
    def links(self) -> list[Link]:
        """The attached links that no end has detached, in order of their attach. In `on_close`, the links that end with
        the connection. Empty after `release`."""
        return self._sessions.attached if not self._released else []

    @property
    def mechanism(self) -> str:
        """The SASL mechanism that the peer chose; empty if none."""
        return self._sasl.mechanism

    # -- The methods from here on take input.

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes from the peer. If the peer broke AMQP, calls `on_close` and raises AmqpError."""
        self.last_received = now
        if self.closed:
            return
        try:
            if not self._sasl.over:
                data = self._sasl.receive(data)
                self.user = self._sasl.user
            if data:
                self._take(data)
        except Exception as error:
            self._fail(fault_of(error))
        self._dispatch()

    def _take(self, data: bytes) -> None:
        self._intake.take(data)

    def receive_eof(self) -> None:
        """The peer's stream has ended. Calls `on_close`, unless it was called before."""
        if not self.closed:
            self._at_eof = True
            self._engine.push_end()
            self._dispatch()
            self._finish(None)

    def tick(self, now: float) -> float | None:
        """Apply the idle timeouts of both ends. Returns the time of the next call. Raises AmqpError if the peer was
        silent."""
        if self.closed:
            return None
        deadline = self._engine.tick(now)
        if not self.opened and self._opening:
            deadline = min(deadline or inf, self._await_open(now))
        self._dispatch()
        return deadline

    def _await_open(self, now: float) -> float:
        """End the connection if the peer sends no open in time. Returns the deadline, which counts from our first tick.
        Proton's own timeouts begin with the peer's open."""
        self._first_tick = now if self._first_tick is None else self._first_tick
        deadline = self._first_tick + self._opening
        if now >= deadline:
            self._fail(LimitError("opening", "the peer sent no open in time"))
        return deadline

    # -- The methods from here on make output.

    @property
    def has_output(self) -> bool:
        return self._sasl.done and self._engine.has_output

    def data_to_send(self) -> bytes:
        data = self._take_output() if self._sasl.done else b""
        if self._sasl.out:
            data, self._sasl.out = self._sasl.out + data, b""
        return data

    def _take_output(self) -> bytes:
        try:
            return self._output.take()
        except Exception as error:
            self._output.failure = fault_of(error)
            # After the end of the connection, the output is our close frame.
            return self._output.take()

    @property
    def has_failed(self) -> bool:
        """Whether the engine has failed while it wrote output."""
        return self._output.failure is not None and not self.closed

    # -- The methods from here on open and close the connection, and attach links.

    def open(self) -> None:
        lib.pn_connection_open(self._engine.connection)

    def close(self, condition: str | None = None, description: str = "") -> None:
        """Begin to close the connection. All links end now, without detaches. The connection calls `on_close` when the
        peer has closed as well, or is gone."""
        if self.closing or self.closed:
            return
        self.closing = True
        for link in self._sessions.links.values():
            link.end()
        self._say_close(condition, description)

    def _say_close(self, condition: str | None, description: str) -> None:
        self._output.farewell(condition, description)
        lib.pn_connection_open(self._engine.connection)
        lib.pn_connection_close(self._engine.connection)

    def refuse(self, condition: str, description: str) -> None:
        """Close a connection that we have not opened, without our container-id and properties."""
        self._withhold()
        self.close(condition, description)

    def _withhold(self) -> None:
        lib.pn_connection_set_container(self._engine.connection, b"")
        lib.pn_data_clear(lib.pn_connection_properties(self._engine.connection))
        lib.pn_data_clear(lib.pn_connection_offered_capabilities(self._engine.connection))

    def sender(self, name: str, target: str, **options: Unpack[AttachOptions]) -> Link:
        """Attach a link that sends to the peer's node `target`."""
        attach = Attach(**options)
        return self._endpoints.attach(self._engine.connection, lib.pn_sender, name, target, attach, self._max_message)

    def receiver(
        self, name: str, source: str, *, max_message_size: int | None = None, **options: Unpack[AttachOptions]
    ) -> Link:
        """Attach a link that receives from the peer's node `source`. If `source` is empty, the peer creates a dynamic
        node."""
        max_message = self._max_message if max_message_size is None else max_message_size
        attach = Attach(**options)
        return self._endpoints.attach(self._engine.connection, lib.pn_receiver, name, source, attach, max_message)

    # -- The connection's links call the methods from here on.

    def expel(self, link: Link, condition: str, description: str, limit: str = "") -> None:
        self._endpoints.expel(link, condition, description, limit)

    def postpones(self, link: Link) -> bool:
        return self._endpoints.postpones(link)

    def leaves(self, link: Link) -> None:
        self._endpoints.leaves(link)

    def continue_former(self, link: Link, former: Link) -> None:
        self._endpoints.continue_former(link, former)

    def announce(self, link: Link) -> int:
        return self.tap.additions.announce(link)

    def resumes(self, link: LinkDeliveries, tag: bytes, aborted: bool) -> None:
        self.tap.additions.resume(link, tag, aborted)

    def has_envelope(self, link: LinkDeliveries, tag: bytes, message: bytes) -> None:
        self.tap.additions.envelope(link, tag, message)

    def ask_echo(self, link: Link) -> None:
        self.echoes.ask(link)

    def answer_echo(self, link: Link) -> None:
        self.echoes.answer(link)

    def answer_drain(self, link: Link) -> None:
        self.echoes.answer_drain(link)

    # -- The methods from here on handle events of proton.

    def _dispatch(self) -> None:
        try:
            if self.error is None:
                self._intake.handle_events()
                self._inbox.hand_over()
                self._restated.check()
                if self._output.failure is not None and not self.closed:
                    raise self._output.failure
        except Exception as error:
            self._fail(fault_of(error))
        if self.error is not None:
            raise self.error

    def _on_remote_open(self, event: Any) -> None:
        if self.opened:
            raise AmqpError(NOT_ALLOWED, "the peer sent a second open")
        self.opened = True
        self.remote_container = text(lib.pn_connection_remote_container(self._engine.connection)) or ""
        self.remote_hostname = text(lib.pn_connection_remote_hostname(self._engine.connection))
        self.remote_properties = read_map(lib.pn_connection_remote_properties(self._engine.connection))
        self.handler.on_open(self)

    def _on_remote_close(self, event: Any) -> None:
        self._finish(read_condition(lib.pn_connection_remote_condition(self._engine.connection)))
        lib.pn_connection_open(self._engine.connection)
        lib.pn_connection_close(self._engine.connection)

    def _on_transport_error(self, event: Any) -> None:
        condition = read_condition(lib.pn_transport_condition(self._engine.transport))
        assert condition is not None
        if self._at_eof:
            self._finish(None)
        else:
            is_silent = condition.description == SILENCE_OF_PROTON
            why = f"the peer was silent for {self._idle_timeout:g} s" if is_silent else condition.description
            raise AmqpError(OF_PROTON.get(condition.name, condition.name), why)

    def _on_tail_closed(self, event: Any) -> None:
        """Raise AmqpError if the peer's stream has not ended: then proton has stopped at a frame of an unknown type,
        for which proton reports no error."""
        if not self._at_eof:
            raise AmqpError(FRAMING_ERROR, "the peer sent a frame of an unknown type")

    # -- The methods from here on end the connection.

    def _fail(self, error: AmqpError) -> None:
        self.error = error
        if not self.opened:
            self._withhold()
        self._say_close(error.condition, error.description)
        self._finish(ErrorCondition(error.condition, error.description))

    def _finish(self, condition: ErrorCondition | None) -> None:
        """End the connection, and call `on_close`. Proton's remaining output is still to be written."""
        if self.closed:
            return
        self.closed = self._intake.over = True
        for link in self._sessions.links.values():
            link.end()
        self.handler.on_close(self, condition)

    def release(self) -> None:
        """Free proton's memory. This is the last call of the shell. Only `links` may be read afterwards."""
        self._finish(None)
        self._released = True
        self._sessions.release()
        self._engine.release()
        self.proofs.clear()
        # The parts of a connection refer to it, directly or through links.
        # Delete the references: otherwise Python frees this cycle only when it searches for cycles.
        del self.tap, self.echoes, self._endpoints
        del self._sessions, self._restated, self._inbox, self._output, self._intake
        error: BaseException | None = self.error
        # Drop the traceback of the error, because it would keep the last input in memory.
        while error is not None:
            error.__traceback__, error = None, error.__context__


def fault_of(error: Exception) -> AmqpError:
    """Returns the AMQP error that ends a connection whose engine raised `error`. An error of the engine itself is
    logged with its traceback. Raises `error` again if the traceback has code of an owner, because the owner's state may
    be half changed."""
    if isinstance(error, AmqpError):
        return error
    for frame, _ in walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__"))
        if not module.startswith(_ENGINE) and module.partition(".")[0] not in stdlib_module_names:
            raise error
    log.error("the AMQP engine failed", exc_info=error)
    return AmqpError(INTERNAL_ERROR, f"the AMQP engine failed: {type(error).__name__}: {error}")


_EVENTS: Final[Mapping[int, Callable[[Connection, Any], None]]] = {
    lib.PN_CONNECTION_REMOTE_OPEN: Connection._on_remote_open,
    lib.PN_CONNECTION_REMOTE_CLOSE: Connection._on_remote_close,
    lib.PN_TRANSPORT_ERROR: Connection._on_transport_error,
    lib.PN_TRANSPORT_TAIL_CLOSED: Connection._on_tail_closed,
}
