"""Subscribers without a timeout: whom they end for, and when, and who need not have known them (protocol 8, 10)."""

import json

import pytest

from failover.audit import Verdict
from failover.audit.mesh.clients import Client
from tests.failover.audit.in_process import Judged
from tests.failover.audit.runs import ADDRESS, FAR, ONE, START_MS, Run
from tests.failover.audit.test_unheard import taken_over
from topic.identity import Epoch
from topic.journal import Event

LOST, GIVEN_UP, GRACE = Event.LOST, Event.GIVEN_UP, json.dumps({"grace": 5.0})
WAS_APART = f"1 delivery was accepted without {FAR.identity}, which was out of contact with router a from then on"


def plain(run: Run) -> Run:
    """Far asked for no timeout."""
    attached = run.find("c", Event.ATTACHED, subscriber=FAR.name)
    attached["detail"] = json.dumps(json.loads(attached["detail"]) | {"timeout": 0})
    return run


def cut_off(*told: tuple[Event, str | None]) -> Run:
    """Router a loses contact with c, that of far, and accepts one that far has not processed. It tells the rest before
    that."""
    run = plain(Run())
    accepted = run.find("a", Event.ACCEPTED, run.key(ONE, 3))
    for event, detail in told:
        run.before("a", accepted, event, peer="c", detail=detail)
    run.leave_out(FAR, ONE, 3)
    return run


def test_who_is_waited_for_has_lost_what_is_accepted_without_it(judged: Judged) -> None:
    assert judged(cut_off((LOST, GRACE))).violations == {"lost": 1}


def test_nobody_is_owed_anything_whose_router_was_given_up(judged: Judged) -> None:
    report = judged(cut_off((LOST, GRACE), (GIVEN_UP, json.dumps({"incarnation": START_MS}))))
    assert report.verdict is Verdict.QUALIFIED and report.violations == {}, (report.doubts, report.findings)
    assert WAS_APART in report.sentence


def test_it_is_owed_again_what_comes_once_it_is_joined_anew(judged: Judged) -> None:
    run = cut_off()
    for event, detail in ((LOST, GRACE), (GIVEN_UP, json.dumps({"incarnation": START_MS}))):
        run.before("a", run.find("a", Event.ACCEPTED, run.key(ONE, 2)), event, peer="c", detail=detail)
    back = {"subscriber": FAR.name, "address": ADDRESS, "peer": "c", "epoch": run.epoch(FAR)}
    run.before("a", run.find("a", Event.RECEIVED, run.key(ONE, 3)), Event.JOINED, **back)
    assert judged(run).violations == {"lost": 1}


def test_a_router_whose_log_knows_of_no_grace_waits_no_longer_than_the_contact(judged: Judged) -> None:
    report = judged(cut_off((LOST, None)))
    assert report.verdict is Verdict.QUALIFIED and WAS_APART in report.sentence, (report.doubts, report.findings)


def test_another_incarnation_that_was_given_up_was_not_its_router(judged: Judged) -> None:
    run = cut_off((LOST, GRACE), (GIVEN_UP, json.dumps({"incarnation": START_MS + 1})))
    assert judged(run).violations == {"lost": 1}


@pytest.mark.parametrize("knew", [False, True])
@pytest.mark.parametrize("ended", [False, True])
def test_who_has_left_its_router_has_gone_for_who_does_not_know_where_it_went(
    judged: Judged, *, ended: bool, knew: bool
) -> None:
    """It attached elsewhere; or its router ended its link before, as somebody had accepted a message without it."""
    run = cut_off()
    accepted = run.find("a", Event.ACCEPTED, run.key(ONE, 3))
    left = accepted | {"keys": (), "publisher": None, "outcome": 0, "subscriber": FAR.name}
    left |= {name: accepted[name] - 2 for name in ("time_us", "hlc")}
    if ended:
        left |= {"event": Event.EXPIRED, "epoch": run.epoch(FAR)}
    else:
        left |= {"event": Event.STOLEN, "epoch": None, "peer": "b"}
    at = next(place for place, row in enumerate(run.logs["c"]) if row["hlc"] > left["hlc"])
    run.logs["c"].insert(at, left)
    moved = {"subscriber": FAR.name, "address": ADDRESS, "epoch": str(Epoch(left["hlc"] - 2, "b", START_MS))}
    before = run.find("a", Event.RECEIVED, run.key(ONE, 3)) if knew else run.find("a", Event.SETTLED, run.key(ONE, 3))
    run.before("a", before, Event.JOINED, peer="b", **moved)
    report = judged(run)
    assert report.violations == ({"lost": 1} if knew else {}), (report.sentence, report.findings)


def test_a_new_home_that_has_not_joined_it_need_not_know_it(judged: Judged) -> None:
    report = judged(plain(taken_over("c")))
    assert report.verdict is Verdict.QUALIFIED, (report.violations, report.doubts)
    assert f"1 delivery was accepted without {FAR.identity}, a subscriber that router a did not know" in report.sentence


def test_a_new_home_that_lists_it_owes_it(judged: Judged) -> None:
    run = plain(taken_over("c"))
    audience = next(row for row in run.again["a"] if row["event"] is Event.AUDIENCE)
    audience["detail"] = json.dumps([FAR.name])
    assert judged(run).violations == {"lost": 1}


@pytest.mark.parametrize(("late", "is_disordered"), [(0, False), (2_000_000, True)])
def test_attaches_are_not_in_the_order_of_their_epochs_if_clocks_say_so(late: int, *, is_disordered: bool) -> None:
    client = Client(
        "name", "identity", lives=[(2, 2, "b.1"), (1, 1, "a.1")], opened={1: 5_000_000 + late, 2: 5_000_000}
    )
    assert client.is_disordered is is_disordered


@pytest.mark.parametrize(
    ("later", "where", "echoes", "is_disordered"),
    [
        (500_000, "b.1", True, False),
        (500_000, "b.1", False, True),
        (500_000, "a.1", False, False),  # one router gives them in order
        (1_500_000, "b.1", False, False),
    ],
)
def test_epochs_within_the_difference_of_clocks_order_attaches_only_if_the_client_echoes_them(
    later: int, where: str, *, echoes: bool, is_disordered: bool
) -> None:
    lives, opened = [(2, 2, where), (1, 1, "a.1")], {1: 5_000_000, 2: 5_000_000 + later}
    client = Client("name", "identity", lives=lives, opened=opened, echoes=echoes)
    assert client.is_disordered is is_disordered
    assert client.is_read_in_disorder is not echoes


def test_nothing_orders_attaches_without_a_time_if_the_client_echoes_no_epoch() -> None:
    lives, opened = [(2, 2, "b.1"), (1, 1, "a.1")], {1: 5_000_000, 2: 0}
    assert Client("name", "identity", lives=lives, opened=opened, echoes=False).is_disordered
    assert not Client("name", "identity", lives=lives, opened=opened).is_disordered


@pytest.mark.parametrize(
    ("began", "higher", "where", "is_disordered"),
    [
        ({1, 2}, 500_000, "b.1", True),
        ({1, 2}, -500_000, "b.1", True),
        ({1, 2}, 500_000, "a.1", False),  # one router gives them in order
        ({1, 2}, 1_500_000, "b.1", False),
        ({1, 2}, None, "b.1", True),  # it has no time
        ({1}, 500_000, "b.1", False),  # it resumes, and there is no other that it can resume
    ],
)
def test_epochs_within_the_difference_of_clocks_do_not_order_attaches_that_begin_afresh(
    began: set[int], higher: int | None, where: str, *, is_disordered: bool
) -> None:
    opened = {1: 5_000_000, 2: 0 if higher is None else 5_000_000 + higher}
    client = Client("name", "identity", lives=[(2, 2, where), (1, 1, "a.1")], opened=opened, afresh=began)
    assert client.is_disordered is is_disordered


@pytest.mark.parametrize(("later", "is_disordered"), [(-500_000, True), (1_500_000, False)])
def test_an_attach_that_resumes_may_have_come_before_a_lower_one_that_began_afresh(
    later: int, *, is_disordered: bool
) -> None:
    """It may have resumed the lowest."""
    lives = [(1, 1, "a.1"), (2, 2, "a.1"), (3, 3, "b.1")]
    opened = {1: 4_000_000, 2: 7_000_000, 3: 7_000_000 + later}
    client = Client("name", "identity", lives=lives, opened=opened, afresh={1, 2})
    assert client.is_disordered is is_disordered
