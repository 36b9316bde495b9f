"""Finds the rows about links and routers that the audit may forget. These are the rows older than all deliveries still
to be judged, except the last row about each link and each neighbour.

The last row in a log about a link or a neighbour states a fact that is still true. (Routers repeat such rows at the
start of a segment: `topic.restatement`.) If a link or a process has ended, only the facts that reports name stay
(`mesh.past`). A closed link leaves no row. Each life of a router leaves two or three rows. Each life of a client that
may return leaves one row.

All rows of a log stay in two cases: the log lacks its end, or the audit does not order entries by the log's clock.
These rows show which facts the audit cannot know.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence

import attrs

from failover.audit.judge.unattributed import Missed
from failover.audit.mesh.audiences import closed_at
from failover.audit.mesh.case import Case
from failover.audit.mesh.clients import Client, KnownClients, life_of
from failover.audit.mesh.clocks import Clocks, wall_hlc
from failover.audit.mesh.contacts import Heard
from failover.audit.mesh.past import Past
from failover.audit.mesh.presence import Parting
from failover.audit.read.inventory import ControlRow, Log
from topic.journal import Event

Subject = tuple[object, ...]
Missing = Mapping[tuple[str, str], Missed]
"""Maps each home and subscriber to the deliveries that the home accepted without the subscriber. Reports give a parting
of the two (`mesh.presence.Parting`) as the reason, so the rows about the parting stay."""


class Forgetting:
    """Splits control rows into the rows that stay, and the facts (the past) that replace all other rows."""

    def __init__(self, case: Case, rows: Sequence[ControlRow], before: int) -> None:
        """`before`: all deliveries that are still to be judged began after this time, in µs of wall clock."""
        self._case, self._rows = case, rows
        self._before, self._before_hlc = before, wall_hlc(before)
        self._ended = {log.name for log in _ended(case.logs.values()) if log.last_time < before}
        irregular = [log for log in case.logs.values() if not (log.whole and log.ordered) or log.gap]
        self._irregular, self._irregular_writers = {log.name for log in irregular}, {log.source for log in irregular}
        self._closed = {
            client.name
            for client in (*case.clients.publishers.values(), *case.clients.subscribers.values())
            if closed_at(client, client.last_life) < self._before_hlc
        } - {_link(row) for row in rows if row.log_name in self._irregular}
        self._last_attach: dict[str | None, int] = {}
        for row in rows:
            if row.event == Event.ATTACHED and row.role == "router" and self._is_past(row):
                self._last_attach[_link(row)] = max(life_of(row), self._last_attach.get(_link(row), 0))

    def kept(self) -> list[ControlRow]:
        """Return the control rows that the audit still needs."""
        recent, last = list[ControlRow](), dict[Subject, ControlRow]()
        for row in self._rows:
            if not self._is_past(row):
                recent.append(row)
            elif (subject := self._subject(row)) is not None:
                last[subject] = row
        return [*map(_restated, last.values()), *recent]

    def _is_past(self, row: ControlRow) -> bool:
        return row.time < self._before and row.log_name in self._case.logs and row.log_name not in self._irregular

    def _subject(self, row: ControlRow) -> Subject | None:
        """The subject of a row. Of all rows with the same subject, only the last one stays. None if the row need not
        stay."""
        link, ended = _link(row), row.log_name in self._ended
        if row.role != "router":
            if not ended or row.source in self._irregular_writers:  # a KEPT row repeats facts of lost entries
                return row.log_name, row.event, str(row.details.get("generation"))
            # The row of a client's last attach is needed to tell until when the client was attached.
            is_last = row.event == Event.ATTACHED and link not in self._closed
            return (link, row.role) if is_last else None
        if link is None and row.peer is None:
            return row.log_name, row.event
        if link in self._closed:
            return None
        # A report may name the last attach of a client, so the row of this attach stays.
        if row.event == Event.ATTACHED and life_of(row) == self._last_attach[link]:
            return (link,)
        if ended:
            return None
        if row.event in (Event.GATED, Event.ADMITTED):
            return row.log_name, link, row.publisher
        return row.log_name, link or row.peer, row.event

    def past(self, missing: Missing) -> Past:
        """Return the facts that replace the forgotten rows."""
        case, clients = self._case, self._case.clients
        known = [client for client in clients.subscribers.values() if client.lives and client.name not in self._closed]
        return Past(
            self._before_hlc,
            KnownClients(_anew(clients.publishers), _anew(clients.subscribers)),
            clocks=self._clocks(),
            told={client.name: {client.last_life: self._told(client)} for client in known},
            heard=self._heard(),
            partings={whose: list(self._partings(whose, missed)) for whose, missed in missing.items()},
            ended_in_use=case.ended_in_use,
        )

    def _clocks(self) -> Clocks:
        found = self._case.clocks
        return Clocks(
            {log: clock for log, clock in found.clock.items() if log in self._ended},
            {log: us for log, us in found.ahead_us.items() if log in self._ended},
            met={logs: us for logs, us in found.met.items() if not self._ended & {*logs}},
        )

    def _told(self, subscriber: Client) -> Heard:
        reach = self._case.acquaintance.reach(subscriber)
        return {log: since for log, since in reach.items() if log not in self._ended and since < self._before_hlc}

    def _heard(self) -> list[ControlRow]:
        """The rows by which routers learnt that the link of a subscriber has ended: for each log and subscriber, the
        first and the last one. Only rows about the latest life count."""
        found: dict[Subject, list[ControlRow]] = {}
        for row in sorted(self._case.heard, key=lambda row: (life_of(row), row.hlc)):
            if row.hlc < self._before_hlc and row.log_name not in self._ended and row.subscriber not in self._closed:
                of = found.setdefault((row.log_name, row.subscriber), [])
                if of and life_of(of[0]) < life_of(row):
                    of.clear()
                of[1:] = [row]
        return [row for of in found.values() for row in of]

    def _partings(self, whose: tuple[str, str], missed: Missed) -> Iterator[Parting]:
        """Yield partings of a home and a subscriber that are over (`mesh.presence.Parting`). A parting is left out if
        an earlier one has the same weight (`Parting.weight`) or a higher one, because a report names only the parting
        with the highest weight."""
        home, subscriber = whose
        no_more, most = home in self._ended or subscriber in self._closed, None
        for parting in sorted(self._case.partings.get(whose, ()), key=lambda parting: parting.since):
            is_over = no_more or parting.till < self._before_hlc
            if is_over and parting.till >= missed.first and (most is None or parting.weight > most.weight):
                most = parting
                yield parting


def _ended(logs: Collection[Log]) -> Iterator[Log]:
    """Yield the logs whose writer's process has ended."""
    latest: dict[str, int] = {}
    for log in logs:
        latest[log.source] = max(log.incarnation, latest.get(log.source, 0))
    return (log for log in logs if log.stopped or log.incarnation < latest[log.source])


def _link(row: ControlRow) -> str | None:
    return row.subscriber or row.publisher


def _anew(clients: Mapping[str, Client]) -> dict[str, Client]:
    return {name: client.anew() for name, client in clients.items()}


def _restated(row: ControlRow) -> ControlRow:
    """Mark a row as repeated, because the audit compares clocks only by rows that are not repeated."""
    if row.event not in (Event.CONTACT, Event.ATTACHED):
        return row
    return attrs.evolve(row, detail=json.dumps(row.details | {"again": True}))
