"""What the judge knows of messages and of subscribers."""

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
"""Causes for which a promise ends without being kept."""


class Violation(AssertionError):
    """An invariant does not hold; the text begins with its number in protocol 9 and its name."""


@attrs.define(eq=False)
class Message:
    text: bytes
    publisher: str
    life: int
    number: int
    presettled: bool
    key: bytes
    plain: bool
    """Of a plain publisher, whose routers give up its deliveries with every link or contact that ends."""
    sent_on: "PublisherLink"
    """First; then on which it was transferred last."""
    home: str = ""
    """Where its publisher has transferred it last."""
    incarnation: int = 0
    """Of that router, by then."""
    published: float = -1.0
    """When its publisher's router got it first."""
    promised: set[str] = attrs.Factory(set)
    promised_at: float = -1.0
    sent_at: float = 0.0
    until: float = math.inf
    """By when somebody has to have it."""
    was_given: bool = False
    """Some router has transferred it to a subscriber, or a queue has it."""
    expired: bool = False
    """Its home has ended it for its time, and its publisher has not transferred it again since."""
    told: bool = False
    """Its publisher has read an outcome."""
    over: bool = False
    """Its publisher holds it no longer: it settled it, or gave it up, or its life ended."""
    settled_for: bool = False
    """By its home, with the answer, as the publisher's link is of mode first."""
    settled_on: set[Epoch] = attrs.Factory(set)
    """Attaches of its publisher on which that was so."""
    anew: bool = False
    """Settled by an answer in mode first that was lost: its publisher sends it again, after what had followed it."""
    former: list[Record] = attrs.Factory(list)
    """What routers had under its key as it was sent anew, settled."""

    def is_older(self, link: "PublisherLink") -> bool:
        """Whether what comes on this link was sent before it was settled on another: its router was paused."""
        return link.epoch is not None and any(link.epoch < epoch for epoch in self.settled_on)


@attrs.define(eq=False)
class Reader:
    """A subscriber as the judge knows it."""

    address: str
    exact: bool
    """It resumes, in settle mode second: it is promised everything exactly once."""
    resumes: bool
    first: bool
    """It settles by itself: what it says may be lost with its connection."""
    at_most_once: bool
    """It takes everything settled: what is under way when its link breaks it never sees, or out of order later."""
    first_attach: float = -1.0
    link: "SubscriberLink | None" = None
    """The last link whose attach was answered, unless it was closed."""
    since: Epoch | None = None
    """Of the first answered attach of this terminus; None if there is no terminus."""
    told: Epoch | None = None
    """Of the last link whose client was told that it had ended without its doing."""
    told_at: float = -math.inf
    links: "list[SubscriberLink]" = attrs.Factory(list)
    """All that it ever opened."""
    recent: "list[SubscriberLink]" = attrs.Factory(list)
    """Those without the links that had ended `plain.RECENT` before some router lost another one."""
    had: set[bytes] = attrs.Factory(set)
    """Given to the application and not given back by it."""
    may_repeat: set[bytes] = attrs.Factory(set)
    """Unsettled when the application lost its memory, and not given to it since."""
    lost: set[bytes] = attrs.Factory(set)
    """Unsettled whenever that happened."""
    outcomes: set[tuple[bytes, int]] = attrs.Factory(set)
    """All that it ever said."""
    on_link: dict[bytes, bool] = attrs.Factory(dict)
    """Seen on the link in use -> whether it was given back since."""
    ever: set[bytes] = attrs.Factory(set)
    accepted: set[bytes] = attrs.Factory(set)
    final: set[bytes] = attrs.Factory(set)
    released: dict[bytes, int] = attrs.Factory(dict)
    last: dict[tuple[str, int], tuple[int, str]] = attrs.Factory(dict)
    """Highest number seen of each life of a publisher, and the router it came from."""
    cut_off: set[str] = attrs.Factory(set)
    """Routers that lost one it was attached to."""
    expired: Epoch | None = None
    """The last attach that some router has let expire, as its client was away for too long."""

    def finish(self, text: bytes, outcome: DeliveryOutcome, final: bool, redeliveries: int) -> None:
        """Its application has said what it makes of a message."""
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
    """What one router incarnation knows of one client."""

    epoch: Epoch | None = None
    """None if it knows nothing, or that the terminus is over."""
    generation: bytes = b""
    entry: LinkEntry | None = None
    """As of the last look."""
    is_new: bool = True
    """Nobody has looked yet."""
    latest: int = 0
    """Clock of the latest attach that it knew before."""
    untold: bool = False
    """It has learned of the client, and not yet sent what follows from that."""
    told: dict[str, tuple[int, int]] = attrs.Factory(dict)
    """When that was sent, by router: the contact, and how many frames had been sent in it."""

    def look(self, entry: LinkEntry | None) -> LinkEntry | None:
        """Returns what it was when somebody last looked."""
        former, self.entry, self.is_new = self.entry, entry, False
        return former
