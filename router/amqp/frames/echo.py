"""Asks the peer for an echo of a link's flow state, and answers the peer's echoes (AMQP 1.0 2.7.4).

AMQP does not say which flow answers which echo, and a flow that the peer sent before it read our echo may still be
under way. So only some flows count as an answer:

- On a sending link, a flow that changes nothing. After a flow that changes the link's credit, we ask again.
- On a receiving link, where the answer is a sign of life, a flow that knows all the credit that we had given when we
  asked. The peer has no other reason to send a flow there (docs/clients.md), and we ask again only after an answer, so
  an answer never belongs to an older echo. If we have taken credit back, a flow does not show which credit it knows, so
  no answer counts.

Our flow may carry link properties (2.7.4), if the owner has some (`LinkStates`).

The engine answers the peer at once, unless the owner has taken this over (`Connection`). On a sending link, an answer
says that the owner still uses the link, and that a crash will not make it forget what it was told before.

Proton can neither ask nor answer. It is made to write a flow with the session's numbers, which is changed to ours.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

from router.amqp.format import performative
from router.amqp.format.codec import Symbol, decode, encode, uint
from router.amqp.format.notes import FlowFrame, Wire
from router.amqp.format.performative import FLOW, NULL, TRUE
from router.amqp.frames.bounds import LARGE
from router.amqp.frames.flows import DELIVERY_COUNT, ECHO, HANDLE, LINK_CREDIT
from router.amqp.frames.tap import Tap
from router.amqp.proton.engine import Engine
from router.amqp.proton.library import lib
from router.amqp.proton.link import Link

_LEAST: Final = 14  # bytes of a flow


class LinkStates(Protocol):
    """The owner of a connection, as far as it has properties for its links' flows."""

    def state_of(self, link: Link) -> Mapping[str, int] | None:
        """The link properties for a flow that answers the peer; None for none."""


class Echoes:
    """The echoes of one connection."""

    def __init__(self, engine: Engine, tap: Tap, owner: LinkStates, asked: Callable[[Link], None] | None) -> None:
        """`asked`: called when the peer asks for an answer, which the owner gives later (`answer`); None: the engine
        answers."""
        self._engine = engine
        self._owner = owner
        self._tap = tap
        self._asked = asked
        self._to_send: dict[tuple[Link, bool], None] = {}  # flows to be written, and whether they ask
        self._sessions: dict[Any, None] = {}  # to be answered
        self._drained: dict[Link, None] = {}  # to be told so, once what was sent is written

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
        """The session is over."""
        self._sessions.pop(session, None)

    def take(self, link: Link, flow: FlowFrame, changed: bool) -> bool:
        """A flow of the peer on a link. Returns whether it is the answer that we wait for."""
        asked = self._tap.asked
        if link.is_sender and flow.properties != NULL and len(flow.properties) <= LARGE:
            link.told = flow.properties
        if flow.echo:  # it is no answer then
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
        """The flows to be written after all other output, which must have been taken from proton before."""
        said = self._give_back() if self._drained else b""
        if not self._to_send and not self._sessions:
            return said
        to_send, self._to_send = self._to_send, {}
        sessions, self._sessions = self._sessions, {}
        receivers: dict[Wire, list[tuple[Link, bool]]] = {}
        senders: dict[Wire, list[tuple[Link, bool]]] = {}
        for link, asks in to_send:
            if not link.ended and not link.wire[0]:
                self._to_send[link, asks] = None  # its attach is to be written first
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
        gives = False
        for link in list(self._drained):
            if link.ended or (link.wire[0] and not lib.pn_link_queued(link.pointer)):
                del self._drained[link]
                if not link.ended and lib.pn_link_drained(link.pointer):
                    gives = True
                elif not link.ended:
                    self.answer(link)
        return self._engine.pull() if gives else b""

    def _made_ours(self, data: bytes, said: dict[Wire, list[tuple[Link, bool]]]) -> Iterator[bytes]:
        """Proton's frames, with its flows changed to ours: a flow of the session becomes one of each sending link,
        which also tells the session's state, and a flow of a receiving link becomes one of that link."""
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
        return [*fields[:HANDLE], link.wire[1], *numbers, NULL, TRUE if lib.pn_link_get_drain(link.pointer) else NULL]

    @staticmethod
    def _receiver_fields(link: Link, fields: list[bytes]) -> list[bytes]:
        return [*fields[: ECHO - 1], TRUE if lib.pn_link_get_drain(link.pointer) else NULL]


def _fields_of(frame: bytes) -> list[bytes] | None:
    """The fields of a flow; None if the frame is no flow."""
    if len(frame) < _LEAST or performative.code_of(frame) != FLOW:
        return None
    return performative.padded(performative.parse(frame).fields, ECHO)


def _limit(fields: list[bytes]) -> int:
    """The delivery-count up to which a flow of ours gives credit."""
    count, credit = (decode(fields[place])[0] for place in (DELIVERY_COUNT, LINK_CREDIT))
    return int(count + credit) % 2**32


def _knows(theirs: int | None, ours: int | None) -> bool:
    """Whether the peer, which names the limit `theirs`, has read our limit `ours` (serial numbers, AMQP 1.0 2.8.10);
    None is no limit yet."""
    return theirs is not None and ours is not None and (theirs - ours) % 2**32 < 2**31
