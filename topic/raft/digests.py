"""Compares the states of replicas that have applied the same entries (protocol 13.6).

At certain indices, each replica sends its leader a digest of its state. If a majority of the voters has the same
digest, this digest is right, and the leader sends it to all replicas. A replica with another digest sets its store
aside, even if it is the leader.
"""

from typing import Final

from topic.raft.configuration import Configuration, Replica

KEPT: Final = 8
"""The number of indices, the latest ones, whose digests a replica keeps."""


class Digests:
    """The digests of one set that this replica knows."""

    def __init__(self) -> None:
        self._own: dict[int, bytes] = {}
        self._right: dict[int, bytes] = {}
        self._told: dict[int, dict[Replica, bytes]] = {}
        """Maps each index to the digests that members have sent to this leader."""

    def have(self, index: int, digest: bytes) -> None:
        """Note the digest of this replica's state at the index."""
        self._own[index] = digest
        _forget(self._own)

    def learn_right(self, index: int, digest: bytes) -> None:
        self._right[index] = digest
        _forget(self._right)

    def right(self, index: int) -> bytes | None:
        return self._right.get(index)

    def is_right(self, index: int) -> bool | None:
        """Whether the state of this replica was right at the index; None if this is not known."""
        if index not in self._own or index not in self._right:
            return None
        return self._own[index] == self._right[index]

    def count(self, member: Replica, index: int, digest: bytes, configuration: Configuration) -> bool | None:
        """Count the digest that a member has sent to this leader.

        Returns True if a majority of the voters now has the same digest, which is then the right one. Returns False if
        all voters have sent their digests and no majority agrees. Returns None while neither is the case.
        """
        told = self._told.setdefault(index, {})
        told[member] = digest
        _forget(self._told)
        if configuration.is_majority([one for one, other in told.items() if other == digest]):
            self.learn_right(index, digest)
            return True
        return False if told.keys() >= set(configuration.voters) else None


def _forget(by_index: dict[int, bytes] | dict[int, dict[Replica, bytes]]) -> None:
    while len(by_index) > KEPT:
        del by_index[min(by_index)]
