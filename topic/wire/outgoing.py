"""Collects a router's messages to the topic cores of other routers, until the shell takes them.

Messages to one router keep their order, within a batch and from batch to batch. Deltas, Forwards and Joined rely on
this order. A settlement alone need not wake another router. So settlements wait until this router sends any other
message, to any router, or until their delay is over. Outcomes and settlements are ranges of `n` for one publisher and
epoch.

`topic.wire.segments` reads these messages.
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
"""A batch with at least this many bytes of messages and entries is closed, so that relays and receivers can begin to
work."""
ENTRY_BYTES = 80
"""An estimate of the bytes of a packed entry without its names."""


def _size(entries: Iterable[LinkEntry]) -> int:
    """An estimate of the bytes that these link entries take in packed form."""
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
    """The segments that wait until the shell takes them.

    A router often sends several messages in a row to the same set of routers. They go into one batch for this set. When
    a segment is only for a part of the set, the batch is closed, because this segment must not overtake the batch.
    """

    def __init__(self, settle_delay: float = 0.0) -> None:
        self.due = inf
        """The time at which the waiting segments have to be taken."""
        self._settle_delay = settle_delay
        self._waits = True
        """Whether all waiting segments are settlements, which may be delayed."""
        self._batches: list[_Batch] = []
        self._growing: dict[tuple[str, ...], _Batch] = {}
        """The open batches by their targets. No two of these sets of targets share a router."""

    def __bool__(self) -> bool:
        return bool(self._batches)

    def end_delays(self) -> None:
        """Let the waiting settlements leave with the next `take`."""
        self._waits = not self._batches

    def take(self, now: float = inf) -> list[tuple[tuple[str, ...], bytes]]:
        """Take the encoded batches with their targets, in order. The result is empty if they may still wait."""
        if self._waits and self._batches:
            self.due = min(self.due, now + self._settle_delay)
            if now < self.due:
                return []
        batches, self._batches = self._batches, []
        self.due, self._waits = inf, True
        self._growing.clear()
        return [(batch.targets, msgpack.packb(batch.segments)) for batch in batches]

    def forget(self, router: str) -> None:
        """Drop the waiting segments for a router whose contact is lost."""
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
        """Append a segment to the batch for the targets. `size`: the estimated bytes of the entries in the segment."""
        targets = tuple(targets)
        if targets:
            self._waits = False
            batch = self._batch(targets)
            batch.size += size
            batch.segments.append(list(segment))

    # The methods from here on send messages about links.

    def section(self, router: str, version: int, latest: int, own: list[LinkEntry], gossip: list[LinkEntry]) -> None:
        """Send the whole section. If the entries do not fit into a batch, they go ahead of the section, in parts.

        `latest`: the clock up to which this router has announced all attaches here, including links that have ended or
        moved.
        """
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
        """Send a change of the section. `latest`: as in `section`. `departed`: the entries of links that have left this
        router, as their new owners wrote them."""
        size = _size(entries) + _size(departed)
        self._append(routers, Segment.DELTA, version, latest, _packed(entries), _packed(departed), size=size)

    def gossip(self, router: str, entries: list[LinkEntry]) -> None:
        """Send entries that this router has learnt from other routers."""
        for part in _in_parts(entries):
            self._append((router,), Segment.GOSSIP, _packed(part), size=_size(part))

    def applied(self, routers: Iterable[str], versions: Mapping[str, tuple[int, int]]) -> None:
        """Send how far this router has applied the sections of others: the incarnation and version for each router. The
        receiver answers with later news."""
        self._append(routers, Segment.APPLIED, versions)

    def ack(self, router: str, version: int) -> None:
        self._append((router,), Segment.ACK, version)

    def expire(self, routers: Iterable[str], entry: LinkEntry, decision: Decision) -> None:
        """Ask the routers whether this attach of a link may expire, or lapse (8, Expiry)."""
        self._append(routers, Segment.EXPIRE, entry.role, entry.name, entry.epoch, decision)

    def vote(self, router: str, index: tuple[Role, bytes], epoch: Epoch, decision: Decision, *, yes: bool) -> None:
        self._append((router,), Segment.VOTE, *index, epoch, decision, yes)

    def expired(self, routers: Iterable[str], entry: LinkEntry, decision: Decision) -> None:
        """Tell the routers that the link has expired or lapsed. With `NOTHING`, withdraw the proposal, so that it no
        longer binds a router that agreed."""
        self._append(routers, Segment.EXPIRED, entry.role, entry.name, entry.epoch, decision)

    def gone(self, router: str, owner: Owner) -> None:
        """Tell a router that the process of this incarnation of another router has ended (8, Lost router)."""
        self._append((router,), Segment.GONE, *owner)

    # The methods from here on send messages about subscribers.

    def joined(self, router: str, subscriber: bytes, epoch: Epoch, gated: dict[bytes, int]) -> None:
        """Tell a router that its subscriber is in the audience of every delivery that is published here from now on
        (6.2).

        The subscriber gets an older delivery only if this router forwards it to the subscriber by name. `gated`:
        publishers whose deliveries are held back from the subscriber, each from the given `n` on.
        """
        self._append((router,), Segment.JOINED, subscriber, epoch, gated)

    def admit(self, router: str, subscriber: bytes, publisher: bytes) -> None:
        self._append((router,), Segment.ADMIT, subscriber, publisher)

    def room(self, home: str, subscriber: bytes, epoch: Epoch, limit: SubscriberRoom) -> None:
        """Tell the home how many deliveries, and how many bytes, it may offer to this attach in total (12)."""
        self._append((home,), Segment.ROOM, subscriber, epoch, limit.deliveries, limit.size)

    def drain(self, home: str, asked: Drain) -> None:
        """Ask the home whether it has given this attach of a subscriber all its messages (12.9)."""
        self._append((home,), Segment.DRAIN, asked.subscriber, asked.attach, asked.number)

    def given(self, asked: Drain, left: int, answer: DrainAnswer) -> None:
        """Answer the question that a subscriber's router has asked by `drain`. `left`: the number of messages that
        still wait at this home."""
        segment = Segment.GIVEN, asked.subscriber, asked.attach, asked.number, left, answer
        self._append((asked.attach.router,), *segment)

    # The methods from here on send messages about deliveries. This code runs for every message.

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
        """Forward records with consecutive `n` (protocol 5, Publish and 6.3). Either all records are presettled, or
        none is. If the records do not fit into one batch, the method makes several batches.

        Without `only`, the records are for all joined subscribers. With `only`, they are for one attach of one
        subscriber. With `OFFER` in `only`, that attach gets them only if it has room (12). `ahead`: the messages were
        sent before, in pieces, so the Forward does not have them.
        """
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
        """Send the piece of the publisher's next message that begins at byte `at`. An empty piece says that the rest of
        the message will not come (protocol 5, Large messages)."""
        self._waits = False
        batch = self._batch(routers)
        batch.size += len(piece)
        batch.segments.append([Segment.BODY, stream.publisher, key, at, piece])

    def outcome(self, home: str, stream: Stream, ns: Iterable[int]) -> None:
        """Report that all local subscribers have accepted these deliveries, and that none of the subscribers has
        moved."""
        self._waits = False
        self._ranges((home,), Segment.OUTCOME, stream, ns)

    def outcome_in_full(self, home: str, record: Record, moved: list[bytes]) -> None:
        assert record.n >= 0
        stream, said = record.stream, (record.n, record.refusals, moved, record.annotations)
        self._append((home,), Segment.OUTCOME_IN_FULL, stream.publisher, stream.epoch, *said)

    def settle(self, routers: tuple[str, ...], stream: Stream, ns: Iterable[int]) -> None:
        self._ranges(routers, Segment.SETTLE, stream, ns)

    def settled(self, home: str, publisher: bytes, epoch: Epoch, ranges: list[int]) -> None:
        """Report that this edge has settled these records at its subscribers and has forgotten them, or does not know
        them. The home may now forget them, too."""
        self._batch((home,)).segments.append([Segment.SETTLED, publisher, epoch, ranges])

    def forgotten(self, home: str, stream: Stream, n: int) -> None:
        """Report for one record what `settled` reports, because a subscriber had not read its settlement until now."""
        self._ranges((home,), Segment.SETTLED, stream, (n,))

    def fenced(self, router: str, publisher: bytes, epoch: Epoch) -> None:
        """Report that this router has dropped deliveries under this epoch, because it is not the publisher's current
        epoch (5, Fence)."""
        self._append((router,), Segment.FENCED, publisher, epoch)

    def resolve(self, home: str, stream: Stream, keys: list[bytes]) -> None:
        """Ask which of these deliveries are still in doubt for the publisher (6.1, 7.4)."""
        self._append((home,), Segment.RESOLVE, stream.publisher, stream.epoch, b"".join(keys))

    def resolved(self, router: str, stream: Stream, keys: list[bytes]) -> None:
        """Tell a router that the publisher has settled these deliveries.

        If the router has asked for a key that is not in the list, the delivery with this key is in doubt. When the
        publisher settles that delivery, this router sends another message. If the receiver is the publisher's home, the
        publisher settled the listed deliveries before its attach there (5, Reused tags).
        """
        self._append((router,), Segment.RESOLVED, stream.publisher, stream.epoch, b"".join(keys))

    def _ranges(self, targets: tuple[str, ...], kind: Segment, stream: Stream, ns: Iterable[int]) -> None:
        """Append at least one `n`, in order. If the last segment has the same kind, publisher and epoch, the method
        extends it. The epoch alone does not suffice, because streams of two publishers may have the same one (protocol
        2)."""
        segments, head = self._batch(targets).segments, [kind, stream.publisher, stream.epoch]
        if not segments or segments[-1][:3] != head:
            segments.append([*head, []])
        ranges: list[int] = segments[-1][3]
        for n in ns:
            if ranges and ranges[-1] == n - 1:
                ranges[-1] = n
            else:
                ranges += (n, n)
