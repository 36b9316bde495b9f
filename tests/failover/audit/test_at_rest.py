"""What stores of replica sets have at rest is compared with what the logs say of messages."""

from collections.abc import Mapping

import attrs
import numpy as np
import pytest

from failover.audit import Report
from failover.audit.job import judge_logs
from failover.audit.judge.kinds import LOST_AT_REST
from failover.audit.mesh.at_rest import AtRest, StoredReplica, at_rest
from failover.audit.read.faults import ChaosFile
from failover.audit.read.logs import LocalLogs
from failover.audit.read.segments import BUCKET_BYTES
from tests.simulation.evidence import KINDS, LoggedWorld
from topic.queues.bodies.message_rows import about_key
from topic.queues.positions import index_of, position_of, position_text
from topic.queues.rows import PackedRows
from topic.queues.storing import SetContent
from topic.raft.configuration import Configuration, Replica
from topic.raft.life import SetLife

VOTERS = tuple(Replica(name, name.encode()) for name in "abc")
ALL = Configuration(VOTERS)
FIRST, SECOND = position_of(7, 0), position_of(9, 0)


def store(name: str, *positions: int, snapshot: int = 0, configuration: Configuration = ALL) -> StoredReplica:
    has = np.array(positions, np.int64)
    return StoredReplica(Replica(name, name.encode()), SetLife(1, "a"), snapshot, has, frozenset([configuration]))


def lost(*stored: StoredReplica) -> list[int]:
    positions = np.array([FIRST, SECOND])
    return positions[AtRest({"q0": stored}).lacking("q0", positions)].tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ([store("a", FIRST, SECOND), store("b", FIRST, SECOND), store("c")], []),  # c is behind
        ([store("a", FIRST, SECOND), store("b", FIRST), store("c")], [SECOND]),
        ([store("a", FIRST, SECOND), store("b", FIRST)], []),  # c may have it
        ([store("b", FIRST), store("c")], [SECOND]),
        ([store("a")], []),
        ([store("a", FIRST, SECOND), store("b", FIRST, SECOND), store("c", FIRST, snapshot=9)], [SECOND]),
        ([store("a", SECOND, snapshot=8)], [FIRST]),
        ([store("a", FIRST, SECOND), store("d"), store("e")], []),  # these two have no vote
        ([store("a", FIRST, SECOND), store("b"), store("b", FIRST, SECOND), store("c")], []),  # two copies of one store
    ],
)
def test_what_stores_lack(stored: list[StoredReplica], expected: list[int]) -> None:
    assert lost(*stored) == expected


def test_while_voters_change_only_a_snapshot_tells() -> None:
    fewer = attrs.evolve(ALL, voters=VOTERS[1:])
    assert lost(store("a", configuration=fewer), store("b"), store("c")) == []
    assert lost(store("a", configuration=fewer), store("b", SECOND, snapshot=8), store("c")) == [FIRST]


# simulated runs

Stores = dict[str, dict[str, SetContent]]
"""By router and set."""


def stopped(seed: int, ends: float) -> tuple[Mapping[str, bytes], Stores]:
    """The logs and the stores of a run whose routers all stop at this time. Disks have done a part of what was under
    way."""
    world = LoggedWorld(seed, knobs=KINDS["queues"].knobs)
    world.ends = ends
    world.run()
    files = world.files()
    assert world.sets is not None
    for disk in world.sets.disks.values():
        disk.crash()
    return files, {name: dict(disk.store.contents) for name, disk in world.sets.disks.items()}


def judged(files: Mapping[str, bytes], stores: Stores, buckets: int = 3) -> Report:
    logs = LocalLogs(files.items(), (buckets - 1) * BUCKET_BYTES)
    return judge_logs(logs, ["run"], ChaosFile(None, None), at_rest(stores.items()))


def test_stores_that_are_behind_accuse_nobody() -> None:
    waiting = 0
    for seed in range(4):
        for ends in (3.0, 6.0):
            report = judged(*stopped(seed, ends))
            assert LOST_AT_REST not in report.violations, (seed, ends, report.sentence)
            waiting += sum(row.waiting or 0 for row in report.queues)
    assert waiting > 10, "messages are in queues as the routers stop"


def without(content: SetContent, position: int) -> SetContent:
    """The store without a message: its rows, and the entry that enqueues it with all later ones."""
    stored = content.content
    kept = stored.entries[: max(index_of(position) - stored.snapshot.index - 1, 0)]
    rows = PackedRows(row for row in content.rows if row[0] != about_key(position))
    entries = kept if index_of(position) > stored.snapshot.index else stored.entries
    return attrs.evolve(content, content=attrs.evolve(stored, entries=entries), rows=rows)


def findings(files: Mapping[str, bytes], stores: Stores, position: int, routers: str) -> list[str]:
    """If the stores of these routers lack a message."""
    changed = {name: {**stores[name], NAME: without(stores[name][NAME], position)} for name in routers}
    report = judged(files, {**stores, **changed})
    return [finding.key for finding in report.findings if finding.kind == LOST_AT_REST]


SEED, ENDS, NAME = 6, 5.0, "q1"
"""A run in which messages wait in this set as the routers stop."""


def test_a_message_that_stores_have_lost_is_an_accusation() -> None:
    files, stores = stopped(SEED, ENDS)
    replicas = at_rest(stores.items()).replicas[NAME]
    routers = "".join(one.replica.router for one in replicas)
    everywhere = sorted(set.intersection(*(set(one.has.tolist()) for one in replicas)))
    behind = everywhere[-1]  # all snapshots
    assert index_of(behind) > max(one.snapshot for one in replicas)
    assert findings(files, stores, behind, routers[0]) == [], "this store is behind"
    assert findings(files, stores, behind, routers) == [f"set {NAME}, 2 messages"], "its entry has two"
    first = everywhere[0]
    assert index_of(first) <= min(one.snapshot for one in replicas)
    assert findings(files, stores, first, routers[0]) == [f"set {NAME}, message {position_text(first)}"]


def test_what_an_operator_has_recovered_is_no_loss() -> None:
    """The life of the stores is later than what the logs tell of messages."""
    files, stores = stopped(SEED, ENDS)
    latest = max(one.life for one in at_rest(stores.items()).replicas[NAME])
    later = attrs.evolve(latest, clock=latest.clock << 1)
    recovered = {name: {NAME: in_life(without(sets[NAME], 0), later)} for name, sets in stores.items()}
    assert LOST_AT_REST not in judged(files, recovered).violations


def in_life(content: SetContent, life: SetLife) -> SetContent:
    stored = content.content
    return attrs.evolve(content, content=attrs.evolve(stored, hard=attrs.evolve(stored.hard, life=life)))
