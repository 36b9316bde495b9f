"""Handles the begin and the end of a connection's sessions and links: turns proton's events into calls of the owner,
and writes the answers to the peer.

`inbox` handles the deliveries of a link; `sessions` decides when memory is freed.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

from router.amqp.format.codec import uint
from router.amqp.format.errors import NOT_ALLOWED, RESOURCE_LIMIT, STOLEN, AmqpError
from router.amqp.format.notes import AttachFrame, BeginFrame, EndFrame, Note
from router.amqp.format.performative import DETACH, END, build
from router.amqp.format.values import RELEASED, Attach, ErrorCondition
from router.amqp.frames.tap import Tap
from router.amqp.proton.library import lib, read_condition, text, write_condition, write_lifetime, write_map
from router.amqp.proton.link import Host, Link, Place
from router.amqp.sessions import Session, Sessions

STOLEN_HERE: Final = "the link was attached again in the same session"


class LinkOwner(Protocol):
    """Receives the events of links (`router.amqp.handler` describes them)."""

    def on_attach(self, link: Link) -> None: ...
    def on_attached(self, link: Link) -> None: ...
    def on_detach(self, link: Link, closed: bool, condition: ErrorCondition | None) -> None: ...


class Endpoints:
    """The sessions and links of one connection. It is the `host` of the links."""

    def __init__(
        self,
        host: Host,
        owner: LinkOwner,
        sessions: Sessions,
        tap: Tap,
        max_message: int,
        push: Callable[[bytes], None],
    ) -> None:
        """`push`: gives proton a frame as if the peer had written it."""
        self._push = push
        self._host = host
        self._owner = owner
        self._sessions = sessions
        self._tap = tap
        self._max_message = max_message
        self._session: Any = None  # the session of the links that we attach
        # True if the peer has freed a channel or handle by an end or detach.
        # Proton frees our own channel or handle only when we take the output that has our end or detach.
        self._frees = False
        self.begun = 0
        """The number of sessions whose begin we have not written yet."""
        self._leaving: set[Place] = set()  # places of links whose detach we have not written yet
        self._postponed: list[Link] = []  # links whose attach waits until a detach in the same place is written

    def is_behind(self, note: Note) -> bool:
        """Whether the caller must take proton's output before it gives proton this frame. Before a begin or attach,
        proton has to free our old channel or handle (`_frees`). Before an end, proton has to write our begin: at the
        end, proton forgets which begin of the peer our begin answers.
        """
        if isinstance(note, EndFrame):
            return self.begun > 0
        frees = self._frees and isinstance(note, BeginFrame | AttachFrame)
        self._frees = self._frees and not frees
        return frees

    # -- The methods from here on are about sessions.

    def begin(self, pointer: Any, said: BeginFrame | None) -> None:
        """Handle a begin of the peer: it begins a session, or answers our begin."""
        if not self._host.opened:
            raise AmqpError(NOT_ALLOWED, "the peer sent a begin before its open")
        channel, handle_max = said if said is not None else (None, 0)
        self._sessions.begin(pointer, channel, handle_max)
        # If our end is open already, we began this session, and the peer's begin is the answer.
        if not self._sessions.of(pointer).is_open:
            lib.pn_session_open(pointer)
            self.begun += 1

    def end(self, pointer: Any) -> None:
        """Handle an end of the peer, and answer it."""
        session = self._sessions.of(pointer)
        condition = read_condition(lib.pn_session_remote_condition(pointer))
        if not self._host.closing:
            self._lose_all(session, condition)
        lib.pn_session_open(pointer)
        lib.pn_session_close(pointer)
        self._sessions.end(session)
        self._frees = True
        if self._session == pointer:
            self._session = None

    def end_session(self, channel: bytes, condition: ErrorCondition) -> None:
        """End a session in which the peer broke AMQP. The session's links end, the connection continues. Proton would
        write our end only after messages for which the peer has no room. So proton gets an end as if the peer had ended
        the session."""
        session = self._sessions.on_channel(channel)
        if session is None:
            return
        self._tap.end_session(channel)
        self._lose_all(session, condition)
        write_condition(lib.pn_session_condition(session.pointer), condition.name, condition.description)
        self._push(build(channel, END, ()))

    def _lose_all(self, session: Session, condition: ErrorCondition | None) -> None:
        """End all links of a session, and then call the owner for each of them. All links end before the first call,
        because the owner may try to write on any of them in a call."""
        lost = [link for link in session.links if not link.detached]
        for link in lost:
            link.end()
            link.detached = True
        for link in lost:
            self._owner.on_detach(link, False, condition)

    # -- The methods from here on are about links.

    def attach(
        self,
        connection: Any,
        create: Callable[[Any, bytes], Any],
        name: str,
        address: str,
        attach: Attach,
        max_message: int,
    ) -> Link:
        """Attach a link of ours, from or to the peer's node at `address`. An empty address asks for a dynamic source.
        `connection`: proton's connection. `create`: proton's function for a sending or a receiving link."""
        assert not self._host.closed and not self._host.closing
        if self._session is None:
            self._session = lib.pn_session(connection)
            lib.pn_session_open(self._session)
            self.begun += 1
        pointer = create(self._session, name.encode())
        link = Link(self._host, pointer, name, max_message)
        self._sessions.add(link)
        for terminus in (lib.pn_link_source(pointer), lib.pn_link_target(pointer)):
            if address:
                lib.pn_terminus_set_address(terminus, address.encode())
            write_lifetime(terminus, attach.durable, attach.expiry_policy, attach.timeout)
        if not address:
            lib.pn_terminus_set_dynamic(lib.pn_link_source(pointer), True)
        write_map(attach.filters, lib.pn_terminus_filter(lib.pn_link_source(pointer)))
        link.describe(attach.properties, attach.unsettled, attach.incomplete_unsettled)
        link.open(attach.snd_settle_mode, attach.rcv_settle_mode)
        return link

    def attached(self, pointer: Any, said: AttachFrame | None) -> None:
        """Handle an attach of the peer: it attaches a link, or answers our attach."""
        link = self._sessions.links.get(pointer)
        if link is not None:
            self._answered(link, said)
            return
        link = Link(self._host, pointer, text(lib.pn_link_name(pointer)) or "", self._max_message)
        self._sessions.add(link)
        session = self._sessions.of(link.session)
        if self._host.closing or not session.is_open:
            link.end()
            return
        link.read_attach(said)
        if said is not None:
            self._tap.flows.attached(link)
        if sum(not each.detached for each in session.links) > session.handle_max + 1 and session.channel is not None:
            link.end()
            link.detached = True
            what = f"the session has more links than the peer's handle-max of {session.handle_max} allows"
            self.end_session(session.channel, ErrorCondition(RESOURCE_LIMIT, what))
            return
        stolen = self._steal(session, link) if said is not None and said.steals else []
        former = self._sessions.take_left(link.place)
        if link.remote_unsettled is None and not link.remote_incomplete_unsettled:
            link.former = former
        elif former is not None:
            former.forget()
        self._owner.on_attach(link)
        # The owner gets the detaches of the stolen links after the new attach, so that the terminus always has a link.
        for other in stolen:
            self._owner.on_detach(other, False, ErrorCondition(STOLEN, STOLEN_HERE))

    def _answered(self, link: Link, said: AttachFrame | None) -> None:
        if not link.ended:
            link.read_attach(said)
            if said is not None:
                self._tap.flows.attached(link)
            link.answered = True
            self._owner.on_attached(link)

    def continue_former(self, link: Link, former: Link) -> None:
        """Engine only: give the deliveries of `former` to `link`. An incomplete message is released."""
        self._sessions.continue_former(link, former)
        for pointer in link.continued:
            partial = None if link.is_sender else lib.pn_link_current(pointer)
            # An incomplete message is released, because the peer does not continue it on the new link.
            if partial:
                lib.pn_delivery_update(partial, RELEASED)
                lib.pn_delivery_settle(partial)
                self._host.settling.add(partial)

    def detached(self, pointer: Any, *, closed: bool) -> None:
        """Handle a detach of the peer, and answer it."""
        link = self._sessions.links.get(pointer)
        if link is None:
            return
        link.closed_by_peer = closed
        self._frees = True
        if not link.detached and not self._host.closing:
            self._lose(link, closed, link.remote_condition())
            link.leave(None, "", closed)
            if link.context is not None:
                self._sessions.leave(link)
        elif link.detach_answered is not None:
            link.detach_answered()
        self._sessions.part(link)

    def _lose(self, link: Link, closed: bool, condition: ErrorCondition | None) -> None:
        """End a link, and tell the owner, because the owner did not end it itself."""
        link.end()
        link.detached = True
        self._owner.on_detach(link, closed, condition)

    def _steal(self, session: Session, link: Link) -> list[Link]:
        """Detach the attached links with the same name (AMQP 1.0 2.6.1), and return them."""
        stolen = [each for each in session.links if each.place == link.place and each is not link and not each.ended]
        for other in stolen:
            other.leave(STOLEN, STOLEN_HERE, closed=True)
            if other.is_sender and lib.pn_link_queued(other.pointer):
                self._flush_detach(other)
        return stolen

    def _flush_detach(self, link: Link) -> None:
        """Make proton write our detach at once. Proton would write it only after messages for which the peer has no
        room, so proton gets a detach as if the peer had detached the link."""
        self._tap.let_go(link)
        self._push(build(link.remote_channel, DETACH, [uint(link.remote_handle).encoded]))

    def expel(self, link: Link, condition: str, description: str, limit: str = "") -> None:
        """Engine only: detach a link on which the peer broke a `limit`, and tell the owner. The link is not closed, so
        the peer may resume it.
        """
        link.leave(condition, description, closed=False)
        self._owner.on_detach(link, False, ErrorCondition(condition, description, limit=limit))

    # -- The methods from here on are about the places of links: session, direction and name.

    def leaves(self, link: Link) -> None:
        """Our detach of this link is about to be written."""
        self._leaving.add(link.place)

    def postpones(self, link: Link) -> bool:
        """Whether the attach of this link must wait for the next output, because the detach of another link in its
        place is not written yet. Proton writes attaches before detaches, and peers treat two links with one name as an
        error."""
        if link.place in self._leaving:
            self._postponed.append(link)
            return True
        return False

    def attach_postponed(self) -> bool:
        """Write the postponed attaches: proton has written the detaches before them. Returns whether proton has more
        output now."""
        if not self._leaving:
            return False
        self._leaving.clear()
        postponed, self._postponed = self._postponed, []
        for link in postponed:
            # An earlier link of this loop has detached in the same place. Proton has to write its detach first.
            if link.place in self._leaving:
                self._postponed.append(link)
            elif self._sessions.of(link.session).is_open:
                link.attach_postponed()
            else:
                self._tap.additions.forget(link)
        return bool(postponed)
