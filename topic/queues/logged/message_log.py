"""Log entries about the messages of queues, which each replica writes into the delivery log (`topic.journal`).

A replica writes them when it applies the log of the set. If it applies log entries again after a restart, it writes
them again.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from functools import lru_cache
from hashlib import blake2b
from typing import Protocol

from topic.identity import GENERATION_LENGTH, KeyMaker, egress_of, link_name
from topic.journal import Event
from topic.queues.actions import Logged
from topic.queues.operations import QueueId
from topic.queues.positions import delivery_tag


class MessageEnd(Enum):
    """The ways in which a message can leave its queue."""

    DEQUEUED = "dequeued"
    """A consumer has accepted or rejected the message."""
    TRANSACTED = "transacted"
    """A consumer has accepted or rejected the message in a transaction (protocol 14.20)."""
    SENT = "sent"
    """The message went to the outbox of the set, which sends it to another address (`topic.queues.outgoing.outbox`)."""
    EXPIRED = "expired"
    PURGED = "purged"
    DELETED = "deleted"
    """The queue was deleted, together with the message."""


class MessageLog(Protocol):
    """Receives the changes of messages, as the set decides them."""

    def enqueued(self, queue: QueueId, keys: Sequence[bytes], positions: Sequence[int]) -> None:
        """The queue has got these messages. `keys`: the keys of the deliveries that brought them; empty if their
        publishers had already settled them."""

    def returned(self, queue: QueueId, tags: Sequence[bytes], positions: Sequence[int]) -> None:
        """These messages have come back to the queue. `tags`: the tags of their ended deliveries."""

    def left(self, queue: QueueId, tags: Sequence[bytes], positions: Sequence[int], why: MessageEnd) -> None:
        """These messages have left the queue. `tags`: the tags of their last deliveries."""


class Unlogged:
    """A message log that drops what it receives."""

    def enqueued(self, queue: QueueId, keys: Sequence[bytes], positions: Sequence[int]) -> None: ...

    def returned(self, queue: QueueId, tags: Sequence[bytes], positions: Sequence[int]) -> None: ...

    def left(self, queue: QueueId, tags: Sequence[bytes], positions: Sequence[int], why: MessageEnd) -> None: ...


class ReplicaLog:
    """Makes the delivery log entries about the messages of one set."""

    def __init__(self, set_: str, name_of: Callable[[QueueId], str | None]) -> None:
        self.out: list[Logged] = []
        """The entries for the delivery log that the shell has yet to write."""
        self._set = set_
        self._name_of = name_of

    def enqueued(self, queue: QueueId, keys: Sequence[bytes], positions: Sequence[int]) -> None:
        tags = () if keys else [delivery_tag(position, 0) for position in positions]
        self._tell(Event.ENQUEUED, queue, keys, tags, positions)

    def returned(self, queue: QueueId, tags: Sequence[bytes], positions: Sequence[int]) -> None:
        self._tell(Event.RETURNED, queue, (), tags, positions)

    def left(self, queue: QueueId, tags: Sequence[bytes], positions: Sequence[int], why: MessageEnd) -> None:
        self._tell(Event.LEFT, queue, (), tags, positions, why.value)

    def _tell(
        self,
        event: Event,
        queue: QueueId,
        keys: Sequence[bytes],
        tags: Sequence[bytes],
        positions: Sequence[int],
        detail: str | None = None,
    ) -> None:
        name = self._name_of(queue)
        assert name is not None, "what is told of a message is told while its queue is declared"
        address, key = _egress(self._set, name, queue)
        is_run = positions[-1] - positions[0] == len(positions) - 1
        n, ns = (positions[0], None) if is_run else (-1, positions)
        columns = {"keys": keys or [*map(key, tags)], "address": address, "n": n, "ns": ns, "detail": detail}
        self.out.append(Logged(event, columns))


@lru_cache(maxsize=1024)
def _egress(set_: str, name: str, queue: QueueId) -> tuple[str, Callable[[bytes], bytes]]:
    """The address of a queue's egress, and a function that makes the egress's delivery keys from tags."""
    egress = egress_of(set_, name)
    return egress.address, KeyMaker(link_name(egress), generation_of(queue)).key


def generation_of(life: object) -> bytes:
    """The generation of a publisher that belongs to a set. All leaders get the same one.

    `life`: for an egress the id of its queue, so that a queue that is declared again has another generation; for a
    publisher of the outbox the life of the set.
    """
    return blake2b(str(life).encode(), digest_size=GENERATION_LENGTH).digest()
