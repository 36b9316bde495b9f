"""What a router says to other routers' topic cores, collected until the shell takes it.

Within a batch, and from batch to batch to the same router, order is kept: deltas, Forwards and Joined rely on it.
Settlements wait for something else to be said, to whomever, or for their delay: nobody has to be woken for them alone.
Outcomes and settlements are ranges of `n` per (publisher, epoch). How it is read is `topic.wire.segments`'s business.
"""

from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import Any

import msgpack

from topic.delivery.record import Record, Stream
from topic.delivery.room import SubscriberRoom
from topic.directory.entry import Decision, LinkEntry, Owner, Role
from topic.identity import Epoch
from topic.wire.segments import Segment

FLUSH_BYTES = 256 * 1024
"""A batch is closed when its messages and entries pass this, so that relays and receivers work meanwhile."""
ENTRY_BYTES = 80
"""Of an entry, besides its names."""


def _size(entries: Iterable[LinkEntry]) -> int:
    """Bytes that these take, or about as many."""
    texts = ((*entry.identity.parts().values(), entry.ending) for entry in entries)
    return sum(ENTRY_BYTES + sum(map(len, of_entry)) for of_entry in texts)


def _packed(entries: Iterable[LinkEntry]) -> list[list[Any]]:
    return [entry.pack() for entry in entries]


def _in_parts(entries: Iterable[LinkEntry]) -> Iterator[list[LinkEntry]]:
    """The same, a batch at a time."""
    part: list[LinkEntry] = []
    size = 0
    for entry in entries:
        part.append(entry)
        size += _size((entry,))
        if size >= FLUSH_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


class _Batch:
    __slots__ = ("segments", "size", "targets")

    def __init__(self, targets: tuple[str, ...]) -> None:
        self.targets = targets
        self.segments: list[list[Any]] = []
        self.size = 0


class Outgoing:
    """What is said until the shell flushes. Who is told of each link of a burst in turn gets one batch: it grows until
    something is said to some of its targets, and not to all, which must not overtake it."""

    def __init__(self, settle_delay: float = 0.0) -> None:
        self.due = inf
        """When what waits is taken at the latest."""
        self._settle_delay = settle_delay
        self._waits = True
        """There are settlements at most."""
        self._batches: list[_Batch] = []
        self._growing: dict[tuple[str, ...], _Batch] = {}
        """By targets, of which no two have one in common."""

    def __bool__(self) -> bool:
        return bool(self._batches)

    def hurry(self) -> None:
        """Somebody waits for the settlements after all."""
        self._waits = not self._batches

    def take(self, now: float = inf) -> list[tuple[tuple[str, ...], bytes]]:
        """Take the encoded batches with their targets, in order; none if they may wait."""
        if self._waits and self._batches:
            self.due = min(self.due, now + self._settle_delay)
            if now < self.due:
                return []
        batches, self._batches = self._batches, []
        self.due, self._waits = inf, True
        self._growing.clear()
        return [(batch.targets, msgpack.packb(batch.segments)) for batch in batches]

    def forget(self, router: str) -> None:
        """The contact is lost: nothing is for that router any more."""
        for batch in self._batches:
            batch.targets = tuple(target for target in batch.targets if target != router)
        self._batches = [batch for batch in self._batches if batch.targets]
        self._growing.clear()

    def _batch(self, targets: tuple[str, ...]) -> _Batch:
        batch = self._growing.get(targets)
        if batch is None or batch.size >= FLUSH_BYTES:
            for others in [others for others in self._growing if not set(targets).isdisjoint(others)]:
                del self._growing[others]
            batch = self._growing[targets] = _Batch(targets)
            self._batches.append(batch)
        return batch

    def _say(self, targets: Iterable[str], *segment: Any, size: int = 0) -> None:
        """`size` is that of the entries in it."""
        targets = tuple(targets)
        if targets:
            self._waits = False
            batch = self._batch(targets)
            batch.size += size
            batch.segments.append(list(segment))

    # directory

    def section(self, router: str, version: int, latest: int, own: list[LinkEntry], gossip: list[LinkEntry]) -> None:
        """`latest`: up to that clock others are told of the attaches here, whatever has become of these. Entries that
        are more than a batch takes go ahead, in parts."""
        size = _size(own) + _size(gossip)
        if size > FLUSH_BYTES:
            for part in _in_parts(own):
                self._say((router,), Segment.PART, _packed(part), [], size=_size(part))
            for part in _in_parts(gossip):
                self._say((router,), Segment.PART, [], _packed(part), size=_size(part))
            own, gossip, size = [], [], 0
        self._say((router,), Segment.SECTION, version, latest, _packed(own), _packed(gossip), size=size)

    def delta(
        self, routers: Iterable[str], version: int, latest: int, entries: list[LinkEntry], departed: list[LinkEntry]
    ) -> None:
        """`latest` as in a section. `departed` are no longer ours: the entries of the routers that they moved to."""
        size = _size(entries) + _size(departed)
        self._say(routers, Segment.DELTA, version, latest, _packed(entries), _packed(departed), size=size)

    def gossip(self, router: str, entries: list[LinkEntry]) -> None:
        """Tell what was learned of others."""
        for part in _in_parts(entries):
            self._say((router,), Segment.GOSSIP, _packed(part), size=_size(part))

    def applied(self, routers: Iterable[str], versions: Mapping[str, tuple[int, int]]) -> None:
        """Tell how far we have applied others' sections, by router: incarnation and version. What was told since, we
        lack."""
        self._say(routers, Segment.APPLIED, versions)

    def ack(self, router: str, version: int) -> None:
        self._say((router,), Segment.ACK, version)

    def expire(self, routers: Iterable[str], entry: LinkEntry, decision: Decision) -> None:
        """Ask whether this attach of a link may expire, or lapse (8, Expiry)."""
        self._say(routers, Segment.EXPIRE, entry.role, entry.name, entry.epoch, decision)

    def vote(self, router: str, index: tuple[Role, bytes], epoch: Epoch, decision: Decision, *, yes: bool) -> None:
        self._say((router,), Segment.VOTE, *index, epoch, decision, yes)

    def expired(self, routers: Iterable[str], entry: LinkEntry, decision: Decision) -> None:
        """The link has expired or lapsed; or nothing was decided, and who agreed is free again."""
        self._say(routers, Segment.EXPIRED, entry.role, entry.name, entry.epoch, decision)

    def gone(self, router: str, owner: Owner) -> None:
        """The process of that incarnation of a router has ended (8, Lost router)."""
        self._say((router,), Segment.GONE, *owner)

    # joining

    def joined(self, router: str, subscriber: bytes, epoch: Epoch, gated: dict[bytes, int]) -> None:
        """The subscriber is in the audience of everything published here from now on (6.2). Of what was published
        before, only what was forwarded for it by name is for it. The publishers in `gated` are held back from that `n`
        on."""
        self._say((router,), Segment.JOINED, subscriber, epoch, gated)

    def admit(self, router: str, subscriber: bytes, publisher: bytes) -> None:
        self._say((router,), Segment.ADMIT, subscriber, publisher)

    def room(self, home: str, subscriber: bytes, epoch: Epoch, limit: SubscriberRoom) -> None:
        """The home may offer that attach so many deliveries in all, and bytes (12)."""
        self._say((home,), Segment.ROOM, subscriber, epoch, limit.deliveries, limit.size)

    # deliveries: hot

    def forward(
        self,
        routers: tuple[str, ...],
        stream: Stream,
        records: list[Record],
        seen: dict[str, int],
        only: tuple[bytes, Epoch] | tuple[bytes, Epoch, int] | None,
        *,
        ahead: bool = False,
    ) -> None:
        """Forward records with consecutive `n`, all presettled or none, to all joined subscribers; or `only` to that
        attach of one subscriber (protocol 5, Publish and 6.3), perhaps if it has room (12). What is more than a batch
        takes goes in several. Of a record whose message went `ahead`, that is left out."""
        first = records[0]
        assert first.n >= 0
        messages = [None if ahead else record.message for record in records]
        size = sum(map(len, filter(None, messages)))
        if size > FLUSH_BYTES and len(records) > 1:
            middle = len(records) // 2
            for part in (records[:middle], records[middle:]):
                self.forward(routers, stream, part, seen, only)
            return
        self._waits = False
        batch = self._batch(routers)
        batch.size += size
        versions = {router: seen[router] for router in routers}
        keys = b"".join([record.key for record in records])
        segment = [
            Segment.FORWARD,
            stream.publisher,
            stream.epoch,
            versions,
            first.n,
            first.presettled,
            keys,
            messages,
            only,
        ]
        batch.segments.append(segment)

    def body(self, routers: tuple[str, ...], stream: Stream, key: bytes, at: int, piece: bytes) -> None:
        """A piece of the publisher's next message, which begins with that byte of it; an empty one: it does not come
        (protocol 5, Large messages)."""
        self._waits = False
        batch = self._batch(routers)
        batch.size += len(piece)
        batch.segments.append([Segment.BODY, stream.publisher, key, at, piece])

    def outcome(self, home: str, stream: Stream, ns: Iterable[int]) -> None:
        """All local subscribers accepted these, and none has moved."""
        self._waits = False
        self._ranges((home,), Segment.OUTCOME, stream, ns)

    def outcome_in_full(self, home: str, record: Record, moved: list[bytes]) -> None:
        assert record.n >= 0
        stream, said = record.stream, (record.n, record.refusals, moved, record.annotations)
        self._say((home,), Segment.OUTCOME_IN_FULL, stream.publisher, stream.epoch, *said)

    def settle(self, routers: tuple[str, ...], stream: Stream, ns: Iterable[int]) -> None:
        self._ranges(routers, Segment.SETTLE, stream, ns)

    def settled(self, home: str, publisher: bytes, epoch: Epoch, ranges: list[int]) -> None:
        """This edge has settled its subscribers and forgotten these, or knows nothing of them: home may forget."""
        self._batch((home,)).segments.append([Segment.SETTLED, publisher, epoch, ranges])

    def forgotten(self, home: str, stream: Stream, n: int) -> None:
        """The same of one record, whose settlement some subscriber had not read until now."""
        self._ranges((home,), Segment.SETTLED, stream, (n,))

    def fenced(self, router: str, publisher: bytes, epoch: Epoch) -> None:
        """What came under this epoch was dropped: it is not the publisher's current one (5, Fence)."""
        self._say((router,), Segment.FENCED, publisher, epoch)

    def resolve(self, home: str, stream: Stream, keys: list[bytes]) -> None:
        """Ask which of these the publisher still holds in doubt (6.1, 7.4)."""
        self._say((home,), Segment.RESOLVE, stream.publisher, stream.epoch, b"".join(keys))

    def resolved(self, router: str, stream: Stream, keys: list[bytes]) -> None:
        """The publisher has settled these. A key that was asked and is not among them is in doubt, and told when
        settled. To its home: before the attach there (5, Reused tags)."""
        self._say((router,), Segment.RESOLVED, stream.publisher, stream.epoch, b"".join(keys))

    def _ranges(self, targets: tuple[str, ...], kind: Segment, stream: Stream, ns: Iterable[int]) -> None:
        """Say these, at least one, in order; as more of the last segment if that says the same of others of the stream.
        The publisher of another stream may have the same epoch (protocol 2)."""
        segments, head = self._batch(targets).segments, [kind, stream.publisher, stream.epoch]
        if not segments or segments[-1][:3] != head:
            segments.append([*head, []])
        ranges: list[int] = segments[-1][3]
        for n in ns:
            if ranges and ranges[-1] == n - 1:
                ranges[-1] = n
            else:
                ranges += (n, n)
