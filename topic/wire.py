"""What topic cores say to each other, as columnar batches (architecture: between routers).

A batch is a list of segments, a segment a list `[kind, columns…]`. Within a batch, and from batch to batch to the same
router, order is kept: deltas, Forwards and Joined rely on it. Outcomes and settlements are ranges of `n` per
(publisher, epoch). Nothing here decides anything.
"""

import enum
from collections.abc import Callable, Iterable
from typing import Any

import msgpack

from topic.directory import Entry, Role, Status
from topic.errors import PeerError
from topic.identity import GENERATION_LENGTH, KEY_LENGTH, NAME_LENGTH, Epoch
from topic.outcomes import Refusals
from topic.record import Record, Stream

FLUSH_BYTES = 256 * 1024
"""A batch is closed when its messages pass this, so that relays and receivers work while we go on."""


class Kind(enum.IntEnum):
    SECTION = 0
    DELTA = 1
    ACK = 2
    JOINED = 3
    ADMIT = 4
    FORWARD = 5
    OUTCOME = 6
    OUTCOME_IN_FULL = 7
    SETTLE = 8
    SETTLED = 9
    FENCED = 10
    RESOLVE = 11
    RESOLVED = 12
    EXPIRE = 13
    VOTE = 14
    EXPIRED = 15
    HEARSAY = 16


class Decision(enum.IntEnum):
    """What routers agree on about a link that has no client (8, Expiry and Apart)."""

    NOTHING = 0
    LAPSED = 1
    EXPIRED = 2


class _Batch:
    __slots__ = ("segments", "size", "targets")

    def __init__(self, targets: tuple[str, ...]) -> None:
        self.targets = targets
        self.segments: list[list[Any]] = []
        self.size = 0


class Outgoing:
    """Collects what is said until the shell flushes; one batch per run of the same targets."""

    def __init__(self) -> None:
        self._batches: list[_Batch] = []

    def __bool__(self) -> bool:
        return bool(self._batches)

    def take(self) -> list[tuple[tuple[str, ...], bytes]]:
        """The encoded batches with their targets, in order; forgets them."""
        batches, self._batches = self._batches, []
        return [(batch.targets, msgpack.packb(batch.segments)) for batch in batches]

    def forget(self, router: str) -> None:
        """The contact is lost: what was for it alone, or for it too, no longer is."""
        for batch in self._batches:
            batch.targets = tuple(target for target in batch.targets if target != router)
        self._batches = [batch for batch in self._batches if batch.targets]

    def _batch(self, targets: tuple[str, ...]) -> _Batch:
        if self._batches:
            last = self._batches[-1]
            if last.targets == targets and last.size < FLUSH_BYTES:
                return last
        batch = _Batch(targets)
        self._batches.append(batch)
        return batch

    def _say(self, targets: Iterable[str], *segment: Any) -> None:
        targets = tuple(targets)
        if targets:
            self._batch(targets).segments.append(list(segment))

    # directory

    def section(self, router: str, version: int, own: list[Entry], hearsay: list[Entry]) -> None:
        self._say((router,), Kind.SECTION, version, [e.pack() for e in own], [e.pack() for e in hearsay])

    def delta(self, routers: Iterable[str], version: int, entries: list[Entry], departed: list[Entry]) -> None:
        """`departed` are no longer ours: the entries of the routers that they moved to."""
        self._say(routers, Kind.DELTA, version, [e.pack() for e in entries], [e.pack() for e in departed])

    def hearsay(self, router: str, entries: list[Entry]) -> None:
        """What we have learned of others."""
        if entries:
            self._say((router,), Kind.HEARSAY, [entry.pack() for entry in entries])

    def ack(self, router: str, version: int) -> None:
        self._say((router,), Kind.ACK, version)

    def expire(self, routers: Iterable[str], entry: Entry, decision: Decision) -> None:
        """May this attach of a link expire, or lapse? (8, Expiry)"""
        self._say(routers, Kind.EXPIRE, entry.role, entry.name, entry.epoch, decision)

    def vote(
        self, router: str, index: tuple[Role, bytes], epoch: Epoch, decision: Decision, *, yes: bool
    ) -> None:
        self._say((router,), Kind.VOTE, *index, epoch, decision, yes)

    def expired(self, routers: Iterable[str], entry: Entry, decision: Decision) -> None:
        """It has; or nothing was decided, and who said yes is free again."""
        self._say(routers, Kind.EXPIRED, entry.role, entry.name, entry.epoch, decision)

    # joining

    def joined(self, router: str, subscriber: bytes, epoch: Epoch, gated: dict[bytes, int]) -> None:
        """From here on the subscriber is in the audience of all that is published at this router (6.2); of what was
        published before, only what was forwarded for it by name just now is for it. `gated` publishers are so from
        that `n` on."""
        self._say((router,), Kind.JOINED, subscriber, epoch, gated)

    def admit(self, router: str, subscriber: bytes, publisher: bytes) -> None:
        self._say((router,), Kind.ADMIT, subscriber, publisher)

    # deliveries: hot

    def forward(
        self,
        routers: tuple[str, ...],
        stream: Stream,
        records: list[Record],
        seen: dict[str, int],
        only: tuple[bytes, Epoch] | None,
    ) -> None:
        """`Forward` of records with consecutive `n`, all presettled or none; `only` for that attach of that subscriber,
        None stands for all joined ones (protocol 5, Publish and 6.3)."""
        first = records[0]
        messages = [record.message for record in records]
        batch = self._batch(routers)
        batch.size += sum(map(len, filter(None, messages)))
        versions = {router: seen[router] for router in routers}
        keys = b"".join([record.key for record in records])
        segment = [
            Kind.FORWARD, stream.publisher, stream.epoch, versions, first.n, first.presettled, keys, messages, only
        ]  # fmt: skip
        batch.segments.append(segment)

    def outcome(self, home: str, stream: Stream, n: int) -> None:
        """All local subscribers accepted, none has moved."""
        self._range((home,), Kind.OUTCOME, stream, n)

    def outcome_in_full(self, home: str, stream: Stream, n: int, refusals: Refusals | None, moved: list[bytes]) -> None:
        self._say((home,), Kind.OUTCOME_IN_FULL, stream.publisher, stream.epoch, n, refusals, moved)

    def settle(self, routers: tuple[str, ...], stream: Stream, n: int) -> None:
        self._range(routers, Kind.SETTLE, stream, n)

    def settled(self, home: str, publisher: bytes, epoch: Epoch, ranges: list[int]) -> None:
        """This edge has settled its subscribers and forgotten these, or knows nothing of them: home may forget."""
        self._say((home,), Kind.SETTLED, publisher, epoch, ranges)

    def forgotten(self, home: str, stream: Stream, n: int) -> None:
        """The same, of one that some subscriber did not know of until now."""
        self._range((home,), Kind.SETTLED, stream, n)

    def fenced(self, router: str, publisher: bytes, epoch: Epoch) -> None:
        """What came under this epoch was dropped: it is not the publisher's current one (5, Fence)."""
        self._say((router,), Kind.FENCED, publisher, epoch)

    def resolve(self, home: str, stream: Stream, keys: list[bytes]) -> None:
        """Which of these does the publisher still hold in doubt? (6.1, 7.4)"""
        self._say((home,), Kind.RESOLVE, stream.publisher, stream.epoch, b"".join(keys))

    def resolved(self, router: str, stream: Stream, keys: list[bytes]) -> None:
        """The publisher has settled these. What was asked and is not among them is in doubt, and told when it ends."""
        self._say((router,), Kind.RESOLVED, stream.publisher, stream.epoch, b"".join(keys))

    def _range(self, targets: tuple[str, ...], kind: Kind, stream: Stream, n: int) -> None:
        segments = self._batch(targets).segments
        if segments:
            last = segments[-1]
            if last[0] is kind and last[2] == stream.epoch and last[1] == stream.publisher:
                ranges = last[3]
                if ranges[-1] == n - 1:
                    ranges[-1] = n
                else:
                    ranges += (n, n)
                return
        segments.append([kind, stream.publisher, stream.epoch, [n, n]])


def _is_epoch(value: Any) -> bool:
    return isinstance(value, list) and list(map(type, value)) == [int, str, int]


def _is_ranges(value: Any) -> bool:
    return isinstance(value, list) and len(value) % 2 == 0 and all(type(n) is int for n in value)


def _is_messages(value: Any) -> bool:
    return isinstance(value, list) and all(type(message) is bytes for message in value)


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_name, value))


def _is_optional_attach(value: Any) -> bool:
    return value is None or (isinstance(value, list) and len(value) == 2 and _is_name(value[0]) and _is_epoch(value[1]))


def _is_versions(value: Any) -> bool:
    return isinstance(value, dict) and all(type(version) is int for version in value.values())


def _is_gated(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_name, value)) and _is_versions(value)


def _is_refusals(value: Any) -> bool:
    return value is None or (isinstance(value, list) and list(map(type, value)) == [int, int, int])


def _is_name(value: Any) -> bool:
    return type(value) is bytes and len(value) == NAME_LENGTH and value.isascii()


def _is_role(value: Any) -> bool:
    return type(value) is int and value in (Role.PUBLISHER, Role.SUBSCRIBER)


def _is_decision(value: Any) -> bool:
    return type(value) is int and 0 <= value < len(Decision)


def _is_keys(value: Any) -> bool:
    return type(value) is bytes and len(value) % KEY_LENGTH == 0


_ENTRY = [int, list, list, bytes, int, int, str, int, bool, str, int]


def is_entry(value: Any) -> bool:
    """Whether it is a packed entry of a directory."""
    if not isinstance(value, list) or list(map(type, value)) != _ENTRY:
        return False
    role, identity, epoch, generation, status = value[:5]
    if list(map(type, identity)) != [str, str, str] or not _is_epoch(epoch) or status not in iter(Status):
        return False
    length = {Role.PUBLISHER: GENERATION_LENGTH, Role.SUBSCRIBER: 0}.get(role)
    return len(generation) == length


def _is_entries(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_entry, value))


def _is(kind: type) -> Callable[[Any], bool]:
    return lambda value: type(value) is kind


_SHAPES: dict[int, tuple[Callable[[Any], bool], ...]] = {
    Kind.SECTION: (_is(int), _is_entries, _is_entries),
    Kind.DELTA: (_is(int), _is_entries, _is_entries),
    Kind.ACK: (_is(int),),
    Kind.HEARSAY: (_is_entries,),
    Kind.JOINED: (_is_name, _is_epoch, _is_gated),
    Kind.ADMIT: (_is_name, _is_name),
    Kind.FORWARD: (
        _is_name, _is_epoch, _is_versions, _is(int), _is(bool), _is(bytes), _is_messages, _is_optional_attach
    ),
    Kind.OUTCOME: (_is_name, _is_epoch, _is_ranges),
    Kind.OUTCOME_IN_FULL: (_is_name, _is_epoch, _is(int), _is_refusals, _is_names),
    Kind.SETTLE: (_is_name, _is_epoch, _is_ranges),
    Kind.SETTLED: (_is_name, _is_epoch, _is_ranges),
    Kind.FENCED: (_is_name, _is_epoch),
    Kind.RESOLVE: (_is_name, _is_epoch, _is_keys),
    Kind.RESOLVED: (_is_name, _is_epoch, _is_keys),
    Kind.EXPIRE: (_is_role, _is_name, _is_epoch, _is_decision),
    Kind.VOTE: (_is_role, _is_name, _is_epoch, _is_decision, _is(bool)),
    Kind.EXPIRED: (_is_role, _is_name, _is_epoch, _is_decision),
}  # fmt: skip
"""What the columns of each kind are, in order."""


def _check(segment: Any) -> None:
    if not isinstance(segment, list) or not segment or type(segment[0]) is not int or segment[0] not in _SHAPES:
        raise PeerError(f"not a segment: {segment!r:.80}")
    shape = _SHAPES[segment[0]]
    if len(segment) != len(shape) + 1 or not all(map(_fits, shape, segment[1:])):
        raise PeerError(f"malformed segment {Kind(segment[0]).name}: {segment[1:]!r:.200}")
    if segment[0] in (Kind.EXPIRE, Kind.EXPIRED) and segment[1] == Role.PUBLISHER and segment[4] == Decision.LAPSED:
        raise PeerError("publishers do not lapse")
    if segment[0] == Kind.FORWARD and len(segment[6]) != len(segment[7]) * KEY_LENGTH:
        raise PeerError(f"{len(segment[6])} bytes of keys for {len(segment[7])} deliveries")


def _fits(is_right: Callable[[Any], bool], value: Any) -> bool:
    return is_right(value)


def decode(payload: bytes) -> list[list[Any]]:
    """The segments of a batch, each of the shape of its kind; raises `PeerError` if it is anything else."""
    try:
        segments = msgpack.unpackb(payload, strict_map_key=False)
    except (TypeError, ValueError, msgpack.UnpackException) as error:
        raise PeerError(f"not a batch: {error}") from None
    if not isinstance(segments, list):
        raise PeerError("not a batch: expected a list of segments")
    for segment in segments:
        _check(segment)
    return segments


def split_keys(keys: bytes) -> list[bytes]:
    """The keys of a key column."""
    return [keys[start : start + KEY_LENGTH] for start in range(0, len(keys), KEY_LENGTH)]
