"""Adds up the router's reports about a publisher's subscribers (protocol 5, Nobody).

A router reports how many subscribers there are, and how many deliveries it has accepted without a subscriber. It
reports both in the properties of the link's flow (AMQP 1.0 2.7.4), and counts anew on every link. `SubscriberCount`
adds up the counts of all links.
"""

from typing import Final

import trio

from failover.client.errors import ClientError
from router.amqp.proton.link import Link
from topic.properties import ALONE, SUBSCRIBERS

# The seconds that the client waits for the router's answer.
ANSWER_S: Final = 5.0


class SubscriberCount:
    """The counts of one publisher, over all its links."""

    def __init__(self, news: trio.lowlevel.ParkingLot) -> None:
        """`news` wakes the tasks that wait, when an answer has come or the link is lost."""
        self._news = news
        self._link: Link | None = None  # the link that was attached last
        self._is_attached = False
        # How many deliveries routers accepted on former links although there was no subscriber.
        self._former = 0
        self._answered = False  # whether the router has answered the last echo

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
        """The number of subscribers in the router's last report. Raises ClientError if the router has none."""
        said = self._said(SUBSCRIBERS)
        if said is None:
            raise ClientError("amqp:not-implemented", "this router does not report the number of subscribers")
        return said

    async def ask(self) -> bool:
        """Ask the router for a new report. Returns False if the link is lost first."""
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
