"""What a publisher's router tells of who listens (protocol 5, Nobody).

How many are subscribed, and how many deliveries it has accepted with nobody subscribed: in the properties of the link's
flow (AMQP 1.0 2.7.4), and counted anew on every link. Here it is added up.
"""

from typing import Final

import trio

from failover.client.errors import ClientError
from router.amqp.proton.link import Link
from topic.properties import ALONE, SUBSCRIBERS

ANSWER_S: Final = 5.0  # for a router to tell


class SubscriberCount:
    """Of one publisher, over all its links."""

    def __init__(self, news: trio.lowlevel.ParkingLot) -> None:
        """`news` wakes whoever waits when an answer has come or the link is lost."""
        self._news = news
        self._link: Link | None = None  # the last one that was attached
        self._is_attached = False
        self._former = 0  # alone on those before
        self._answered = False  # the last question

    def attached(self, link: Link) -> None:
        self._former, self._link, self._is_attached = self.alone, link, True

    def parted(self) -> None:
        self._is_attached = False

    def answered(self, link: Link) -> None:
        self._answered = self._answered or link is self._link

    @property
    def alone(self) -> int:
        return self._former + (self._said(ALONE) or 0)

    def subscribers(self) -> int:
        """As the router has told last. Raises ClientError if it does not tell."""
        said = self._said(SUBSCRIBERS)
        if said is None:
            raise ClientError("amqp:not-implemented", "this router does not report the number of subscribers")
        return said

    async def ask(self) -> bool:
        """Have the router tell how it is now; False if the link is lost before."""
        link, self._answered = self._link, False
        if link is None or not self._is_attached:
            return False
        link.echo()
        link.connection.wake()
        with trio.move_on_after(ANSWER_S):
            while self._is_attached and link is self._link and not self._answered:
                await self._news.park()
        return self._is_attached and link is self._link

    def _said(self, what: str) -> int | None:
        said = self._link.remote_state_properties.get(what) if self._link is not None else None
        return said if isinstance(said, int) else None
