"""Tells the life of one delivery from all logs, in the order of time: for the terminal, for JSON and for the page.

Wall clocks give the order, after wrong ones are corrected (`mesh.clocks`). If the wall clocks of two routers are not
exact enough, their hybrid clocks decide. Hybrid clocks do not order the entries of clients.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import attrs
from rich.console import Console
from rich.table import Table

from failover.audit.judge.uses import uses_of
from failover.audit.mesh.clients import KnownClients
from failover.audit.mesh.clocks import Clocks, find_clocks
from failover.audit.read.entries import DeliveryEntry
from failover.audit.read.faults import Fault
from failover.audit.read.inventory import ControlRow, Log
from topic.identity import NAME_LENGTH
from topic.journal import BY_MAP, BY_TTL, Event, LoggedOutcome
from topic.queues.positions import position_text

NAMES_SHOWN = 8
ASIDES_SHOWN = 200
INEXACT_US = 20_000
"""Two corrected clocks are assumed to differ by at most this number of µs."""

HOME: Mapping[Event, str] = {
    Event.RECEIVED: "received from {publisher} as number {n}; this router is its home",
    Event.AUDIENCE: "owed to {audience}",
    Event.FORWARDED: "forwarded to router {peer}",
    Event.DELIVERED: "sent to {subscriber}",
    Event.OUTCOME: "{subscriber} answered: {outcome}",
    Event.PASSED: "left out by the filter of {subscriber}",
    Event.APART: "continues without {subscriber}, which was out of contact for longer than its timeout",
    Event.ACCEPTED: "told {publisher}: {outcome}",
    Event.SETTLED: "settled by {publisher}",
    Event.ABANDONED: "abandoned: no subscriber is owed it any longer",
    Event.FORGOTTEN: "forgotten",
    Event.PLACEHOLDER: "named by the unsettled map of {subscriber}; this router does not have the message",
    Event.RESOLVED: "learned that it is settled",
    Event.REHOMED: "its publisher has moved to another home",
    Event.FENCED: "received from {peer} and dropped: a later epoch has begun",
    Event.ENQUEUED: "its replica has it in the queue, at position {position}",
    Event.RETURNED: "its replica has it for nobody any more: it came back to the queue, at position {position}",
    Event.LEFT: "its replica has it in the queue no more: {detail}",
}
BY = {
    BY_MAP: "the unsettled map of {subscriber} says: {outcome}",
    BY_TTL: "answered {publisher}: {outcome}, because it expired before any subscriber had it",
}
"""Maps some details of entries to the texts that the story shows for them."""
EDGE: Mapping[Event, str] = {
    **HOME,
    Event.RECEIVED: "received from its home {peer}",
    Event.SETTLED: "settled, as its home {peer} said",
    Event.RESOLVED: "learned from its home {peer} that it is settled",
    Event.REHOMED: "its publisher has moved to another home, {peer}",
}
PUBLISHER: Mapping[Event, str] = {
    Event.PUBLISHED: "published",
    Event.OUTCOME: "learned its outcome: {outcome}",
    Event.SETTLED: "settled it",
    Event.KEPT: "found it in its store after a restart, {kept}",
}
SUBSCRIBER: Mapping[Event, str] = {
    Event.DELIVERED: "handed it to the application",
    Event.PROCESSED: "processed it and answered: {outcome}",
    Event.SETTLED: "forgot it, settled",
    Event.KEPT: "found it in its store after a restart, {kept}",
}
ASIDES: Mapping[Event, str] = {
    Event.BOOT: "begins",
    Event.STOPPED: "ends cleanly",
    Event.CONTACT: "in contact with router {peer}",
    Event.LOST: "lost contact with router {peer}",
    Event.GIVEN_UP: "no longer waits for the subscribers without a timeout at router {peer}",
    Event.ATTACHED: "{party} is attached",
    Event.SUSPENDED: "{party} lost its connection",
    Event.CLOSED: "{party} left for good",
    Event.EXPIRED: "{party} expired in this router's view",
    Event.STOLEN: "{party} is attached at router {peer} now",
}


@attrs.frozen(slots=True)
class Step:
    time: int
    """The time of the step, in µs of the wall clock of `host`."""
    host: str
    role: str
    source: str
    event: str
    text: str
    use: int = 0
    """The number of the tag's use, from 1 on; 0 if the publisher used the tag only once."""
    aside: bool = False
    """Whether the step is about a link, a router or a fault, not about the delivery itself."""
    links: tuple[str, ...] = ()
    """The subscribers that the step of the story is about."""

    @property
    def clock(self) -> str:
        return datetime.fromtimestamp(self.time / 1_000_000, UTC).strftime("%H:%M:%S.%f")

    @property
    def where(self) -> str:
        return f"{self.role} {self.source}".strip()


@attrs.frozen(slots=True)
class DeliveryStory:
    key: str
    publisher: str
    address: str
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return attrs.asdict(self)

    def render(self, console: Console) -> None:
        console.print(f"delivery {self.key}", style="bold", soft_wrap=True)
        console.print(f"of {self.publisher}", soft_wrap=True)
        table = Table(box=None, pad_edge=False)
        table.add_column("time (UTC)", no_wrap=True)
        for title in ("where", "what"):
            table.add_column(title, overflow="fold")
        for step in self.steps:
            use = f" (use {step.use} of its tag)" if step.use else ""
            table.add_row(step.clock, step.where, step.text + use, style="dim" if step.aside else "")
        console.print(table)
        for note in self.notes:
            console.print(note, soft_wrap=True)


@attrs.frozen(slots=True)
class Setting:
    """The facts about the run that a story needs, apart from the delivery's own entries."""

    control: Sequence[ControlRow]
    logs: Sequence[Log]
    clients: KnownClients
    faults: Sequence[Fault] = ()
    names: dict[str, str] = attrs.field(init=False)
    """The names of links, in a form that people can read."""
    clocks: Clocks = attrs.field(init=False)
    """The name of each log's clock. It may differ from other clocks of the host, even if the log names the same
    host."""

    def __attrs_post_init__(self) -> None:
        known = (*self.clients.publishers.values(), *self.clients.subscribers.values())
        short = {client.name: client.short for client in known}
        object.__setattr__(self, "names", short)
        object.__setattr__(self, "clocks", find_clocks(self.control, self.logs))

    def clock(self, row: "DeliveryEntry | ControlRow | Log") -> str:
        return self.clocks.clock.get(f"{row.source}.{row.incarnation}", row.host)

    def instant(self, row: "DeliveryEntry | ControlRow") -> int:
        """The time of the row in µs, converted to the clock that most clients have."""
        return row.time - self.clocks.ahead_us.get(f"{row.source}.{row.incarnation}", 0)

    def name(self, link: str | None) -> str:
        return self.names.get(link or "", link or "?")


def compose_story(key: str, entries: Sequence[DeliveryEntry], setting: Setting) -> DeliveryStory:
    publisher = setting.clients.publishers.get(key[:NAME_LENGTH])
    entries = [attrs.evolve(entry, host=setting.clock(entry)) for entry in entries]
    whole, first = (publisher.logged, publisher.settles_first) if publisher else (False, False)
    use, sure = _uses(entries, whole=whole, first=first)
    placed = in_order(entries, setting)
    steps = [(group[0][0], _step(group, setting, use)) for group in _alike(placed, use)]
    asides, left_out = _asides(placed, setting)
    told = sorted([*steps, *asides], key=lambda timed: timed[0])
    return DeliveryStory(
        key,
        publisher.identity if publisher else key[:NAME_LENGTH],
        (publisher.address if publisher else None) or "",
        tuple(step for _, step in told),
        tuple(_notes(placed, left_out, sure)),
    )


Placed = tuple[int, DeliveryEntry]
Use = Callable[[DeliveryEntry], int]


def _uses(entries: Sequence[DeliveryEntry], *, whole: bool, first: bool) -> tuple[Use, bool]:
    """The use of the key to which each entry belongs; 0 if there is only one use. Also returns whether this is
    certain."""
    if not _used_again(entries, whole=whole):
        return lambda entry: 0, True
    lives, sure = uses_of(entries, whole=whole, first=first)
    use = {id(entry): life for entry, life in zip(entries, lives, strict=True)}
    return lambda entry: use[id(entry)] if max(lives) > 1 else 0, sure


def _used_again(entries: Sequence[DeliveryEntry], *, whole: bool) -> bool:
    """Whether several deliveries may have this key. `uses.tell_apart` asks the same question."""
    published = sum(entry.event == Event.PUBLISHED for entry in entries)
    places = {(entry.epoch_hlc, entry.n) for entry in entries if entry.event == Event.RECEIVED and entry.n >= 0}
    return published > 1 or (len(places) > 1 and not (whole and published == 1))


def in_order(entries: Iterable[DeliveryEntry], setting: Setting) -> list[Placed]:
    """Sort the entries. Each entry comes with the time by which it is sorted. This time may differ from the entry's
    wall clock, which the story shows."""
    found = list(entries)
    placed = [(setting.instant(entry), entry) for entry in found if entry.role != "router"]
    latest = 0
    routers = [entry for entry in found if entry.role == "router"]
    for entry in sorted(routers, key=lambda entry: (entry.hlc, entry.source, entry.place)):
        instant = setting.instant(entry)
        if 0 < latest - instant < INEXACT_US:
            instant = latest
        placed.append((instant, entry))
        latest = instant
    return sorted(placed, key=_by_instant)


def _by_instant(placed: Placed) -> tuple[Any, ...]:
    instant, entry = placed
    return instant, entry.role, entry.hlc, entry.source, entry.incarnation, entry.place


def _alike(placed: Sequence[Placed], use: Use) -> Iterator[list[Placed]]:
    """Group the entries into steps. If a router wrote several entries in one batch, about several subscribers, they are
    one step."""

    def sort(item: Placed) -> tuple[Any, ...]:
        entry = item[1]
        several = entry.role == "router" and entry.event in (Event.DELIVERED, Event.OUTCOME)
        return (entry.source, entry.event, entry.outcome, entry.detail, use(entry)) if several else (id(entry),)

    for _, group in groupby(placed, sort):
        yield list(group)


def _step(group: Sequence[Placed], setting: Setting, use: Use) -> Step:
    entry = group[0][1]
    texts = {"publisher": PUBLISHER, "subscriber": SUBSCRIBER}.get(entry.role, EDGE if entry.peer else HOME)
    event = Event(entry.event)
    outcome = LoggedOutcome(entry.outcome)
    subscribers = [setting.name(each.subscriber) for _, each in group if each.subscriber]
    audience = [setting.name(name) for name in _names(entry)]
    template = BY.get(entry.detail or "", texts.get(event, event.name.lower()))
    text = template.format(
        publisher=setting.name(entry.publisher),
        subscriber=_listed(subscribers),
        audience=_listed(audience) or "nobody",
        peer=entry.peer,
        n=entry.n,
        position=position_text(entry.n),
        detail=entry.detail,
        outcome=outcome.name.lower(),
        kept="without an outcome" if outcome is LoggedOutcome.NONE else outcome.name.lower(),
    )
    where = (entry.time, entry.host, entry.role, plain(entry.source))
    return Step(*where, event.name.lower(), text, use(entry), links=(*subscribers, *audience))


def plain(source: str) -> str:
    return source.removeprefix("clients/")


def _names(entry: DeliveryEntry) -> list[str]:
    try:
        found = json.loads(entry.detail or "[]")
    except ValueError:
        return []
    return [str(name) for name in found] if isinstance(found, list) else []


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMES_SHOWN])
    return shown if len(names) <= NAMES_SHOWN else f"{shown} and {len(names) - NAMES_SHOWN} more"


def _asides(placed: Sequence[Placed], setting: Setting) -> tuple[list[tuple[int, Step]], int]:
    """Events about links, routers and faults while the delivery was under way, if they concern the delivery's links and
    routers. Also returns how many are left out."""
    if not placed:
        return [], 0
    since, till = placed[0][0], placed[-1][0]
    concerned = _Concerned(placed)
    timed = [*_of_links(setting, concerned), *_of_ends(setting, concerned), *_of_faults(setting, placed)]
    within = sorted([(at, step) for at, step in timed if since <= at <= till], key=lambda timed: timed[0])
    return within[:ASIDES_SHOWN], len(within[ASIDES_SHOWN:])


class _Concerned:
    """The links and routers that the delivery involved."""

    def __init__(self, placed: Sequence[Placed]) -> None:
        entries = [entry for _, entry in placed]
        self.sources = {entry.source for entry in entries}
        self.links = {name for entry in entries for name in (entry.publisher, entry.subscriber, *_names(entry)) if name}
        self.links |= {entry.key[:NAME_LENGTH] for entry in entries}

    def by(self, row: ControlRow) -> bool:
        about = row.publisher or row.subscriber
        return row.source in self.sources if about is None else about in self.links


Timed = tuple[int, Step]


def _of_links(setting: Setting, concerned: _Concerned) -> Iterator[Timed]:
    for row in setting.control:
        event = Event(row.event) if row.event >= 0 else None
        if event is None or event not in ASIDES or not concerned.by(row):
            continue
        text = ASIDES[event].format(peer=row.peer, party=setting.name(row.publisher or row.subscriber))
        where = (row.time, setting.clock(row), row.role, plain(row.source))
        yield setting.instant(row), Step(*where, event.name.lower(), text, aside=True)


def _of_ends(setting: Setting, concerned: _Concerned) -> Iterator[Timed]:
    for log in setting.logs:
        if not log.whole and log.source in concerned.sources:
            text = "its log breaks off here; its next steps are unknown"
            step = Step(log.last_time, setting.clock(log), log.role, plain(log.source), "end", text, aside=True)
            yield log.last_time - setting.clocks.ahead_us.get(log.name, 0), step


def _of_faults(setting: Setting, placed: Sequence[Placed]) -> Iterator[Timed]:
    """Turn the faults into steps. Their times are by the clock of the clients, which run on the machine that causes the
    faults."""
    host = next((entry.host for _, entry in placed if entry.role != "router"), placed[0][1].host)
    for fault in setting.faults:
        yield fault.at_us, Step(fault.at_us, host, "fault", "", "fault", fault.text, aside=True)
        if fault.until_us is not None:
            yield fault.until_us, Step(fault.until_us, host, "fault", "", "fault", f"over: {fault.text}", aside=True)


def _notes(placed: Sequence[Placed], left_out: int, sure: bool) -> Iterator[str]:
    if not sure:
        yield "its publisher used the tag again: some entries may belong to the other use"
    hosts = sorted({entry.host for _, entry in placed})
    if len(hosts) > 1:
        named = ", ".join(host or "unknown" for host in hosts)
        yield f"written on different hosts ({named}), whose clocks differ: do not compare times of different hosts"
        yield "between these hosts the order is an estimate, based on contacts and attaches"
    if left_out:
        yield f"{left_out} more events of links and routers during the delivery are not shown"
