"""One AMQP connection, sans-I/O: bytes in, calls of the handler, bytes out.

The contract between a connection and the shell that drives it (`router/amqp/transport.py`, or a test):

1. Bytes from the peer go to `receive`, the end of its stream to `receive_eof`. Both call the handler (see
   `router/amqp/handler.py`) before they return.
2. After that, and after `wake`, the shell writes what `data_to_send` returns. It never calls it inside of a callback:
   proton forgets settled deliveries there, and handles are names of proton's memory.
3. `tick` is called at the instant that the last `tick` named.
4. A `PeerError` out of `receive` or `tick`, or `closed`, ends it: what `data_to_send` still has is written, then the
   shell closes its stream and calls `release`.

Proton dispatches all frames of an input before we see the first event, so a delivery may have moved on several steps
by then: `inbox` reads its state once all events are known, and reports each delivery once.

Never here: a clock, a socket, a decision about deliveries.
"""

from collections.abc import Callable, Mapping
from math import inf
from typing import Any, Final, Protocol, Unpack

from router.amqp.echo import Echoes
from router.amqp.engine import Engine
from router.amqp.errors import FRAMING_ERROR, NOT_ALLOWED, RESOURCE_LIMIT, UNATTACHED_HANDLE, PeerError
from router.amqp.inbox import Inbox, Recipient
from router.amqp.library import (
    lib,
    read_condition,
    read_map,
    text,
    write_condition,
    write_lifetime,
)
from router.amqp.link import Link
from router.amqp.notes import AttachFrame, BeginFrame, FlowFrame, Note, StrayFrame, TransferFrame
from router.amqp.performative import NULL
from router.amqp.restated import Restated
from router.amqp.sasl import SaslClient, SaslLayer, SaslServer
from router.amqp.sessions import Session, Sessions
from router.amqp.tap import Tap
from router.amqp.values import RELEASED, Attach, AttachOptions, ErrorCondition, Handle

UNOPENED_TICK_S: Final = 0.1  # until the peer's open says how long it waits for us


class Owner(Recipient, Protocol):
    """Who is told what happens (`router.amqp.handler` has the meaning)."""

    def on_open(self, connection: "Connection") -> None: ...
    def on_close(self, connection: "Connection", condition: ErrorCondition | None) -> None: ...
    def on_attach(self, link: Link) -> None: ...
    def on_attached(self, link: Link) -> None: ...
    def on_detach(self, link: Link, closed: bool, condition: ErrorCondition | None) -> None: ...
    def on_echo(self, link: Link) -> None: ...


class Connection:
    """See the module's text. `handler` gets the callbacks; `server` answers an open, a client sends it first."""

    def __init__(
        self,
        handler: Owner,
        *,
        container: str,
        server: bool,
        hostname: str | None = None,
        properties: Mapping[str, Any] | None = None,
        max_frame: int = 64 * 1024,
        max_message: int = 16 * 1024 * 1024,
        idle_timeout: float = 0.0,  # seconds of the peer's silence after which it counts as gone; 0: never
        asked: Callable[[Link], None] | None = None,  # the peer asks for an echo; None: the engine answers, at once
    ) -> None:
        self.handler = handler
        self.context: Any = None  # the owner's
        self.remote_container = ""
        self.remote_hostname: str | None = None
        self.remote_properties: Mapping[str, Any] = {}
        self.last_received: float | None = None  # `now` of the last bytes from the peer
        self.closed = False  # over; `on_close` was called
        self.on_wake: Callable[[], None] | None = None  # the shell's
        self._max_message = max_message
        self.closing = False  # `close` was called
        self._remote_open = False
        self._idle_timeout = idle_timeout
        self._first_tick: float | None = None
        self._error: PeerError | None = None
        self.leaving: set[tuple[Any, bool, str]] = set()  # the engine's: places that are free once it is written
        self._postponed: list[Link] = []  # attaches that wait for that
        self._session: Any = None  # of the links that we attach
        self._at_eof = False
        self._sasl: SaslLayer = SaslServer() if server else SaslClient()
        self.can_prove = False  # the shell's, as what follows: whether its stream can tell, see `prove`
        self.proofs: dict[Callable[[], None], None] = {}
        self.settling: set[Handle] = set()  # the engine's: settled by us, not yet forgotten by proton
        self._engine = Engine(container, server, hostname, properties, max_frame, idle_timeout)
        self._noted: BeginFrame | AttachFrame | None = None  # of the event that is being handled
        # The engine's.
        self.tap = Tap(max_frame)
        self._sessions = Sessions(self.tap)
        self._restated = Restated(self._sessions.senders)
        self.echoes = Echoes(self._engine, self.tap, asked)
        self._inbox = Inbox(handler, self.settling, self._restated)

    @property
    def links(self) -> list[Link]:
        """The links that no end has detached, in order of their attach; in `on_close` those that end with it."""
        return self._sessions.attached

    # -- input

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes from the peer. Raises PeerError (after `on_close`) if the peer broke AMQP."""
        self.last_received = now
        if self.closed:
            return
        try:
            if not self._sasl.done:
                data = self._sasl.receive(data)
            if data:
                self._take(data)
        except PeerError as error:
            self._fail(error)
        self._dispatch()

    def _take(self, data: bytes) -> None:
        """What the tap has noted goes in by itself, so that its events can be told from those of other frames."""
        at_once = self._restated.at_once(len(data))
        for piece, start, end, note in self.tap.split(data):
            if note is None:
                self._push(piece, start, end, at_once)
            else:
                self._handle_events()
                self._take_noted(piece, note)
            if self.closed:
                break

    def _push(self, piece: bytes, start: int, end: int, at_once: int) -> None:
        while end - start > at_once:
            self._engine.push(piece, start, start + at_once)
            self._handle_events()
            self._restated.check()
            start += at_once
        self._engine.push(piece, start, end)

    def _take_noted(self, frame: bytes, note: Note) -> None:
        if isinstance(note, FlowFrame | StrayFrame):
            self._inbox.hand_over()
            self._handle_events()  # what the handler did makes events too, but the flow's must be the next
        if isinstance(note, StrayFrame) and self._sessions.is_begun(note.channel):
            self._end_session(note.channel, ErrorCondition(UNATTACHED_HANDLE, f"a transfer on handle {note.handle}"))
            return
        self._engine.push(frame, 0, len(frame))
        match note:
            case FlowFrame():
                self._take_flow(note)
            case BeginFrame() | AttachFrame():
                self._noted = note
            case TransferFrame():
                link = self._link_of_next(_DELIVERY)
                if link is not None and not link.is_sender and not link.ended:
                    link.expect(resumed=note.resumed, message_format=note.format)
        self._handle_events()
        self._noted = None

    def _end_session(self, channel: bytes, condition: ErrorCondition) -> None:
        """The peer broke AMQP in it: its links are over, the connection goes on."""
        session = self._sessions.on_channel(channel)
        if session is None:
            return
        self.tap.end_session(channel)
        self._lose_all(session, condition)
        write_condition(lib.pn_session_condition(session.pointer), condition.name, condition.description)
        lib.pn_session_close(session.pointer)
        if self._session == session.pointer:
            self._session = None

    def _lose_all(self, session: Session, condition: ErrorCondition | None) -> None:
        for link in [link for link in session.links if not link.detached]:
            self._lose(link, False, condition)

    def _take_flow(self, note: FlowFrame) -> None:
        session = self._sessions.on_channel(note.wire[0])
        if note.wire[1] == NULL and session is not None:
            self.echoes.answer_session(session.pointer)
        link = self._link_of_next(_FLOW)
        answered = False
        if link is not None and not link.ended:
            changed = max(0, lib.pn_link_credit(link.pointer)) != link.credit
            answered = self.echoes.take(link, note, changed)
        self._handle_events()
        self._inbox.hand_over()
        if answered and link is not None and not link.ended:
            self.handler.on_echo(link)

    def _link_of_next(self, kind: int) -> Link | None:
        """Whose the next event is, if it is of this kind."""
        event = lib.pn_collector_peek(self._engine.collector)
        is_of_kind = event and lib.pn_event_type(event) == kind
        return self._sessions.links.get(lib.pn_event_link(event)) if is_of_kind else None

    def receive_eof(self) -> None:
        """The peer's stream has ended: `on_close`, unless it was called before."""
        if not self.closed:
            self._at_eof = True
            self._engine.push_end()
            self._dispatch()
            self._finish(None)

    def tick(self, now: float) -> float | None:
        """Idle timeouts, theirs and ours. Returns when to be called again. Raises PeerError on silence."""
        if self.closed:
            return None
        deadline = self._engine.tick(now)
        if not self._remote_open:
            self._await_open(now)
            deadline = min(deadline or inf, now + UNOPENED_TICK_S)
        self._dispatch()
        return deadline

    def _await_open(self, now: float) -> None:
        """Proton's timeouts begin with the peer's open; until then its time is counted from our first tick."""
        self._first_tick = now if self._first_tick is None else self._first_tick
        if self._idle_timeout and now - self._first_tick >= self._idle_timeout:
            self._fail(PeerError(RESOURCE_LIMIT, "no open in time"))

    # -- output

    @property
    def has_output(self) -> bool:
        """Whether there is something to be written that nobody woke the shell for: after a `tick`."""
        return self._sasl.done and self._engine.has_output

    def data_to_send(self) -> bytes:
        """All that is to be written by now."""
        data = b""
        if self._sasl.done:
            data = self.tap.settlements.frames() + self.tap.rewrite(self._engine.pull())
            if self.leaving:
                data += self._attach_postponed()
            data += self.echoes.flows()
        if self._sasl.out:
            data, self._sasl.out = self._sasl.out + data, b""
        self._restated.settled(len(self.settling))
        self.settling.clear()
        self._sessions.free()
        return data

    def postpones(self, link: Link) -> bool:
        """The engine's: proton writes attaches before detaches, but peers take two links of one name for an error. So
        an attach to a place that is not free yet waits for the next output."""
        if link.place in self.leaving:
            self._postponed.append(link)
            return True
        return False

    def _attach_postponed(self) -> bytes:
        self.leaving.clear()
        postponed, self._postponed = self._postponed, []
        for link in postponed:
            link.attach_postponed()
        return self.tap.rewrite(self._engine.pull()) if postponed else b""

    def wake(self) -> None:
        """The owner did something outside of this connection's callbacks: have it flushed. Cheap to repeat."""
        if self.on_wake is not None:
            self.on_wake()

    def prove(self, told: Callable[[], None]) -> None:
        """Have `told` called, like a callback, when it is certain that the peer still had this connection after now, as
        far as its machine's kernel can tell; else never, as for a stream that it cannot tell of. To ask twice before is
        to ask once."""
        self.proofs[told] = None
        self.wake()

    # -- open, close, attach

    def open(self) -> None:
        lib.pn_connection_open(self._engine.connection)

    def close(self, condition: str | None = None, description: str = "") -> None:
        """Begin to close: all links end now, without detaches; `on_close` comes when the peer has closed as well,
        or is gone."""
        if self.closing or self.closed:
            return
        self.closing = True
        for link in self._sessions.links.values():
            link.end()
        write_condition(lib.pn_connection_condition(self._engine.connection), condition, description)
        lib.pn_connection_open(self._engine.connection)
        lib.pn_connection_close(self._engine.connection)

    def sender(self, name: str, target: str, **options: Unpack[AttachOptions]) -> Link:
        """Attach a link that sends to the peer's node `target`."""
        return self._attach(lib.pn_sender, name, target, Attach(**options), self._max_message)

    def receiver(
        self, name: str, source: str, *, max_message_size: int | None = None, **options: Unpack[AttachOptions]
    ) -> Link:
        """Attach a link that receives from the peer's node `source`."""
        max_message = self._max_message if max_message_size is None else max_message_size
        return self._attach(lib.pn_receiver, name, source, Attach(**options), max_message)

    def _attach(
        self, create: Callable[[Any, bytes], Any], name: str, address: str, attach: Attach, max_message: int
    ) -> Link:
        assert not self.closed and not self.closing
        if self._session is None:
            self._session = lib.pn_session(self._engine.connection)
            lib.pn_session_open(self._session)
        pointer = create(self._session, name.encode())
        link = Link(self, pointer, name, max_message)
        self._sessions.add(link)
        for terminus in (lib.pn_link_source(pointer), lib.pn_link_target(pointer)):
            lib.pn_terminus_set_address(terminus, address.encode())
            write_lifetime(terminus, attach.durable, attach.expiry_policy, attach.timeout)
        link.describe(attach.properties, attach.unsettled, attach.incomplete_unsettled)
        link.open(attach.snd_settle_mode, attach.rcv_settle_mode)
        return link

    # -- events

    def _dispatch(self) -> None:
        try:
            if self._error is None:
                self._handle_events()
                self._inbox.hand_over()
                self._restated.check()
        except PeerError as error:
            self._fail(error)
        if self._error is not None:
            raise self._error

    def _handle_events(self) -> None:
        """Transfers, dispositions and flows are gathered (there is no hotter loop), the rest is handled as it comes,
        after what was gathered before it."""
        collector, links, frame = self._engine.collector, self._sessions.links, self._inbox.frame
        peek, pop, type_of = lib.pn_collector_peek, lib.pn_collector_pop, lib.pn_event_type
        link_of, delivery_of = lib.pn_event_link, lib.pn_event_delivery
        while event := peek(collector):
            kind = type_of(event)
            if kind == _DELIVERY:
                link = links.get(link_of(event))
                if link is not None:
                    frame(link, delivery_of(event))
            elif kind == _FLOW:
                link = links.get(link_of(event))
                if link is not None:
                    self._inbox.flow(link)
            elif kind in _RARE and not self.closed:
                self._inbox.hand_over()
                _RARE[kind](self, event)
            pop(collector)

    def _on_remote_open(self, event: Any) -> None:
        if self._remote_open:
            raise PeerError(NOT_ALLOWED, "a second open")
        self._remote_open = True
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
        if not self._at_eof:
            self._error = PeerError(condition.name, condition.description)
        self._finish(None if self._at_eof else condition)

    def _on_tail_closed(self, event: Any) -> None:
        """Proton stops reading without an error at frames that it has no name for."""
        if not self._at_eof:
            raise PeerError(FRAMING_ERROR, "an unknown frame")

    def _on_session_open(self, event: Any) -> None:
        if not self._remote_open:
            raise PeerError(NOT_ALLOWED, "begin before open")
        session = lib.pn_event_session(event)
        self._sessions.begin(session, self._noted.channel if isinstance(self._noted, BeginFrame) else None)
        lib.pn_session_open(session)

    def _on_session_close(self, event: Any) -> None:
        pointer = lib.pn_event_session(event)
        session = self._sessions.of(pointer)
        condition = read_condition(lib.pn_session_remote_condition(pointer))
        if not self.closing:
            self._lose_all(session, condition)
        lib.pn_session_open(pointer)
        lib.pn_session_close(pointer)
        self._sessions.end(session)
        if self._session == pointer:
            self._session = None

    def _on_link_attach(self, event: Any) -> None:
        pointer = lib.pn_event_link(event)
        link = self._sessions.links.get(pointer)
        if link is not None:
            self._on_link_answer(link)
            return
        link = Link(self, pointer, text(lib.pn_link_name(pointer)) or "", self._max_message)
        self._sessions.add(link)
        if self.closing or not self._sessions.of(link.session).is_open:
            link.end()
            return
        link.read_attach(self._noted)
        former = self._sessions.take_left(link.place)
        if link.remote_unsettled is None and not link.remote_incomplete_unsettled:
            link.former = former
        self.handler.on_attach(link)

    def continue_former(self, link: Link, former: Link) -> None:
        """The engine's: what was the deliveries' link is `link` now."""
        self._sessions.continue_former(link, former)
        for pointer in link.continued:
            partial = None if link.is_sender else lib.pn_link_current(pointer)
            if partial:  # its rest will not come
                lib.pn_delivery_update(partial, RELEASED)
                lib.pn_delivery_settle(partial)

    def _on_link_answer(self, link: Link) -> None:
        if not link.ended:
            link.read_attach(self._noted)
            link.answered = True
            self.handler.on_attached(link)

    def _on_link_detach(self, event: Any) -> None:
        self._part(event, closed=False)

    def _on_link_close(self, event: Any) -> None:
        self._part(event, closed=True)

    def _part(self, event: Any, *, closed: bool) -> None:
        link = self._sessions.links.get(lib.pn_event_link(event))
        if link is None:
            return
        link.closed_by_peer = closed
        if not link.detached and not self.closing:
            self._lose(link, closed, link.remote_condition())
            link.leave(None, "", closed)
            if link.context is not None:
                self._sessions.leave(link)
        elif link.detach_answered is not None:
            link.detach_answered()
        self._sessions.part(link)

    def _lose(self, link: Link, closed: bool, condition: ErrorCondition | None) -> None:
        """Not by the owner's doing."""
        link.end()
        link.detached = True
        self.handler.on_detach(link, closed, condition)

    # -- endings

    def expel(self, link: Link, condition: str, description: str) -> None:
        """The engine's: detach a link whose peer broke a limit, and tell the owner. It may be resumed: to break a limit
        is not to close."""
        link.leave(condition, description, closed=False)
        self.handler.on_detach(link, False, ErrorCondition(condition, description))

    def _fail(self, error: PeerError) -> None:
        self._error = error
        write_condition(lib.pn_connection_condition(self._engine.connection), error.condition, error.description)
        lib.pn_connection_open(self._engine.connection)
        lib.pn_connection_close(self._engine.connection)
        self._finish(ErrorCondition(error.condition, error.description))

    def _finish(self, condition: ErrorCondition | None) -> None:
        """The connection is over; what proton still has to say is left to be written."""
        if self.closed:
            return
        self.closed = True
        for link in self._sessions.links.values():
            link.end()
        self.handler.on_close(self, condition)

    def release(self) -> None:
        """Free proton's memory. Nothing may be called after it; the shell's last act."""
        self._finish(None)
        self._sessions.links.clear()
        self._engine.release()


_DELIVERY: Final = lib.PN_DELIVERY
_FLOW: Final = lib.PN_LINK_FLOW
_RARE: Final[Mapping[int, Callable[[Connection, Any], None]]] = {
    lib.PN_CONNECTION_REMOTE_OPEN: Connection._on_remote_open,
    lib.PN_CONNECTION_REMOTE_CLOSE: Connection._on_remote_close,
    lib.PN_SESSION_REMOTE_OPEN: Connection._on_session_open,
    lib.PN_SESSION_REMOTE_CLOSE: Connection._on_session_close,
    lib.PN_LINK_REMOTE_OPEN: Connection._on_link_attach,
    lib.PN_LINK_REMOTE_DETACH: Connection._on_link_detach,
    lib.PN_LINK_REMOTE_CLOSE: Connection._on_link_close,
    lib.PN_TRANSPORT_ERROR: Connection._on_transport_error,
    lib.PN_TRANSPORT_TAIL_CLOSED: Connection._on_tail_closed,
}
