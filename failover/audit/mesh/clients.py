"""Publishers and subscribers: who they are, who logged for them, when they were attached, and what is not known.

Pure Python over the control rows. Where a writer's log is open, the facts it may have lost are turned into *doubts*:
spans of time in which an absent entry proves nothing.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise, zip_longest
from typing import Final

import attrs

from failover.audit.mesh.clocks import SKEW_US, HybridTimeline, wall_us
from failover.audit.read.inventory import ControlRow, Log
from router.text.printable import printable
from topic.identity import LinkIdentity, ingresses_of, link_name
from topic.journal import Event
from topic.queues.bound.bindings import queue_of_binding

FOREVER = (1 << 63) - 1

OPENING = (Event.ATTACHED, Event.JOINED)
CLOSING = (Event.CLOSED, Event.EXPIRED)
Span = tuple[int, int]


@attrs.define(slots=True)
class Client:
    """A publisher or a subscriber, by its link identity."""

    name: str
    identity: str
    address: str | None = None
    mode: str = "second"
    settles_first: bool = False
    """Whether it ever did, or its router."""
    echoes: bool = True
    """False if it ever resumed without an echo of its last epoch."""
    timeout_s: float = 0.0
    """The longest that it was granted."""
    logs: list[Log] = attrs.field(factory=list)
    """Its own."""
    lives: list[tuple[int, int, str]] = attrs.field(factory=list)
    """(life, opened, custodian) of each attach: its epoch's clock, when it was first seen, router.incarnation."""
    opened: dict[int, int] = attrs.field(factory=dict)
    """By life, when it was first seen by wall clock."""
    generation: str = ""
    """Of a publisher: the last that routers tell of."""
    generations: dict[int, str] = attrs.field(factory=dict)
    """By life."""
    afresh: set[int] = attrs.field(factory=set)
    """The lives of attaches with a null map: they need not have echoed an epoch."""
    closings: list[tuple[int, int, str]] = attrs.field(factory=list)
    """(life, when, where): nothing is owed for attaches up to `life` from then on, both hybrid clocks; by deliveries
    whose home is `where`, by all if that is empty. Expiry is each router's own view, a closing detach is a fact, and
    so is a publisher's other generation."""
    doubts: list[Span] = attrs.field(factory=list)
    """When entries about it may be missing: from, to, in µs of wall clock."""
    custody: list[Span] = attrs.field(factory=list)
    """When entries of its routers may be missing, whoever judges it."""
    unseen: list[Span] = attrs.field(factory=list)
    """When it may have ended for a router whose entry of that is missing, and had not attached again; but not while it
    was attached at one whose log is whole and knows of no end: that would have been told."""
    unmet: list[Span] = attrs.field(factory=list)
    """When it may have become known to a router whose entry of that is missing, and had not attached again."""
    bridged: list[Span] = attrs.field(factory=list)
    """When entries of its own may be missing, but what it kept says the same."""
    resumed: "Resumption | None" = None
    """Of a publisher that says in its last log what had become of all that it published before."""
    present: list[Span] = attrs.field(factory=list)
    """When it may have been attached by its own log, one for each attach; from, to, in µs of wall clock."""
    open_logs: list[str] = attrs.field(factory=list)
    """The logs behind the doubts."""
    is_ingress: bool = False
    """Whether it is the subscriber of a replica set to its queues, or of a binding of one (protocol 14.3, 14.10)."""
    bound: tuple[str, str] | None = None
    """The set and the name of the queue, if it is the subscriber of a binding (protocol 14.10)."""
    far: bool = False
    """Its routers' clocks differ, or may differ, by so much that a new epoch may be below the one that it echoes
    (protocol 2)."""

    def anew(self) -> "Client":
        """What it is called and was granted, and whether its last life was closed; nothing else."""
        closed = max((closing for closing in self.closings if not closing[2]), default=None)
        closings = [closed] if closed and closed[0] >= self.last_life else []
        return Client(
            self.name,
            self.identity,
            self.address,
            self.mode,
            self.settles_first,
            self.echoes,
            self.timeout_s,
            generation=self.generation,
            closings=closings,
            is_ingress=self.is_ingress,
            bound=self.bound,
            far=self.far,
        )

    @property
    def last_life(self) -> int:
        """0 if no router tells of any."""
        return max((life for life, _, _ in self.lives), default=0)

    @property
    def short(self) -> str:
        """Its identity without the address."""
        return self.identity.removesuffix(f" on {self.address}")

    @property
    def is_disordered(self) -> bool:
        """Whether an attach may have a lower epoch than one before it, as clocks of routers differ that were apart. If
        it echoes none, so may any that came within that difference, but for those at one router."""
        lives = [(self.opened[life], where) for life, _, where in sorted(self.lives) if self.opened[life]]
        if not self.echoes and len(lives) < len(self.lives):
            return True
        slack = SKEW_US if self.far or not self.echoes else -SKEW_US
        highest = accumulate((time for time, _ in lives), max)
        return self._may_begin_below or any(
            later < latest + slack and (self.echoes or router != former)
            for (later, router), (_, former), latest in zip(lives[1:], lives, highest, strict=False)
        )

    @property
    def _may_begin_below(self) -> bool:
        """Whether it may have begun afresh with a lower epoch than an attach before. If it echoes no epoch then, two
        routers that are apart order its attaches by their clocks only. Where the attach with the lowest epoch began
        afresh, no attach that resumes came before that: it would have resumed one with a lower epoch."""
        lives, began, again = sorted(self.lives), -FOREVER, -FOREVER
        for place, ((life, _, former), (higher, _, router)) in enumerate(pairwise(lives)):
            if life in self.afresh:
                time = self.opened[life] or FOREVER
                began, again = max(began, time), max(again, time) if place else again
            latest = began if higher in self.afresh else again
            if router != former and self.opened[higher] < latest + SKEW_US:
                return True
        return False

    @property
    def is_read_in_disorder(self) -> bool:
        """The same of a subscriber. A router may read an attach late, and what its map states: unless the client echoes
        epochs, no clock tells."""
        return self.is_disordered or not self.echoes

    @property
    def logged(self) -> bool:
        """Whether it has logs of its own and all of them are whole."""
        return bool(self.logs) and all(log.whole for log in self.logs)

    @property
    def logs_in_order(self) -> list[Log]:
        """One for each life of its process."""
        return sorted(self.logs, key=lambda log: log.first_time)


@attrs.frozen(slots=True)
class Resumption:
    """The last time that a publisher came back with what it had kept: whatever it had published before and does not
    name then it had settled, and it says how much it had published."""

    log: str
    """It begins with what was kept, and is whole."""
    published: int
    """How many deliveries, published before that log began, there must be traces of."""


@attrs.frozen(slots=True)
class KnownClients:
    publishers: dict[str, Client]
    subscribers: dict[str, Client]


NOBODY: Final = KnownClients({}, {})


def find_clients(rows: Sequence[ControlRow], logs: Sequence[Log], before: KnownClients = NOBODY) -> KnownClients:
    """Everybody the control rows name, and those who were known before."""
    keeping = {row.log_name for row in rows if row.event == Event.KEPT}
    ordered = sorted(rows, key=lambda row: (row.hlc, row.time, row.source, row.place))
    publishers = _clients("publisher", ordered, logs, before.publishers)
    subscribers = _clients("subscriber", ordered, logs, before.subscribers)
    left = _departures(ordered)
    by_name, ends = {log.name: log for log in logs}, open_ends(logs)
    for client in publishers.values():
        broken = list(_broken_custody(client, by_name, left))
        client.custody = [span(log, end) for log, end in broken]
        if len(client.present) > len(client.lives):  # it attached where no log tells of it: at any that breaks off
            client.custody += open_windows(logs)
        if not client.logged:
            client.resumed = _resumed(client, rows)
            _doubt(client, broken)
    for client in subscribers.values():
        custody = list(_broken_custody(client, by_name, left))
        client.custody = [span(log, end) for log, end in custody]
        client.unmet = [span(log, _attached_after(client, end)) for log, end in ends.items()]
        client.unseen = list(_without(client.unmet, _watched(client, by_name)))
        if client.logs:
            _judge_broken_off(client, keeping)
        else:
            _doubt(client, custody)
    return KnownClients(publishers, subscribers)


def _named(role: str, row: ControlRow) -> str | None:
    """The client of that role that a row is about."""
    name = row.publisher if role == "publisher" else row.subscriber
    if name is None and row.event == Event.ATTACHED and row.details.get("role", row.role) == role:
        identity = _identity(row)
        return link_name(identity).decode() if identity else None
    return name


def _identity(row: ControlRow) -> LinkIdentity | None:
    parts = [row.details.get(part) for part in ("container", "link", "address")]
    if not all(isinstance(part, str) for part in parts):
        return None
    return LinkIdentity(*map(str, [*parts, row.details.get("user", "")]))


def _clients(
    role: str, rows: Sequence[ControlRow], logs: Sequence[Log], before: Mapping[str, Client]
) -> dict[str, Client]:
    by_name = {log.name: log for log in logs}
    hybrid = HybridTimeline(rows)
    clients = {name: client.anew() for name, client in before.items()}
    for row in rows:
        name = _named(role, row)
        if name is None or row.event not in (*OPENING, *CLOSING, Event.KEPT, Event.BOOT):
            continue
        client = clients.setdefault(name, Client(name, identity=name))
        client.address = client.address or row.address
        if row.event == Event.ATTACHED and (identity := _identity(row)):
            client.identity, client.address = printable(str(identity)), identity.address
            client.is_ingress |= name in (link_name(one).decode() for one in ingresses_of(identity.link))
            client.bound = client.bound or queue_of_binding(identity)
            client.is_ingress |= client.bound is not None
            client.mode = str(row.details.get("mode", "second"))
            client.settles_first |= client.mode == "first"
            client.echoes &= row.details.get("unordered") is not True
            if row.details.get("afresh") is True and row.role == "router":
                client.afresh.add(life_of(row))
            timeout = row.details.get("timeout")
            client.timeout_s = max(client.timeout_s, float(timeout)) if isinstance(timeout, int | float) else 0.0
        own = by_name.get(row.log_name) if row.role == role else None
        if own and own not in client.logs:
            client.logs.append(own)
        _note_life(client, row, hybrid)
    for row in rows:  # where no router's log tells of an attach that its client was told of
        if row.role == role and row.event == Event.ATTACHED and row.epoch_hlc is not None and row.home is not None:
            client, life = clients[_named(role, row) or ""], life_of(row)
            if life not in client.opened:
                client.lives.append((life, life, row.home))
                client.opened[life] = row.time or wall_us(life)
    writers: dict[str, list[Client]] = {}
    for client in clients.values():
        for source in {log.source for log in client.logs}:
            writers.setdefault(source, []).append(client)
    for log in logs:
        match writers.get(log.source, []):
            case [client] if log not in client.logs:  # it broke off before it told whose it is
                client.logs.append(log)
    return clients


def _note_life(client: Client, row: ControlRow, hybrid: HybridTimeline) -> None:
    """Rows of routers open and close lives; a client's own closing is one too, as far as its wall clock tells."""
    if row.role != "router":
        if row.event in (Event.KEPT, Event.BOOT):
            return
        if row.event in CLOSING:
            client.closings.append((hybrid.at(row.time - SKEW_US), hybrid.at(row.time + SKEW_US), ""))
            if row.time:
                client.present = [(since, min(till, row.time + SKEW_US)) for since, till in client.present]
        else:
            client.present.append((row.time - SKEW_US, FOREVER))
        return
    life = life_of(row)
    if row.event == Event.ATTACHED and row.generation is not None:
        client.generations[life] = row.generation
        if client.generation not in ("", row.generation):
            client.closings.append((client.last_life, life, ""))  # by its answer what ended with that may be settled
        client.generation = row.generation
    if row.event in CLOSING:
        client.closings.append((life, row.hlc, "" if row.event == Event.CLOSED else row.log_name))
    elif all(known != life for known, _, _ in client.lives):
        opened = life if row.event == Event.KEPT else row.hlc  # who is remembered was there before
        client.lives.append((life, opened, _custodian(row)))
        client.opened[life] = min(row.time, wall_us(life)) if row.event == Event.KEPT else row.time


def life_of(row: ControlRow) -> int:
    """The epoch's clock orders the lives of a link; a row without an epoch is taken by its own."""
    return row.hlc if row.epoch_hlc is None else row.epoch_hlc


def _custodian(row: ControlRow) -> str:
    """The router.incarnation that gave the epoch."""
    return row.home or row.log_name


def _judge_broken_off(client: Client, keeping: Collection[str]) -> None:
    """A client's own logs that may lack their end. What such a log lost is made up for where a later one begins with
    what the client kept: but for deliveries that its router had settled meanwhile, which that router knows."""
    logs = client.logs_in_order
    for place, log in enumerate(logs):
        later = logs[place + 1 :]
        made_up = next((_began(after) for after in later if after.name in keeping), None)
        if not log.whole and made_up is not None:
            client.bridged.append(span(log, made_up))
        elif not log.whole:
            _doubt(client, [(log, _began(later[0]) if later else FOREVER)])


def _began(log: Log) -> int:
    return log.first_time if log.ordered else FOREVER


def _resumed(client: Client, rows: Iterable[ControlRow]) -> Resumption | None:
    """None if it does not say; or had published before its first log, or was given another life meanwhile: then other
    keys than those that are in the logs may count, or one delivery may have two."""
    logs = client.logs_in_order
    names = {log.name for log in logs}
    own = [(row.log_name, row.event, row.details) for row in rows if row.log_name in names]
    lives = {str(details.get("generation", "")) for _, event, details in own if event == Event.ATTACHED}
    said = [(log, details.get("published")) for log, event, details in own if event == Event.KEPT]
    kept = {log: published for log, published in said if type(published) is int and published >= 0}
    if len(lives) != 1 or "" in lives or logs[0].name in kept or not logs[-1].whole:
        return None
    return Resumption(logs[-1].name, kept[logs[-1].name]) if logs[-1].name in kept else None


def _broken_custody(
    client: Client, logs: Mapping[str, Log], left: Mapping[tuple[str, str], int]
) -> Iterator[tuple[Log, int]]:
    """The logs of its routers that ended without having seen it leave, each with the time of its next attach."""
    lives = sorted(client.lives)
    ends = [*(client.opened[life] for life, _, _ in lives[1:]), FOREVER]
    for (life, _, custodian), end in zip(lives, ends, strict=False):  # no lives: the logs only tell of its departure
        log = logs.get(custodian)
        if log and not log.whole and left.get((client.name, custodian), -1) < life:
            yield log, end


def span(log: Log, end: int) -> Span:
    """Until the end, as far as that is known."""
    if not log.ordered:
        return 0, FOREVER
    end = end or FOREVER
    return log.last_time - SKEW_US, min(end, FOREVER - SKEW_US) + SKEW_US


def _doubt(client: Client, broken: Iterable[tuple[Log, int]]) -> None:
    for log, end in broken:
        client.doubts.append(span(log, end))
        client.open_logs.append(log.source)


def _departures(rows: Iterable[ControlRow]) -> dict[tuple[str, str], int]:
    """(client, router.incarnation) -> when this router's log last saw the client leave: that ended whatever attach the
    router had given it before."""
    left: dict[tuple[str, str], int] = {}
    for row in rows:
        name = row.publisher or row.subscriber
        if name is not None and row.event in (*CLOSING, Event.STOLEN):
            at = (name, row.log_name)
            left[at] = max(left.get(at, -1), row.hlc)
    return left


def _watched(client: Client, logs: Mapping[str, Log]) -> Iterator[Span]:
    """When it was attached at a router whose log is whole, and tells of no end of that attach."""
    lives = sorted(client.lives)
    ends = [*(client.opened[life] for life, _, _ in lives[1:]), FOREVER]
    closed = {(life, where) for life, _, where in client.closings}
    for (life, _, custodian), end in zip(lives, ends, strict=False):
        log = logs.get(custodian)
        if log and log.whole and log.ordered and not closed & {(life, custodian), (life, "")}:
            yield client.opened[life], min(end, log.last_time)


def _without(spans: Iterable[Span], others: Iterable[Span]) -> Iterator[Span]:
    """What of the spans is in none of the others."""
    left = list(spans)
    for since, till in others:
        left = [
            part
            for one in left
            for part in ((one[0], min(one[1], since)), (max(one[0], till), one[1]))
            if part[0] < part[1]
        ]
    yield from left


def _attached_after(client: Client, time: int) -> int:
    return min((opened for opened in client.opened.values() if opened > time), default=FOREVER)


def open_windows(logs: Iterable[Log]) -> list[Span]:
    """Doubts about everybody: all routers' logs that may lack their end."""
    return [span(log, FOREVER) for log in logs if log.role == "router" and not log.whole]


def open_ends(logs: Iterable[Log]) -> dict[Log, int]:
    """Routers' logs that may lack their end, and when their writer had ended for certain: its next life had begun."""
    found: dict[Log, int] = {}
    routers = sorted((log for log in logs if log.role == "router"), key=lambda log: (log.source, log.incarnation))
    for log, after in zip_longest(routers, routers[1:]):
        if not log.whole:
            found[log] = _began(after) if after is not None and after.source == log.source else FOREVER
    return found
