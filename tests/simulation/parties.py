"""The judge's knowledge of messages and of subscribers."""

import math
from typing import TYPE_CHECKING

import attrs

from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import Record
from topic.directory.entry import LinkEntry
from topic.identity import Epoch

if TYPE_CHECKING:
    from tests.simulation.publisher_link import PublisherLink
    from tests.simulation.subscriber_link import SubscriberLink


UNKNOWN = "limit: no router in contact with the home knew it"
DELETED = "limit: no router in contact with the home knew it any more, as a store that did was lost or an older copy"
FORGOTTEN = "limit: it came with a null map, and no router around knew it"
VOLATILE = "all routers that knew it have died, and it had not asked to outlive them"
AWAY = "it was away for longer than its timeout"
BEGUN = "it has begun afresh elsewhere, with a null map, which claims nothing from before"
APART = "it was apart for longer than its timeout, and told"
REJECTED = "it was apart for longer than its timeout, and the publisher was told of a rejection"
CLOSED = "it closed its link"
GIVEN_UP = "the publisher gave it up"
"""Causes that end a promise which was not kept."""


class Violation(AssertionError):
    """An invariant does not hold. The text begins with the invariant's number in protocol 9 and its name."""


@attrs.define(eq=False)
class Message:
    text: bytes
    publisher: str
    life: int
    number: int
    presettled: bool
    key: bytes
    plain: bool
    """Whether the message's publisher is plain. Whenever a link or contact ends, routers give up deliveries of plain
    publishers.
    """
    sent_on: "PublisherLink"
    """The link on which the message was first sent, and later the link of its last transfer."""
    home: str = ""
    """The router to which the publisher has transferred the message last."""
    incarnation: int = 0
    """The incarnation of that router at that time."""
    published: float = -1.0
    """When the publisher's router first received the message."""
    promised: set[str] = attrs.Factory(set)
    promised_at: float = -1.0
    sent_at: float = 0.0
    until: float = math.inf
    """When the message expires if no subscriber has it."""
    was_given: bool = False
    """Whether some router has transferred the message to a subscriber, or a queue has it."""
    expired: bool = False
    """Whether the home has ended the message because its time was over, and the publisher has not transferred it again
    since."""
    told: bool = False
    """Whether the publisher has read an outcome of the message."""
    over: bool = False
    """Whether the publisher no longer holds the message: it settled the message, or gave it up, or its life ended."""
    settled_for: bool = False
    """Whether the home has settled the message with the answer, because the publisher's link is in mode first."""
    settled_on: set[Epoch] = attrs.Factory(set)
    """The attaches of the publisher on which a home has settled the message in this way."""
    anew: bool = False
    """Whether a lost answer in mode first has settled the message: the publisher then sends it again, after later
    messages."""
    former: list[Record] = attrs.Factory(list)
    """The settled records that routers had under the message's key when it was sent anew."""

    def is_older(self, link: "PublisherLink") -> bool:
        """Whether the messages on this link were sent before the message was settled on another link. This can happen
        while the link's router is paused.
        """
        return link.epoch is not None and any(link.epoch < epoch for epoch in self.settled_on)


@attrs.define(eq=False)
class Reader:
    """The judge's knowledge of a subscriber."""

    address: str
    exact: bool
    """Whether the subscriber resumes in settle mode second, so that it is promised everything exactly once."""
    resumes: bool
    first: bool
    """Whether the subscriber is in settle mode first. It then settles by itself, and its outcomes may be lost with its
    connection."""
    at_most_once: bool
    """Whether the subscriber takes everything settled. If its link breaks, it never gets the messages under way, or
    gets them later out of order.
    """
    first_attach: float = -1.0
    link: "SubscriberLink | None" = None
    """The last link whose attach was answered, unless it was closed."""
    since: Epoch | None = None
    """The epoch of the first answered attach of this terminus. None if there is no terminus."""
    told: Epoch | None = None
    """The epoch of the last link whose client a router has told that it had ended the link."""
    told_at: float = -math.inf
    links: "list[SubscriberLink]" = attrs.Factory(list)
    """All links that the subscriber ever opened."""
    recent: "list[SubscriberLink]" = attrs.Factory(list)
    """The subscriber's links, without the links that had ended `plain.RECENT` before some router lost another one."""
    had: set[bytes] = attrs.Factory(set)
    """Messages that the application got and has not given back."""
    may_repeat: set[bytes] = attrs.Factory(set)
    """Messages that were unsettled when the application lost its memory, and that the application has not got since."""
    lost: set[bytes] = attrs.Factory(set)
    """Messages that were ever unsettled when the application lost its memory."""
    outcomes: set[tuple[bytes, int]] = attrs.Factory(set)
    """All outcomes that the subscriber ever sent."""
    on_link: dict[bytes, bool] = attrs.Factory(dict)
    """Messages that came on the link in use -> whether the application has given them back since."""
    ever: set[bytes] = attrs.Factory(set)
    accepted: set[bytes] = attrs.Factory(set)
    final: set[bytes] = attrs.Factory(set)
    released: dict[bytes, int] = attrs.Factory(dict)
    last: dict[tuple[str, int], tuple[int, str]] = attrs.Factory(dict)
    """(publisher, life) -> the highest number received, and the router from which it came."""
    cut_off: set[str] = attrs.Factory(set)
    """The routers that lost a router to which the subscriber was attached."""
    expired: Epoch | None = None
    """The last attach that some router has let expire, as its client was away for too long."""

    def finish(self, text: bytes, outcome: DeliveryOutcome, final: bool, redeliveries: int) -> None:
        """The application has decided the outcome of a message."""
        self.outcomes.add((text, outcome))
        if outcome is DeliveryOutcome.ACCEPTED:
            self.accepted.add(text)
        if outcome in (DeliveryOutcome.RELEASED, DeliveryOutcome.MODIFIED):
            self.had.discard(text)
            if not final:
                self.on_link[text] = True
                self.released[text] = times = self.released.get(text, 0) + 1
                final = times > redeliveries
        else:
            final = True
        if final:
            self.final.add(text)


@attrs.define(eq=False)
class View:
    """The knowledge of one router incarnation about one client."""

    epoch: Epoch | None = None
    """The epoch that the router knows; None if it knows nothing, or knows that the terminus is over."""
    generation: bytes = b""
    entry: LinkEntry | None = None
    """The entry at the last look."""
    is_new: bool = True
    """Whether the judge has not looked yet."""
    latest: int = 0
    """The clock of the latest attach that the router knew before."""
    untold: bool = False
    """Whether the router has learned of the client, and has not yet sent the messages that follow from that."""
    told: dict[str, tuple[int, int]] = attrs.Factory(dict)
    """For each router: the contact in which these messages were sent to it, and how many frames had been sent in the
    contact by then."""

    def look(self, entry: LinkEntry | None) -> LinkEntry | None:
        """Store the entry, and return the entry of the last look."""
        former, self.entry, self.is_new = self.entry, entry, False
        return former
