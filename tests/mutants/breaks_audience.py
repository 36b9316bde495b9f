"""Breakages of a delivery's audience, and of the answer to its publisher (protocol 5 and 8)."""

from typing import Any
from unittest.mock import patch

import attrs

from tests.mutants.mutant import KILLS, MOVING, NEWCOMERS, PARTITIONS, Method, mutant
from tests.topic import test_joining as joining
from topic.delivery.record import HomeStream, Record, State
from topic.directory.directory import Directory
from topic.directory.entry import AddressAudience, Change, LinkEntry
from topic.edge.reports import Reports
from topic.home.audiences import Audiences, _homed
from topic.home.boot import Boot
from topic.home.home import Home
from topic.home.publishing import Publishing

CROWDED = {"plain": 0.0, "restless": 0.0, "routers": 3, "addresses": 1, "turmoil": 3.0, "faults": ("flap",) * 8}
LATE = MOVING | {
    "timeouts": (1,), "client_delay": 0.3, "delay": 0.001, "think": 0.001, "subscribers": 5, "pranks": ("sleep",),
    "messages": 60, "window": 10, "faults": (),
}  # fmt: skip
"""Subscribers come back after they expired, and acceptances take long to reach publishers."""


@mutant(Directory, "_compute_audience", by="2", **KILLS)
def accepted_without_orphans(audience: Method) -> Method:
    """5 Publish, Accept: orphans are in the audience, and awaited."""

    def broken(directory: Directory, address: str) -> Any:
        return attrs.evolve(audience(directory, address), orphans=())

    return broken


@mutant(Audiences, "_await_orphans", by="2", **KILLS)
def lost_subscribers_not_awaited(_: Method) -> Method:
    """8 Lost router: subscribers of a lost router that were awaited are awaited as orphans."""

    def broken(joining: Audiences, record: Record, orphans: list[bytes], lapsed: dict[bytes, None]) -> None:
        pass

    return broken


@mutant(Reports, "report", (Directory, "apply_departures"), by="2", **MOVING)
def report_omits_moved_subscribers(report: Method, _: Method) -> tuple[Method, Method]:
    """5 Edge: the Outcome, or a message before it, names the subscribers that left without the delivery."""

    def broken(reporting: Reports, stream: HomeStream, records: list[Record]) -> None:
        for record in records:
            record.moved = ()
        report(reporting, stream, records)

    def unheard(directory: Directory, router: str, moved: list[LinkEntry]) -> list[Change]:
        return []

    return broken, unheard


@mutant(Publishing, "publish_again", by="2", **KILLS | {"delay": 0.2})
def resumed_without_audience(again: Method) -> Method:
    """5 Accept: a resumed delivery gets no outcome before the home has computed its audience in this epoch."""

    def broken(
        publishing: Publishing, stream: HomeStream, tag: bytes, record: Record, *message: bytes, **settled: bool
    ) -> Record:
        with patch.object(Directory, "audience", lambda directory, address: AddressAudience((), (), {}, 0, "[]")):
            resumed: Record = again(publishing, stream, tag, record, *message, **settled)
        return resumed

    return broken


@mutant(Home, "decide", by="5", **MOVING)
def accepted_unconfirmed(evaluate: Method) -> Method:
    """5 Accept: a resumed delivery gets no outcome before the publisher has transferred it on this attach."""

    def broken(home: Home, stream: HomeStream, records: list[Record]) -> None:
        evaluate(home, stream, records)
        unconfirmed = [record for record in records if record.key in stream.unconfirmed and record.message is not None]
        home.accept(stream, [r for r in unconfirmed if not r.open and r.state is State.IN_DOUBT])

    return broken


@mutant(Reports, "report", by="2", **PARTITIONS | {"delay": 0.2})
def outcome_while_unjoined(report: Method) -> Method:
    """5 Edge: outcomes are withheld while home has not joined all local subscribers."""

    def broken(reporting: Reports, stream: HomeStream, records: list[Record]) -> None:
        with patch.object(reporting, "unjoined", {}):
            report(reporting, stream, records)

    return broken


@mutant(Audiences, "_expect", by="5", **LATE)
def audience_reopened(expect: Method) -> Method:
    """5 Accept: once `accepted` was sent, the audience is closed."""

    def broken(joining: Audiences, record: Record, name: bytes) -> None:
        if record.state is State.ACCEPTED:
            record.state = State.IN_DOUBT
            record.orphans.add(name)
        expect(joining, record, name)

    return broken


@mutant(Boot, "check", by="2", scenario=joining.test_a_booting_router_withholds_acceptances_until_it_has_heard_all)
def accepted_before_booted(_: Method) -> Method:
    """8 Boot: no acceptances before the sections of all routers have come."""

    def broken(boot: Boot, now: float) -> None:
        boot._home.booted = True
        boot._home.decide_all()

    return broken


@mutant(Audiences, "_await_orphans", (Audiences, "_seek"), by="45", **NEWCOMERS | CROWDED)
def gating_and_awaited(lost: Method, seek: Method) -> tuple[Method, Method]:
    """6.5 Gate: a home does not await a subscriber for a delivery that gates the subscriber."""

    def awaited(joining: Audiences, record: Record, orphans: list[bytes], lapsed: dict[bytes, None]) -> None:
        with patch.dict(_homed(record).gates, clear=True):
            lost(joining, record, orphans, lapsed)

    def broken(joining: Audiences, record: Record, name: bytes, *, not_at: str | None) -> Any:
        with patch.dict(_homed(record).gates, clear=True):
            return seek(joining, record, name, not_at=not_at)

    return awaited, broken


@mutant(Directory, "in_contact", by="2", **KILLS)
def incarnations_confused(_: Method) -> Method:
    """2: the custodian is one incarnation of a router; a later incarnation is not the custodian."""

    def broken(directory: Directory, entry: LinkEntry) -> bool:
        if directory.is_announced(entry):
            return False
        return entry.router == directory.router or entry.router in directory.applied

    return broken
