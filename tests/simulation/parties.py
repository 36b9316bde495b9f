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
    """Whether its publisher is plain. Routers give up deliveries of a plain publisher with every link or contact that
    ends.
    """
    sent_on: "PublisherLink"
    """The link on which it was first sent, and later the link of its last transfer."""
    home: str = ""
    """The router to which its publisher has transferred it last."""
    incarnation: int = 0
    """The incarnation of that router at that time."""
    published: float = -1.0
    """When its publisher's router first received it."""
    promised: set[str] = attrs.Factory(set)
    promised_at: float = -1.0
    sent_at: float = 0.0
    until: float = math.inf
    """When it expires if no subscriber has it."""
    was_given: bool = False
    """Some router has transferred it to a subscriber, or a queue has it."""
    expired: bool = False
    """Its home has ended it because its time was over, and its publisher has not transferred it again since."""
    told: bool = False
    """Whether its publisher has read an outcome."""
    over: bool = False
    """Its publisher no longer holds it: the publisher settled it, or gave it up, or its life ended."""
    settled_for: bool = False
    """Whether its home has settled it with the answer, as the publisher's link is in mode first."""
    settled_on: set[Epoch] = attrs.Factory(set)
    """Attaches of its publisher on which a home has settled it so."""
    anew: bool = False
    """A lost answer in mode first has settled it: its publisher sends it again, after later messages."""
    former: list[Record] = attrs.Factory(list)
    """The settled records that routers had under its key when it was sent anew."""

    def is_older(self, link: "PublisherLink") -> bool:
        """Whether the messages on this link were sent before the message was settled on another link, as the link's
        router was paused.
        """
        return link.epoch is not None and any(link.epoch < epoch for epoch in self.settled_on)


@attrs.define(eq=False)
class Reader:
    """The judge's knowledge of a subscriber."""

    address: str
    exact: bool
    """It resumes, in settle mode second: it is promised everything exactly once."""
    resumes: bool
    first: bool
    """It is in settle mode first, and settles by itself: its outcomes may be lost with its connection."""
    at_most_once: bool
    """It takes everything settled. If its link breaks, it never gets the messages under way, or gets them out of order
    later.
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
    """All links that it ever opened."""
    recent: "list[SubscriberLink]" = attrs.Factory(list)
    """Its links, without links that had ended `plain.RECENT` before some router lost another one."""
    had: set[bytes] = attrs.Factory(set)
    """Messages that the application got and has not given back."""
    may_repeat: set[bytes] = attrs.Factory(set)
    """Messages that were unsettled when the application lost its memory, and that the application has not got since."""
    lost: set[bytes] = attrs.Factory(set)
    """Messages that were ever unsettled when the application lost its memory."""
    outcomes: set[tuple[bytes, int]] = attrs.Factory(set)
    """All outcomes that it ever sent."""
    on_link: dict[bytes, bool] = attrs.Factory(dict)
    """Messages that came on the link in use -> whether the application has given them back since."""
    ever: set[bytes] = attrs.Factory(set)
    accepted: set[bytes] = attrs.Factory(set)
    final: set[bytes] = attrs.Factory(set)
    released: dict[bytes, int] = attrs.Factory(dict)
    last: dict[tuple[str, int], tuple[int, str]] = attrs.Factory(dict)
    """(publisher, life) -> the highest number received, and the router from which it came."""
    cut_off: set[str] = attrs.Factory(set)
    """Routers that lost a router to which it was attached."""
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
    """None if the router knows nothing, or knows that the terminus is over."""
    generation: bytes = b""
    entry: LinkEntry | None = None
    """The entry at the last look."""
    is_new: bool = True
    """Whether the judge has not looked yet."""
    latest: int = 0
    """The clock of the latest attach that the router knew before."""
    untold: bool = False
    """The router has learned of the client, and has not yet sent what follows from that."""
    told: dict[str, tuple[int, int]] = attrs.Factory(dict)
    """Keyed by router: the contact in which that was sent, and how many frames had been sent in the contact."""

    def look(self, entry: LinkEntry | None) -> LinkEntry | None:
        """Store the entry, and return the entry of the last look."""
        former, self.entry, self.is_new = self.entry, entry, False
        return former
