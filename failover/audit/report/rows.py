"""Makes the rows, findings, doubts and exceptions of a report from the counts and the case.

A doubt keeps the verdict from *holds*. An exception qualifies the verdict: a subscriber was left out although it was
there, or a link was ended in use. Both are sentences with names and numbers.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from failover.audit.judge.kinds import DISPUTED, FINDINGS_KEPT, KINDS, LOST_AT_REST, REPEATED, UNOWED, UNPROCESSED
from failover.audit.judge.queues.passages import disputed
from failover.audit.judge.tally import Tally, Violation
from failover.audit.judge.unattributed import Missed
from failover.audit.mesh.case import Case
from failover.audit.mesh.clients import FOREVER, Client
from failover.audit.mesh.contents import disagreeing
from failover.audit.mesh.presence import Parting
from failover.audit.read.inventory import Inventory, Log
from failover.audit.report.report import Finding, PairRow, PublisherRow, QueueRow, Report
from topic.identity import queue_of
from topic.queues.logged.message_log import MessageEnd
from topic.queues.positions import position_text


def report_of(run_dirs: Sequence[str], tally: Tally, case: Case, inventory: Inventory) -> Report:
    """Make the report from the counts, without the figures of the run."""
    dispute(tally, case)
    find_lost_at_rest(tally, case)
    return Report(
        run_dirs=tuple(run_dirs),
        publishers=publisher_rows(tally, case),
        pairs=pair_rows(tally, case),
        violations=violations(tally),
        findings=findings(tally, case),
        queues=tuple(queue_rows(tally, case)),
        doubts=tuple(doubts(tally, case)),
        exceptions=exceptions(tally, case),
        problems=inventory.problems,
        torn=inventory.torn,
        since=case.since,
        left_out=tally.left_out,
        clocks=tuple(dict.fromkeys(case.clocks.unordered.values())),
        logs=inventory.logs,
        unknown_records=tally.unknown_records,
    )


def dispute(tally: Tally, case: Case) -> None:
    """Add the violations `DISPUTED` to the tally of all buckets. A replica logs the content of a set's queues at some
    index. A violation is a content that does not fit the messages that the same replica has logged, or that differs
    from the content that another replica logs at the same index."""
    found = [*disagreeing(case.contents), *disputed(case.contents, tally.passed)]
    wrong = [(where, logs) for where, logs in found if where.partition(",")[0] not in case.recovered]
    tally.violations[DISPUTED] = len(wrong)
    tally.findings[DISPUTED] = [Violation(f"set {where}", 0, logs, "", ()) for where, logs in wrong[:FINDINGS_KEPT]]


def find_lost_at_rest(tally: Tally, case: Case) -> None:
    """Add the violations `LOST_AT_REST` to the tally of all buckets: messages that the stores lack. If a log may lack
    entries, no violation is added, because a lost entry may show that the message has left its queue."""
    if case.open_homes or case.cut:
        return
    stored = (set_ for set_ in case.at_rest.replicas if set_ not in case.recovered)
    found = {set_: tally.unstored[set_, "messages"] for set_ in stored if not tally.unstored[set_, "former"]}
    lost = {set_: count for set_, count in sorted(found.items()) if count > 0}
    named = [
        f"set {set_}, " + (f"message {position_text(tally.unstored[set_, 'positions'])}" if n == 1 else f"{n} messages")
        for set_, n in lost.items()
    ]
    tally.violations[LOST_AT_REST] = sum(lost.values())
    tally.findings[LOST_AT_REST] = [Violation(what, 0, "", "", ()) for what in named[:FINDINGS_KEPT]]


def queue_rows(tally: Tally, case: Case) -> Iterator[QueueRow]:
    """Yield a row for each queue. If the beginning of a log was deleted, it is unknown how many messages wait in the
    queue."""
    for address in sorted({address for address, _ in tally.queues}):
        set_, queue = queue_of(address)
        count = {
            what: tally.queues[address, what] for what in ("enqueued", "returned", *(why.value for why in MessageEnd))
        }
        left = sum(count[why.value] for why in MessageEnd)
        yield QueueRow(
            queue,
            set_,
            count["enqueued"],
            count["dequeued"] + count["transacted"],
            *(count["expired"], count["purged"], count["deleted"], count["sent"]),
            returned=count["returned"],
            waiting=None if case.cut else count["enqueued"] - left,
        )


def publisher_rows(tally: Tally, case: Case) -> tuple[PublisherRow, ...]:
    return tuple(
        PublisherRow(
            _identity(case.clients.publishers, name),
            tally.addresses.get(name, ""),
            *(tally.publishers[name, what] for what in ("published", "accepted", "unanswered", "alone")),
        )
        for name in _publishers(tally)
    )


def _publishers(tally: Tally) -> list[str]:
    return sorted({name for name, _ in tally.publishers})


def pair_rows(tally: Tally, case: Case) -> tuple[PairRow, ...]:
    return tuple(_pair_row(tally, *names, case) for names in _pairs(tally))


def _pairs(tally: Tally) -> list[tuple[str, str]]:
    named = (*tally.pairs, *tally.without, *((*pair, "") for pair in tally.away))
    return sorted({(publisher, subscriber) for publisher, subscriber, _ in named})


def _pair_row(tally: Tally, publisher: str, subscriber: str, case: Case) -> PairRow:
    clients = case.clients

    def count(what: str) -> int:
        return tally.pairs[publisher, subscriber, what]

    return PairRow(
        _identity(clients.publishers, publisher),
        _identity(clients.subscribers, subscriber),
        clients.subscribers[subscriber].mode if subscriber in clients.subscribers else "",
        tally.publishers[publisher, "published"],
        tally.publishers[publisher, "accepted"],
        count("owed"),
        count("taken"),
        {kind: count(kind) for kind in KINDS if count(kind)},
        count("unknown") + count("unplaced"),
        sum(missed.count for pair, missed in tally.without.items() if pair[:2] == (publisher, subscriber)),
        tally.away[publisher, subscriber],
        {reason: count(f"unowed {reason}") for reason in UNOWED if count(f"unowed {reason}")},
        {reason: count(f"unprocessed {reason}") for reason in UNPROCESSED if count(f"unprocessed {reason}")},
    )


def _identity(known: Mapping[str, Client], name: str) -> str:
    return known[name].identity if name in known else name


def violations(tally: Tally) -> dict[str, int]:
    return {kind: tally.violations[kind] for kind in KINDS if tally.violations[kind]}


def findings(tally: Tally, case: Case) -> tuple[Finding, ...]:
    """Return the first few violations of each kind, in the order of delivery keys."""
    clients = case.clients
    return tuple(
        Finding(
            kind,
            found.key,
            _identity(clients.publishers, found.publisher),
            tuple(_identity(clients.subscribers, name) for name in found.subscribers),
            found.router or None,
            found.life,
        )
        for kind in KINDS
        for found in tally.findings.get(kind, ())
    )


def doubts(tally: Tally, case: Case) -> Iterator[str]:
    """Yield a sentence for each unknown fact that keeps the verdict from *holds*."""
    clients = case.clients
    for log in case.logs.values():
        if log.gap is not None:
            yield f"the log of {log.source} breaks off at {_clock(log)} because it could not be written: {log.gap.why}"
    if not any(tally.publishers[name, "accepted"] for name in _publishers(tally)):
        yield "no delivery was accepted, so there is nothing to judge"
    for name in _publishers(tally):
        if unenqueued := tally.publishers[name, "unenqueued"]:
            named = _identity(clients.publishers, name)
            yield f"{unenqueued} deliveries from {named}: the log entries that show them in their queue are lost"
        if unshared := tally.publishers[name, "unshared"]:
            named = _identity(clients.publishers, name)
            yield f"{unshared} deliveries from {named}: the log entries that name their subscribers are lost"
    for publisher, subscriber in _pairs(tally):
        names = _identity(clients.publishers, publisher), _identity(clients.subscribers, subscriber)
        if unknown := tally.pairs[publisher, subscriber, "unknown"]:
            yield f"{unknown} deliveries from {names[0]} to {names[1]}: their log entries are lost"
        if unplaced := tally.pairs[publisher, subscriber, "unplaced"]:
            yield f"{unplaced} deliveries from {names[0]} to {names[1]}: published in an unknown order"
    for role, known in (("publisher", clients.publishers), ("subscriber", clients.subscribers)):
        for client in sorted(known.values(), key=lambda client: client.identity):
            if not case.since and (missing := _untraced(tally, client)):
                yield f"{role} {client.identity}: {missing} of its published deliveries appear in no log"
            elif client.doubts and client.resumed is None:
                yield _open_ended(role, client)
    yield from _unaddressed(tally, case)


def _untraced(tally: Tally, client: Client) -> int:
    """How many messages the publisher had published before it came back, by its state file, of which no log has an
    entry."""
    return max(0, client.resumed.published - tally.publishers[client.name, "earlier"]) if client.resumed else 0


def _unaddressed(tally: Tally, case: Case) -> Iterator[str]:
    """Yield a text for each router log that may lack its end, if this router may be the home of deliveries with an
    unknown audience.

    Then yield a text with the number of accepted deliveries that did not reach a subscriber, and of which no log shows
    whether they were owed to it.
    """
    homes = {home for home, _ in tally.in_vain}
    for log in case.logs.values():
        if log.role == "router" and not log.whole and (log.name in homes or None in homes):
            yield f"the log of {log.source} may lack its end: subscribers of deliveries after {_clock(log)} are unknown"
    if in_vain := sum(count for (_, known), count in tally.in_vain.items() if known):
        yield f"{in_vain} accepted deliveries did not reach a subscriber, and no log shows whether they were owed to it"


def _clock(log: Log) -> str:
    return datetime.fromtimestamp(log.last_time // 1_000_000).strftime("%H:%M:%S")


def _open_ended(role: str, client: Client) -> str:
    logs = ", ".join(sorted(set(client.open_logs)))
    cut = [log for log in client.logs if not log.whole]
    own = "it has no log of its own"
    if cut:
        last = max(cut, key=lambda log: log.last_time)
        own = f"its own log, {last.source}, breaks off at {_clock(last)}"
    elif client.logs:
        own = "its own logs are whole"
    if role == "subscriber" and client.logs:
        return f"{role} {client.identity}: {own if cut else f'its log {logs} may lack its end'}"
    return f"{role} {client.identity}: {own}, and its router's log {logs} may lack its end"


def exceptions(tally: Tally, case: Case) -> tuple[str, ...]:
    """The exceptions. The exception about the highest number of deliveries comes first."""
    left: dict[tuple[str, str], Missed] = {}
    for (_, subscriber, home), missed in tally.without.items():
        left[subscriber, home] = missed.and_(left.get((subscriber, home)))
    ordered = sorted(left.items(), key=lambda item: (-item[1].count, item[0]))
    left_out = (_left_out(case, *whose, missed) for whose, missed in ordered)
    return (*left_out, *_repeated(tally, case), *_ended(case, {name for name, _ in left}))


def _repeated(tally: Tally, case: Case) -> Iterator[str]:
    """Yield the subscribers that processed a message more than once within their weaker promise."""
    found = Counter[tuple[str, str]]()
    for publisher, subscriber in _pairs(tally):
        for reason in REPEATED:
            found[subscriber, reason] += tally.pairs[publisher, subscriber, f"repeated {reason}"]
    for (subscriber, reason), count in sorted(found.items(), key=lambda item: (-item[1], item[0])):
        if count:
            name, deliveries = _identity(case.clients.subscribers, subscriber), _deliveries(count)
            yield f"{deliveries} processed more than once by {name}, {REPEATED[reason]}"


def _ended(case: Case, left: set[str]) -> Iterator[str]:
    """Yield the links that were ended in use. Subscribers that are already reported as left out are not repeated."""
    known = case.clients.publishers | case.clients.subscribers
    for ended in case.ended_in_use:
        if ended.link not in left:
            where = f"{ended.router} ({ended.reason})" if ended.reason else ended.router
            yield f"{known[ended.link].identity} was removed as expired, although it was attached at {where}"


def _left_out(case: Case, subscriber: str, home: str, missed: Missed) -> str:
    name = case.clients.subscribers[subscriber].identity
    return f"{_deliveries(missed.count)} accepted without {name}, {_why(case, subscriber, home, missed)}"


def _deliveries(count: int) -> str:
    return "1 delivery was" if count == 1 else f"{count} deliveries were"


def _why(case: Case, subscriber: str, home: str, missed: Missed) -> str:
    router = home.rpartition(".")[0]
    if not router:
        return "which was attached; the log of the router that accepted may lack its end"
    if any(home in lost.homes and lost.at <= missed.first for lost in case.state_losses):
        return f"a subscriber that router {router} did not know: no router had its state store"
    apart = _apart(case.partings.get((home, subscriber), ()), missed)
    if apart is None or not apart.known:
        forgetful = ": the router had started without its state store" if home in case.forgetful else ""
        return f"a subscriber that router {router} did not know{forgetful}"
    if apart.ending is not None:
        return f"whose link router {router} considered ended" + (f": {apart.ending}" if apart.ending else "")
    timeout_s = case.clients.subscribers[subscriber].timeout_s
    if apart.lasted_us is None:
        lasted = "from then on" if apart.till == FOREVER else "for a time that no clock tells"
        return f"which was out of contact with router {router} {lasted}; its timeout is {timeout_s:g} s"
    lasted_s = apart.lasted_us / 1_000_000
    longer = "longer" if lasted_s >= timeout_s else "not longer"
    apart_for = f"which was out of contact with router {router} for {lasted_s:.1f} s"
    return f"{apart_for}, {longer} than its timeout of {timeout_s:g} s"


def _apart(partings: Sequence[Parting], missed: Missed) -> Parting | None:
    """The parting with the highest weight during which any of the missed deliveries may have been accepted; None if
    there is none."""
    found = [apart for apart in partings if apart.since <= missed.last and missed.first <= apart.till]
    return max(found, key=lambda apart: apart.weight, default=None)
