"""The verdict of the audit and its evidence: for the terminal, for audit.json, and as an exit code."""

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from enum import IntEnum
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console
from rich.table import Table

from failover.audit.judge.kinds import FINDINGS_KEPT, SHARED, UNACCEPTED, UNOWED, UNPROCESSED
from failover.audit.measure.crossings import Crossing, RouterRow
from failover.audit.measure.figures import Measures
from failover.audit.read.inventory import Log, Problem
from failover.audit.report.story import DeliveryStory
from router.text.fitting import Fitting

ROWS_SHOWN = 40
LOGS_NAMED = 5
EXCEPTIONS_SAID = 3
"""The verdict's sentence names at most this number of exceptions; the report lists all of them."""


class Verdict(IntEnum):
    """The verdict. Its number is the exit code of the command."""

    HOLDS = 0
    VIOLATED = 1
    INCOMPLETE = 2
    UNDECIDED = 3
    QUALIFIED = 4
    """Exactly once holds, but homes accepted some deliveries without subscribers that were attached at the time."""


@attrs.frozen(slots=True)
class Finding:
    """One violation: its kind, and the delivery and the links that it is about."""

    kind: str
    key: str
    publisher: str
    subscribers: tuple[str, ...]
    router: str | None = None
    """The router whose record the rule is about; empty if it is about no record."""
    life: int = 0
    """The number of the key's use, from 1 on, if the publisher has used the tag, and so the key, more than once."""

    @property
    def delivery(self) -> str:
        return f"{self.key} (use {self.life} of its tag)" if self.life else self.key


@attrs.frozen(slots=True)
class PublisherRow:
    publisher: str
    address: str
    published: int
    accepted: int
    unanswered: int
    """How many deliveries have no known outcome. They are owed to no subscriber."""
    alone: int = 0
    """How many deliveries, by the logs of their homes, were accepted without any subscriber (protocol 5, Nobody)."""


@attrs.frozen(slots=True)
class PairRow:
    """The counts of one publisher's deliveries to one subscriber."""

    publisher: str
    subscriber: str
    mode: str
    published: int
    accepted: int
    owed: int
    processed: int
    violations: dict[str, int]
    unknown: int
    without: int = 0
    """How many deliveries were accepted without the subscriber although it was there, and so were not owed to it. The
    publisher's home did not know the subscriber, or no longer waited for it."""
    away: int = 0
    """How many deliveries were accepted without the subscriber while it was gone for longer than its timeout."""
    unowed: dict[str, int] = attrs.field(factory=dict)
    """Maps each reason in `kinds.UNOWED` to the number of deliveries that the subscriber processed although it was not
    owed them."""
    unprocessed: dict[str, int] = attrs.field(factory=dict)
    """Maps each reason in `kinds.UNPROCESSED` to the number of deliveries that the subscriber was owed and did not
    process."""

    @property
    def remarks(self) -> list[str]:
        """Remarks that explain the counts: the deliveries that were processed and not owed, or owed and not processed;
        and the messages that the subscriber missed while it was away."""
        told = []
        if unowed := {reason: count for reason, count in self.unowed.items() if reason != SHARED}:
            told.append(f"{sum(unowed.values())} processed but not owed: {_listed(unowed, UNOWED)}")
        if self.unprocessed:
            left = sum(self.unprocessed.values())
            told.append(f"{left} owed but not processed: {_listed(self.unprocessed, UNPROCESSED)}")
        if self.away:
            told.append(f"{self.away} accepted while this subscriber was away for longer than its timeout")
        return [f"{self.publisher} to {self.subscriber}: {one}" for one in told]


@attrs.frozen(slots=True)
class QueueRow:
    """How many messages of one queue had each fate, by the logs of the replicas of its set."""

    queue: str
    set: str
    enqueued: int
    dequeued: int
    """How many messages left the queue because consumers accepted or rejected them."""
    expired: int
    purged: int
    deleted: int
    """How many messages were deleted together with the queue."""
    sent: int
    """How many messages the set has sent to another address: dead letters, and dead letters that an operator moved back
    to their queue. Messages that wait for this in the outbox count, too."""
    returned: int
    """How often a message came back from a consumer."""
    waiting: int | None
    """How many messages were in the queue at the end of the logs; None if unknown."""


def _listed(counts: dict[str, int], reasons: dict[str, str]) -> str:
    return "; ".join(f"{count} {reasons[reason]}" for reason, count in counts.items())


@attrs.frozen(slots=True, kw_only=True)
class Report:
    run_dirs: tuple[str, ...]
    publishers: tuple[PublisherRow, ...]
    pairs: tuple[PairRow, ...]
    violations: dict[str, int]
    """Maps each kind of violation to the number of violations that were found. Kinds without a violation are left
    out."""
    findings: tuple[Finding, ...]
    doubts: tuple[str, ...]
    """Unknown facts that keep the verdict from *holds*."""
    queues: tuple[QueueRow, ...] = ()
    exceptions: tuple[str, ...] = ()
    """Subscribers that were left out although they were there, and links that were ended in use."""
    problems: tuple[Problem, ...]
    torn: tuple[Problem, ...]
    logs: tuple[Log, ...]
    since: int = 0
    """A time in µs of wall clock. The verdict covers deliveries that began after it, because older logs are deleted.
    With 0, it covers the whole run."""
    left_out: int = 0
    """The number of deliveries that the verdict does not cover."""
    clocks: tuple[str, ...] = ()
    """The wall clocks by which the audit does not order entries, each with the reason."""
    unknown_records: int
    """How many records of settled deliveries their router may or may not have forgotten. Its log has no clean end, or
    ends just after the settlement."""
    routers: tuple[RouterRow, ...] = ()
    crossings: tuple[Crossing, ...] = ()
    """The deliveries that were under way when a fault struck, for each fault."""
    measures: Measures | None = None
    stories: tuple[DeliveryStory, ...] = ()
    """The stories of the deliveries that the first few findings of each kind name."""

    @property
    def verdict(self) -> Verdict:
        """The verdict. If a log is damaged or missing, there is none, even if rules found violations, because missing
        entries may have caused these."""
        if self.problems:
            return Verdict.INCOMPLETE
        if self.violations:
            return Verdict.VIOLATED
        if self.doubts:
            return Verdict.UNDECIDED
        return Verdict.QUALIFIED if self.exceptions else Verdict.HOLDS

    @property
    def exit_code(self) -> int:
        return int(self.verdict)

    @property
    def sentence(self) -> str:
        """The verdict in words. Whatever the verdict is, the sentence names the subscribers that were left out."""
        if self.verdict is Verdict.QUALIFIED:
            return f"exactly-once holds, but not for everybody: {self._excepted}{self._unaccepted}{self._bounds}"
        excepted = f"; besides, {self._excepted}" if self.exceptions else ""
        return f"{self._judged}{excepted}{self._unaccepted}{self._bounds}"

    @property
    def _unaccepted(self) -> str:
        """A remark about deliveries that subscribers processed although the publisher read no acceptance. If the
        publisher sends such a message again, they process it twice."""
        counts = {reason: sum(row.unowed.get(reason, 0) for row in self.pairs) for reason in UNACCEPTED}
        known = {reason: count for reason, count in counts.items() if count}
        return f"; processed although not accepted: {_listed(known, UNOWED)}" if known else ""

    @property
    def _bounds(self) -> str:
        """A remark that says from which time on the verdict holds; empty if it covers the whole run."""
        if not self.since:
            return ""
        since = datetime.fromtimestamp(self.since // 1_000_000)
        return (
            f"; covers deliveries since {since:%H:%M:%S}: older logs are deleted, {self.left_out} deliveries left out"
        )

    @property
    def _judged(self) -> str:
        accepted = sum(row.accepted for row in self.publishers)
        owed = sum(row.owed for row in self.pairs)
        if self.verdict is Verdict.HOLDS:
            shared = sum(row.unowed.get(SHARED, 0) for row in self.pairs)
            each = f"{owed} owed to subscribers, each processed once, in order"
            by_one = f"; {shared} at balanced addresses and queues, each processed by one subscriber" if shared else ""
            return f"exactly-once holds: {accepted} accepted, {each}{by_one}{self._unconsumed}"
        if self.verdict is Verdict.VIOLATED:
            counts = ", ".join(f"{count} {kind}" for kind, count in self.violations.items())
            return f"exactly-once is violated: {counts}"
        if self.verdict is Verdict.INCOMPLETE:
            return "no verdict: logs are missing or damaged"
        return "undecided: the logs do not show everything that matters"

    @property
    def _unconsumed(self) -> str:
        """A remark about messages of queues that no consumer had to process, or that none has processed yet."""
        names = {"sent": "sent to other addresses", "expired": "expired", "purged": "purged"}
        names |= {"waiting": "still in queues", "deleted": "deleted with a queue"}
        counts = {name: sum(getattr(row, name) or 0 for row in self.queues) for name in names}
        return "".join(f"; {count} {names[name]}" for name, count in counts.items() if count)

    @property
    def _excepted(self) -> str:
        left_out = len(self.exceptions) - EXCEPTIONS_SAID
        more = (f"and {left_out} more like these",) if left_out > 0 else ()
        return "; ".join((*self.exceptions[:EXCEPTIONS_SAID], *more))

    def as_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict.name.lower(),
            "exit_code": self.exit_code,
            "sentence": self.sentence,
            **attrs.asdict(self),
            "open_logs": [log.name for log in self.logs if not log.whole],
        }

    def _unheard(self) -> list[PublisherRow]:
        """The publishers whose messages have no subscriber."""
        heard = {row.publisher for row in self.pairs}
        return [row for row in self.publishers if row.publisher not in heard]

    @property
    def remarks(self) -> list[str]:
        """The remarks that explain the counts of all pairs."""
        told = [remark for row in self.pairs for remark in row.remarks]
        more = [f"{len(told) - ROWS_SHOWN} more remarks on pairs are in audit.json"] if len(told) > ROWS_SHOWN else []
        return told[:ROWS_SHOWN] + more

    @property
    def by_nobody(self) -> list[str]:
        """The number of messages that had no subscriber, for each address. The text has the same words as the command
        `publish`."""
        accepted, alone = Counter[str](), Counter[str]()
        for row in self.publishers:
            accepted[row.address] += row.accepted
            alone[row.address] += row.alone
        return [
            f"{accepted[address]} accepted, {number} of them without a subscriber at {address}"
            for address, number in sorted(alone.items())
            if number
        ]

    @property
    def _unlogged(self) -> list[str]:
        """Remarks about missing evidence: logs that may lack entries at their end, and clients without logs."""
        told = []
        if left_open := [log.name for log in self.logs if not log.whole]:
            more = ", …" if len(left_open) > LOGS_NAMED else ""
            named = f"{', '.join(left_open[:LOGS_NAMED])}{more}"
            told.append(f"logs that may lack their end (the writer still runs, or its machine failed): {named}")
        if self.logs and all(log.role == "router" for log in self.logs):
            told.append("no client logs found; the audit used the router logs alone")
        return told

    def write(self, path: Path | str) -> None:
        """Write audit.json to the path."""
        Path(path).write_text(json.dumps(self.as_json(), indent=1, ensure_ascii=False) + "\n")

    def render(self, console: Console) -> None:
        """Print the tables and, last, the verdict."""
        console.print(_pair_table(self.pairs, self._unheard()))
        if len(self.pairs) > ROWS_SHOWN:
            console.print(f"… and {len(self.pairs) - ROWS_SHOWN} more pairs, all in audit.json")
        if self.queues:
            console.print(_queue_table(self.queues))
        for line in (*self.by_nobody[:ROWS_SHOWN], *self.remarks):
            console.print(line, markup=False, soft_wrap=True)
        for exception in self.exceptions[EXCEPTIONS_SAID:]:
            console.print(f"not for everybody: {exception}", markup=False, soft_wrap=True)
        for title, problems in (
            ("missing or damaged", self.problems),
            ("incomplete at its end, read up to there", self.torn),
        ):
            for problem in problems:
                console.print(f"{title}: {problem.path}: {problem.what}", markup=False, soft_wrap=True)
        for line in self._unlogged:
            console.print(line, markup=False, soft_wrap=True)
        if self.findings:
            console.print(_finding_table(self.findings, self.violations, by_damage=bool(self.problems)))
        for clock in self.clocks:
            console.print(f"{clock} (the audit does not use this clock to order events)", markup=False, soft_wrap=True)
        for doubt in self.doubts:
            console.print(f"unknown: {doubt}", markup=False, soft_wrap=True)
        if self.unknown_records:
            held = "settled records were still held when a log ended (harmless)"
            console.print(f"{self.unknown_records} {held}", soft_wrap=True)
        colour = {Verdict.HOLDS: "green", Verdict.VIOLATED: "red"}.get(self.verdict, "yellow")
        console.print(self.sentence, style=f"bold {colour}", markup=False, soft_wrap=bool(self.exceptions))


def _pair_table(pairs: Sequence[PairRow], unheard: Sequence[PublisherRow]) -> Fitting:
    table = Table(title="publisher to subscriber")
    table.add_column("publisher", overflow="fold")
    table.add_column("subscriber", overflow="fold")
    for title in ("published", "accepted", "owed", "processed", "violations", "unknown"):
        table.add_column(title, justify="right")
    worst_first = sorted(pairs, key=lambda row: (-sum(row.violations.values()), -row.unknown))
    for row in worst_first[:ROWS_SHOWN]:
        violations = ", ".join(f"{count} {kind}" for kind, count in row.violations.items())
        counts = (row.published, row.accepted, row.owed, row.processed, violations or "none", row.unknown)
        table.add_row(row.publisher, row.subscriber, *map(str, counts), style="red" if violations else "")
    for publisher in unheard[:ROWS_SHOWN]:
        table.add_row(
            publisher.publisher, "-", str(publisher.published), str(publisher.accepted), "0", "0", "none", "0"
        )
    return Fitting(table, "published", "unknown", "accepted", "owed")


def _queue_table(queues: Sequence[QueueRow]) -> Fitting:
    titles = ("enqueued", "dequeued", "returned", "sent", "expired", "purged", "waiting")
    table = Table(title="queues" if len(queues) <= ROWS_SHOWN else f"queues (first {ROWS_SHOWN}, all in audit.json)")
    table.add_column("queue", overflow="fold")
    for title in titles:
        table.add_column(title, justify="right")
    for row in queues[:ROWS_SHOWN]:
        values = (getattr(row, title) for title in titles)
        table.add_row(row.queue, *("?" if value is None else str(value) for value in values))
    return Fitting(table, "returned", "sent", "expired", "purged")


def _finding_table(findings: Sequence[Finding], violations: dict[str, int], *, by_damage: bool) -> Fitting:
    listed = "" if len(findings) == sum(violations.values()) else f" (first {FINDINGS_KEPT} of each kind)"
    table = Table(
        title=f"{'possible violations, perhaps only an effect of the damage' if by_damage else 'violations'}{listed}"
    )
    for title in ("kind", "delivery", "publisher", "subscribers", "router"):
        table.add_column(title, overflow="fold")
    for finding in findings:
        subscribers = "\n".join(finding.subscribers)
        table.add_row(finding.kind, finding.delivery, finding.publisher, subscribers, finding.router or "")
    return Fitting(table)
