"""What a router says of itself: the JSON behind `oncemesh status` (documented in docs/status.md).

Computed when asked for, from the cores' own state; nothing is counted for it on the way of a message but totals.
"""

import json
import os
from collections import Counter
from collections.abc import Collection
from typing import Any

import psutil
import trio

from router.node import Node
from topic.record import SENT, Record, State, Stream
from topic.subscriber import Subscriber

STATES = {
    State.PLACEHOLDER: "placeholder",
    State.IN_DOUBT: "in_doubt",
    State.ACCEPTED: "accepted",
    State.SETTLED: "settled",
}


class Reporter:
    """Status of one router incarnation."""

    def __init__(self, node: Node, mesh: str, connections: Collection[object]) -> None:
        self._node = node
        self._connections = connections
        self._mesh = mesh
        self._started = trio.current_time()
        self._process = psutil.Process()
        self._waits: dict[str, float] = {}

    def __call__(self) -> bytes:
        return json.dumps(self.status()).encode()

    def status(self) -> dict[str, Any]:
        node, topic = self._node, self._node.topic
        counts = Counter(record.state for record in topic.context.records.values())
        return {
            "router": node.name,
            "mesh": self._mesh,
            "incarnation": node.incarnation,
            "pid": os.getpid(),
            "state": "ready" if topic.booted else "booting",
            "waiting_for": topic.waiting_for,
            "uptime_s": round(trio.current_time() - self._started, 3),
            "rss_bytes": self._process.memory_info().rss,
            "connections": len(self._connections),
            "links": self._links(),
            "routes": self._routes(),
            "publishers": [self._publisher(stream) for stream in topic.home.streams.values()],
            "subscribers": self._subscribers(),
            "records": {name: counts.get(state, 0) for state, name in STATES.items()},
            "waits": self._waiting(),
        }

    def _links(self) -> list[dict[str, Any]]:
        now = trio.current_time()
        return [
            {"neighbour": name, "up": link.up, "cost": link.cost, "since_s": round(now - link.since, 3)}
            for name, link in sorted(self._node.mesh.neighbours.items())
        ]

    def _routes(self) -> list[dict[str, Any]]:
        contacts = self._node.topic.directory.contacts
        return [
            {"router": name, "next_hop": route.next_hop, "cost": route.cost, "contact": name in contacts}
            for name, route in sorted(self._node.mesh.routes.items())
        ]

    def _publisher(self, stream: Stream) -> dict[str, Any]:
        waits = stream.publisher in self._node.topic.attaching.waiting
        return {
            **_identity(stream.identity),
            "status": "suspended" if stream.link is None else "attaching" if waits else "attached",
            "unsettled": stream.unsettled,
            "received": stream.received,
        }

    def _subscribers(self) -> list[dict[str, Any]]:
        sent: Counter[Subscriber] = Counter()
        for record in self._node.topic.context.records.values():
            sent.update(subscriber for subscriber, state in record.locals.items() if state == SENT)
        return [
            {
                **_identity(subscriber.identity),
                "status": _status(subscriber),
                "queued": subscriber.queued(),
                "unsettled": sent[subscriber],
                "credit": subscriber.credit,
                "delivered": subscriber.delivered,
                "accepted": subscriber.accepted,
            }
            for subscriber in self._node.topic.edge.subscribers.values()
        ]

    def _waiting(self) -> list[dict[str, Any]]:
        """Who is awaited by deliveries in doubt here, and since this was first seen."""
        now = trio.current_time()
        waits: Counter[str] = Counter()
        for record in self._node.topic.context.records.values():
            waits.update(self._awaited(record))
        self._waits = {name: self._waits.get(name, now) for name in waits}
        return [
            {"for": name, "records": count, "since_s": round(now - self._waits[name], 3)}
            for name, count in sorted(waits.items())
        ]

    @staticmethod
    def _awaited(record: Record) -> list[str]:
        if record.state is not State.IN_DOUBT:
            return []
        locally = [f"subscriber {s.identity}" for s, state in record.locals.items() if state <= SENT]
        return [*locally, *(f"router {name}" for name in sorted(record.awaited))]


def _status(subscriber: Subscriber) -> str:
    if subscriber.link is None:
        return "suspended"
    return "attached" if subscriber.answered else "joining"


def _identity(identity: Any) -> dict[str, str]:
    return {"container": identity.container, "link": identity.link, "address": identity.address}
