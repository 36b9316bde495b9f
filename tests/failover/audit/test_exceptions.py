"""What was accepted without a subscriber that was there is said in the verdict, with names and numbers.

publisher one at a ─┐         ┌─ subscriber far at c, without a log of its own
                    a ── b ── c
                    └─ subscriber near at a
"""

import json
from io import StringIO

import attrs
import pytest
from rich.console import Console

from failover.audit import Report, Verdict
from failover.audit.mesh.presence import Parting, joined, partings
from tests.failover.audit.in_process import Judged
from tests.failover.audit.runs import (
    ADDRESS,
    FAR,
    MID,
    NEAR,
    ONE,
    ROUTERS,
    START_MS,
    SUBSCRIBERS,
    TWO,
    Client,
    Row,
    Run,
)
from tests.failover.audit.test_audiences import Log, S
from topic.identity import Epoch
from topic.journal import Event, LoggedOutcome

SECOND = 1_000_000
APART_S = 61


def is_apart(run: Run, *tags: int, told: bool = True) -> None:
    """a has lost c for longer than the timeout of far, which gets none of these of publisher one: it had been owed the
    first of them, and is not meant to get the others."""
    first = run.find("a", Event.RECEIVED, run.key(ONE, tags[0]))
    run.before("a", first, Event.LOST, peer="c")
    run.leave_out(FAR, ONE, tags[0])
    run.leave_out(FAR, ONE, *tags[1:], audience=False)
    if told:
        for tag in tags:
            without(run, "a", tag)
    lasts(run, first)


def without(run: Run, home: str, tag: int) -> None:
    accepted = run.find(home, Event.ACCEPTED, run.key(ONE, tag))
    about = {name: accepted[name] for name in ("keys", "address", "publisher", "epoch")}
    run.before(home, accepted, Event.APART, subscriber=FAR.name, **about)


def lasts(run: Run, since: Row) -> None:
    """Until all logs end, when c is back."""
    stop = run.logs["a"][-1]
    for log in run.logs.values():
        log[-1] |= {"time_us": since["time_us"] + (APART_S + 1) * SECOND, "hlc": since["hlc"] + (APART_S + 1 << 26)}
    back = {"time_us": since["time_us"] - 1 + APART_S * SECOND, "hlc": stop["hlc"] - 1}
    run.logs["a"].insert(
        -1, {"event": Event.CONTACT, "peer": "c", "detail": json.dumps({"incarnation": START_MS})} | back
    )


def left_out(report: Report) -> dict[tuple[str, str], int]:
    return {(row.publisher, row.subscriber): row.without for row in report.pairs if row.without}


@pytest.mark.parametrize(("without", "too_early"), [(SUBSCRIBERS, 0), ((MID, FAR), 1), ((), 3)])
def test_a_zombie_that_went_on_without_a_subscriber_does_not_answer_too_early_for_it(
    judged: Judged, without: tuple[Client, ...], too_early: int
) -> None:
    """b reads what its publisher had sent it before it went to a, out of contact with all, and accepts it first."""
    run = Run()
    key, sent = run.key(ONE, 2), run.find("b", Event.RECEIVED, run.key(ONE, 2))
    about = {"keys": [key], "address": ADDRESS, "publisher": ONE.name, "epoch": str(Epoch(1, "b", START_MS))}
    run.before("b", sent, Event.RECEIVED, n=0, **about)
    run.before("b", sent, Event.AUDIENCE, detail="[]", **about)
    for subscriber in without:
        run.before("b", sent, Event.APART, subscriber=subscriber.name, **about)
    run.before("b", sent, Event.ACCEPTED, outcome=LoggedOutcome.ACCEPTED, **about)
    assert judged(run).violations.get("accepted too early", 0) == too_early


@pytest.mark.parametrize("early", [False, True])
def test_the_home_that_counts_on_it_does(judged: Judged, early: bool) -> None:
    run = Run()
    key, sent = run.key(ONE, 2), run.find("b", Event.RECEIVED, run.key(ONE, 2))
    about = {"keys": [key], "address": ADDRESS, "publisher": ONE.name, "epoch": str(Epoch(1, "b", START_MS))}
    for subscriber in SUBSCRIBERS:
        run.before("b", sent, Event.APART, subscriber=subscriber.name, **about)
    run.before("b", sent, Event.ACCEPTED, outcome=LoggedOutcome.ACCEPTED, **about)
    if early:
        run.find("a", Event.ACCEPTED, key)["hlc"] = sent["hlc"]
    assert judged(run).violations.get("accepted too early", 0) == (3 if early else 0)


def test_who_was_apart_for_longer_than_its_timeout_is_named(judged: Judged) -> None:
    run = Run()
    is_apart(run, 1, 2)
    report = judged(run)
    assert report.verdict is Verdict.QUALIFIED and report.exit_code == 4, (report.findings, report.doubts)
    assert report.sentence == (
        f"exactly-once holds, but not for everybody: 2 deliveries were accepted without {FAR.identity}, "
        "which was out of contact with router a for 61.0 s, longer than its timeout of 60 s"
    )
    assert left_out(report) == {(str(ONE.identity), str(FAR.identity)): 2}


def test_for_how_long_it_was_apart_is_not_told_by_a_clock_that_was_set_back(judged: Judged) -> None:
    run = Run()
    is_apart(run, 1, 2)
    for row in run.logs["a"][20:]:
        row["time_us"] -= 3_600 * SECOND
    report = judged(run)
    assert "the clock of a was set back" in report.clocks[0]
    told = f"2 deliveries were accepted without {FAR.identity}, which was out of contact with router a for a time that "
    assert report.exceptions == (told + "no clock tells; its timeout is 60 s",)


def test_without_a_word_of_its_home_it_is_lost(judged: Judged) -> None:
    run = Run()
    is_apart(run, 1, 2, told=False)
    assert judged(run).violations == {"lost": 2}


def test_what_it_processed_all_the_same_it_was_not_left_out_of(judged: Judged) -> None:
    run = Run()
    without(run, "a", 1)
    report = judged(run)
    assert report.verdict is Verdict.HOLDS, report.sentence


def test_a_home_that_accepts_it_after_that_without_a_word_has_lost_it(judged: Judged) -> None:
    run = Run()
    is_apart(run, 1)
    accepted = run.find("a", Event.ACCEPTED, run.key(ONE, 1))
    again = {name: accepted[name] for name in ("keys", "address", "publisher", "outcome")}
    run.before("b", run.find("b", Event.CLOSED), Event.ACCEPTED, epoch=run.epoch(TWO), **again)
    assert judged(run).violations == {"lost": 1}


def is_refused_at_its_first_home(run: Run, tag: int, refusing: Client) -> None:
    """b was the home of this delivery of publisher one before a, and answered *rejected*, which one has not read."""
    key = run.key(ONE, tag)
    about = {"keys": [key], "address": ADDRESS, "publisher": ONE.name, "epoch": str(Epoch(1, "b", START_MS))}
    audience = json.dumps([subscriber.name for subscriber in SUBSCRIBERS])
    answer = {"subscriber": refusing.name, "outcome": LoggedOutcome.REJECTED}
    sent, at_edge = (run.find(router, Event.RECEIVED, key) for router in ("b", refusing.router))
    run.before("b", sent, Event.RECEIVED, n=0, **about)
    run.before("b", sent, Event.AUDIENCE, detail=audience, **about)
    run.before(refusing.router, at_edge, Event.DELIVERED, **about, subscriber=refusing.name)
    run.before(refusing.router, at_edge, Event.OUTCOME, **about | answer)
    run.before("b", sent, Event.ACCEPTED, outcome=LoggedOutcome.REJECTED, **about)


@pytest.mark.parametrize(("refusing", "found"), [(FAR, "accepted though refused"), (MID, "lost")])
def test_a_home_that_told_a_refusal_accepted_it_for_nobody(judged: Judged, refusing: Client, found: str) -> None:
    """Only the acceptance of the next home tells without whom it was, and it says so or has to answer for it."""
    run, silent = Run(), Run()
    is_apart(run, 1)
    is_refused_at_its_first_home(run, 1, refusing)
    report = judged(run)
    assert report.verdict is Verdict.QUALIFIED, (report.findings, report.doubts)
    assert left_out(report) == {(str(ONE.identity), str(FAR.identity)): 1}
    is_apart(silent, 1, told=False)
    is_refused_at_its_first_home(silent, 1, refusing)
    assert judged(silent).violations == {found: 1}


def test_a_violation_is_told_first(judged: Judged) -> None:
    run = Run()
    is_apart(run, 1)
    run.leave_out(NEAR, ONE, 3)
    report = judged(run)
    assert report.verdict is Verdict.VIOLATED
    assert report.sentence.startswith("exactly-once is violated: 1 lost; besides, 1 delivery was accepted without ")


def test_more_than_a_few_are_counted(judged: Judged) -> None:
    report = attrs.evolve(judged(Run()), exceptions=("one", "two", "three", "four", "five"))
    assert report.sentence == "exactly-once holds, but not for everybody: one; two; three; and 2 more like these"
    shown = StringIO()
    report.render(Console(file=shown, width=60))
    assert "not for everybody: four\nnot for everybody: five\n" in shown.getvalue()


def never_joined(run: Run, client: Client, router: str) -> None:
    run.remove(lambda row: row["event"] is Event.JOINED and row["subscriber"] == client.name, router)


def test_who_attached_where_its_publishers_router_was_not_in_contact_is_named(judged: Judged) -> None:
    run = Run()
    never_joined(run, FAR, "a")
    run.leave_out(FAR, ONE, 0, 1, 2, 3, audience=False)
    report = judged(run)
    assert report.sentence.endswith(
        f"4 deliveries were accepted without {FAR.identity}, a subscriber that router a did not know"
    )


def test_who_heard_that_another_had_ended_its_link_is_named_with_the_reason(judged: Judged) -> None:
    run = Run()
    ended = run.find("b", Event.RECEIVED, run.key(ONE, 2))
    run.before("b", ended, Event.EXPIRED, subscriber=FAR.name, epoch=run.epoch(FAR), detail="router b waited 61 s")
    for tag in (2, 3):
        run.leave_out(FAR, ONE, tag, audience=False)
        run.leave_out(FAR, TWO, tag, audience=False)
    report = judged(run)
    assert report.verdict is Verdict.QUALIFIED, (report.findings, report.doubts)
    told = (
        f"2 deliveries were accepted without {FAR.identity}, whose link router a considered ended: router b waited 61 s"
    )
    assert told in report.exceptions


def test_a_router_begins_before_its_clocks_are_set() -> None:
    log = Log()
    log.say("a", Event.BOOT, at=0, epoch=0, incarnation=7, subscriber=None)
    log.say("a", Event.KEPT, at=8_000, epoch=5, incarnation=7)
    log.say("a", Event.JOINED, at=9_000, epoch=5, incarnation=7)
    assert partings(log.rows, [S]) == {("a.7", S): [Parting(0, 9_000, known=True, lasted_us=2_000, ending=None)]}


@pytest.mark.parametrize(("since", "till"), [(0, 9_000), (4_000, 0), (0, 0)])
def test_between_entries_of_which_one_has_no_time_nobody_knows_how_long_it_was(since: int, till: int) -> None:
    """Nothing is ordered by the clock of that one's router."""
    log = Log()
    log.say("a", Event.JOINED, at=1_000, epoch=5, peer="c")
    log.say("c", Event.SUSPENDED, at=4_000, epoch=5, time=since)
    log.say("a", Event.JOINED, at=9_000, epoch=8, time=till)
    assert partings(log.rows, [S])["a.1", S] == [Parting(4_000, 9_000, known=True, lasted_us=None, ending=None)]


def test_who_is_unknown_to_a_router_that_began_without_its_store_is_named(judged: Judged) -> None:
    run = Run()
    rows = run.logs["a"]
    cut = rows.index(run.find("a", Event.RECEIVED, run.key(ONE, 2)))
    late = rows[cut:]
    boot = {"time_us": rows[cut - 1]["time_us"], "hlc": rows[cut - 1]["hlc"]}
    run.logs["a"] = [*rows[:cut], {"event": Event.STOPPED} | boot]
    kept = {"event": Event.KEPT, "detail": json.dumps({"found": False})}
    run.again["a"] = [{"event": Event.BOOT} | boot, kept | boot, *late]
    run.leave_out(FAR, ONE, 2, 3)
    for row in late:
        if row["event"] is Event.AUDIENCE:
            row["detail"] = json.dumps([name for name in json.loads(row["detail"]) if name != FAR.name])
    report = judged(run)
    why = "a subscriber that router a did not know: the router had started without its state store"
    forgot = f"2 deliveries were accepted without {FAR.identity}, {why}"
    assert forgot in report.exceptions, (report.exceptions, report.findings)


def goes_and_comes_back(run: Run, gone_s: int) -> None:
    """Subscriber near is killed after the first delivery of publisher one, and a lets it expire before the next is
    accepted; it is back so many seconds after it went."""
    killed = run.find("clients/near", Event.PROCESSED, run.key(TWO, 0))
    rows = run.logs["clients/near"]
    del rows[rows.index(killed) + 1 :]
    for publisher in (ONE, TWO):
        run.leave_out(NEAR, publisher, 1, 2, 3, audience=False)
    for log, rows in run.logs.items():
        if log in ROUTERS:
            first = run.find(log, Event.RECEIVED, run.key(ONE, 1))
            run.before(log, first, Event.EXPIRED, subscriber=NEAR.name, epoch=run.epoch(NEAR))
        for row in (row for row in rows if row["time_us"] > killed["time_us"]):
            row["time_us"] += (gone_s - 1) * SECOND
            row["hlc"] += (gone_s - 1) * 1000 << 16
    late = {"time_us": killed["time_us"] + gone_s * SECOND, "hlc": killed["hlc"] + (gone_s * 1000 << 16)}
    about = {"subscriber": NEAR.name, "address": ADDRESS}
    back: list[Row] = [{"event": Event.BOOT}, {"event": Event.KEPT}, {"event": Event.ATTACHED, "detail": NEAR.detail}]
    run.again["clients/near"] = [row | about | late for row in (*back, {"event": Event.STOPPED})]


@pytest.mark.parametrize(("gone_s", "named"), [(120, False), (30, True)])
def test_only_who_was_gone_for_longer_than_its_timeout_has_itself_to_thank(
    judged: Judged, gone_s: int, named: bool
) -> None:
    run = Run()
    goes_and_comes_back(run, gone_s)
    report = judged(run)
    assert report.violations == {} and report.verdict is (Verdict.QUALIFIED if named else Verdict.HOLDS), (
        report.sentence
    )
    counts = [(row.without, row.away) for row in report.pairs if row.subscriber == str(NEAR.identity)]
    assert counts == [(3, 0) if named else (0, 3)] * 2


def ends(run: Run, client: Client) -> None:
    """Its router takes it for expired, and detaches it."""
    stop = run.logs[client.router][-1]
    about = {client.role: client.name, "epoch": run.epoch(client), "detail": "apart for 61 s, says a"}
    run.remove(lambda row: row["event"] is Event.CLOSED and row.get("subscriber") == client.name, client.router)
    run.before(client.router, stop, Event.EXPIRED, **about)


@pytest.mark.parametrize("client", [ONE, NEAR, FAR])
def test_a_link_that_is_ended_in_use_is_named(judged: Judged, client: Client) -> None:
    run = Run()
    ends(run, client)
    where = f"{client.identity} was removed as expired, although it was attached at {client.router}"
    sentence = f"exactly-once holds, but not for everybody: {where} (apart for 61 s, says a)"
    assert judged(run).sentence == sentence


def test_a_link_that_its_client_had_lost_was_not_in_use(judged: Judged) -> None:
    run = Run()
    ends(run, FAR)
    expired = run.find("c", Event.EXPIRED)
    run.before("c", expired, Event.SUSPENDED, subscriber=FAR.name, epoch=run.epoch(FAR))
    assert judged(run).verdict is Verdict.HOLDS


@pytest.mark.parametrize("spans", [[(0, 5), (6, 9)], [(6, 9), (0, 5)], [(0, 5), (3, 4), (6, 9)]])
def test_a_gap_that_routers_wait_for_is_none(spans: list[tuple[int, int]]) -> None:
    assert joined(spans, 1) == [(0, 9)]
    assert joined(spans, 0) == [(0, 5), (6, 9)]
