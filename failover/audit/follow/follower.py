"""A continuous audit in steps. Each step reads the new entries, judges the deliveries, and forgets the decided ones.

From one step to the next, the follower keeps: the rows of undecided deliveries; two places for each delivery whose
order is still to be judged; the rows about links and routers that the audit still needs; and the offset in each file.
So its memory depends only on the deliveries under way. All of this can be pickled.

`step` makes one step, `report` returns the verdict so far, and `finish` returns the final verdict. The rules are in
`judge`. Each step judges as if every log were whole up to its present end. `finish` judges each log as it really ends.
"""

import copy
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import attrs
import numpy as np

from failover.audit.bucket import Judged, judge_rows
from failover.audit.follow.decided import decided, only_by_maps
from failover.audit.follow.fold import OrderFold, Place
from failover.audit.follow.forgetting import Forgetting
from failover.audit.follow.growing import GrowingLog
from failover.audit.judge.queues.messages import apart
from failover.audit.judge.tally import Tally
from failover.audit.judge.testimony import sent_under
from failover.audit.judge.unattributed import Missed
from failover.audit.mesh.case import Case, make_case
from failover.audit.mesh.past import NO_PAST
from failover.audit.read.columns import NONE, Packer, Rows, chosen, hashed, pack, unpack
from failover.audit.read.facts import Facts, Groups, by_key
from failover.audit.read.files import LOGS
from failover.audit.read.inventory import ControlRow, Inventory, Log, take_inventory
from failover.audit.read.segments import SegmentReading, control_rows, mesh_row, writer_of
from failover.audit.report.report import Report
from failover.audit.report.rows import report_of
from topic.blocks import BlockView
from topic.identity import NAME_LENGTH
from topic.journal import Event

BUDGET = 8 << 20
"""One step reads about this many bytes of logs at most."""
FLUSHED_US = 3_000_000
"""A writer that runs puts each entry into a block within this time (in µs). This is twice the longest time that a
writer takes, plus a margin."""
SETTLED_US = 3_000_000
"""A step judges a delivery if the last entry about the delivery is at least this old (in µs). Most of these deliveries
are decided. The next step judges the undecided ones again."""
MARGIN_US = 60_000_000
"""A row about a link or router may be forgotten if it is older, by at least this time (in µs), than the first delivery
that is still to be judged."""
FORGOTTEN = 1_000
"""The follower looks for rows to forget when it has read this number of new rows about links and routers."""
SAMPLED = 50_000
"""The follower keeps at most this number of rows about deliveries, to compare clocks by them."""


@attrs.frozen(slots=True)
class FollowStatus:
    """The state of a continuous audit after a step. Times are in µs of wall clock."""

    until: int
    """All deliveries whose last entry is before this time are judged."""
    events: int
    """The number of entries read so far. An entry counts once for each delivery that it names."""
    undecided: int
    """The number of deliveries that began before `until` and are not decided."""
    oldest: int | None
    """When the first undecided delivery began; None if there is none."""
    held: int
    """The number of rows about deliveries that the follower keeps."""
    links: int
    """The number of rows about links and routers that the follower keeps."""
    behind: int
    """The bytes of the logs that are not read yet."""
    caught_up: bool


@attrs.define
class _Read:
    """The rows that one step has read: control rows, and packed rows about deliveries."""

    control: list[ControlRow] = attrs.field(factory=list)
    packer: Packer = attrs.field(factory=Packer)

    def add(self, log: GrowingLog, blocks: Iterable[BlockView]) -> None:
        source, _ = writer_of(f"{log.directory.absolute()}/")
        for block in blocks:
            self.control += (_undeleted(ControlRow(*row), log.first) for row in control_rows(block, source))
            self.packer.add(block, source)

    def parts(self) -> list[bytes]:
        return [part for _, part in self.packer.buckets(1)]


def _undeleted(row: ControlRow, first: tuple[int, int]) -> ControlRow:
    """Remove the detail of a CONTINUED row if the audit has read the segments that the row reports as deleted.
    CONTINUED states the first segment that the router still keeps. If the audit began with this segment or an earlier
    one, it has read all segments that the router deleted since."""
    if row.event != Event.CONTINUED or tuple(row.details.get("first") or first) <= first:
        return row
    return attrs.evolve(row, detail=None)


def _began(log: str) -> int:
    """When the log with this name began, in ms. This is the incarnation in the name; 0 if the name has none."""
    incarnation = log.rpartition(".")[2]
    return int(incarnation) if incarnation.isdigit() else 0


def _whole(logs: Sequence[Log]) -> tuple[Log, ...]:
    """Mark all logs as whole, except the logs that certainly lack their end: a log with a gap; and a log with unsaved
    entries, if a later incarnation of the writer has a log."""
    latest: dict[str, int] = {}
    for log in logs:
        latest[log.source] = max(log.incarnation, latest.get(log.source, 0))

    def may_be_whole(log: Log) -> bool:
        return log.gap is None and (log.saved or bool(log.boot) or log.incarnation == latest[log.source])

    return tuple(attrs.evolve(log, saved=may_be_whole(log)) for log in logs)


class Follower:
    """A continuous audit of the run directories of one mesh. It can be pickled and continued in another process."""

    def __init__(self, run_dirs: Sequence[str]) -> None:
        """`run_dirs` are local or mounted directories, which show each write at once."""
        self.run_dirs = run_dirs
        self._logs: dict[Path, GrowingLog] = {}
        self._control: list[ControlRow] = []
        self._past, self._stayed = NO_PAST, 0
        """The facts that forgotten rows about links and routers have shown; and the number of rows that stayed when the
        follower last forgot rows."""
        self._pending, self._saved = pack(unpack([])), 0
        self._left, self._kept, self._order = Tally(), Tally(), OrderFold()
        """The counts of decided deliveries; the counts of all other deliveries; and the judge of the order, for decided
        and for other deliveries."""
        self._sample, self._sample_of = self._pending, 1
        self._events = self._oldest = 0
        """The number of entries read; and when the first undecided delivery began."""
        self._case: Case | None = None
        self._inventory: Inventory | None = None

    def step(self, now: int) -> FollowStatus:
        """Read new entries, at most about `BUDGET` bytes, and judge. `now`: the wall clock of this machine, in µs."""
        self._find_logs()
        read, waiting = self._read(BUDGET)
        self._control += read.control
        tails = self._tails(waiting)
        until = min([now - FLUSHED_US, *(log.time for log in waiting)]) - SETTLED_US
        self._take_inventory(tails, until)
        rows, saved = self._rows(read, tails[0])
        status = self._judge(rows, saved, until, waiting)
        self._forget(status)
        return status

    def report(self) -> Report:
        """Return the report so far. A delivery that a subscriber still waits for is no violation yet; a violation may
        vanish when a later entry comes."""
        assert self._case is not None and self._inventory is not None, "no step was made"
        tally = Tally()
        for part in (self._left, self._kept, self._order.tally):
            tally.add(part)
        return report_of(self.run_dirs, tally, self._case, self._inventory)

    def finish(self, now: int) -> Report:
        """Read all logs to their end and return the last report: the same verdict as one audit of everything that was
        read. `now`: as in `step`."""
        while not self.step(now).caught_up:
            pass
        read, _ = self._read(budget=None)
        for log in self._logs.values():
            read.add(log, log.end())
        self._control += read.control
        rows, _ = self._rows(read, _Read())
        self._take_inventory((_Read(), []), now)
        assert self._case is not None
        group, keys = by_key(rows.key)
        rows = chosen(rows, ~only_by_maps(rows, Groups(group, len(keys))))
        for names, part in judge_rows(self._case, chosen(rows, np.ones(len(rows), np.bool_))).order():
            self._order.add(names, part)
        self._order.fold({})
        self._take_inventory((_Read(), []), now, whole=False)
        self._kept = judge_rows(self._case, rows).count()
        return self.report()

    def _find_logs(self) -> None:
        for run_dir in self.run_dirs:
            for pattern in LOGS:
                for path in Path(run_dir).glob(pattern):
                    self._logs.setdefault(path.parent, GrowingLog(path.parent))

    def _read(self, budget: int | None) -> tuple[_Read, list[GrowingLog]]:
        """Read blocks, at most `budget` bytes (None: everything). Always read on in the log that is furthest behind.
        Also returns the logs that have more blocks."""
        read, waiting, started = _Read(), list(self._logs.values()), self._bytes()
        while waiting and (budget is None or self._bytes() - started < budget):
            log = min(waiting, key=lambda log: log.time)
            blocks = log.read()
            if blocks is None:
                waiting.remove(log)
            else:
                read.add(log, blocks)
        return read, waiting

    def _bytes(self) -> int:
        return sum(log.read_bytes for log in self._logs.values())

    def _tails(self, waiting: Sequence[GrowingLog]) -> tuple[_Read, list[SegmentReading]]:
        """Read the tails of idle logs, whose writers may be gone. A tail has entries that are in no block yet."""
        tails, readings = _Read(), list[SegmentReading]()
        for log in self._logs.values():
            if log not in waiting and log.is_idle() and (blocks := log.peek()):
                tails.add(log, blocks)
                reading = copy.deepcopy(log.readings()[-1])
                reading.add(blocks)
                readings.append(reading)
        return tails, readings

    def _take_inventory(self, tails: tuple[_Read, list[SegmentReading]], until: int, *, whole: bool = True) -> None:
        """Take the inventory of the logs, and make the case from it (`mesh.case`). `whole`: count every log as whole up
        to its present end (`_whole`), and ignore missing logs that began after `until`, because their files may still
        appear."""
        instead = {reading.path: reading for reading in tails[1]}
        known = [reading for log in self._logs.values() for reading in log.readings()]
        files = [instead.get(reading.path, reading).row() for reading in known]
        meshes = [path for run_dir in self.run_dirs for path in [Path(run_dir) / "mesh.json"] if path.exists()]
        files += [mesh_row(str(path.absolute()), path.read_text()) for path in meshes]
        control = [*self._control, *tails[0].control, *(ControlRow(*row) for row in files)]
        found = take_inventory(control)
        if whole:
            missing = tuple(problem for problem in found.problems if _began(problem.path) * 1000 < until)
            found = attrs.evolve(found, logs=_whole(found.logs), problems=missing)
        self._inventory, self._case = found, make_case(control, found, [self._sample], self._past)

    def _rows(self, read: _Read, tails: _Read) -> tuple[Rows, int]:
        """Return all pending rows, and the number of rows from blocks. Rows from blocks come first. The rows after them
        are from tails, and the next step reads these entries again.

        Rows of replicas about messages are left out: a replica may log a message long after the delivery of the message
        is decided.
        """
        saved, _ = apart(unpack([self._pending, *read.parts()]))
        self._events += len(saved) - self._saved
        parts = tails.parts()
        return (unpack([pack(saved), pack(apart(unpack(parts))[0])]) if parts else saved), len(saved)

    def _judge(self, rows: Rows, saved: int, until: int, waiting: Sequence[GrowingLog]) -> FollowStatus:
        assert self._case is not None
        group, keys = by_key(rows.key)
        groups, everywhere = Groups(group, len(keys)), np.ones(len(rows), np.bool_)
        young = groups.highest(everywhere, rows.time) >= until
        in_tails = groups.any(np.arange(len(rows)) >= saved)
        known = ~only_by_maps(rows, groups)
        judged = judge_rows(self._case, chosen(rows, ~young[group] & known))
        self._place(judged, chosen(rows, young[group]))
        open_keys = judged.uses.key[~decided(judged, self._case, until)]
        stays = young | in_tails | np.isin(keys, open_keys)
        leaving = chosen(rows, ~stays[group] & known)
        self._take_sample(leaving)
        self._leave(judge_rows(self._case, leaving) if (stays & ~young).any() else judged)
        self._kept = judge_rows(self._case, chosen(rows, (stays & ~young)[group] & known)).count()
        carried = chosen(rows, stays[group] & (np.arange(len(rows)) < saved))
        self._pending, self._saved = pack(carried), len(carried)
        begun = groups.lowest(everywhere, rows.time)[stays]
        self._oldest = int(begun.min(initial=until))
        begun = begun[begun < until]
        behind = sum(log.behind() for log in waiting)
        oldest = int(begun.min()) if len(begun) else None
        held = int(stays[group].sum())
        links = len(self._control)
        return FollowStatus(until, self._events, len(begun), oldest, held, links, behind, not waiting)

    def _forget(self, status: FollowStatus) -> None:
        """Forget rows about links and routers. If a log is missing, the rows that name this log stay."""
        assert self._case is not None and self._inventory is not None
        if len(self._control) - self._stayed < FORGOTTEN or self._inventory.problems:
            return
        forgetting = Forgetting(self._case, self._control, min(status.until, self._oldest) - MARGIN_US)
        self._past, self._control = forgetting.past(self._missing()), forgetting.kept()
        self._stayed = len(self._control)

    def _missing(self) -> dict[tuple[str, str], Missed]:
        """The deliveries that were accepted without a subscriber, for each home and subscriber."""
        found: dict[tuple[str, str], Missed] = {}
        for tally in (self._left, self._kept):
            for (_, subscriber, home), missed in tally.without.items():
                found[home, subscriber] = missed.and_(found.get((home, subscriber)))
        return found

    def _leave(self, judged: Judged) -> None:
        """Count the decided deliveries, and forget them."""
        self._left.add(judged.count())
        self._order.forget(set(zip(judged.uses.key.tolist(), judged.uses.number.tolist(), strict=True)))

    def _take_sample(self, rows: Rows) -> None:
        """Keep a random sample of the rows of decided deliveries, so that later steps can compare clocks by them."""
        sampled = (hashed(rows.key) >> np.uint64(40)) % np.uint64(self._sample_of) == 0
        sample = unpack([self._sample, pack(chosen(rows, sampled))])
        while len(sample) > SAMPLED:
            self._sample_of *= 2
            sample = chosen(sample, (hashed(sample.key) >> np.uint64(40)) % np.uint64(self._sample_of) == 0)
        self._sample = pack(sample)

    def _place(self, judged: Judged, young: Rows) -> None:
        """Judge, for each publisher and subscriber, the order of the deliveries that the subscriber got before it got
        any delivery in `young`. The rows in `young` are judged later."""
        for names, part in judged.order():
            self._order.add(names, part)
        self._order.fold(dict(self._handed_first(young)))

    def _handed_first(self, rows: Rows) -> Iterator[tuple[str, Place]]:
        """Yield, for each publisher and subscriber, the place at which the subscriber got the first delivery in these
        rows. Places are as in `judge.order`."""
        assert self._case is not None
        facts, clients = Facts(rows), self._case.clients.subscribers
        own = np.array([*(bool(name in clients and clients[name].logs) for name in rows.strings), False], np.bool_)
        by_own = facts.by_subscriber & facts.flags_of(Event.DELIVERED, Event.PROCESSED) & own[rows.subscriber]
        by_edge = facts.by_router & facts.flags_of(Event.DELIVERED) & ~own[rows.subscriber]
        at = np.flatnonzero((by_own | by_edge) & (rows.subscriber != NONE))
        names, publisher = np.unique(rows.key[at].astype(f"S{NAME_LENGTH}"), return_inverse=True)
        number = max(len(rows.strings), 1)
        pairs, pair = np.unique(publisher * number + rows.subscriber[at], return_inverse=True)
        major = np.where(by_own, facts.incarnation, sent_under(facts, self._case))
        first = Groups(pair.astype(np.int64), len(pairs), at).first(by_own | by_edge, major, rows.place)
        for one, row in zip(pairs.tolist(), first.tolist(), strict=True):
            who = f"{names[one // number].decode()} {rows.strings[one % number]}"
            yield who, (int(major[row]), int(rows.place[row]))
