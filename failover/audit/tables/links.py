"""Turns attaches into rows, one for each attach that a router has answered. It reads the routers' control rows."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from failover.audit.mesh.case import Case
from failover.audit.mesh.clients import CLOSING, Client
from failover.audit.read.inventory import ControlRow
from topic.journal import Event

ENDING = (Event.SUSPENDED, Event.STOLEN, *CLOSING)


def link_rows(case: Case, control: Sequence[ControlRow]) -> Iterator[dict[str, Any]]:
    """Yield the rows of `schema.LINKS`. A segment may begin with repeated attaches. A repeated attach makes a row only
    if the log no longer has the attach's first entry."""
    known = {"publisher": case.clients.publishers, "subscriber": case.clients.subscribers}
    attached: dict[tuple[str, str, str], dict[str, Any]] = {}
    told = [row for row in control if row.role == "router" and row.event in (Event.ATTACHED, *ENDING)]
    told.sort(key=lambda row: (row.source, row.incarnation, row.place))
    for row in case.clocks.align_rows(told):
        role = "publisher" if row.publisher is not None else "subscriber"
        name = row.publisher or row.subscriber
        if name not in known[role]:
            continue
        at = row.log_name, role, str(name)
        if row.event == Event.ATTACHED and row.details.get("again") and at in attached:
            continue
        if begun := attached.pop(at, None):
            yield begun if row.event == Event.ATTACHED else begun | _ended(row)
        if row.event == Event.ATTACHED:
            attached[at] = _attach(known[role][str(name)], role, row)
    yield from attached.values()


def _ended(row: ControlRow) -> dict[str, Any]:
    return {"ended_at": _when(row), "ending": Event(row.event).name.lower()}


def _attach(client: Client, role: str, row: ControlRow) -> dict[str, Any]:
    timeout = row.details.get("timeout")
    return {
        "link": client.name,
        "identity": client.identity,
        "role": role,
        "address": client.address,
        "mode": str(row.details["mode"]) if "mode" in row.details else None,
        "timeout_s": float(timeout) if isinstance(timeout, int | float) else None,
        "logged": bool(client.logs),
        "router": row.source,
        "incarnation": row.incarnation,
        "epoch": None if row.home is None else f"{row.epoch_hlc}.{row.home}",
        "attached_at": None if row.details.get("again") else _when(row),
        "ended_at": None,
        "ending": None,
    }


def _when(row: ControlRow) -> datetime | None:
    """The time of the row; None if the clock of its log is unusable."""
    return datetime.fromtimestamp(row.time / 1_000_000, UTC) if row.time > 0 else None
