"""The sessions and links of one connection, and the time at which proton may free its memory for them.

When proton frees a link, it settles the link's unsettled deliveries and sends this to the peer. So if the peer has
detached a link without closing it, and deliveries are unsettled, the link stays in proton's memory until its session
ends, or until the link that continues it ends. An operation on a session takes time in proportion to the links of that
session, not of the connection.

`endpoints` sends the messages to the peer and calls the owner.
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
        self.channel: bytes | None = None  # the channel of the peer's end of the session
        self.handle_max = 2**32 - 1  # the highest handle that the peer allows us to use
        self.links: dict[Link, None] = {}  # links of the session that proton has not freed
        # The places of links that the peer has detached without closing them.
        self.left: dict[Place, None] = {}

    @property
    def is_open(self) -> bool:
        """Whether our end of the session is open."""
        return bool(lib.pn_session_state(self.pointer) & lib.PN_LOCAL_ACTIVE)


class Sessions:
    def __init__(self, tap: Tap, bounds: Bounds) -> None:
        self.links: dict[Any, Link] = {}  # links, keyed by proton's pointer
        self._tap = tap
        self._bounds = bounds
        self._sessions: dict[Any, Session] = {}  # sessions, keyed by proton's pointer
        self._channels: dict[bytes, Session] = {}  # sessions, keyed by the peer's channel
        # Ended sessions. They are freed once our end is written.
        self._ended: list[Session] = []
        # Links that both ends have detached. They are freed once our detach is written.
        self._parted: list[Link] = []
        # The numbers of sessions and links freed since the last output. The peer may not know of these frees yet.
        self._unread_sessions = self._unread_links = 0
        # Links that the peer has detached without closing them (`Link.former`).
        self._left: dict[Place, Link] = {}

    @property
    def attached(self) -> list[Link]:
        """The links that no end has detached, in order of their attach."""
        return list(dict.fromkeys(link for link in self.links.values() if not link.detached))

    def senders(self) -> list[Any]:
        """Proton's pointers of the links that we send on."""
        return [pointer for pointer, link in self.links.items() if link.is_sender]

    # -- The methods from here on are about sessions.

    def of(self, pointer: Any) -> Session:
        session = self._sessions.get(pointer)
        if session is None:
            session = self._sessions[pointer] = Session(pointer)
        return session

    def on_channel(self, channel: bytes) -> Session | None:
        """The session on the peer's channel, if it is open at our end as well."""
        session = self._channels.get(channel)
        return session if session is not None and session.is_open else None

    def is_begun(self, channel: bytes) -> bool:
        return channel in self._channels

    def begin(self, pointer: Any, channel: bytes | None, handle_max: int) -> None:
        """The peer has begun the session. Raises LimitError if there are too many sessions, or AmqpError if the peer
        has answered one begin twice."""
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

    # -- The methods from here on are about links.

    def add(self, link: Link) -> None:
        if len(self.links) + self._unread_links >= self._bounds.links:
            raise LimitError("links", f"the connection has more than {self._bounds.links} links")
        self.links[link.pointer] = link
        self.of(link.session).links[link] = None

    def leave(self, link: Link) -> None:
        """Keep a link that the peer may attach again. If there are too many such links, the oldest is forgotten."""
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
        """Give the deliveries of `former` to `link`."""
        link.continued = self.pointers(former)
        former.free()
        for pointer in link.continued:
            self.links[pointer] = link
        self.of(former.session).links.pop(former, None)
        self.part(link)

    def part(self, link: Link) -> None:
        """Both ends have detached the link, so that `free` may free it."""
        self._parted.append(link)

    # -- The methods from here on free memory.

    def written(self) -> None:
        """All output about ended sessions and links is written."""
        self._unread_sessions = self._unread_links = 0

    def free(self) -> None:
        """Free the ended sessions and links. Proton has put the frames that end them into its output. They count
        against the limits until this output is written (`written`)."""
        for link in self._parted:
            self._free_link(link)
        self._parted.clear()
        for session in self._ended:
            self._free_session(session)
        self._ended.clear()

    def release(self) -> None:
        """Forget all sessions and links, because proton is about to free its memory."""
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
        # The link is not forgotten while a former link that it continues still has deliveries.
        if link.detached and not self.pointers(link):
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
