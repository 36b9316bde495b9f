"""Answers the settlements of publishers with receiver settle mode second.

In this mode the publisher settles first, then the router. AMQP requires no message from the router, because by then
neither end has the delivery any more (AMQP 1.0 2.6.12). But some libraries keep a delivery until they read that the
router has settled it: rhea stops sending at 2,048 of them. So the router also sends its settlements, many in one frame,
and the rest when no delivery is unsettled.
"""

from typing import Final

from router.amqp.format import performative
from router.amqp.format.codec import decode, uint
from router.amqp.format.performative import DISPOSITION, NULL, TRUE, TRUES
from router.amqp.proton.library import lib
from router.amqp.proton.link import Link

# After this many settled deliveries the router answers at once, even if others are unsettled.
ENOUGH: Final = 128


class _Session:
    def __init__(self, ours: bytes) -> None:
        self.ours = ours  # the channel of our end of the session
        # The session's publishers in receiver settle mode second that have not ended.
        self.links: dict[Link, None] = {}
        # The settlements to answer, as a flat list: the first and the last delivery-id of each.
        self.told: list[int] = []

    def is_due(self) -> bool:
        told = self.told
        count = len(told) // 2
        if count >= ENOUGH or count + sum(told[1::2]) - sum(told[::2]) >= ENOUGH:
            return True
        return not any(lib.pn_link_unsettled(link.pointer) for link in self.links if not link.ended)

    def frames(self) -> bytes:
        """The answers: one disposition for each row of consecutive delivery-ids."""
        ranges: list[int] = []
        for first, last in zip(self.told[::2], self.told[1::2], strict=True):
            if ranges and first == ranges[-1] + 1:
                ranges[-1] = last
            else:
                ranges += first, last
        self.told.clear()
        numbers = [uint(number).encoded for number in ranges]
        fields = ([TRUE, first, last, TRUE] for first, last in zip(numbers[::2], numbers[1::2], strict=True))
        return b"".join(performative.build(self.ours, DISPOSITION, each) for each in fields)


class Settlements:
    """The settlements of one connection's peer that we have not answered yet."""

    def __init__(self) -> None:
        # The peer's channel -> its session, if it has publishers in receiver settle mode second.
        self._sessions: dict[bytes, _Session] = {}

    def begin(self, channel: bytes, link: Link) -> None:
        """Note a publisher in receiver settle mode second, whose attach on this channel is now answered."""
        session = self._sessions.get(channel)
        if session is None:
            session = self._sessions[channel] = _Session(link.wire[0])
        session.links[link] = None

    def forget(self, link: Link) -> None:
        """Forget a link that has ended."""
        session = self._sessions.get(link.remote_channel)
        if session is not None:
            session.links.pop(link, None)

    def end(self, channel: bytes) -> None:
        """Forget a session that has ended."""
        self._sessions.pop(channel, None)

    def told(self, channel: bytes) -> list[int] | None:
        """The list for the settlements on this channel, to which the caller adds the first and the last delivery-id of
        each; None if they need no answer."""
        session = self._sessions.get(channel)
        return session.told if session is not None else None

    def take(self, channel: bytes, fields: list[bytes]) -> None:
        """Note a disposition of the peer, if it is a sender's settlement that needs an answer."""
        told = self.told(channel)
        role, first_id, last_id, settled = performative.padded(fields, 4)[:4]
        if told is None or role in TRUES or settled not in TRUES:
            return
        first, last = (decode(number)[0] for number in (first_id, first_id if last_id == NULL else last_id))
        if type(first) is type(last) is int:
            told += first, last

    def frames(self) -> bytes:
        """The answers that are due now. The caller writes them before other output, which may end the session."""
        if not self._sessions:
            return b""
        due = [session for session in self._sessions.values() if session.told and session.is_due()]
        return b"".join(session.frames() for session in due)
