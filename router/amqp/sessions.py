"""The sessions and links of one connection: their relations, and when proton's memory for them may be freed.

When proton frees a link, it settles the link's unsettled deliveries, on the wire too. So a link that was detached with
unsettled deliveries, and not closed by the peer, stays until its session ends, or until the link that continues it
ends. An operation on a session takes time in proportion to that session, not to the connection.

Messages to the peer and calls of the owner belong to other modules (`endpoints`).
"""

from typing import Any

from router.amqp.format.errors import INVALID_FIELD, AmqpError, LimitError
from router.amqp.format.values import Bounds
from router.amqp.frames.tap import Tap
from router.amqp.proton.library import lib
from router.amqp.proton.link import Link, Place


class Session:
    """A session, with proton's pointer to it."""

    __slots__ = ("channel", "handle_max", "left", "links", "pointer")

    def __init__(self, pointer: Any) -> None:
        self.pointer = pointer
        self.channel: bytes | None = None  # the peer's
        self.handle_max = 2**32 - 1  # the peer's: of our handles
        self.links: dict[Link, None] = {}  # those whose memory is not freed
        self.left: dict[Place, None] = {}  # of links that the peer has detached and not closed

    @property
    def is_open(self) -> bool:
        """Whether our end of the session is open."""
        return bool(lib.pn_session_state(self.pointer) & lib.PN_LOCAL_ACTIVE)


class Sessions:
    def __init__(self, tap: Tap, bounds: Bounds) -> None:
        self.links: dict[Any, Link] = {}  # by proton's pointer
        self._tap = tap
        self._bounds = bounds
        self._sessions: dict[Any, Session] = {}  # by proton's pointer
        self._channels: dict[bytes, Session] = {}  # the peer's
        self._ended: list[Session] = []  # to be freed once our end is written
        self._parted: list[Link] = []  # the same of links: detached at both ends
        self._unread_sessions = self._unread_links = 0  # freed since the last output
        self._left: dict[Place, Link] = {}  # detached by the peer, not closed: see `Link.former`

    @property
    def attached(self) -> list[Link]:
        """The links that no end has detached, in order of their attach."""
        return list(dict.fromkeys(link for link in self.links.values() if not link.detached))

    def senders(self) -> list[Any]:
        """Proton's pointers of the links that we send on."""
        return [pointer for pointer, link in self.links.items() if link.is_sender]

    # -- sessions

    def of(self, pointer: Any) -> Session:
        session = self._sessions.get(pointer)
        if session is None:
            session = self._sessions[pointer] = Session(pointer)
        return session

    def on_channel(self, channel: bytes) -> Session | None:
        """The peer's session, if it is open at our end as well."""
        session = self._channels.get(channel)
        return session if session is not None and session.is_open else None

    def is_begun(self, channel: bytes) -> bool:
        return channel in self._channels

    def begin(self, pointer: Any, channel: bytes | None, handle_max: int) -> None:
        """The peer has begun the session. Raises AmqpError if it may not."""
        if len(self._sessions) + self._unread_sessions >= self._bounds.sessions:
            raise LimitError("sessions", f"the connection has more than {self._bounds.sessions} sessions")
        session = self.of(pointer)
        if session.channel is not None:
            raise AmqpError(INVALID_FIELD, "the peer answered one begin twice")
        if channel is not None:
            session.channel, session.handle_max = channel, handle_max
            self._channels[channel] = session

    def end(self, session: Session) -> None:
        """Both ends have ended the session."""
        self._ended.append(session)
        if session.channel is not None and self._channels.get(session.channel) is session:
            del self._channels[session.channel]
            self._tap.settlements.end(session.channel)

    # -- links

    def add(self, link: Link) -> None:
        if len(self.links) + self._unread_links >= self._bounds.links:
            raise LimitError("links", f"the connection has more than {self._bounds.links} links")
        self.links[link.pointer] = link
        self.of(link.session).links[link] = None

    def leave(self, link: Link) -> None:
        """The owner has kept this link for a re-attach. If there are too many such links, the oldest are freed."""
        self._left[link.place] = link
        self.of(link.session).left[link.place] = None
        if len(self._left) > self._bounds.links:
            self._left.pop(next(iter(self._left))).forget()

    def take_left(self, place: Place) -> Link | None:
        return self._left.pop(place, None)

    def pointers(self, link: Link) -> list[Any]:
        """Proton's pointers of the link, and of the former links that it continues, if they are not freed."""
        return [pointer for pointer in (*link.continued, link.pointer) if self.links.get(pointer) is link]

    def continue_former(self, link: Link, former: Link) -> None:
        """The deliveries of `former` belong to `link` now."""
        link.continued = self.pointers(former)
        former.free()
        for pointer in link.continued:
            self.links[pointer] = link
        self.of(former.session).links.pop(former, None)
        self.part(link)

    def part(self, link: Link) -> None:
        """A part of the link may be freed."""
        self._parted.append(link)

    # -- memory

    def written(self) -> None:
        """All output about ended sessions and links is written."""
        self._unread_sessions = self._unread_links = 0

    def free(self) -> None:
        """Free sessions and links that have ended and whose end proton has put into its output. They count against the
        limits until that output is written (`written`)."""
        for link in self._parted:
            self._free_link(link)
        self._parted.clear()
        for session in self._ended:
            self._free_session(session)
        self._ended.clear()

    def release(self) -> None:
        """The connection is over, and proton is about to free its memory."""
        for link in (*self.links.values(), *self._parted, *self._left.values()):
            link.forget()
        for session in self._sessions.values():
            for link in session.links:
                link.forget()
        self.links.clear()
        self._sessions.clear()
        self._left.clear()

    def _free_link(self, link: Link) -> None:
        for pointer in self.pointers(link):
            over = link.detached or pointer != link.pointer
            if over and (link.closed_by_peer or lib.pn_link_unsettled(pointer) == 0):
                del self.links[pointer]
                self._unread_links += 1
                lib.pn_link_free(pointer)
        if link.detached and not self.pointers(link):  # what it continues may have deliveries yet
            self._sessions[link.session].links.pop(link, None)
            self._forget(link)

    def _forget(self, link: Link) -> None:
        self._tap.additions.forget(link)
        self._tap.asked.pop(link, None)
        self._tap.settlements.forget(link)
        link.free()

    def _free_session(self, session: Session) -> None:
        for place in session.left:
            if (left := self._left.pop(place, None)) is not None:
                left.forget()
        for link in session.links:
            for pointer in self.pointers(link):
                del self.links[pointer]
                self._unread_links += 1
            self._forget(link)
        self._unread_sessions += 1
        del self._sessions[session.pointer]
        lib.pn_session_free(session.pointer)
