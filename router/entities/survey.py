"""Passes once over all deliveries at this router, and finds the waits that they cause, and since when each was seen.

Each report makes one pass (`router.entities.report`), because several of its parts need it. The code that handles
single messages does not look for waits: it only counts totals."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

import trio
from attrs import field, frozen

from router.entities.states import PLACEHOLDER, STATES, UNCONFIRMED, state_of
from topic.delivery.record import SENT, HomeStream, Record, State
from topic.directory.entry import LinkEntry
from topic.edge.subscriber import LocalSubscriber
from topic.identity import shown_address
from topic.node import Node

NOBODY_KNOWS: Final = "that no router knows"
"""A text that stands for a link that no router in contact knows."""


class Ages:
    """Measures how long a wait lasts: the seconds for which the same delivery was seen to wait for the same link, from
    pass to pass. If each pass sees other deliveries, the age stays 0, so a busy mesh does not look like a waiting one.
    """

    def __init__(self) -> None:
        self._since: dict[tuple[str, bytes], float] = {}

    def look(self, seen: Iterable[tuple[str, bytes]]) -> dict[str, float]:
        """Return a map from each name to the seconds since a pass first saw one of the things that still wait under
        this name. `seen`: pairs of a name and a thing that waits, such as a delivery."""
        now = trio.current_time()
        self._since = {one: self._since.get(one, now) for one in seen}
        oldest: dict[str, float] = {}
        for (name, _), since in self._since.items():
            oldest[name] = min(oldest.get(name, now), since)
        return {name: round(now - since, 3) for name, since in oldest.items()}


@frozen
class DeliveryWait:
    """A wait: deliveries that are in doubt here wait for an outcome, or gated subscribers wait for older deliveries."""

    awaited: str
    publishers: list[str]
    records: int
    since_s: float


@frozen
class UnansweredAttaches:
    routers: list[str] = field(factory=list)
    """The routers whose answer this router awaits before it answers the attaches of clients."""
    since_s: float = 0.0


class Survey:
    """The results of the last pass at one router."""

    def __init__(self) -> None:
        self.records: dict[str, int] = {}
        """The number of records, by state."""
        self.bytes = 0
        """The bytes of the messages in these records, by state."""
        self.sent: Counter[LocalSubscriber] = Counter()
        """The number of deliveries without an outcome, by awaited subscriber."""
        self.waits: list[DeliveryWait] = []
        self.held: dict[bytes, list[str]] = {}
        """The links and routers for which each publisher without credit waits."""
        self.held_s: dict[str, float] = {}
        self.attaches = UnansweredAttaches()
        self._waits, self._holds, self._unanswered = Ages(), Ages(), Ages()

    def take(self, node: Node) -> None:
        states: Counter[str] = Counter()
        waits: defaultdict[str, list[Record]] = defaultdict(list)
        self.bytes, self.sent = 0, Counter()
        for record in node.topic.records.by_key.values():
            states[state_of(record)] += 1
            self.bytes += record.size
            self.sent.update(subscriber for subscriber, state in record.locals.items() if state == SENT)
            for name in _awaited(node, record):
                waits[name].append(record)
        for stream in node.topic.home.streams.values():
            for name in _full(node, stream):
                waits[name] += [record for record in stream.withheld if record.state is State.IN_DOUBT]
        self.records = {name: states[name] for name in (PLACEHOLDER, UNCONFIRMED, *STATES.values())}
        self.waits = list(self._waiting(node, waits))
        self._look_at_holds(node)
        self.attaches = self._attaches(node)

    def _waiting(self, node: Node, waits: defaultdict[str, list[Record]]) -> Iterator[DeliveryWait]:
        seen = [(name, record.key) for name, records in waits.items() for record in records]
        for stream in node.topic.home.streams.values():
            held = _held(node, stream)
            waits.update(held)
            # A gate counts as one waiting thing, however many deliveries wait behind it.
            seen += [(name, b"") for name in held]
        ages = self._waits.look(seen)
        for name, records in sorted(waits.items()):
            publishers = sorted({_publisher_of(node, record, "a publisher that no router knows") for record in records})
            yield DeliveryWait(name, publishers, len(records), ages[name])

    def _look_at_holds(self, node: Node) -> None:
        streams = node.topic.home.streams
        self.held = {name: held for name, stream in streams.items() if (held := _held_for(node, stream))}
        oldest = [next(chain(streams[name].records.values(), streams[name].withheld)).key for name in self.held]
        self.held_s = self._holds.look(zip((name.hex() for name in self.held), oldest, strict=True))

    def _attaches(self, node: Node) -> UnansweredAttaches:
        topic = node.topic
        told = {name for name, stream in topic.home.streams.items() if not stream.answered}
        told |= {name for name, subscriber in topic.edge.subscribers.items() if not subscriber.answered}
        waiting, routers = topic.attaches.waiting, topic.attaches.awaited
        # If no router in contact knows some of these links, the routers out of contact are named in their place.
        if not told.issuperset(waiting):
            routers |= set(topic.directory.members.others) - topic.directory.applied.keys()
        return UnansweredAttaches(sorted(routers), self._unanswered.look(("", name) for name in waiting).get("", 0.0))


def _held_for(node: Node, stream: HomeStream) -> list[str]:
    """The links and routers for which a publisher without credit waits; empty if it has credit."""
    if stream.link is None or not stream.answered or stream.window.credit:
        return []
    itself = f"publisher {stream.identity}, to settle"
    records = [record for record in stream.records.values() if record.state is not State.SETTLED]
    awaited = {name for record in records for name in _awaited(node, record)}
    awaited.update(_full(node, stream))
    return sorted(awaited | {itself} if any(r.state is State.ACCEPTED for r in records) else awaited)


def _full(node: Node, stream: HomeStream) -> Iterator[str]:
    """The routers that the withheld deliveries of the publisher wait for (protocol 5, Budgets)."""
    names = node.topic.home.publishing.awaited_routers(stream)
    return (f"router {name}, to receive messages that are under way" for name in names)


def _awaited(node: Node, record: Record) -> Iterator[str]:
    if record.state is not State.IN_DOUBT:
        return
    if state_of(record) in (UNCONFIRMED, PLACEHOLDER):
        yield f"publisher {_publisher_of(node, record)}"
        return
    yield from (f"subscriber {s.identity}" for s, state in record.locals.items() if state <= SENT)
    yield from (f"router {name}" for name in sorted(record.awaited))
    if isinstance(record.stream, HomeStream) and record in record.stream.unassigned:
        yield f"any subscriber of {shown_address(record.stream.address)} with credit"
    if isinstance(record.stream, HomeStream) and record in record.stream.resting:
        yield f"the end of its rest at {shown_address(record.stream.address)}"
    directory = node.topic.directory
    yield from (f"orphan {_name(directory.subscriber(name))}" for name in sorted(record.orphans))


def _held(node: Node, stream: HomeStream) -> dict[str, list[Record]]:
    """Maps each event that gates of this publisher await (as a text) to the records that gate subscribers until this
    event. Empty lists stand for questions about the publisher's life, for which no record waits (protocol 6.5, 6.6)."""
    held: dict[str, list[Record]] = {}
    publisher, directory = f"publisher {stream.identity}", node.topic.directory
    for name, gate in stream.gates.items():
        subscriber = f"subscriber {_name(directory.subscriber(name))}"
        if gate.unproven and stream.records:
            held[f"{publisher}, to show that it is alive, for {subscriber}"] = list(stream.records.values())
        gating = [record for n in gate.remaining if (record := stream.records.get(n)) is not None]
        if accepted := [record for record in gating if record.state is State.ACCEPTED]:
            held[f"{publisher}, to settle, for {subscriber}"] = accepted
    for doubt in stream.questions:
        if isinstance(doubt, tuple):
            held[f"{publisher}, to show that it is alive, for router {doubt[0]}"] = []
    return held


def _publisher_of(node: Node, record: Record, unknown: str = NOBODY_KNOWS) -> str:
    return _name(node.topic.directory.publisher(record.stream.publisher), unknown)


def _name(entry: LinkEntry | None, unknown: str = NOBODY_KNOWS) -> str:
    return str(entry.identity) if entry is not None else unknown
