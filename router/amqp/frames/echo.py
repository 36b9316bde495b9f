"""Asks the peer for an echo of a link's flow state, and answers the peer's echoes (AMQP 1.0 2.7.4).

AMQP does not say which flow answers which echo, and a flow that the peer sent before it read our echo may still be
under way. So only these flows count as an answer:

- On a sending link, a flow that does not change the link's credit. After a flow that changes it, we ask again.
- On a receiving link, where the answer is a sign of life, a flow that shows all the credit that we had given when we
  asked. The peer has no other reason to send a flow there (docs/clients.md), and we ask again only after an answer, so
  an answer never belongs to an older echo. If we have taken credit back, a flow does not show which credit the peer has
  read, so no flow counts as an answer.

Our flow carries the link properties of the owner, if it has some (2.7.4, `LinkStates`).

The engine answers the peer at once, unless the owner gives the answers itself (`Connection`, `asked`). On a sending
link, an answer promises that the owner still uses the link, and that even after a crash it will remember what it has
read before.

Proton can neither ask nor answer. This module makes proton write a flow with the session's numbers, and changes this
flow into the echo or the answer.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

from router.amqp.format import performative
from router.amqp.format.codec import Symbol, decode, encode, uint
from router.amqp.format.notes import FlowFrame, Wire
from router.amqp.format.performative import FLOW, NULL, TRUE
from router.amqp.frames.bounds import LARGE
from router.amqp.frames.flows import AVAILABLE, DELIVERY_COUNT, ECHO, HANDLE, LINK_CREDIT
from router.amqp.frames.tap import Tap
from router.amqp.proton.engine import Engine
from router.amqp.proton.library import lib
from router.amqp.proton.link import Link

_LEAST: Final = 14  # the least size of a flow frame, in bytes


class LinkStates(Protocol):
    """The owner of a connection, which may have link properties for our flows."""

    def state_of(self, link: Link) -> Mapping[str, int] | None:
        """The link properties for a flow of ours on this link, or None."""


class Echoes:
    """The echoes of one connection."""

    def __init__(self, engine: Engine, tap: Tap, owner: LinkStates, asked: Callable[[Link], None] | None) -> None:
        """`asked`: called when the peer sends an echo, if the owner itself answers later (`answer`). If it is None, the
        engine answers at once."""
        self._engine = engine
        self._owner = owner
        self._tap = tap
        self._asked = asked
        # The links for which flows are to be written, each with whether its flow asks for an echo.
        self._to_send: dict[tuple[Link, bool], None] = {}
        # Sessions whose flow state the peer has asked for.
        self._sessions: dict[Any, None] = {}
        # Links that give their credit back once their messages are written.
        self._drained: dict[Link, None] = {}

    def ask(self, link: Link) -> None:
        self._tap.asked[link] = None
        self._tap.quiet.clear()
        self._to_send[link, True] = None

    def answer(self, link: Link) -> None:
        self._to_send[link, False] = None

    def answer_drain(self, link: Link) -> None:
        self._drained[link] = None

    def answer_session(self, session: Any) -> None:
        """The peer has asked for the flow state of a session, not of a link."""
        self._sessions[session] = None

    def forget_session(self, session: Any) -> None:
        """Forget a session that has ended."""
        self._sessions.pop(session, None)

    def take(self, link: Link, flow: FlowFrame, changed: bool) -> bool:
        """Handle a flow of the peer on a link. Returns whether the flow answers our echo. `changed`: whether the flow
        changed the link's credit."""
        asked = self._tap.asked
        if link.is_sender and flow.properties != NULL and len(flow.properties) <= LARGE:
            link.told = flow.properties
        # A flow with which the peer asks for an echo is no answer to our echo.
        if flow.echo:
            (self._asked or self.answer)(link)
            return False
        if link not in asked:
            self._tap.quiet.add(flow.wire)
            return False
        if link.is_sender and changed:
            self.ask(link)
            return False
        if not link.is_sender and (link.took_back or not _knows(flow.limit, asked[link])):
            return False
        del asked[link]
        return True

    def flows(self) -> bytes:
        """The flows that are to be written now. The caller has taken all other output from proton, and writes it
        first."""
        said = self._give_back() if self._drained else b""
        if not self._to_send and not self._sessions:
            return said
        to_send, self._to_send = self._to_send, {}
        sessions, self._sessions = self._sessions, {}
        receivers: dict[Wire, list[tuple[Link, bool]]] = {}
        senders: dict[Wire, list[tuple[Link, bool]]] = {}
        for link, asks in to_send:
            if not link.ended and not link.wire[0]:
                # The flow of a link waits until the attach of the link is written.
                self._to_send[link, asks] = None
            elif link.is_sender and not link.ended and link.wire[0]:
                senders.setdefault((link.wire[0], NULL), []).append((link, asks))
                sessions[link.session] = None
            elif not link.ended and link.wire[0]:
                receivers.setdefault(link.wire, []).append((link, asks))
        data = self._engine.pull_session_flows(sessions) if sessions else b""
        flows = [said, *self._made_ours(data, senders)]
        if receivers:
            data = self._engine.pull_receiver_flows([said[0][0].pointer for said in receivers.values()])
            flows += self._made_ours(data, receivers)
        return b"".join(flows)

    def _give_back(self) -> bytes:
        """Give back the unused credit of drained links, by a flow of proton. Proton writes none if no credit is
        left."""
        gives: dict[Wire, Link] = {}
        for link in list(self._drained):
            if link.ended or (link.wire[0] and not lib.pn_link_queued(link.pointer)):
                del self._drained[link]
                if not link.ended and lib.pn_link_drained(link.pointer):
                    gives[link.wire] = link
                elif not link.ended:
                    self.answer(link)
        return (
            b"".join(_telling(frame, gives) for frame in performative.frames_of(self._engine.pull())) if gives else b""
        )

    def _made_ours(self, data: bytes, said: dict[Wire, list[tuple[Link, bool]]]) -> Iterator[bytes]:
        """Yield proton's frames, each flow replaced by flows that this class makes. A flow of a session is replaced by
        one flow for each sending link in `said`, a flow of a receiving link by one flow for this link. `said` maps the
        channel and handle of a flow of proton to these links, each with whether its flow asks for an echo."""
        for frame in performative.frames_of(data):
            fields = _fields_of(frame)
            links = said.pop((frame[6:8], fields[HANDLE]), None) if fields is not None else None
            if fields is None or links is None:
                yield frame
                continue
            for link, asks in links:
                own = self._sender_fields(link, fields) if link.is_sender else self._receiver_fields(link, fields)
                yield self._built(link, own, asks)

    def _built(self, link: Link, fields: list[bytes], asks: bool) -> bytes:
        if asks:
            self._tap.asked[link] = _limit(fields)
        return performative.build(link.wire[0], FLOW, [*fields, TRUE if asks else NULL, self._properties(link)])

    def _properties(self, link: Link) -> bytes:
        state = self._owner.state_of(link)
        return NULL if state is None else encode({Symbol(name): value for name, value in state.items()})

    @staticmethod
    def _sender_fields(link: Link, fields: list[bytes]) -> list[bytes]:
        left = (lib.pn_link_credit(link.pointer) + lib.pn_link_queued(link.pointer)) % 2**32
        numbers = [uint((link.limit - left) % 2**32).encoded, uint(left).encoded]
        available = NULL if link.available is None else uint(link.available).encoded
        return [
            *fields[:HANDLE],
            link.wire[1],
            *numbers,
            available,
            TRUE if lib.pn_link_get_drain(link.pointer) else NULL,
        ]

    @staticmethod
    def _receiver_fields(link: Link, fields: list[bytes]) -> list[bytes]:
        return [*fields[: ECHO - 1], TRUE if lib.pn_link_get_drain(link.pointer) else NULL]


def _telling(frame: bytes, links: Mapping[Wire, Link]) -> bytes:
    """The frame of proton. If it is a flow of one of these links, its `available` is the number of messages that wait
    there."""
    fields = _fields_of(frame)
    link = links.get((frame[6:8], fields[HANDLE])) if fields is not None else None
    if fields is None or link is None or link.available is None:
        return frame
    fields[AVAILABLE] = uint(link.available).encoded
    return performative.build(link.wire[0], FLOW, fields)


def _fields_of(frame: bytes) -> list[bytes] | None:
    """The fields of a flow; None if the frame is no flow."""
    if len(frame) < _LEAST or performative.code_of(frame) != FLOW:
        return None
    return performative.padded(performative.parse(frame).fields, ECHO)


def _limit(fields: list[bytes]) -> int:
    """The delivery-count at which the credit of a flow of ours ends."""
    count, credit = (decode(fields[place])[0] for place in (DELIVERY_COUNT, LINK_CREDIT))
    return int(count + credit) % 2**32


def _knows(theirs: int | None, ours: int | None) -> bool:
    """Whether the peer has read our flow: the end of the credit in the peer's flow, `theirs`, is at least the end in
    ours. Both are serial numbers (AMQP 1.0 2.8.10). False if one of them is None."""
    return theirs is not None and ours is not None and (theirs - ours) % 2**32 < 2**31
