"""A run to ask questions about, and the answers, computed from its entries in plain Python.

Publisher one moves from a to b in the middle of a delivery, router c has sent some of subscriber mid's deliveries
before, mid and far are slow at times, half an hour passes between deliveries, and there are violations.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any

import attrs

from failover.audit import Report
from tests.failover.audit.runs import ADDRESS, FAR, MID, NEAR, ONE, PUBLISHERS, START_MS, TWO, Client, Row, Run
from tests.failover.audit.test_violations import (
    application_processed_twice,
    nobody_published_it,
    record_was_kept,
    router_sent_a_later_one_first,
    subscriber_log_lacks_it,
)
from topic.identity import Epoch
from topic.journal import Event, LoggedOutcome

MESSAGES = 20
MOVED = 12
"""The delivery during which publisher one moves."""
AT_B = attrs.evolve(ONE, router="b")
RESUMED = (4, 9, 14)
"""Deliveries that c had sent to mid before."""
BETWEEN_MS = 1_700_000
Answer = list[tuple[Any, ...]]


class AskedRun(Run):
    def __init__(self) -> None:
        super().__init__(MESSAGES)

    def generation(self, client: Client) -> bytes:
        return super().generation(ONE if client.container == ONE.container else client)

    def epoch(self, client: Client) -> str:
        moved = (client.container, client.router) == (AT_B.container, AT_B.router)
        return str(Epoch((START_MS << 16) + 1, "b", START_MS)) if moved else super().epoch(client)

    def deliver(self, publisher: Client, tag: int) -> None:
        self._ms += BETWEEN_MS
        if publisher is not ONE or tag < MOVED:
            super().deliver(publisher, tag)
        elif tag > MOVED:
            super().deliver(AT_B, tag)
        else:
            self._deliver_moving(tag)

    def _deliver_moving(self, tag: int) -> None:
        about: Row = {"keys": [self.key(ONE, tag)], "address": ADDRESS, "publisher": ONE.name}
        new: Row = {"generation": self.generation(ONE), "tags": [b"%d" % tag]}
        self.add("clients/one", Event.PUBLISHED, **about, **new)
        self.add("a", Event.RECEIVED, n=tag, epoch=self.epoch(ONE), **about, **new)
        self._ms += 3_000
        attached: Row = {"publisher": ONE.name, "address": ADDRESS, "generation": self.generation(ONE)}
        for log in ("b", "clients/one"):
            self.add(log, Event.ATTACHED, detail=ONE.detail, epoch=self.epoch(AT_B), **attached)
        self.add("a", Event.STOLEN, publisher=ONE.name, address=ADDRESS, epoch=self.epoch(ONE), peer="b")
        super().deliver(attrs.evolve(AT_B, logs=False), tag)
        self.add("clients/one", Event.OUTCOME, outcome=LoggedOutcome.ACCEPTED, **about)
        self.add("clients/one", Event.SETTLED, **about)

    def hand_over(self, subscriber: Client, about: Row, told: Row) -> None:
        tag = next(tag for tag in range(MESSAGES) for one in PUBLISHERS if [self.key(one, tag)] == about["keys"])
        if subscriber is MID and tag in RESUMED:
            self.add("c", Event.DELIVERED, **told, subscriber=MID.name)
        self._ms += {MID: 40 * (tag % 3), FAR: 700 * (tag % 5 == 0)}.get(subscriber, 0)
        super().hand_over(subscriber, about, told)


def seeded() -> AskedRun:
    run = AskedRun()
    for spoil in (
        application_processed_twice,
        nobody_published_it,
        record_was_kept,
        router_sent_a_later_one_first,
        subscriber_log_lacks_it,
    ):
        spoil(run)
    run.leave_out(NEAR, TWO, *range(10, MESSAGES))
    run.leave_out(FAR, ONE, 5, 6, 7)
    return run


class Plain:
    """The statements of a run's entries about each delivery."""

    def __init__(self, run: Run) -> None:
        self.rows = [row | {"log": log} for log, rows in run.logs.items() for row in rows]
        self.publisher = {run.key(one, tag): one for one in PUBLISHERS for tag in range(MESSAGES)}

    def all(self, event: Event, **columns: Any) -> Iterator[tuple[bytes, Row]]:
        for row in self.rows:
            if row["event"] is event and all(row.get(name) == value for name, value in columns.items()):
                yield from ((key, row) for key in row.get("keys", ()))

    def at(self, event: Event, **columns: Any) -> dict[bytes, int]:
        """Delivery key -> the time of its first such event, in µs."""
        found: dict[bytes, int] = {}
        for key, row in self.all(event, **columns):
            found[key] = min(row["time_us"], found.get(key, row["time_us"]))
        return found

    def by_home(self, event: Event) -> dict[bytes, list[str]]:
        """Delivery key -> the routers that logged the event as its home, in order."""
        found = defaultdict[bytes, list[str]](list)
        for key, row in sorted(self.all(event, peer=None), key=lambda told: told[1]["time_us"]):
            if not row["log"].startswith("clients/"):
                found[key].append(row["log"])
        return found

    def answers(self, name: str) -> dict[bytes, int]:
        """Delivery key -> when this subscriber's router first logged that the subscriber accepted it, in µs."""
        return self.at(Event.OUTCOME, subscriber=name)

    def hour(self, us: int) -> datetime:
        return datetime.fromtimestamp(us // 1_000_000, UTC).replace(minute=0, second=0, tzinfo=None)


SUBSCRIBERS = {client.name: str(client.identity) for client in (NEAR, MID, FAR)}


def latencies(plain: Plain, report: Report) -> Answer:
    published, home = plain.at(Event.PUBLISHED), plain.by_home(Event.ACCEPTED)
    found = defaultdict[tuple[str, datetime], list[int]](list)
    for name in SUBSCRIBERS:
        for key, us in plain.at(Event.PROCESSED, subscriber=name).items():
            if key in published:
                found[home[key][0], plain.hour(published[key])].append(us - published[key])
    ordered = ((of, sorted(us)) for of, us in sorted(found.items()))
    return [(*of, len(us), us[ceil(len(us) * 0.5) - 1], us[ceil(len(us) * 0.99) - 1]) for of, us in ordered]


def longest(plain: Plain, report: Report) -> Answer:
    received, found = plain.at(Event.RECEIVED, peer=None), []
    for name, identity in SUBSCRIBERS.items():
        waits = {key: us - received[key] for key, us in plain.answers(name).items() if key in received}
        found.append((identity, max(waits.values()), max(waits, key=lambda key: waits[key]).decode()))
    return sorted(found, key=lambda row: -row[1])


def held_up(plain: Plain, report: Report) -> Answer:
    by_key = defaultdict[bytes, list[tuple[int, str]]](list)
    for name, identity in SUBSCRIBERS.items():
        for key, us in plain.answers(name).items():
            by_key[key].append((us, identity))
    last, held = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for key, told in by_key.items():
        if len(told) > 1 and key in plain.publisher:
            (before, _), (us, identity) = sorted(told)[-2:]
            last[str(plain.publisher[key].identity), identity] += 1
            held[str(plain.publisher[key].identity), identity] += us - before
    return [(*pair, last[pair], held[pair]) for pair in sorted(held, key=lambda pair: -held[pair])]


def in_doubt(plain: Plain, report: Report) -> Answer:
    received, answered = plain.at(Event.RECEIVED, peer=None), plain.at(Event.ACCEPTED)
    return [
        (
            key.decode(),
            [f"{home}.{START_MS}" for home in homes],
            "accepted",
            datetime.fromtimestamp(0, UTC).replace(tzinfo=None) + timedelta(microseconds=answered[key]),
            answered[key] - received[key],
        )
        for key, homes in sorted(plain.by_home(Event.RECEIVED).items())
        if len(set(homes)) > 1
    ]


def resumed(plain: Plain, report: Report) -> Answer:
    senders = defaultdict[tuple[bytes, str], list[str]](list)
    for key, row in sorted(plain.all(Event.DELIVERED), key=lambda told: told[1]["time_us"]):
        if not row["log"].startswith("clients/"):
            senders[key, row["subscriber"]].append(row["log"])
    found = Counter((SUBSCRIBERS[name], by[-1]) for (_, name), by in senders.items() if len({*by}) > 1)
    return [(*where, number) for where, number in sorted(found.items())]


def violated(plain: Plain, report: Report) -> Answer:
    """A finding at a router concerns all subscribers."""
    everybody = tuple(SUBSCRIBERS.values())
    befell = [(one, one.subscribers if one.router is None else everybody) for one in report.findings]
    found = Counter((one.kind, one.publisher, name) for one, names in befell for name in names)
    return [(*of, number) for of, number in sorted(found.items())]


def pairs(plain: Plain, report: Report) -> Answer:
    return sorted(
        (row.publisher, row.subscriber, row.owed, row.processed, sum(row.violations.values()), row.unknown)
        for row in report.pairs
    )


def story(plain: Plain, report: Report) -> Answer:
    received, answered = plain.at(Event.RECEIVED, peer=None), plain.at(Event.ACCEPTED)
    key = max(answered, key=lambda key: answered[key] - received.get(key, answered[key]))
    told = sorted((row["time_us"], row["log"], row["event"].name) for row in plain.rows if key in row.get("keys", ()))
    epoch = datetime.fromtimestamp(0, UTC).replace(tzinfo=None)
    return [(log, event, epoch + timedelta(microseconds=us)) for us, log, event in told]


def moves(plain: Plain, report: Report) -> Answer:
    known = {client.name: client for client in (*PUBLISHERS, NEAR, MID, FAR)}
    attaches = defaultdict[Client, list[str]](list)
    for row in plain.rows:
        if row["event"] is Event.ATTACHED and not row["log"].startswith("clients/"):
            attaches[known[row.get("publisher") or row["subscriber"]]].append(row["log"])
    stolen = Counter(row["publisher"] for row in plain.rows if row["event"] is Event.STOLEN)
    return sorted(
        (str(client.identity), client.role, len(at), len({*at}), stolen[client.name]) for client, at in attaches.items()
    )


ANSWERS: dict[str, Callable[[Plain, Report], Answer]] = {
    "How long did deliveries take, by router and hour?": latencies,
    "Who waited longest, by subscriber?": longest,
    "Who held up whom?": held_up,
    "Which deliveries were in doubt, and how did they end?": in_doubt,
    "What was resumed, and where?": resumed,
    "What was violated, and at whose cost?": violated,
    "What is the verdict on each pair?": pairs,
    "What happened around a delivery's longest wait?": story,
    "Who moved, and how often?": moves,
}
"""Keyed by the headings of docs/tables.md."""
