"""Takes the inventory of the logs: which logs exist, which are missing or damaged, and how each of them ends. It reads
only the control rows.

A log has the entries of one incarnation of one writer. A log is *whole* if it ends in STOPPED. The log of a killed
writer is whole, too, if the writer had saved its entries (`topic.tail`), and a later log shows that the host's kernel,
which had to write them to disk, went on running. Any other log may lack entries at its end, because its writer still
runs, or its writer's machine went down. This is normal, but the audit concludes nothing from the absence of such
entries. If a log could not be written for a while (`Event.GAP`), the log counts as ended at the gap. Any other loss is
a problem: if a log is missing or damaged, the audit gives no verdict.
"""

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import attrs

from failover.audit.read.columns import ROWS_PER_BLOCK
from failover.audit.read.files import AuditError
from failover.audit.read.segments import FILE, MESH
from topic.journal import Event

Kept = dict[str, tuple[int, int]]
"""Maps each router that keeps only its latest segments to the incarnation and number of the first segment that it
keeps."""


@attrs.frozen(slots=True)
class Row:
    """The fields of every row: its writer, its place in the log, its times and its event."""

    source: str
    role: str
    incarnation: int
    host: str
    place: int
    time: int
    hlc: int
    event: int


@attrs.frozen(slots=True)
class ControlRow(Row):
    """A row without a delivery key. The rows about files, which have negative events, have no place and no clocks."""

    address: str | None
    publisher: str | None
    subscriber: str | None
    peer: str | None
    generation: str | None
    epoch_hlc: int | None
    home: str | None
    detail: str | None

    @property
    def log_name(self) -> str:
        """The name of the log as router.incarnation, by which epochs name a home."""
        return f"{self.source}.{self.incarnation}"

    @property
    def details(self) -> dict[str, Any]:
        """The content of the detail column as a map; empty if it is not a map."""
        try:
            found = json.loads(self.detail or "{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


@attrs.frozen(slots=True)
class Gap:
    """The point from which on a log could not be written."""

    place: int
    time: int
    why: str


@attrs.frozen(slots=True)
class Log:
    """The log of one incarnation of one writer."""

    source: str
    role: str
    incarnation: int
    host: str
    first_time: int
    """When the first entry was written. All times here are in µs of wall clock."""
    last_time: int
    stopped: bool
    set_back_us: int = 0
    """The number of µs by which the writer's clock was set back while it wrote the log."""
    ordered: bool = True
    """Whether the audit orders entries by this log's wall clock."""
    boot: str = ""
    """Identifies the run of the host's kernel during which the log was written. It is "" if the logs here lack any of
    the entries that the writer saved during that run."""
    saved: bool = False
    """Whether a later log shows that the host went on running after this log's end."""
    gap: "Gap | None" = None
    """The gap at which the log counts as ended; None if it has none."""
    begin: int = 0
    """The place from which on the log is complete. The router has deleted earlier entries (`log: {keep, size}`)."""

    @property
    def whole(self) -> bool:
        """Whether the log certainly has every entry whose effects left the process, for example a frame that the
        process sent."""
        return self.stopped or self.saved

    @property
    def name(self) -> str:
        """The name of the log as router.incarnation, by which epochs name a home."""
        return f"{self.source}.{self.incarnation}"


@attrs.frozen(slots=True, order=True)
class Problem:
    """A log, or a part of a log, that should exist and is missing."""

    path: str
    what: str


@attrs.frozen(slots=True)
class Inventory:
    """The inventory: what is known about the log files themselves."""

    logs: tuple[Log, ...]
    problems: tuple[Problem, ...]
    kept: Kept
    torn: tuple[Problem, ...]
    """The last blocks of logs that are incomplete because the writer ended while it wrote them. The audit reads these
    logs up to the incomplete block."""


def take_inventory(rows: Sequence[ControlRow]) -> Inventory:
    """Take the inventory of the files that the control rows come from. Raises `AuditError` if a segment has blocks of
    two logs, or if the files belong to two runs."""
    by_log: dict[tuple[str, int], list[ControlRow]] = {}
    for row in sorted((row for row in rows if row.event == FILE), key=lambda row: row.details["segment"]):
        if (foreign := row.details["foreign"]) is not None:
            what = f"block {foreign[0]} belongs to incarnation {foreign[1]}"
            raise AuditError(f"{row.details['path']}: {what}, which did not write this segment")
        by_log.setdefault((row.source, row.incarnation), []).append(row)
    _check_places(row for segments in by_log.values() for row in segments)
    gaps, kept = _first_gaps(rows), _kept_from(rows)
    by_log = {name: there for name, segments in by_log.items() if (there := _kept(segments, kept))}
    found = [_log(by_log[name], gaps.get(name), kept) for name in sorted(by_log)]
    went_on: dict[str, int] = {}
    for log in found:
        if log.stopped:
            went_on[log.boot] = max(log.last_time, went_on.get(log.boot, 0))
    saved = [log.boot != "" and log.last_time <= went_on.get(log.boot, -1) for log in found]
    logs = tuple(attrs.evolve(log, saved=is_saved) for log, is_saved in zip(found, saved, strict=True))
    problems = [problem for segments in by_log.values() for problem in _missing_segments(segments, kept)]
    problems += _missing_routers([row for row in rows if row.event == MESH], logs)
    problems += _missing_incarnations(rows, logs, kept)
    torn = [
        Problem(row.details["path"], _unreadable(row.details))
        for segments in by_log.values()
        if _is_torn(row := segments[-1])
    ]
    return Inventory(logs, tuple(sorted(problems)), kept, tuple(sorted(torn)))


def _check_places(segments: Iterable[ControlRow]) -> None:
    """Raise `AuditError` if a router has logs in two run directories. These are then two runs, which must not be judged
    together. A client may have logs in several directories."""
    places: dict[str, str] = {}
    for row in segments:
        place, _, _ = row.details["path"].rpartition(f"/{row.source}/log/")
        other = places.setdefault(row.source, place)
        if place != other and not row.source.startswith("clients/"):
            what = f"router {row.source} has logs in {other} and in {place}"
            raise AuditError(f"{what}: these are two runs; audit each by itself")


def _first_gaps(rows: Iterable[ControlRow]) -> dict[tuple[str, int], Gap]:
    """Return the first gap of each log, by source and incarnation."""
    found: dict[tuple[str, int], Gap] = {}
    for row in rows:
        log = row.source, row.incarnation
        if row.event == Event.GAP and (log not in found or row.place < found[log].place):
            found[log] = Gap(row.place, row.time, str(row.details.get("why", "")))
    return found


def _kept_from(rows: Iterable[ControlRow]) -> Kept:
    found: Kept = {}
    for row in rows:
        match row.details.get("first") if row.event == Event.CONTINUED else None:
            case [int(incarnation), int(number)]:
                found[row.source] = max((incarnation, number), found.get(row.source, (0, 0)))
    return found


def _kept(segments: Sequence[ControlRow], kept: Kept) -> list[ControlRow]:
    """Return the segments from the first one that the router keeps. Some of the earlier ones may still exist, and some
    may be gone."""
    return [row for row in segments if (row.incarnation, row.details["segment"]) >= kept.get(row.source, (0, 0))]


def _log(segments: Sequence[ControlRow], gap: Gap | None, kept: Kept) -> Log:
    last = segments[-1]
    times = [row.details[name] for row in segments for name in ("first_time", "last_time")]
    # The start of the incarnation replaces a time of 0, which is from before the clock was set.
    known = [time or last.incarnation * 1000 for time in times if time is not None]
    role = next((row.role for row in segments if row.details["blocks"]), last.role)
    first_time, last_time = (min(known), max(known)) if known else (last.incarnation * 1000,) * 2
    back = max(row.details["set_back"] for row in segments)
    back = max([back, *(_back(one.details, other.details) for one, other in pairwise(segments))])
    stopped = bool(last.details["stopped"])
    numbers = [number for row in segments for run in row.details["blocks"] for number in run]
    written = last.details.get("written")
    is_all_here = written is not None and max(numbers, default=-1) >= written - 1
    boot = last.details.get("boot", "") if is_all_here else ""
    if gap is not None:
        stopped, boot, last_time = False, "", max(first_time, gap.time)
    begin = min(numbers, default=0) * ROWS_PER_BLOCK if kept.get(last.source, (0, 0)) > (last.incarnation, 0) else 0
    ends: dict[str, Any] = {"boot": boot, "gap": gap, "begin": begin, "ordered": bool(known)}
    return Log(last.source, role, last.incarnation, last.host, first_time, last_time, stopped, back, **ends)


def _back(one: dict[str, Any], other: dict[str, Any]) -> int:
    """The number of µs by which the clock was set back from one segment to the next."""
    known = one["last_time"] is not None and other["first_time"] is not None
    return one["last_time"] - other["first_time"] if known else 0


def _is_torn(row: ControlRow) -> bool:
    damage = row.details["damage"]
    return bool(damage and damage["torn"])


def _unreadable(details: dict[str, Any]) -> str:
    damage = details["damage"]
    return (
        f"{damage['skipped']} of {details['size']} bytes from byte {damage['offset']} on are damaged; "
        f"{sum(last - first + 1 for first, last in details['blocks'])} blocks are readable"
    )


def _missing_segments(segments: Sequence[ControlRow], kept: Kept) -> Iterable[Problem]:
    """Segments and blocks of one log that are missing or damaged. If only the end of the last segment is torn, this is
    no problem: the writer was killed while it wrote."""
    incarnation, first = kept.get(segments[0].source, (0, 0))
    next_segment, next_block = 0, 0
    if incarnation == segments[0].incarnation and first:
        next_segment, next_block = first, min((number for number, _ in segments[0].details["blocks"]), default=0)
    for row in segments:
        details = row.details
        if details["segment"] - details["segments"] + 1 != next_segment:
            yield Problem(details["path"], f"the segment {next_segment} before it is missing")
        next_segment = details["segment"] + 1
        if details["damage"] and (not _is_torn(row) or row is not segments[-1]):
            yield Problem(details["path"], f"damaged: {_unreadable(details)}")
        again: list[int] = []
        for begin, end in details["blocks"]:
            if begin > next_block and not details["damage"]:
                yield Problem(details["path"], f"{_blocks(next_block, begin - 1)} missing")
            again += range(begin, min(end + 1, next_block))
            next_block = max(next_block, end + 1)
        if again:
            yield Problem(details["path"], f"{_blocks(min(again), max(again))} there more than once or out of order")


def _blocks(first: int, last: int) -> str:
    return f"block {first} is" if first == last else f"blocks {first} to {last} are"


def _missing_routers(meshes: Sequence[ControlRow], logs: Sequence[Log]) -> Iterable[Problem]:
    """Yield the routers of the mesh that have no log. The mesh's routers are listed in mesh.json. Raises `AuditError`
    if two files mesh.json belong to two meshes."""
    logged = {log.source for log in logs if log.role == "router"}
    expected: dict[str, str] = {}
    named: dict[str, str] = {}
    for row in meshes:
        path = row.details["path"]
        try:
            record = json.loads(row.details["text"])
            routers, mesh = list(record["routers"]), record.get("mesh")
        except (ValueError, KeyError, TypeError, AttributeError):
            yield Problem(path, "not readable: the routers of the mesh are unknown")
            continue
        expected |= {str(router): path for router in routers}
        if isinstance(mesh, str):
            named.setdefault(mesh, path)
    if len(named) > 1:
        (one, here), (other, there) = list(named.items())[:2]
        raise AuditError(f"{here} belongs to mesh {one!r}, {there} to {other!r}; an audit covers one mesh")
    if not meshes:
        yield Problem("mesh.json", "missing: the routers of the mesh are unknown")
    for router in sorted(set(expected) - logged):
        yield Problem(expected[router].replace("mesh.json", f"{router}/log"), f"router {router} has no log")


def _missing_incarnations(rows: Sequence[ControlRow], logs: Sequence[Log], kept: Kept) -> Iterable[Problem]:
    """Yield a problem for each incarnation of a router that other logs name but that has no log."""
    logged = {log.name for log in logs}
    named: dict[str, str] = {}
    for row in rows:
        name = row.home
        if row.event == Event.CONTACT and "incarnation" in row.details:
            name = f"{row.peer}.{row.details['incarnation']}"
        if name is not None and name not in logged and not _was_deleted(name, kept):
            named.setdefault(name, row.source)
    for name, witness in sorted(named.items()):
        yield Problem(name, f"this incarnation has no log, but the log of {witness} names it")


def _was_deleted(name: str, kept: Kept) -> bool:
    source, _, incarnation = name.rpartition(".")
    return incarnation.isdigit() and int(incarnation) < kept.get(source, (0, 0))[0]
