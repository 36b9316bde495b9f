"""Tags used again: the lives of one key are told apart, so nothing is accused and nothing hidden."""

from collections.abc import Callable

import attrs
import pytest

from failover.audit import Verdict
from failover.audit.judge.uses import tell_apart, uses_of
from failover.audit.read.columns import unpack
from failover.audit.read.entries import DeliveryEntry
from failover.audit.read.facts import Facts
from failover.audit.read.logs import LocalLogs
from tests.failover.audit.in_process import Judged
from tests.failover.audit.runs import FAR, NEAR, ONE, START_MS, TWO, Client, Run
from topic.identity import Epoch
from topic.journal import BY_MAP, Event, LoggedOutcome

LIVES = 6
HOSTS: dict[str, Callable[[str], str]] = {
    "one host": lambda log: "host",
    "clients elsewhere": lambda log: "client" if "/" in log else "host",
    "a host each": lambda log: log,
}


def reusing(hosts: str = "one host") -> Run:
    run = Run(messages=LIVES, tags=1)
    run.hosts = {log: HOSTS[hosts](log) for log in run.logs}
    return run


@pytest.mark.parametrize("hosts", HOSTS)
def test_using_a_tag_again_is_no_violation(judged: Judged, hosts: str) -> None:
    report = judged(reusing(hosts))
    assert report.violations == {} and report.doubts == ()
    assert report.verdict is Verdict.HOLDS
    assert {(row.published, row.accepted, row.owed, row.processed) for row in report.pairs} == {(LIVES,) * 4}
    assert [row.published for row in report.publishers] == [LIVES, LIVES]


def test_two_tags_in_turn(judged: Judged) -> None:
    report = judged(Run(messages=LIVES, tags=2))
    assert report.verdict is Verdict.HOLDS, (report.findings, report.doubts)
    assert {row.processed for row in report.pairs} == {LIVES}


@pytest.mark.parametrize("publisher", [ONE, TWO], ids=["publisher logs", "plain publisher"])
def test_one_lost_among_many_of_one_tag_is_found(judged: Judged, publisher: Client) -> None:
    run = reusing()
    key = run.key(publisher, 0)
    for event in (Event.DELIVERED, Event.PROCESSED):
        run.drop("clients/near", run.all("clients/near", event, keys=[key])[2])
    report = judged(run)
    assert report.violations == {"lost": 1}
    (finding,) = report.findings
    assert (finding.key, finding.life, finding.subscribers) == (key.decode(), 3, (str(NEAR.identity),))


def test_one_lost_at_a_plain_subscriber_is_found(judged: Judged) -> None:
    run = reusing()
    for event in (Event.DELIVERED, Event.OUTCOME):
        run.drop("c", run.all("c", event, keys=[run.key(ONE, 0)])[-1])
    report = judged(run)
    assert [(f.kind, f.life, f.subscribers) for f in report.findings] == [("lost", LIVES, (str(FAR.identity),))]


def test_one_lost_and_another_twice_do_not_make_up_for_each_other(judged: Judged) -> None:
    run = reusing()
    key = run.key(ONE, 0)
    processed = run.all("clients/near", Event.PROCESSED, keys=[key])
    delivered = run.all("clients/near", Event.DELIVERED, keys=[key])
    run.drop("clients/near", processed[4], delivered[4])
    rows = run.logs["clients/near"]
    rows.insert(rows.index(processed[1]) + 1, processed[1] | {"time_us": processed[1]["time_us"] + 1})
    report = judged(run)
    assert report.violations == {"lost": 1, "duplicated": 1}
    assert {finding.kind: finding.life for finding in report.findings} == {"lost": 5, "duplicated": 2}


def test_what_was_published_once_and_received_twice_is_no_new_life(judged: Judged) -> None:
    run = Run()
    key = run.key(ONE, 3)
    run.after("a", run.find("a", Event.RECEIVED, key), n=4)
    run.after("a", run.find("a", Event.FORGOTTEN, key))
    run.after("clients/near", run.find("clients/near", Event.PROCESSED, key))
    report = judged(run)
    assert report.violations == {"duplicated": 1}
    assert report.findings[0].life == 0


def test_counts_that_clocks_cannot_explain_are_unknown(judged: Judged) -> None:
    run = reusing("a host each")
    key = run.key(ONE, 0)
    run.drop("clients/near", run.all("clients/near", Event.DELIVERED, keys=[key])[2])
    run.drop("clients/near", run.all("clients/near", Event.PROCESSED, keys=[key])[2])
    report = judged(run)
    assert report.verdict is Verdict.UNDECIDED and report.violations == {}


def row(
    source: str,
    event: Event,
    at: int,
    *,
    epoch: int = 5,
    n: int = -1,
    peer: str | None = None,
    subscriber: str | None = None,
    detail: str | None = None,
) -> DeliveryEntry:
    return DeliveryEntry(source, "router", 1, "h", at, at, at, event, 0, n, epoch, "P", subscriber, peer, detail, "K")


def told_by(role: str, event: Event, at: int) -> DeliveryEntry:
    """By the only client of this role."""
    subscriber, host = ("S", "s") if role == "subscriber" else (None, "h")
    return DeliveryEntry(role, role, 1, host, at, at, 0, event, 0, -1, None, "P", subscriber, None, None, "K")


def test_an_edge_that_forgets_late_speaks_of_the_former_life() -> None:
    rows = [
        row("a", Event.RECEIVED, 1, n=0),
        row("b", Event.RECEIVED, 2, n=0, peer="a"),
        row("a", Event.SETTLED, 3),
        row("a", Event.RECEIVED, 4, n=1),
        row("b", Event.FORGOTTEN, 5, peer="a"),
        row("b", Event.RECEIVED, 6, n=1, peer="a"),
    ]
    assert uses_of(rows, whole=False) == ([1, 1, 1, 2, 1, 2], True)


@pytest.mark.parametrize("told", [Event.RECEIVED, Event.RESOLVED])
def test_a_placeholder_by_a_clock_that_is_behind_is_of_the_life_that_home_tells_of_next(told: Event) -> None:
    """A subscriber was sent the second life at a, and attached at b, whose clock is still behind."""
    rows = [
        row("a", Event.RECEIVED, 1, n=0),
        row("b", Event.RECEIVED, 2, n=0, peer="a"),
        row("a", Event.SETTLED, 3),
        row("b", Event.FORGOTTEN, 4, peer="a"),
        row("a", Event.RECEIVED, 9, n=1),
        row("a", Event.SETTLED, 10),
        row("b", Event.OUTCOME, 5, detail=BY_MAP),
        row("b", Event.PLACEHOLDER, 6, peer="a"),
        row("b", told, 11, n=1 if told is Event.RECEIVED else -1, peer="a"),
        row("b", Event.FORGOTTEN, 12, peer="a"),
    ]
    assert uses_of(rows, whole=False) == ([1, 1, 1, 1, 2, 2, 2, 2, 2, 2], True)


@pytest.mark.parametrize("under", [5, 8], ids=["its home", "the next home"])
def test_what_home_calls_settled_to_a_clock_that_is_ahead_is_the_life_that_was_over(under: int) -> None:
    """A subscriber that had the first life attached at b. By the clock of b, the second life had begun when b was
    told, but it was not over."""
    rows = [
        row("a", Event.RECEIVED, 1, n=7),
        row("a", Event.SETTLED, 3),
        row("b", Event.OUTCOME, 20, detail=BY_MAP),
        row("b", Event.PLACEHOLDER, 21, peer="a"),
        row("b", Event.RESOLVED, 22, epoch=under, peer="c"),
        row("b", Event.SETTLED, 23, epoch=under, peer="c"),
        row("b", Event.FORGOTTEN, 24, epoch=under, peer="c"),
        row("c", Event.RECEIVED, 9, n=8, epoch=under),
        row("c", Event.FORWARDED, 10, epoch=under, peer="b"),
        row("b", Event.RECEIVED, 25, n=8, epoch=under, peer="c"),
        row("c", Event.SETTLED, 26, epoch=under),
        row("b", Event.SETTLED, 27, epoch=under, peer="c"),
    ]
    assert uses_of(rows, whole=False) == ([1] * 7 + [2] * 5, True)


def test_what_a_later_home_calls_settled_is_over_though_its_own_home_never_settled_it() -> None:
    """The publisher had settled both lives, and its map at the next home omitted them. The clock of b is ahead."""
    rows = [
        row("a", Event.RECEIVED, 1, n=7),
        row("a", Event.SETTLED, 3),
        row("a", Event.RECEIVED, 5, n=8),
        row("b", Event.PLACEHOLDER, 21, peer="a"),
        row("b", Event.RESOLVED, 22, epoch=8, peer="c"),
        row("b", Event.FORGOTTEN, 23, epoch=8, peer="c"),
        row("c", Event.RECEIVED, 9, n=0, epoch=8),
    ]
    assert uses_of(rows, whole=False) == ([1, 1, 2, 2, 2, 2, 3], True)


def test_what_is_called_settled_on_the_host_of_its_publisher_was_settled_by_the_log_of_that() -> None:
    """The home log lacks the second life, so only the wall clock tells."""
    rows = [
        told_by("publisher", Event.PUBLISHED, 1),
        row("a", Event.RECEIVED, 2, n=0),
        told_by("publisher", Event.SETTLED, 3),
        row("b", Event.PLACEHOLDER, 4, peer="a"),
        row("b", Event.RESOLVED, 5, peer="a"),
        row("b", Event.FORGOTTEN, 5, peer="a"),
        told_by("publisher", Event.PUBLISHED, 6),
        told_by("publisher", Event.SETTLED, 7),
        told_by("publisher", Event.PUBLISHED, 8),
        row("a", Event.RECEIVED, 9, n=2),
        row("b", Event.PLACEHOLDER, 10, peer="a"),
        told_by("publisher", Event.SETTLED, 11),
        row("b", Event.RESOLVED, 12, peer="a"),
    ]
    assert uses_of(rows, whole=True) == ([1, 1, 1, 1, 1, 1, 2, 2, 3, 3, 3, 3, 3], True)


def test_what_an_edge_received_by_a_clock_that_is_ahead_is_the_life_at_that_place() -> None:
    """The edge was killed, and the mesh forgot what it held. The subscriber had the second life from the home."""
    rows = [
        row("a", Event.RECEIVED, 1, n=0),
        row("b", Event.RECEIVED, 20, n=0, peer="a"),
        row("b", Event.DELIVERED, 21, peer="a", subscriber="S"),
        told_by("subscriber", Event.DELIVERED, 2),
        row("a", Event.SETTLED, 3),
        row("a", Event.FORGOTTEN, 4),
        row("a", Event.RECEIVED, 5, n=1),
        row("a", Event.DELIVERED, 6, subscriber="S"),
        told_by("subscriber", Event.DELIVERED, 7),
    ]
    uses, _ = uses_of(rows, whole=False)
    assert uses == [1, 1, 1, 1, 1, 1, 2, 2, 2]


def test_a_placeholder_that_is_forgotten_before_home_tells_of_the_next_life_is_not_of_that() -> None:
    rows = [
        row("a", Event.RECEIVED, 1, n=0),
        row("b", Event.PLACEHOLDER, 2, peer="a"),
        row("a", Event.SETTLED, 3),
        row("b", Event.FORGOTTEN, 4, peer="a"),
        row("a", Event.RECEIVED, 5, n=1),
        row("b", Event.RECEIVED, 6, n=1, peer="a"),
    ]
    assert uses_of(rows, whole=False) == ([1, 1, 1, 1, 2, 2], True)


@pytest.mark.parametrize(
    ("told", "may_be_several"),
    [
        ({}, False),
        ({"event": Event.RECEIVED, "n": 1}, True),
        ({"event": Event.SETTLED}, True),
        ({"event": Event.RESOLVED, "peer": "b"}, True),
    ],
    ids=["received there", "received there twice", "settled there, too", "called settled there"],
)
def test_one_life_at_two_homes_may_be_several_if_no_clock_orders_the_homes(
    told: dict[str, object], *, may_be_several: bool
) -> None:
    """The second home's clock is behind, so it seems to have had the delivery before the first home settled it."""
    run = Run(messages=1)
    forwarded = run.find("c", Event.RECEIVED, run.key(TWO, 0))
    moved = forwarded | {"epoch": str(Epoch((START_MS << 16) + 1, "c", START_MS)), "peer": None}
    at = run.logs["c"].index(forwarded) + 1
    run.logs["c"][at:at] = [moved, moved | told]
    logs = LocalLogs([(f"file:/run/{name}", data) for name, data in run.files()], 0)
    logs.control()
    facts = Facts(unpack(logs.some()))
    assert tell_apart(facts, {ONE.name}).sure.all()
    found = tell_apart(facts, {ONE.name}, disordered={ONE.name, TWO.name})
    sure = dict(zip(found.key.tolist(), found.sure.tolist(), strict=True))
    assert sure == {run.key(ONE, 0): True, run.key(TWO, 0): not may_be_several}


def test_a_delivery_resumed_at_another_home_is_the_same_life() -> None:
    rows = [row("a", Event.RECEIVED, 1, n=7, epoch=5), row("c", Event.RECEIVED, 9, n=0, epoch=8)]
    assert uses_of(rows, whole=False) == ([1, 1], True)


@pytest.mark.parametrize("under", [7, 8], ids=["attach before", "attach"])
@pytest.mark.parametrize("at", [3, 5], ids=["before its transfer", "after its transfer"])
def test_what_comes_again_after_its_next_home_called_it_settled_is_another_life(under: int, at: int) -> None:
    rows = [
        row("a", Event.RECEIVED, 1, n=7),
        row("b", Event.RECEIVED, 2, n=7, peer="a"),
        row("b", Event.RESOLVED, at, epoch=under, peer="c"),
        row("b", Event.SETTLED, at, epoch=under, peer="c"),
        row("c", Event.RECEIVED, 4, n=0, epoch=8),
        row("c", Event.SETTLED, 7, epoch=8),
    ]
    assert uses_of(rows, whole=False) == ([1, 1, 1, 1, 2, 2], True)


def test_what_its_next_home_calls_settled_after_it_was_settled_there_is_the_same_life() -> None:
    rows = [
        row("a", Event.RECEIVED, 1, n=7),
        row("b", Event.RECEIVED, 2, n=7, peer="a"),
        row("c", Event.RECEIVED, 4, n=0, epoch=8),
        row("c", Event.SETTLED, 5, epoch=8),
        row("b", Event.RESOLVED, 6, epoch=8, peer="c"),
    ]
    assert uses_of(rows, whole=False) == ([1, 1, 1, 1, 1], True)


def test_what_comes_again_at_its_next_home_may_be_no_other_life_if_its_publisher_settles_first() -> None:
    rows = [
        row("a", Event.RECEIVED, 1, n=7),
        row("a", Event.SETTLED, 2),
        row("c", Event.RECEIVED, 4, n=0, epoch=8),
    ]
    assert uses_of(rows, whole=False) == ([1, 1, 2], True)
    assert uses_of(rows, whole=False, first=True) == ([1, 1, 2], False)
    told = [*rows[:2], row("b", Event.RESOLVED, 3, epoch=8, peer="c"), rows[2]]
    assert uses_of(told, whole=False, first=True) == ([1, 1, 1, 2], False), "its former home may have said so"
    again = [*rows[:2], row("a", Event.RECEIVED, 4, n=8)]
    assert uses_of(again, whole=False, first=True) == ([1, 1, 2], True), "it sends nothing again on the same link"


def test_what_a_home_gave_up_for_another_life_of_its_publisher_is_the_same_delivery_when_it_comes_again() -> None:
    """The home had read an attach late, and the life that this had ended went on. A publisher that abandons a delivery
    may use its tag again."""
    given_up = row("a", Event.ABANDONED, 2, epoch=5, detail="b1")
    first, again = row("a", Event.RECEIVED, 1, epoch=5, n=7), row("c", Event.RECEIVED, 3, epoch=8, n=0)
    assert uses_of([first, given_up, again], whole=False) == ([1, 1, 1], True)
    abandoned = attrs.evolve(given_up, detail=None)
    assert uses_of([first, abandoned, again], whole=False) == ([1, 1, 2], True)


def test_what_a_former_home_reads_late_and_gives_up_late_begins_no_life() -> None:
    rows = [
        row("b", Event.RECEIVED, 1, epoch=7, n=0),
        row("a", Event.ABANDONED, 2, epoch=5),
        row("c", Event.RECEIVED, 3, epoch=9, n=4),
        row("c", Event.SETTLED, 4, epoch=9),
        row("b", Event.RECEIVED, 5, epoch=7, n=1),
    ]
    assert uses_of(rows, whole=False) == ([1, 1, 1, 1, 1], True)


def test_outcomes_of_one_life_are_not_compared_with_those_of_another(judged: Judged) -> None:
    run = reusing()
    told = run.all("clients/one", Event.OUTCOME)[1]
    run.all("a", Event.ACCEPTED, keys=[run.key(ONE, 0)])[1]["outcome"] = LoggedOutcome.REJECTED
    assert told["outcome"] is LoggedOutcome.ACCEPTED
    report = judged(run)
    assert [(finding.kind, finding.life) for finding in report.findings] == [("misreported", 2)]
