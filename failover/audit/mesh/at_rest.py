"""Finds messages that are lost in the stores of replica sets, while no process uses the stores (protocol 13.5, 14).

When a replica applies an entry, the entry is decided: a majority of the stores has it, and each later snapshot has its
effect. So a message that, by the logs, was enqueued and never left its queue is lost in two cases:

1. A snapshot that is later than the message's entry lacks the message.
2. So many stores lack the message that the other stores are no majority.

In case 2, a store counts as if it had the message if it was set aside, is in use, or has begun anew. If the stores have
different configurations, case 2 does not apply, because a majority of former voters may have the message. Entries
behind a snapshot may be undecided, so case 1 looks only at snapshots.
"""

from collections.abc import Iterable, Mapping, Sequence

import attrs
import numpy as np

from failover.audit.mesh.contents import Contents
from failover.audit.read.columns import Flags, Ints
from failover.audit.read.stores import Stamps, StoreOf, stamps_of
from topic.queues.bodies.message_rows import position_in
from topic.queues.positions import MOST_PLACES, position_of
from topic.queues.state import messages_of
from topic.queues.storing import SetContent
from topic.raft.configuration import Configuration, Replica
from topic.raft.life import SetLife


@attrs.frozen
class StoredReplica:
    """The part of one store that belongs to one set."""

    replica: Replica
    life: SetLife
    snapshot: int
    """The log index of the set's snapshot in the store."""
    has: Ints
    """The positions of the messages in the snapshot, and of the messages that later entries enqueue, in ascending
    order."""
    configurations: frozenset[Configuration]
    """The configurations in the snapshot and in the later entries."""

    def holds(self, positions: Ints) -> Flags:
        found: Flags = np.isin(positions, self.has)
        return found

    def has_lost(self, positions: Ints) -> Flags:
        """Flags the messages at these positions that the snapshot should have, but lacks."""
        found: Flags = (positions // MOST_PLACES <= self.snapshot) & ~self.holds(positions)
        return found


def stored_replica(router: str, content: SetContent) -> StoredReplica:
    snapshot, entries = content.content.snapshot, content.content.entries
    rows = [at for key, _ in content.rows if (at := position_in(key)) is not None]
    for index, entry in enumerate(entries, snapshot.index + 1):
        rows += (position_of(index, place) for place in range(len(messages_of(entry.data))))
    found = [snapshot.configuration] if snapshot.index else []
    found += [entry.configuration for entry in entries if entry.configuration is not None]
    life = content.content.hard.life
    return StoredReplica(
        Replica(router, content.store), life, snapshot.index, np.array(sorted(rows), np.int64), frozenset(found)
    )


@attrs.frozen
class AtRest:
    """All stores in the run directories that could be read."""

    replicas: Mapping[str, Sequence[StoredReplica]] = attrs.Factory(dict)
    """The stored replicas of each set, without the ones that have accepted no life."""
    stamps: Stamps = attrs.Factory(dict)

    def lacking(self, set_: str, positions: Ints) -> Flags:
        """Flags the positions at which the set's stores have no message any more."""
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
        """The stored replicas, but only of sets with one life in all logs and stores."""
        lives: dict[str, set[str]] = {}
        for (_, set_), told in contents.items():
            lives.setdefault(set_, set()).update(content.life for content in told)
        found = {
            set_: stored
            for set_, stored in self.replicas.items()
            if len(lives.get(set_, set()) | {str(one.life) for one in stored}) == 1
        }
        return AtRest(found, self.stamps)

    def began(self, set_: str) -> int:
        """The hybrid clock at which the set's life began. Replicas wrote all entries of this life at later clocks."""
        return self.replicas[set_][0].life.clock

    @property
    def is_there_still(self) -> bool:
        """Whether the stores are unchanged since they were read."""
        return stamps_of(self.stamps) == self.stamps


def at_rest(contents: Iterable[StoreOf], stamps: Stamps | None = None) -> AtRest:
    """The stored replicas of all sets. `contents`: each router, with what its store has of each set."""
    found: dict[str, list[StoredReplica]] = {}
    for router, sets in contents:
        for set_, content in sets.items():
            if content.content.hard.life:
                found.setdefault(set_, []).append(stored_replica(router, content))
    return AtRest(found, stamps or {})
