"""Gives the bytes of a peer to proton, and proton's events to the objects that they concern.

Proton reads all frames of an input before we see the first event. So a frame with a note of the tap goes in alone: then
its events cannot be mistaken for events of other frames.

The receivers of the events decide what follows from them.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from router.amqp.endpoints import Endpoints
from router.amqp.format.errors import INVALID_FIELD, NO_ACQUISITION, NOT_IMPLEMENTED
from router.amqp.format.notes import (
    AttachFrame,
    BeginFrame,
    FlowFrame,
    LaterDisposition,
    Note,
    SessionError,
    TransactionalDisposition,
    TransferFrame,
    UnnamedFrame,
)
from router.amqp.format.performative import NULL, parse
from router.amqp.format.values import ErrorCondition
from router.amqp.frames.echo import Echoes
from router.amqp.frames.fields import acquires, number_of
from router.amqp.frames.tap import Tap
from router.amqp.inbox import Inbox
from router.amqp.proton.engine import Engine
from router.amqp.proton.library import lib
from router.amqp.proton.link import Link
from router.amqp.proton.restated import Restated
from router.amqp.sessions import Sessions

_DELIVERY: Final = lib.PN_DELIVERY
_FLOW: Final = lib.PN_LINK_FLOW


class EchoOwner(Protocol):
    def on_echo(self, link: Link) -> None: ...


class Intake:
    """Gives the input of one connection to proton."""

    def __init__(
        self,
        owner: EchoOwner,
        engine: Engine,
        tap: Tap,
        sessions: Sessions,
        endpoints: Endpoints,
        echoes: Echoes,
        inbox: Inbox,
        restated: Restated,
        on_connection: Callable[[int, Any], None],
        flush: Callable[[Sequence[Any]], bytes],
    ) -> None:
        """`on_connection`: called with the events of the connection itself, as the kind and proton's event. `flush`:
        takes the output from proton, with a flow of each given session at its end, and returns it."""
        self._owner = owner
        self._engine = engine
        self._tap = tap
        self._sessions = sessions
        self._endpoints = endpoints
        self._echoes = echoes
        self._inbox = inbox
        self._restated = restated
        self._on_connection = on_connection
        self._flush = flush
        # The note of the frame whose events are being handled.
        self._noted: BeginFrame | AttachFrame | None = None
        self.over = False  # True once the connection has ended; the rest of the input is dropped

    def take(self, data: bytes) -> None:
        at_once = self._restated.at_once(len(data))
        for piece, start, end, note in self._tap.split(data):
            if note is None:
                self._push(piece, start, end, at_once)
            else:
                # One of the events may be the peer's close.
                self.handle_events()
                if not self.over:
                    self._take_noted(piece, note)
            if self.over:
                break

    def _push(self, piece: bytes, start: int, end: int, at_once: int) -> None:
        while end - start > at_once:
            self._engine.push(piece, start, start + at_once)
            self.handle_events()
            self._restated.check()
            start += at_once
        self._engine.push(piece, start, end)

    def _take_noted(self, frame: bytes, said: Note) -> None:
        note = self._named(said) if isinstance(said, UnnamedFrame) else said
        if isinstance(note, TransferFrame) and note.format:
            self._check_format(frame, note.format)
        if isinstance(note, FlowFrame | SessionError):
            self._inbox.hand_over()
            # Handle the events that the handler's calls cause, because the next event has to be the event of this flow.
            self.handle_events()
        elif isinstance(note, LaterDisposition | TransactionalDisposition):
            # The handler gets the states of the deliveries before this frame changes them.
            self._inbox.hand_over()
        elif note is not None and self._endpoints.is_behind(note):
            self._inbox.hand_over()
            self._take_output([])
        if isinstance(note, SessionError) and self._sessions.is_begun(note.channel):
            self._endpoints.end_session(note.channel, ErrorCondition(note.condition, note.what))
            self.handle_events()
            return
        if isinstance(note, FlowFrame) and note.lowers:
            frame = self._lowered(frame, note)
        self._engine.push(frame, 0, len(frame))
        match note:
            case FlowFrame():
                self._take_flow(note)
            case BeginFrame() | AttachFrame():
                self._noted = note
            case TransferFrame():
                link = self._link_of_next(_DELIVERY)
                if note.transactional:
                    # Hand over the earlier transfers first, because they are valid.
                    self._inbox.hand_over()
                if link is not None and not link.is_sender and not link.ended:
                    link.expect(resumed=note.resumed, message_format=note.format)
        self.handle_events()
        self._noted = None
        if isinstance(note, TransactionalDisposition):
            self._inbox.hand_over_outcomes(note)

    def _named(self, note: UnnamedFrame) -> TransferFrame | SessionError | None:
        """The note of a transfer without delivery-id or delivery-tag. The transfer is valid if it continues a delivery.
        If it begins one, it breaks AMQP, and proton would invent the missing name: then the session ends if the id is
        missing, or the link is detached if the tag is missing."""
        link = self._tap.flows.ends.get((note.channel, note.handle))
        if link is None or link.is_sender or link.ended or link.is_amid_delivery:
            return note.transfer
        what = f"the first transfer of a delivery lacks its {note.lacks}"
        if note.lacks == "delivery-id":
            return SessionError(note.channel, INVALID_FIELD, what)
        # Hand over the earlier transfers first, because they are valid.
        self._inbox.hand_over()
        if not link.ended:
            self._endpoints.expel(link, INVALID_FIELD, what)
        return note.transfer

    def _check_format(self, frame: bytes, message_format: int) -> None:
        """Detach the link of a transfer that names another message-format than the first transfer of its delivery
        (AMQP 1.0 2.7.5)."""
        handle = number_of(parse(frame).fields, 0) or 0
        link = self._tap.flows.ends.get((frame[6:8], handle))
        if link is None or link.is_sender or link.ended or not link.is_amid_delivery or link.format == message_format:
            return
        # Hand over the earlier transfers first, because they are valid.
        self._inbox.hand_over()
        if not link.ended:
            what = f"the message-format is {link.format} in the first transfer of a delivery, and then {message_format}"
            self._endpoints.expel(link, INVALID_FIELD, what)

    def _take_flow(self, note: FlowFrame) -> None:
        session = self._sessions.on_channel(note.wire[0])
        if note.wire[1] == NULL and session is not None:
            self._echoes.answer_session(session.pointer)
        link = self._link_of_next(_FLOW)
        answered = False
        if link is not None and link.is_sender and not link.ended and acquires(note.properties):
            self._endpoints.expel(link, NOT_IMPLEMENTED, NO_ACQUISITION)
        if link is not None and not link.ended:
            link.is_vast = note.is_vast
            changed = link.read_credit() != link.credit
            answered = self._echoes.take(link, note, changed)
        self.handle_events()
        self._inbox.hand_over()
        if note.drain and link is not None and link.is_sender and not link.draining:
            self._echoes.answer_drain(link)
        if answered and link is not None and not link.ended:
            self._owner.on_echo(link)

    def _lowered(self, frame: bytes, note: FlowFrame) -> bytes:
        """The flow that proton gets in place of a flow that lowers credit or room. Its amounts are reduced by the
        transfers that are under way."""
        session = self._sessions.on_channel(note.wire[0])
        if session is None:
            return frame
        # Take proton's output, so that proton writes all messages for which there was credit and room.
        # The flow at the end of the output names the transfer-id of the last one.
        return self._tap.flows.lowered(frame, note, self._take_output([session.pointer]))

    def _take_output(self, asked: Sequence[Any]) -> bytes:
        """Take proton's output, with flows of the sessions `asked` at its end. This causes events, which are handled
        here, because proton must have no other events when it gets the next frame."""
        data = self._flush(asked)
        self.handle_events()
        self._inbox.hand_over()
        return data

    def _link_of_next(self, kind: int) -> Link | None:
        """The link that the next event concerns, if the event is of this kind."""
        event = lib.pn_collector_peek(self._engine.collector)
        is_of_kind = event and lib.pn_event_type(event) == kind
        return self._sessions.links.get(lib.pn_event_link(event)) if is_of_kind else None

    def handle_events(self) -> None:
        """Gather transfers, dispositions and flows (no loop is hotter). Handle every other event as it comes, after the
        batches before it."""
        collector, links, gather = self._engine.collector, self._sessions.links, self._inbox.gather
        peek, pop, type_of = lib.pn_collector_peek, lib.pn_collector_pop, lib.pn_event_type
        link_of = lib.pn_event_link
        while event := peek(collector):
            kind = type_of(event)
            if kind == _DELIVERY:
                link = links.get(pointer := link_of(event))
                if link is not None:
                    if gather(link, pointer, collector):
                        continue
                    self._inbox.frame(link, lib.pn_event_delivery(event))
            elif kind == _FLOW:
                link = links.get(link_of(event))
                if link is not None:
                    self._inbox.flow(link)
            elif kind in _RARE and not self.over:
                self._inbox.hand_over()
                self._handle_rare(kind, event)
            pop(collector)

    def _handle_rare(self, kind: int, event: Any) -> None:
        endpoints = self._endpoints
        if kind == lib.PN_LINK_REMOTE_OPEN:
            endpoints.attached(lib.pn_event_link(event), self._noted if isinstance(self._noted, AttachFrame) else None)
        elif kind in (lib.PN_LINK_REMOTE_DETACH, lib.PN_LINK_REMOTE_CLOSE):
            endpoints.detached(lib.pn_event_link(event), closed=kind == lib.PN_LINK_REMOTE_CLOSE)
        elif kind == lib.PN_SESSION_REMOTE_OPEN:
            endpoints.begin(lib.pn_event_session(event), self._noted if isinstance(self._noted, BeginFrame) else None)
        elif kind == lib.PN_SESSION_REMOTE_CLOSE:
            endpoints.end(session := lib.pn_event_session(event))
            self._echoes.forget_session(session)
        else:
            self._on_connection(kind, event)


_RARE: Final = frozenset(
    {
        lib.PN_CONNECTION_REMOTE_OPEN,
        lib.PN_CONNECTION_REMOTE_CLOSE,
        lib.PN_SESSION_REMOTE_OPEN,
        lib.PN_SESSION_REMOTE_CLOSE,
        lib.PN_LINK_REMOTE_OPEN,
        lib.PN_LINK_REMOTE_DETACH,
        lib.PN_LINK_REMOTE_CLOSE,
        lib.PN_TRANSPORT_ERROR,
        lib.PN_TRANSPORT_TAIL_CLOSED,
    }
)
