"""Checks what routers must remember, and for how long: settled deliveries, durable links, clocks (protocol 2,
3.3, 5)."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from linkstate.clock import ECHO_MS, TRUST_MS
from topic.delivery.record import Record, State
from topic.directory.entry import Role
from topic.identity import Epoch, link_name

if TYPE_CHECKING:
    from tests.simulation.judge import Judge
    from tests.simulation.link import Link
    from tests.simulation.router import Router
    from tests.simulation.subscriber_link import SubscriberLink


class Memory:
    def __init__(self, judge: "Judge") -> None:
        self._judge = judge
        self.named: set[bytes] = set()
        """Keys in the unsettled map of the subscriber that attaches in this event."""
        self.deleted: set[tuple[str, str]] = set()
        """(router, client): the router knew this durable client, and its store does not know it, or has an older state
        of it.
        """
        self.overtaken: set[str] = set()
        """Clients of which an attach got a lower epoch than an earlier attach."""
        self._forgotten: list[bytes] = []
        """Keys that the router has forgotten in the event that it is handling."""
        self._stamps: dict[str, int] = {}
        """Keyed by router: the highest stamp of an attach that it has known. Lost with its store."""

    # deliveries

    def forgotten(self, router: "Router", keys: Sequence[bytes]) -> None:
        """A router forgets settled deliveries, as home or edge. It need not remember deliveries of a life that is
        over."""
        records = router.topic.records.by_key
        named = [key for key in self.named.intersection(keys) if not records[key].stream.abandoned]
        self._judge.check(not named, f"5 forgotten early: {named}, which the map names that a subscriber just brings")
        self._forgotten += keys

    def watch(self, router: "Router") -> None:
        """Check what the router's last event made it forget. (A withheld delivery may leave an older one of its
        key.)"""
        self._check_receipts(router)
        keys = [key for key in self._forgotten if key not in router.topic.records.by_key]
        self._forgotten.clear()
        if keys:
            self._check_forgotten(router, keys)

    def _check_receipts(self, router: "Router") -> None:
        """The router waits for no receipt of a delivery that the subscriber has settled itself."""
        for link in [client.link for client in self._judge.subscribers if client.link is not None]:
            if link.forgotten and link.router is router and link.subscriber.link is link:
                needless = [record.key for record in link.subscriber.unread if record in link.forgotten]
                self._judge.check(not needless, f"5 receipt: {router.name} keeps {needless}, which {link} has settled")

    def _check_forgotten(self, home: "Router", keys: list[bytes]) -> None:
        for client in self._judge.subscribers:
            link = client.link
            if link is not None and link.router is home and client.lifetime.timeout and not client.first:
                held = set(client.handles.values()).intersection(keys)
                known = not held or not link.is_current()
                self._judge.check(known, f"5 forgotten early: {home.name} forgets what {client.name} holds: {held}")
        for name in home.topic.directory.contacts:
            if self._judge.contact(home, name) is not None:
                self._check_edge(home, self._judge.routers[name], keys)

    def _check_edge(self, home: "Router", edge: "Router", keys: list[bytes]) -> None:
        known, parted = edge.topic.records.by_key, edge.lost_at.get(home.name, -math.inf)
        lately = [key for key in keys if key in known and self._published(key) > parted]
        held = [key for key in lately if _is_forwarded(known[key], home)]
        self._judge.check(not held, f"5 forgotten early: {home.name} forgets what {edge.name} has of it: {held}")

    def _published(self, key: bytes) -> float:
        """When the message was published. -inf for a message that a queue gives to its consumers: its time is not
        known.
        """
        return -math.inf if self._judge.queues.owns(key) else self._judge.by_key[key].published

    @staticmethod
    def settled_at(link: "SubscriberLink") -> dict[bytes, Record]:
        """Messages in the subscriber's map -> the record, for each key under which the router of the link holds a
        settled delivery.
        """
        records = link.router.topic.records.by_key
        held = [(records.get(key), text) for key, text in link.client.texts.items()]
        return {text: record for record, text in held if record and record.state is State.SETTLED}

    # links and clocks

    def boots(self, router: "Router", former: int, *, store: bool) -> None:
        """A router has started again. If it has its store, it knows the durable links that it knew (8, Boot)."""
        self._judge.queues.bound.boots(router, former, store=store)
        remembered = self._judge.termini.remembered(router, former)
        if not store:
            self.deleted |= {(router.name, name) for name, _, known in remembered if known is None}
            self._stamps.pop(router.name, None)
            self._endings_lost()
            return
        for name, epoch, known in remembered:
            self._judge.check(known == epoch, f"3 store: {router.name} knew {name} by {epoch}, now by {known}")

    def _endings_lost(self) -> None:
        """Limit: a router tells a subscriber that it has ended, unless all routers that knew this have lost their
        memory (protocol 10).
        """
        judge = self._judge
        for client in [client for client in judge.subscribers if judge.untold.get(client.name)]:
            index = Role.SUBSCRIBER, link_name(client.identity)
            alive = [router.topic.directory.entry(index) for router in judge.routers.values() if router.alive]
            kept = [router.store.entries.get(index) for router in judge.routers.values()]
            if not any(entry is not None and entry.ending for entry in [*alive, *kept]):
                judge.untold[client.name] = False
                judge.note("judge", f"limit: nobody knows any more that {client.name} has ended")

    def epoch_seen(self, router: "Router", epoch: Epoch) -> None:
        """The router knows an attach with that epoch."""
        self._stamps[router.name] = max(epoch.hlc, self.latest(router))

    def latest(self, router: "Router") -> int:
        """The highest stamp of an attach that the router knows."""
        return self._stamps.get(router.name, 0)

    def epoch_given(self, link: "Link") -> None:
        """An attach reaches its router. Its epoch has to be later than the epoch that the client echoes, and than all
        that the router knew and gave, even before a restart. This does not hold if clocks differ so much that routers
        refuse each other's (protocol 10), or have not followed an epoch that a client has echoed (protocol 2)."""
        assert link.epoch is not None
        check, name = self._judge.check, link.router.name
        above = [
            ("all that it echoes", link.echoed_epoch.hlc, TRUST_MS), (f"all that {name} knew", link.latest, ECHO_MS)
        ]  # fmt: skip
        apart_ms = 2 * max(router.most_skew_us for router in self._judge.routers.values()) / 1000
        for what, stamp, trust_ms in above:
            if apart_ms < trust_ms:
                check(link.epoch.hlc > stamp, f"2 epoch: {link} is given none above {what}")
        self.epoch_seen(link.router, link.epoch)
        arrived = [(other, other.epoch) for other in link.client.opened if other.epoch is not None]
        begun = [other for other, _ in arrived if other.afresh or other.life > link.life]
        inverted = any(epoch > link.epoch for _, epoch in arrived) or any(link.number < other.number for other in begun)
        if not inverted:
            return
        if link.client.name not in self.overtaken:
            self._judge.note(name, f"limit: {link.client.name} was given an epoch before its last one")
        self.overtaken.add(link.client.name)
        if link.client.name in self._judge.readers:
            self._judge.inexact.add(link.client.name)


def _is_forwarded(record: Record, home: "Router") -> bool:
    """Whether an edge has the record by a Forward of the present epoch."""
    stream = record.stream
    current = home.topic.home.streams.get(stream.publisher)
    is_current = current is not None and current.epoch == stream.epoch
    return is_current and record.n >= 0 and not stream.abandoned
