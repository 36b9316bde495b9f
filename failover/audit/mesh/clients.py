"""Finds the publishers and subscribers of a run: their names, their own logs, when they were attached, and for which
times logs may lack entries about them.

The module reads the control rows in plain Python. A log is *open* if it may lack its end. Each open log causes a
*doubt* about each client whose entries the log may lack. A doubt is a span of time in which the absence of an entry
proves nothing.
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
    """A publisher or a subscriber, which stands for one link identity."""

    name: str
    identity: str
    address: str | None = None
    mode: str = "second"
    settles_first: bool = False
    """Whether the client, or its router, ever used receiver settle mode first."""
    echoes: bool = True
    """False if the client ever resumed without an echo of its last epoch."""
    timeout_s: float = 0.0
    """The longest timeout, in seconds, that the client was granted."""
    logs: list[Log] = attrs.field(factory=list)
    """The logs that the client itself wrote."""
    lives: list[tuple[int, int, str]] = attrs.field(factory=list)
    """A triple (life, opened, custodian) for each attach: the clock of the attach's epoch, the hybrid clock of the
    first entry about the attach, and the custodian as router.incarnation."""
    opened: dict[int, int] = attrs.field(factory=dict)
    """Maps each life to the wall clock, in µs, of the first log entry about it."""
    generation: str = ""
    """The last generation of a publisher that logs of routers have."""
    generations: dict[int, str] = attrs.field(factory=dict)
    """Maps each life of a publisher to its generation."""
    afresh: set[int] = attrs.field(factory=set)
    """The lives that began with a null map. The attach of such a life may have echoed no epoch."""
    closings: list[tuple[int, int, str]] = attrs.field(factory=list)
    """Triples (life, when, where) with hybrid clocks: from `when` on, routers owe nothing to attaches up to `life`. If
    `where` is empty, this holds for all deliveries, otherwise for deliveries whose home is `where`.

    When a link expires, this holds only for the router that expires it. When the client closes its link, or a publisher
    gets a new generation, this holds for all routers.
    """
    doubts: list[Span] = attrs.field(factory=list)
    """Spans (from, to), in µs of wall clock, for which entries about the client may be missing."""
    custody: list[Span] = attrs.field(factory=list)
    """Spans for which entries of the client's routers may be missing, even if the client's own logs are whole."""
    unseen: list[Span] = attrs.field(factory=list)
    """Spans in which a router may have ended the client's link although its log lacks the entry. Each span ends with
    the client's next attach.

    The spans leave out the times at which the client was attached at a router with a whole log, if this log has no
    ending of the link. This router would have logged an ending.
    """
    unmet: list[Span] = attrs.field(factory=list)
    """Spans in which a router may have come to know the client although its log lacks the entry. Each span ends with
    the client's next attach."""
    bridged: list[Span] = attrs.field(factory=list)
    """Spans for which the client's own log may lack entries, and the client's state file shows what these entries have
    stated. A later log of the client has the content of the file."""
    resumed: "Resumption | None" = None
    """Set for a publisher whose last log begins with its state file. The file shows which earlier deliveries are
    settled."""
    present: list[Span] = attrs.field(factory=list)
    """Spans (from, to), in µs of wall clock, in which the client may have been attached by its own log; one for each
    attach."""
    open_logs: list[str] = attrs.field(factory=list)
    """The writers of the open logs that cause the doubts about the client."""
    is_ingress: bool = False
    """Whether the client is the subscriber that takes messages into the queues of a set, or into a bound queue
    (protocol 14.3, 14.10)."""
    bound: tuple[str, str] | None = None
    """For the subscriber of a binding, the set and the name of the queue; otherwise None (protocol 14.10)."""
    far: bool = False
    """Whether the clocks of the client's routers differ, or may differ, very much. A new epoch may then be below the
    epoch that the client echoes (protocol 2)."""

    def anew(self) -> "Client":
        """Copy the client without its lives and spans. The copy keeps names and settings. If the client's last life has
        been closed for all routers, the copy also keeps this entry of `closings`."""
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
        """The clock of the client's latest epoch; 0 if no log has an attach."""
        return max((life for life, _, _ in self.lives), default=0)

    @property
    def short(self) -> str:
        """The client's identity as a text, without the address."""
        return self.identity.removesuffix(f" on {self.address}")

    @property
    def is_disordered(self) -> bool:
        """Whether an attach may have a lower epoch than an earlier attach, because the clocks of two routers out of
        contact differ.

        If the client echoes no epoch, two attaches at different routers may have their epochs in the wrong order. This
        can happen only if the time between the attaches is shorter than the possible difference of the clocks of these
        routers.
        """
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
        """Whether the client may have begun afresh in an attach whose epoch is lower than the epoch of an earlier
        attach.

        An attach that begins afresh echoes no epoch. So only the clocks of two routers, which may be out of contact,
        order this attach and the attach before it. If the attach with the lowest epoch began afresh, no attach that
        resumed came before it: such an attach would have resumed an attach with a still lower epoch.
        """
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
        """Whether routers may have read a subscriber's attaches in another order than the client sent them. A router
        may read an attach, with the outcomes in its map, late. The audit can see this only if the client echoes
        epochs."""
        return self.is_disordered or not self.echoes

    @property
    def logged(self) -> bool:
        """Whether the client has logs of its own and all of them are whole."""
        return bool(self.logs) and all(log.whole for log in self.logs)

    @property
    def logs_in_order(self) -> list[Log]:
        """The client's own logs, oldest first, one for each life of its process."""
        return sorted(self.logs, key=lambda log: log.first_time)


@attrs.frozen(slots=True)
class Resumption:
    """The facts in a publisher's log about the state file with which the publisher came back for the last time.

    The publisher has settled all earlier deliveries that the file does not name. The file also has the number of
    deliveries that the publisher had published.
    """

    log: str
    """The name of the log that begins with the content of the state file. This log is whole."""
    published: int
    """How many deliveries were published before that log began. All of them must appear in some log."""


@attrs.frozen(slots=True)
class KnownClients:
    publishers: dict[str, Client]
    subscribers: dict[str, Client]


NOBODY: Final = KnownClients({}, {})


def find_clients(rows: Sequence[ControlRow], logs: Sequence[Log], before: KnownClients = NOBODY) -> KnownClients:
    """All clients in the control rows, and the clients in `before`, which earlier calls have found."""
    keeping = {row.log_name for row in rows if row.event == Event.KEPT}
    ordered = sorted(rows, key=lambda row: (row.hlc, row.time, row.source, row.place))
    publishers = _clients("publisher", ordered, logs, before.publishers)
    subscribers = _clients("subscriber", ordered, logs, before.subscribers)
    left = _departures(ordered)
    by_name, ends = {log.name: log for log in logs}, open_ends(logs)
    for client in publishers.values():
        broken = list(_broken_custody(client, by_name, left))
        client.custody = [span(log, end) for log, end in broken]
        # No router's log has the attach, so any open log may have lost it.
        if len(client.present) > len(client.lives):
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
    """The name of the client with this role that the row is about; None if it is about none."""
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
    for row in rows:  # the logs of routers may lack an attach
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
            case [client] if log not in client.logs:  # the log ends before the entry that names its client
                client.logs.append(log)
    return clients


def _note_life(client: Client, row: ControlRow, hybrid: HybridTimeline) -> None:
    """Note the life that a row opens or closes.

    Rows of routers open and close lives. A client's own row can only close a life, or show when the client was
    attached. A client's row has no hybrid clock: its time is only as exact as the client's wall clock.
    """
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
            # The router's answer tells the client that its old life has ended.
            client.closings.append((client.last_life, life, ""))
        client.generation = row.generation
    if row.event in CLOSING:
        client.closings.append((life, row.hlc, "" if row.event == Event.CLOSED else row.log_name))
    elif all(known != life for known, _, _ in client.lives):
        # A KEPT row is written when the router starts. The link was attached before, at the clock of its life.
        opened = life if row.event == Event.KEPT else row.hlc
        client.lives.append((life, opened, _custodian(row)))
        client.opened[life] = min(row.time, wall_us(life)) if row.event == Event.KEPT else row.time


def life_of(row: ControlRow) -> int:
    """The clock of the row's epoch, by which the lives of a link are ordered. If the row has no epoch, the clock of the
    row itself."""
    return row.hlc if row.epoch_hlc is None else row.epoch_hlc


def _custodian(row: ControlRow) -> str:
    """The router that gave the row's epoch, as router.incarnation."""
    return row.home or row.log_name


def _judge_broken_off(client: Client, keeping: Collection[str]) -> None:
    """Note the spans for which the client's own logs may lack entries.

    If a later log begins with the client's state file, the file replaces the lost entries. The file lacks only
    deliveries that its router settled meanwhile, and the router's log has these.
    """
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
    """The publisher's last resumption; None if no log has it.

    It is also None if the publisher had published before its first log, or began another life meanwhile. In the first
    case the number of deliveries may include keys that the logs lack. In the second case one delivery may have two
    keys.
    """
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
    """The open logs of the client's routers in which no entry says that the client left. Each comes with the time of
    the client's next attach."""
    lives = sorted(client.lives)
    ends = [*(client.opened[life] for life, _, _ in lives[1:]), FOREVER]
    # `lives` is empty if the logs have the client's departure and no attach.
    for (life, _, custodian), end in zip(lives, ends, strict=False):
        log = logs.get(custodian)
        if log and not log.whole and left.get((client.name, custodian), -1) < life:
            yield log, end


def span(log: Log, end: int) -> Span:
    """The span for which an open log may lack entries, in µs of wall clock. It goes from the log's last entry to `end`
    (0 if unknown, which means for ever). If the audit cannot use the log's clock, the span covers all time."""
    if not log.ordered:
        return 0, FOREVER
    end = end or FOREVER
    return log.last_time - SKEW_US, min(end, FOREVER - SKEW_US) + SKEW_US


def _doubt(client: Client, broken: Iterable[tuple[Log, int]]) -> None:
    for log, end in broken:
        client.doubts.append(span(log, end))
        client.open_logs.append(log.source)


def _departures(rows: Iterable[ControlRow]) -> dict[tuple[str, str], int]:
    """Maps each client and router.incarnation to the hybrid clock at which the client last left this router, by the
    router's log. By then, all earlier attaches of the client at this router have ended."""
    left: dict[tuple[str, str], int] = {}
    for row in rows:
        name = row.publisher or row.subscriber
        if name is not None and row.event in (*CLOSING, Event.STOLEN):
            at = (name, row.log_name)
            left[at] = max(left.get(at, -1), row.hlc)
    return left


def _watched(client: Client, logs: Mapping[str, Log]) -> Iterator[Span]:
    """The spans in which the client was attached at routers with whole logs, if these logs show no end of the
    attach."""
    lives = sorted(client.lives)
    ends = [*(client.opened[life] for life, _, _ in lives[1:]), FOREVER]
    closed = {(life, where) for life, _, where in client.closings}
    for (life, _, custodian), end in zip(lives, ends, strict=False):
        log = logs.get(custodian)
        if log and log.whole and log.ordered and not closed & {(life, custodian), (life, "")}:
            yield client.opened[life], min(end, log.last_time)


def _without(spans: Iterable[Span], others: Iterable[Span]) -> Iterator[Span]:
    """The parts of `spans` that lie in none of the `others`."""
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
    """The spans for which entries about any client may be missing; one for each router's log that may lack its end."""
    return [span(log, FOREVER) for log in logs if log.role == "router" and not log.whole]


def open_ends(logs: Iterable[Log]) -> dict[Log, int]:
    """Maps each router's log that may lack its end to the wall clock, in µs, at which the router's next incarnation
    began; `FOREVER` if there is none."""
    found: dict[Log, int] = {}
    routers = sorted((log for log in logs if log.role == "router"), key=lambda log: (log.source, log.incarnation))
    for log, after in zip_longest(routers, routers[1:]):
        if not log.whole:
            found[log] = _began(after) if after is not None and after.source == log.source else FOREVER
    return found
