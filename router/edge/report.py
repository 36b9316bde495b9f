"""What a router says of itself: the JSON behind `oncemesh status` (documented in docs/status.md).

Computed when asked for, from the cores' own state; nothing is counted for it on the way of a message but totals.
"""

import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Protocol

import psutil
import trio

from linkstate.clock import COUNTER_BITS
from linkstate.mesh import Mesh
from router.amqp.format.values import StreamFigures
from topic.delivery.record import SENT, Record, State, Stream
from topic.directory.entry import LinkEntry
from topic.edge.subscriber import LocalSubscriber
from topic.node import Node

STATES = {State.IN_DOUBT: "in_doubt", State.ACCEPTED: "accepted", State.SETTLED: "settled"}
PLACEHOLDER, UNCONFIRMED = "placeholder", "unconfirmed"
"""Records in doubt that no home vouches for: without a message, and with one."""
NOBODY_KNOWS = "that nobody knows"
"""In place of the name of a link."""


class WrittenLog(Protocol):
    """The delivery log: why it cannot be written, if it cannot, and how many entries it lacks by now."""

    why: str
    missing: int


class Ages:
    """For how long one and the same has been seen of a name, from look to look. A name of which there is always another
    one does not grow old: so a mesh under load does not look like one that waits."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, bytes], float] = {}

    def look(self, seen: Iterable[tuple[str, bytes]], now: float) -> dict[str, float]:
        """Name -> seconds since its oldest was first seen."""
        self._since = {one: self._since.get(one, now) for one in seen}
        oldest: dict[str, float] = {}
        for (name, _), since in self._since.items():
            oldest[name] = min(oldest.get(name, now), since)
        return {name: round(now - since, 3) for name, since in oldest.items()}


class Reporter:
    """Status of one router incarnation."""

    def __init__(
        self, node: Node, linkstate: Mesh, mesh: str, connections: Collection[object], log: WrittenLog,
        exceeded: Mapping[str, int],
    ) -> None:  # fmt: skip
        """`mesh` is its name; `exceeded` how often each limit was."""
        self._node = node
        self._linkstate = linkstate
        self._connections = connections
        self._mesh = mesh
        self._log = log
        self._exceeded = exceeded
        self._started = trio.current_time()
        self._epoch = time.time() - self._started
        self._process = psutil.Process()
        self._waits = Ages()
        self._waiting_attaches = Ages()
        self._holds = Ages()

    def __call__(self) -> bytes:
        return json.dumps(self.status()).encode()

    def status(self) -> dict[str, Any]:
        node, topic = self._node, self._node.topic
        counts = Counter(map(state_of, topic.records.by_key.values()))
        return {
            "router": node.name,
            "mesh": self._mesh,
            "incarnation": node.incarnation,
            "pid": os.getpid(),
            "state": "ready" if topic.booted else "booting",
            "waiting_for": topic.boot.waiting_for,
            "uptime_s": round(trio.current_time() - self._started, 3),
            "clock": self._clock(),
            "rss_bytes": self._process.memory_info().rss,
            "connections": len(self._connections),
            "plan": self._plan(),
            "links": self._links(),
            "routes": self._routes(),
            "publishers": self._publishers(),
            "subscribers": self._subscribers(),
            "orphans": [self._orphan(entry) for entry in topic.directory.entries() if self._is_orphan(entry)],
            "lapsed": self._lapsed(),
            "untold": [_untold(entry) for entry in topic.directory.entries() if entry.is_untold],
            "attaches": self._attaches(),
            "message_bytes": sum(record.size for record in topic.records.by_key.values()),
            "records": {name: counts[name] for name in (PLACEHOLDER, UNCONFIRMED, *STATES.values())},
            "waits": self._waiting(),
            "exceeded": dict(self._exceeded),
            "disk": {"log": self._log.why, "missing": self._log.missing, "store": node.unkept},
        }

    def _clock(self) -> dict[str, Any]:
        """Ours, and how much further the fastest one is that we have heard of."""
        hybrid, now = self._node.topic.outlet.clock, time.time()
        seen = {
            "time": now,
            "moved_s": now - trio.current_time() - self._epoch,
            "behind_s": max(0.0, (hybrid.read() >> COUNTER_BITS) / 1000 - now),
        }
        return {name: round(value, 3) for name, value in seen.items()} | {"refused": hybrid.refused}

    def _plan(self) -> dict[str, Any]:
        """The routers of the mesh, and what two routers that agree on all of it have alike."""
        plan = self._linkstate.plan
        standings = {name: plan.routers[name].standing.name.lower() for name in sorted(plan.listed)}
        return {"digest": f"{plan.digest:x}", "routers": standings}

    def _links(self) -> list[dict[str, Any]]:
        now = trio.current_time()
        return [
            {"neighbour": name, "up": link.up, "cost": link.cost, "since_s": round(now - link.since, 3)}
            for name, link in sorted(self._linkstate.neighbours.items())
        ]

    def _routes(self) -> list[dict[str, Any]]:
        contacts = self._node.topic.directory.contacts
        return [
            {"router": name, "next_hop": route.next_hop, "cost": route.cost, "contact": name in contacts}
            for name, route in sorted(self._linkstate.routes.items())
        ]

    def _publishers(self) -> list[dict[str, Any]]:
        streams = self._node.topic.home.streams
        held = {name: self._held_for(stream) for name, stream in streams.items()}
        oldest = [
            (name.hex(), next(chain(streams[name].records.values(), streams[name].withheld)).key)
            for name, by in held.items()
            if by
        ]
        ages = self._holds.look(oldest, trio.current_time())
        return [
            self._publisher(stream) | {"held_for": held[name], "held_s": ages.get(name.hex(), 0.0)}
            for name, stream in streams.items()
        ]

    def _publisher(self, stream: Stream) -> dict[str, Any]:
        return {
            **stream.identity.parts(),
            "status": publisher_status(stream, self._node.topic.attaches.waiting),
            "unsettled": stream.window.unsettled,
            "bytes": stream.window.held,
            "credit": stream.window.credit,
            "received": stream.received,
            "connection_bytes": carried.received if (carried := _carried(stream.link)) is not None else None,
            "answers": stream.link is not None and stream.link.signs.answers,
        }

    def _held_for(self, stream: Stream) -> list[str]:
        """Whom a publisher without credit waits for."""
        if stream.link is None or not stream.answered or stream.window.credit:
            return []
        itself = f"publisher {stream.identity}, to settle"
        records = [record for record in stream.records.values() if record.state is not State.SETTLED]
        awaited = {name for record in records for name in self._awaited(record)}
        full = self._node.topic.home.publishing.awaited_routers(stream)
        awaited |= {f"router {name}, to take what is under way to it" for name in full}
        return sorted(awaited | {itself} if any(r.state is State.ACCEPTED for r in records) else awaited)

    def _subscribers(self) -> list[dict[str, Any]]:
        sent: Counter[LocalSubscriber] = Counter()
        for record in self._node.topic.records.by_key.values():
            sent.update(subscriber for subscriber, state in record.locals.items() if state == SENT)
        return [
            {
                **subscriber.identity.parts(),
                "status": status_of(subscriber),
                "timeout_s": subscriber.lifetime.timeout,
                "queued": subscriber.queued(),
                "unsettled": sent[subscriber],
                "credit": subscriber.credit,
                "delivered": subscriber.delivered,
                "accepted": subscriber.accepted,
                "connection_bytes": carried.sent if (carried := _carried(subscriber.link)) is not None else None,
            }
            for subscriber in self._node.topic.edge.subscribers.values()
        ]

    def _is_orphan(self, entry: LinkEntry) -> bool:
        return entry.lasts and not self._node.topic.directory.in_contact(entry)

    @staticmethod
    def _orphan(entry: LinkEntry) -> dict[str, Any]:
        role = entry.role.name.lower()
        return {"role": role, **entry.identity.parts(), "router": entry.router, "timeout_s": entry.lifetime.timeout}

    def _lapsed(self) -> list[dict[str, Any]]:
        """Subscribers that nobody waits for here any more (protocol 8, Apart)."""
        topic = self._node.topic
        lapsed = [(topic.directory.subscriber(name), since_us) for name, since_us in topic.directory.lapsed.items()]
        return [
            {
                **entry.identity.parts(),
                "router": entry.router,
                "since_s": round((topic.outlet.time_us - since_us) / 1e6, 3),
            }
            for entry, since_us in lapsed
            if entry is not None and entry.lasts
        ]

    def _attaches(self) -> dict[str, Any]:
        """Those that are not answered yet, and the routers that the answers wait for."""
        topic = self._node.topic
        told = {name for name, stream in topic.home.streams.items() if not stream.answered}
        told |= {name for name, subscriber in topic.edge.subscribers.items() if not subscriber.answered}
        waiting, routers = topic.attaches.waiting, topic.attaches.awaited
        if not told.issuperset(waiting):  # links that nobody in contact knows: perhaps the others do
            routers |= set(topic.directory.members.others) - topic.directory.applied.keys()
        ages = self._waiting_attaches.look((("", name) for name in waiting), trio.current_time())
        return {"waiting": len(waiting), "for": sorted(routers), "since_s": ages.get("", 0.0)}

    def _waiting(self) -> list[dict[str, Any]]:
        """Who is awaited by deliveries in doubt here, or by subscribers that are gated, whose these are, and since when
        one of them has been seen to wait."""
        waits: defaultdict[str, list[Record]] = defaultdict(list)
        for record in self._node.topic.records.by_key.values():
            for name in self._awaited(record):
                waits[name].append(record)
        seen = [(name, record.key) for name, records in waits.items() for record in records]
        for stream in self._node.topic.home.streams.values():
            held = self._held(stream)
            waits.update(held)
            seen += [(name, b"") for name in held]  # a gate is one thing, whatever waits behind it
        ages = self._waits.look(seen, trio.current_time())
        return [
            {
                "for": name,
                "publishers": sorted({self._publisher_of(record, "one that nobody knows") for record in records}),
                "records": len(records),
                "since_s": ages[name],
            }
            for name, records in sorted(waits.items())
        ]

    def _awaited(self, record: Record) -> Iterator[str]:
        if record.state is not State.IN_DOUBT:
            return
        if state_of(record) in (UNCONFIRMED, PLACEHOLDER):
            yield f"publisher {self._publisher_of(record)}"
            return
        yield from (f"subscriber {s.identity}" for s, state in record.locals.items() if state <= SENT)
        yield from (f"router {name}" for name in sorted(record.awaited))
        directory = self._node.topic.directory
        yield from (f"orphan {self._name(directory.subscriber(name))}" for name in sorted(record.orphans))

    def _publisher_of(self, record: Record, unknown: str = NOBODY_KNOWS) -> str:
        return self._name(self._node.topic.directory.publisher(record.stream.publisher), unknown)

    def _held(self, stream: Stream) -> dict[str, list[Record]]:
        """What keeps subscribers from later deliveries of this publisher (protocol 6.5, 6.6)."""
        held: dict[str, list[Record]] = {}
        publisher, directory = f"publisher {stream.identity}", self._node.topic.directory
        for name, gate in stream.gates.items():
            subscriber = f"subscriber {self._name(directory.subscriber(name))}"
            if gate.unproven and stream.records:
                held[f"{publisher}, to show that it is alive, for {subscriber}"] = list(stream.records.values())
            gating = [record for n in gate.remaining if (record := stream.records.get(n)) is not None]
            if accepted := [record for record in gating if record.state is State.ACCEPTED]:
                held[f"{publisher}, to settle, for {subscriber}"] = accepted
        for doubt in stream.questions:
            if isinstance(doubt, tuple):
                held[f"{publisher}, to show that it is alive, for router {doubt[0]}"] = []
        return held

    @staticmethod
    def _name(entry: LinkEntry | None, unknown: str = NOBODY_KNOWS) -> str:
        return str(entry.identity) if entry is not None else unknown


def only_of(user: str, report: bytes) -> bytes:
    """A report that names no links but those of this user."""
    status = json.loads(report)
    for name in ("publishers", "subscribers", "orphans", "lapsed", "untold"):
        own = [link for link in status[name] if user and link.get("user") == user]
        status[name] = [{**link, "held_for": []} if "held_for" in link else link for link in own]
    status["waits"] = []
    return json.dumps(status).encode()


def _carried(link: Any) -> StreamFigures | None:
    """What the connection has carried that a client's link is on."""
    return link.link.connection.measure() if link is not None else None


def state_of(record: Record) -> str:
    if record.key in record.stream.unconfirmed:
        return PLACEHOLDER if record.message is None else UNCONFIRMED
    return STATES[record.state]


def publisher_status(stream: Stream, waiting: Collection[bytes]) -> str:
    """`waiting` are the links whose attaches are not answered yet."""
    return "suspended" if stream.link is None else "attaching" if stream.publisher in waiting else "attached"


def status_of(subscriber: LocalSubscriber) -> str:
    if subscriber.link is None:
        return "suspended"
    return "attached" if subscriber.answered else "joining"


def _untold(entry: LinkEntry) -> dict[str, Any]:
    """A subscriber that something was accepted without, and whose client does not know (protocol 8, Apart)."""
    return {**entry.identity.parts(), "ending": entry.ending}
