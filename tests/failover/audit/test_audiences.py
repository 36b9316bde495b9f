"""Who was joined where and when: stays and periods from control rows alone, without Spark."""

import json
from typing import Any

import pytest

from failover.audit.mesh.audiences import Membership, Period, memberships, periods
from failover.audit.mesh.clients import FOREVER, find_clients
from failover.audit.read.inventory import ControlRow
from topic.journal import Event

S = "subscriber-1"


class Log:
    """Rows of routers; the clock is one for all, and also the place in each log."""

    def __init__(self) -> None:
        self.rows: list[ControlRow] = []

    def say(self, router: str, event: Event, *, at: int, epoch: int, custodian: str = "c", **columns: Any) -> None:
        fields: dict[str, Any] = dict.fromkeys(("publisher", "peer", "generation", "detail"))
        fields |= {"role": "router", "host": "h", "incarnation": 1, "address": "topic/x", "subscriber": S}
        fields |= {"place": at, "time": at, "hlc": at, "epoch_hlc": epoch, "home": f"{custodian}.1"} | columns
        self.rows.append(ControlRow(source=router, event=event, **fields))

    def stays(self, router: str) -> list[tuple[int, int, int]]:
        """(since, till, closed) at that router."""
        found: list[Membership] = memberships(self.rows, find_clients(self.rows, []).subscribers)
        return [(stay.since, stay.till, stay.closed) for stay in found if stay.source == router]

    def periods(self, home: str) -> list[Period]:
        return [
            period for period in periods(self.rows, find_clients(self.rows, []).subscribers)[S] if period.home == home
        ]


def test_a_stay_ends_where_the_departure_can_be_known() -> None:
    log = Log()
    log.say("a", Event.JOINED, at=10, epoch=5)
    log.say("c", Event.JOINED, at=11, epoch=5)
    log.say("c", Event.CLOSED, at=20, epoch=5)
    assert log.stays("a") == [(10, FOREVER, 20)]
    assert log.stays("c") == [(11, 20, 20)]


def test_who_comes_back_begins_a_new_stay() -> None:
    log = Log()
    log.say("a", Event.JOINED, at=10, epoch=5)
    log.say("c", Event.CLOSED, at=20, epoch=5)
    log.say("a", Event.JOINED, at=30, epoch=25, custodian="b")
    assert log.stays("a") == [(10, 30, 20), (30, FOREVER, FOREVER)]


def test_who_moves_without_closing_is_owed_without_a_gap() -> None:
    log = Log()
    log.say("a", Event.JOINED, at=10, epoch=5)
    log.say("a", Event.JOINED, at=30, epoch=25, custodian="b")
    log.say("b", Event.CLOSED, at=40, epoch=25, custodian="b")
    assert log.stays("a") == [(10, 30, 40), (30, FOREVER, 40)]


@pytest.mark.parametrize(("timeout", "closed"), [(0, 20), (60, FOREVER)])
def test_who_attaches_elsewhere_leaves_its_router_unless_homes_wait_for_it(timeout: int, closed: int) -> None:
    """Its former router tells its homes that it is gone, before they hear of the new one."""
    log = Log()
    details = {"role": "subscriber", "container": "s", "link": "l", "address": "topic/x", "timeout": timeout}
    log.say("c", Event.ATTACHED, at=6, epoch=5, detail=json.dumps(details))
    log.say("a", Event.JOINED, at=10, epoch=5)
    log.say("c", Event.STOLEN, at=20, epoch=20, peer="b")
    log.say("a", Event.JOINED, at=30, epoch=19, custodian="b")
    assert log.stays("a") == [(10, 30, closed), (30, FOREVER, FOREVER)]


def test_a_late_closing_of_a_former_life_ends_nothing() -> None:
    log = Log()
    log.say("a", Event.JOINED, at=10, epoch=5)
    log.say("a", Event.JOINED, at=30, epoch=25, custodian="b")
    log.say("a", Event.EXPIRED, at=35, epoch=5)
    log.say("c", Event.CLOSED, at=36, epoch=5)
    assert log.stays("a")[-1] == (30, FOREVER, FOREVER)
    assert log.periods("a.1")[-1].ended == FOREVER


def test_expiry_ends_the_terms_of_its_own_home_only() -> None:
    log = Log()
    for home in "ab":
        log.say(home, Event.JOINED, at=10, epoch=5)
    log.say("a", Event.EXPIRED, at=20, epoch=5)
    log.say("a", Event.JOINED, at=30, epoch=5)
    assert log.periods("a.1") == [Period("a.1", 10, 30, 20), Period("a.1", 30, FOREVER, FOREVER)]
    assert log.periods("b.1") == [Period("b.1", 10, FOREVER, FOREVER)]
    assert log.stays("a") == [(10, 20, FOREVER), (30, FOREVER, FOREVER)]


def test_a_closing_ends_the_terms_of_all_homes_and_of_former_lives() -> None:
    log = Log()
    for home in "ab":
        log.say(home, Event.JOINED, at=10, epoch=5)
    log.say("b", Event.JOINED, at=20, epoch=15, custodian="b")
    log.say("b", Event.CLOSED, at=30, epoch=15, custodian="b")
    assert log.periods("a.1") == [Period("a.1", 10, FOREVER, 30)]
    assert log.periods("b.1") == [Period("b.1", 10, 20, 30), Period("b.1", 20, FOREVER, 30)]
    assert [period.ended for period in log.periods("")] == [30, 30]
