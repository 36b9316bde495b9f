"""The ledger of published messages and their receivers: it judges all clients of a round.

It judges a delivery by the acts of both ends so far, in their order. A subscriber counts from the moment when it has
read the answer to its attach, until it ends its link.
"""

from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING

from attrs import define, field

from tests.fuzz.odd.messages import bare

if TYPE_CHECKING:
    from tests.fuzz.odd.links import Sender

AGAIN = ("released", "modified")
"""Outcomes after which a message comes once more."""
BALANCED, DYNAMIC = "work/", "_dynamic/"
"""Prefixes of addresses whose messages go to one subscriber each."""
ADDED = 500
"""The most bytes of annotations that are added on the way."""


@define(eq=False, repr=False)
class Message:
    link: "Sender"
    """The publisher's link. Messages of one link have an order."""
    number: int
    address: str
    format: int
    payload: bytes
    presettled: bool
    size: int
    at: int
    """When its publisher began to send it."""
    whole: bool = False
    aborted: bool = False
    outcome: str = ""
    """The outcome that its publisher has read."""
    settled: bool = False
    """The publisher or the router has settled it: its publisher gets nothing more about it."""
    loose: bool = False
    """It was sent in receiver settle mode first, and its publisher has been away since: it may come twice."""
    hurries: bool = False
    """It expires after a time that may pass: then no subscriber gets it."""
    refused: bool = False
    """A subscriber has rejected it, or given it back for good."""

    def __repr__(self) -> str:
        return f"message {self.number} of {self.link} to {self.address}"


@define(eq=False, repr=False)
class Subscription:
    name: str
    address: str
    presettled: bool
    since: int
    over: bool = False
    until: float | None = None
    """Suspended: when its timeout ends. None: attached."""
    loose: set[Message] = field(factory=set)
    """Messages that may come again, at a balanced address also to other subscribers. The subscriber had them when it
    went away, and settles first. Or it takes settled deliveries, had them, and attached again at another router or
    after its timeout (protocol 10)."""
    holds: dict[Message, str] = field(factory=dict)
    """The messages that it has got -> its answer; empty before it answers."""
    changed: set[Message] = field(factory=set)
    """The messages that it has modified."""
    times: dict[Message, int] = field(factory=dict)
    last: dict[tuple["Sender", str], int] = field(factory=dict)
    """Keyed by publisher and address: the number of the latest message."""

    def __repr__(self) -> str:
        return self.name

    @property
    def is_pattern(self) -> bool:
        return self.address[-1] in "*+#"

    def covers(self, address: str) -> bool:
        """Whether the subscription covers the address. Addresses of a round have one word after the common part of
        their patterns.
        """
        return address == self.address or (self.is_pattern and address.startswith(self.address[:-1]))


def is_for_one(address: str) -> bool:
    return address.startswith((BALANCED, DYNAMIC))


class Ledger:
    def __init__(self, redeliveries: int, time: Callable[[], float]) -> None:
        self._redeliveries = redeliveries
        self.time = time
        self._clock = count(1)
        self._known: dict[tuple[int, bytes], Message] = {}
        self.subscriptions: list[Subscription] = []
        self.least = 2**64
        """The largest message in bytes that every subscriber takes, including subscribers that are about to attach."""
        self.settles: set[str] = set()
        """Addresses at which a subscriber that takes settled deliveries has attached, or is about to."""
        self.dynamic: list[str] = []
        """Addresses of dynamic sources, including ended ones."""
        self.notes: list[str] = []
        """Everything that was sent, for the reader of a failure."""

    def now(self) -> int:
        return next(self._clock)

    def begin(self, name: str, address: str, *, presettled: bool) -> Subscription:
        subscription = Subscription(name, address, presettled, self.now())
        self.subscriptions.append(subscription)
        return subscription

    def publish(self, message: Message) -> None:
        key = message.format, bare(message.format, message.payload)
        assert key not in self._known, "two messages are alike"
        self._known[key] = message

    def deliver(self, subscription: Subscription, message_format: int, payload: bytes, *, given: bool) -> Message:
        """A subscriber has got a whole message. `given`: it has answered it already, or knows it by its map."""
        message = self._known.get((message_format, bare(message_format, payload)))
        assert message is not None, f"{subscription} was given what nobody has published"
        assert subscription.covers(message.address), f"{subscription} was given {message}"
        assert message.whole, f"{subscription} was given {message}, which is not whole"
        answer = subscription.holds.get(message)
        if is_for_one(message.address):
            self._check_one(message, subscription)
        elif answer is None:
            before = subscription.last.get((message.link, message.address), -1)
            is_loose = message in subscription.loose or message.loose
            assert message.number > before or is_loose, f"{subscription} was given {message} after {before}"
            subscription.last[message.link, message.address] = max(before, message.number)
        else:
            again = given or answer in AGAIN or message in subscription.loose or message.loose
            assert again, f"{subscription} was given {message} twice"
        if message not in subscription.changed and (message_format or not subscription.is_pattern):
            assert payload == message.payload, f"{subscription} was given {message} with other sections"
        subscription.holds[message] = answer or "" if given else ""
        subscription.times[message] = subscription.times.get(message, 0) + 1
        return message

    def _check_one(self, message: Message, subscription: Subscription) -> None:
        for other in self.subscriptions:
            has_it = other.holds.get(message, AGAIN[0]) not in AGAIN and self._is_there(other)
            may = other is subscription or not has_it or message in other.loose or message.loose
            assert may, f"{subscription} was given {message}, which {other} has"

    def _is_there(self, one: Subscription) -> bool:
        return not one.over and (one.until is None or self.time() < one.until)

    def answer(self, subscription: Subscription, message: Message, outcome: str, *, final: bool = False) -> None:
        subscription.holds[message] = outcome
        if outcome == "modified":
            subscription.changed.add(message)
        times = sum(one.times.get(message, 0) for one in self.subscriptions if one.covers(message.address))
        times = times if is_for_one(message.address) else subscription.times[message]
        gave_up = outcome in AGAIN and times > self._redeliveries
        message.refused = message.refused or outcome == "rejected" or final or gave_up

    def told(self, message: Message, outcome: str) -> None:
        """A publisher has read an outcome."""
        assert message.whole, f"{message} has an outcome and is not whole"
        assert outcome in ("accepted", "rejected"), f"{message} is {outcome} to its publisher"
        assert message.outcome in ("", outcome), f"{message} is {outcome} after {message.outcome}"
        message.outcome = outcome
        if outcome == "rejected":
            expired = message.hurries and not any(message in one.holds for one in self.subscriptions)
            may = expired or message.refused or self._is_large(message) or message.address.startswith(DYNAMIC)
            assert may, f"{message} is rejected, and nobody has refused it"
            return
        if is_for_one(message.address):
            has = any(one.holds.get(message) == "accepted" for one in self.subscriptions)
            assert has or message.address in self.settles, f"who has accepted {message}?"
            return
        for one in self._owed(message):
            answer = one.holds.get(message)
            assert answer == "accepted" or one.presettled, f"{message} is accepted, and {one} has said {answer!r}"

    def _is_large(self, message: Message) -> bool:
        """Whether the message, with added annotations, is too large for a subscriber or the router."""
        return message.size + ADDED > self.least

    def _owed(self, message: Message) -> Iterator[Subscription]:
        """Subscribers that were attached all the time."""
        for one in self.subscriptions:
            if one.covers(message.address) and one.since < message.at and self._is_there(one):
                yield one

    def check(self) -> None:
        """Check all messages once every client has done its part. Presettled messages may be dropped for lack of room
        (protocol 6).
        """
        for message in self._known.values():
            is_owed = message.outcome == "accepted" and not is_for_one(message.address)
            for one in self._owed(message) if is_owed else ():
                assert one.presettled or message in one.holds, f"{one} has not got {message}"
