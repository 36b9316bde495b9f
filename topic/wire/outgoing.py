"""The messages of a router to the topic cores of other routers, collected until the shell takes them.

The messages to one router keep their order, within a batch and from batch to batch: deltas, Forwards and Joined rely on
it. Settlements wait until the router sends any other message, to any router, or until their delay is over: a settlement
alone need not wake a router. Outcomes and settlements are ranges of `n` per (publisher, epoch). `topic.wire.segments`
reads these messages.
"""

from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import Any

import msgpack

from topic.delivery.record import Record, Stream
from topic.delivery.room import Drain, DrainAnswer, SubscriberRoom
from topic.directory.entry import Decision, LinkEntry, Owner, Role
from topic.identity import Epoch
from topic.wire.segments import Segment

FLUSH_BYTES = 256 * 1024
"""Bytes of messages and entries after which a batch is closed, so that relays and receivers work meanwhile."""
ENTRY_BYTES = 80
"""Bytes of a packed entry, besides its names (an estimate)."""


def _size(entries: Iterable[LinkEntry]) -> int:
    """Bytes of the packed entries, estimated."""
    texts = ((*entry.identity.parts().values(), entry.ending) for entry in entries)
    return sum(ENTRY_BYTES + sum(map(len, of_entry)) for of_entry in texts)


def _packed(entries: Iterable[LinkEntry]) -> list[list[Any]]:
    return [entry.pack() for entry in entries]


def _in_parts(entries: Iterable[LinkEntry]) -> Iterator[list[LinkEntry]]:
    """Split the entries into parts of about `FLUSH_BYTES` bytes."""
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
    """The segments that wait until the shell takes them. The router often sends one news item after another to the same
    set of routers. All these segments go into one batch for this set. The batch grows until a segment goes to only a
    part of the set, because this segment must not overtake the batch."""

    def __init__(self, settle_delay: float = 0.0) -> None:
        self.due = inf
        """Time at which the waiting segments are taken at the latest."""
        self._settle_delay = settle_delay
        self._waits = True
        """Whether only settlements wait."""
        self._batches: list[_Batch] = []
        self._growing: dict[tuple[str, ...], _Batch] = {}
        """Keyed by the targets of a batch; no two keys share a router."""

    def __bool__(self) -> bool:
        return bool(self._batches)

    def end_delays(self) -> None:
        """Do not delay the settlements that wait at present."""
        self._waits = not self._batches

    def take(self, now: float = inf) -> list[tuple[tuple[str, ...], bytes]]:
        """Take the encoded batches with their targets, in order; none if they may still wait."""
        if self._waits and self._batches:
            self.due = min(self.due, now + self._settle_delay)
            if now < self.due:
                return []
        batches, self._batches = self._batches, []
        self.due, self._waits = inf, True
        self._growing.clear()
        return [(batch.targets, msgpack.packb(batch.segments)) for batch in batches]

    def forget(self, router: str) -> None:
        """The contact is lost: drop the segments for that router."""
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

    def _append(self, targets: Iterable[str], *segment: Any, size: int = 0) -> None:
        """Append a segment to the batch for the targets. `size`: estimated bytes of the entries in the segment."""
        targets = tuple(targets)
        if targets:
            self._waits = False
            batch = self._batch(targets)
            batch.size += size
            batch.segments.append(list(segment))

    # directory

    def section(self, router: str, version: int, latest: int, own: list[LinkEntry], gossip: list[LinkEntry]) -> None:
        """Send the whole section. `latest`: the clock up to which this router has told the others of all attaches here,
        also of links that have ended or moved. If the entries do not fit into a batch, they go ahead of the section, in
        parts."""
        size = _size(own) + _size(gossip)
        if size > FLUSH_BYTES:
            for part in _in_parts(own):
                self._append((router,), Segment.PART, _packed(part), [], size=_size(part))
            for part in _in_parts(gossip):
                self._append((router,), Segment.PART, [], _packed(part), size=_size(part))
            own, gossip, size = [], [], 0
        self._append((router,), Segment.SECTION, version, latest, _packed(own), _packed(gossip), size=size)

    def delta(
        self, routers: Iterable[str], version: int, latest: int, entries: list[LinkEntry], departed: list[LinkEntry]
    ) -> None:
        """Send a change of the section. `latest`: as in `section`. `departed`: entries of links that have left this
        router, as their new owners wrote them."""
        size = _size(entries) + _size(departed)
        self._append(routers, Segment.DELTA, version, latest, _packed(entries), _packed(departed), size=size)

    def gossip(self, router: str, entries: list[LinkEntry]) -> None:
        """Send entries that this router has learned from others."""
        for part in _in_parts(entries):
            self._append((router,), Segment.GOSSIP, _packed(part), size=_size(part))

    def applied(self, routers: Iterable[str], versions: Mapping[str, tuple[int, int]]) -> None:
        """Send how far this router has applied the sections of others: incarnation and version by router. The receiver
        answers with the later news."""
        self._append(routers, Segment.APPLIED, versions)

    def ack(self, router: str, version: int) -> None:
        self._append((router,), Segment.ACK, version)

    def expire(self, routers: Iterable[str], entry: LinkEntry, decision: Decision) -> None:
        """Ask the routers whether this attach of a link may expire, or lapse (8, Expiry)."""
        self._append(routers, Segment.EXPIRE, entry.role, entry.name, entry.epoch, decision)

    def vote(self, router: str, index: tuple[Role, bytes], epoch: Epoch, decision: Decision, *, yes: bool) -> None:
        self._append((router,), Segment.VOTE, *index, epoch, decision, yes)

    def expired(self, routers: Iterable[str], entry: LinkEntry, decision: Decision) -> None:
        """Tell the routers that the link has expired or lapsed. If the decision is `NOTHING`, a router that agreed is
        free again."""
        self._append(routers, Segment.EXPIRED, entry.role, entry.name, entry.epoch, decision)

    def gone(self, router: str, owner: Owner) -> None:
        """Tell a router that the process of that incarnation has ended (8, Lost router)."""
        self._append((router,), Segment.GONE, *owner)

    # joining

    def joined(self, router: str, subscriber: bytes, epoch: Epoch, gated: dict[bytes, int]) -> None:
        """Tell a router that its subscriber is in the audience of every delivery published here from now on (6.2). The
        subscriber gets an older delivery only if this router forwards it to the subscriber by name. A publisher in
        `gated` holds the subscriber back from the given `n` on."""
        self._append((router,), Segment.JOINED, subscriber, epoch, gated)

    def admit(self, router: str, subscriber: bytes, publisher: bytes) -> None:
        self._append((router,), Segment.ADMIT, subscriber, publisher)

    def room(self, home: str, subscriber: bytes, epoch: Epoch, limit: SubscriberRoom) -> None:
        """Tell the home how many deliveries, and how many bytes, it may offer to that attach in all (12)."""
        self._append((home,), Segment.ROOM, subscriber, epoch, limit.deliveries, limit.size)

    def drain(self, home: str, asked: Drain) -> None:
        """Ask the home whether it has given this attach of a subscriber all that there is for it (12.9)."""
        self._append((home,), Segment.DRAIN, asked.subscriber, asked.attach, asked.number)

    def given(self, asked: Drain, left: int, answer: DrainAnswer) -> None:
        """Answer the router of the subscriber. `left`: how many messages still wait at this home."""
        segment = Segment.GIVEN, asked.subscriber, asked.attach, asked.number, left, answer
        self._append((asked.attach.router,), *segment)

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
        """Forward records with consecutive `n`, all presettled or none, to all joined subscribers, or `only` to one
        attach of one subscriber (protocol 5, Publish and 6.3). `only` with `OFFER` is for that attach if it has room
        (12). Records that do not fit into one batch go in several. With `ahead` the messages are left out, because they
        have gone before, in pieces."""
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
        """Send the piece that begins at byte `at` of the publisher's next message. An empty piece says that the rest of
        the message does not come (protocol 5, Large messages)."""
        self._waits = False
        batch = self._batch(routers)
        batch.size += len(piece)
        batch.segments.append([Segment.BODY, stream.publisher, key, at, piece])

    def outcome(self, home: str, stream: Stream, ns: Iterable[int]) -> None:
        """Report that all local subscribers accepted these, and that none has moved."""
        self._waits = False
        self._ranges((home,), Segment.OUTCOME, stream, ns)

    def outcome_in_full(self, home: str, record: Record, moved: list[bytes]) -> None:
        assert record.n >= 0
        stream, said = record.stream, (record.n, record.refusals, moved, record.annotations)
        self._append((home,), Segment.OUTCOME_IN_FULL, stream.publisher, stream.epoch, *said)

    def settle(self, routers: tuple[str, ...], stream: Stream, ns: Iterable[int]) -> None:
        self._ranges(routers, Segment.SETTLE, stream, ns)

    def settled(self, home: str, publisher: bytes, epoch: Epoch, ranges: list[int]) -> None:
        """Report that this edge has settled its subscribers and forgotten these records, or knows none: the home may
        forget them."""
        self._batch((home,)).segments.append([Segment.SETTLED, publisher, epoch, ranges])

    def forgotten(self, home: str, stream: Stream, n: int) -> None:
        """As `settled`, for one record whose settlement a subscriber had not read until now."""
        self._ranges((home,), Segment.SETTLED, stream, (n,))

    def fenced(self, router: str, publisher: bytes, epoch: Epoch) -> None:
        """Report that deliveries under this epoch were dropped, because it is not the publisher's current epoch (5,
        Fence)."""
        self._append((router,), Segment.FENCED, publisher, epoch)

    def resolve(self, home: str, stream: Stream, keys: list[bytes]) -> None:
        """Ask which of these deliveries the publisher still holds in doubt (6.1, 7.4)."""
        self._append((home,), Segment.RESOLVE, stream.publisher, stream.epoch, b"".join(keys))

    def resolved(self, router: str, stream: Stream, keys: list[bytes]) -> None:
        """Tell a router that the publisher has settled these deliveries. A key that the router asked for, and that is
        not in the list, is in doubt; another message follows when it is settled. If the receiver is the publisher's
        home: the publisher settled these before its attach there (5, Reused tags)."""
        self._append((router,), Segment.RESOLVED, stream.publisher, stream.epoch, b"".join(keys))

    def _ranges(self, targets: tuple[str, ...], kind: Segment, stream: Stream, ns: Iterable[int]) -> None:
        """Append at least one `n`, in order. If the last segment has the same kind, publisher and epoch, it is
        extended. The epoch alone is not enough: the publisher of another stream may have the same one (protocol 2)."""
        segments, head = self._batch(targets).segments, [kind, stream.publisher, stream.epoch]
        if not segments or segments[-1][:3] != head:
            segments.append([*head, []])
        ranges: list[int] = segments[-1][3]
        for n in ns:
            if ranges and ranges[-1] == n - 1:
                ranges[-1] = n
            else:
                ranges += (n, n)
