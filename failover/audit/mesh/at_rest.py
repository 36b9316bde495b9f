"""What the stores of replica sets have of the messages in queues, when no process uses them (protocol 13.5, 14).

An entry that a replica has applied is decided: a majority of the stores has it, and each later snapshot has what it has
led to. So the logs may name no message that was enqueued, and never left its queue, which

1. a snapshot behind its entry lacks; or
2. so many stores lack that the others are no majority.

A store that was set aside, is in use or has begun anew counts for 2 as one that has the message. So does one of another
configuration than all others: while the voters change, a majority of the former ones may have it. Entries behind the
snapshot need not be decided.
"""

from collections.abc import Iterable, Mapping, Sequence

import attrs
import numpy as np

from failover.audit.mesh.contents import Contents
from failover.audit.read.columns import Flags, Ints
from failover.audit.read.stores import Stamps, StoreOf, stamps_of
from topic.queues.bodies.message_rows import MESSAGE
from topic.queues.operations import unpack
from topic.queues.positions import MOST_PLACES, POSITION_LENGTH, position_of
from topic.queues.proposals import ENQUEUE
from topic.queues.state import LIFE
from topic.queues.storing import SetContent
from topic.raft.configuration import Configuration, Replica
from topic.raft.log import Entry


@attrs.frozen
class StoredReplica:
    """What one store has of a set."""

    replica: Replica
    life: int
    snapshot: int
    """The index of its snapshot."""
    has: Ints
    """The positions of the messages of its snapshot, and of what its later entries enqueue, in order."""
    configurations: frozenset[Configuration]
    """Of the snapshot and of the later entries."""

    def holds(self, positions: Ints) -> Flags:
        found: Flags = np.isin(positions, self.has)
        return found

    def has_lost(self, positions: Ints) -> Flags:
        """Those that its snapshot ought to have."""
        found: Flags = (positions // MOST_PLACES <= self.snapshot) & ~self.holds(positions)
        return found


def stored_replica(router: str, content: SetContent) -> StoredReplica:
    snapshot, entries = content.content.snapshot, content.content.entries
    length = len(MESSAGE) + POSITION_LENGTH
    rows = [int.from_bytes(key[1:]) for key, _ in content.rows if key[:1] == MESSAGE and len(key) == length]
    for index, entry in enumerate(entries, snapshot.index + 1):
        rows += (position_of(index, place) for place in range(_enqueues(entry)))
    found = [snapshot.configuration] if snapshot.index else []
    found += [entry.configuration for entry in entries if entry.configuration is not None]
    life = content.content.hard.life
    return StoredReplica(
        Replica(router, content.store), life, snapshot.index, np.array(sorted(rows), np.int64), frozenset(found)
    )


def _enqueues(entry: Entry) -> int:
    """How many messages an entry enqueues, if it is decided."""
    try:
        parts = unpack(entry.data[LIFE:], "an entry") if entry.data else [None]
    except ValueError:
        return 0
    return len(parts[4]) if parts[:1] == [ENQUEUE] and len(parts) > 4 and isinstance(parts[4], list) else 0


@attrs.frozen
class AtRest:
    """All stores of the run directories that could be read."""

    replicas: Mapping[str, Sequence[StoredReplica]] = attrs.Factory(dict)
    """By set: those that have a part in its life."""
    stamps: Stamps = attrs.Factory(dict)

    def lacking(self, set_: str, positions: Ints) -> Flags:
        """The positions at which there is no message, as far as the stores of the set tell."""
        stored = self.replicas[set_]
        lost = np.zeros(len(positions), np.bool_)
        for one in stored:
            lost |= one.has_lost(positions)
        configurations = frozenset[Configuration]().union(*(one.configurations for one in stored))
        if len(configurations) != 1:
            return lost
        [configuration] = configurations
        voters, lacked = configuration.voters, np.zeros(len(positions), np.int64)
        for voter in voters:
            copies = [one.holds(positions) for one in stored if one.replica == voter]
            lacked += ~np.logical_or.reduce(copies) if copies else False
        found: Flags = lost | (2 * (len(voters) - lacked) <= len(voters))
        return found

    def of(self, contents: Contents) -> "AtRest":
        """Those of sets of which logs and stores tell one life."""
        lives: dict[str, set[int]] = {}
        for (_, set_), told in contents.items():
            lives.setdefault(set_, set()).update(content.life for content in told)
        found = {
            set_: stored
            for set_, stored in self.replicas.items()
            if len(lives.get(set_, set()) | {one.life for one in stored}) == 1
        }
        return AtRest(found, self.stamps)

    def life_of(self, set_: str) -> int:
        """A clock: what a replica tells in this life has a later one."""
        return self.replicas[set_][0].life

    @property
    def is_there_still(self) -> bool:
        """Nobody has changed the stores since they were read."""
        return stamps_of(self.stamps) == self.stamps


def at_rest(contents: Iterable[StoreOf], stamps: Stamps | None = None) -> AtRest:
    """Of routers and what their stores have."""
    found: dict[str, list[StoredReplica]] = {}
    for router, sets in contents:
        for set_, content in sets.items():
            if content.content.hard.life:
                found.setdefault(set_, []).append(stored_replica(router, content))
    return AtRest(found, stamps or {})
