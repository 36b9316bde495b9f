"""The bindings of the queues of one set. A message that is published to the address of a binding also goes into the
bound queue (protocol 14.10)."""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Final

import attrs
import msgpack

from topic.directory.entry import CONFIGURED, Lifetime
from topic.identity import CONTAINER, LinkIdentity
from topic.queues.operations import QueueId, read_id, unpack
from topic.queues.rows import Row, StateRows

BINDING: Final = b"b"
"""The first byte of the keys of the rows of bindings. The binding's own key follows."""
BINDING_KEY: Final = 12
"""The number of bytes of the key of a binding."""
DEAD_LETTERS: Final = b"dead letters"
"""Stands in place of the key of a binding for dead letters. They have an ingress of their own (protocol 14.11)."""
MOST_BINDINGS: Final = 100
"""The highest number of bindings of one set. This constant must be equal at all replicas."""
BOUND: Final = Lifetime(timeout=1, policy=CONFIGURED.policy, durable=2)
"""The lifetime of the link of a binding. Such a link never expires or lapses, and routers store it on disk."""


@attrs.frozen(slots=True)
class Binding:
    queue: QueueId
    since: QueueId
    """The log entry that has bound the queue. If the queue is bound to the same address again later, this makes another
    binding."""
    address: str
    """The topic, or the pattern, to which the queue is bound."""

    @property
    def key(self) -> bytes:
        return blake2b(f"{self.since} {self.address}".encode(), digest_size=BINDING_KEY).digest()

    @property
    def row(self) -> Row:
        parts = *self.queue.parts, *self.since.parts, self.address
        return BINDING + self.key, bytes(msgpack.packb(parts))

    def link(self, set_: str, queue: str) -> LinkIdentity:
        """The link that the leader of the set attaches for the binding. `queue`: the queue's name. The function
        `queue_of_binding` is the inverse."""
        return LinkIdentity(CONTAINER, f"{set_}/{queue}/{self.since}", self.address)


def queue_of_binding(identity: LinkIdentity) -> tuple[str, str] | None:
    """The set and the queue's name of the binding that this link is attached for; None if the link is not for a
    binding."""
    set_, _, rest = identity.link.partition("/")
    queue = rest.rpartition("/")[0]
    return (set_, queue) if queue and identity.container == CONTAINER else None


def set_of_binding(identity: LinkIdentity) -> str | None:
    """The set of the binding that this link is attached for; None if the link is not for a binding."""
    found = queue_of_binding(identity)
    return found[0] if found is not None else None


class Bindings:
    def __init__(self, rows: StateRows) -> None:
        """Read the bindings in `rows`. Raises ValueError if a row is wrong."""
        self._rows = rows
        found = [_read(key, value) for key, value in rows.small if key[:1] == BINDING]
        self._bindings = {one.key: one for one in sorted(found, key=lambda one: (one.since, one.address))}
        self.changes = 0
        """The number of bindings that have been made or ended since this object was made."""

    def __len__(self) -> int:
        return len(self._bindings)

    def __iter__(self) -> Iterator[Binding]:
        """Yield the bindings in the order in which they were made."""
        return iter(self._bindings.values())

    def get(self, key: bytes) -> Binding | None:
        return self._bindings.get(key)

    def of(self, queue: QueueId) -> list[Binding]:
        return [one for one in self if one.queue == queue]

    def bind(self, queue: QueueId, addresses: Iterable[str], since: QueueId) -> list[Binding]:
        """Bind the queue to exactly these addresses. Returns the bindings that end by this."""
        wanted = dict.fromkeys(addresses)
        over = [one for one in self.of(queue) if one.address not in wanted]
        bound = {one.address for one in self.of(queue)}
        for one in over:
            del self._bindings[one.key]
            self._rows.delete(BINDING + one.key)
        fresh = [Binding(queue, since, address) for address in wanted if address not in bound]
        for one in fresh:
            self._bindings[one.key] = one
            self._rows.put(*one.row)
        self.changes += bool(over or fresh)
        return over

    def check(self) -> None:
        """Assert the invariants that hold between two operations."""
        assert Bindings(self._rows)._bindings == self._bindings, "the rows are not those of the bindings"


def _read(key: bytes, value: bytes) -> Binding:
    """Read the binding of a row. Raises ValueError if the row is malformed."""
    parts = unpack(value, "a row of the state of a set")
    if len(parts) != 5 or not isinstance(parts[4], str):
        raise ValueError("a row of the state of a set has a binding that is none")
    binding = Binding(read_id(parts[:2]), read_id(parts[2:4]), parts[4])
    if key != BINDING + binding.key:
        raise ValueError("a row of the state of a set has the key of another binding")
    return binding
