"""Turns the rows of a few deliveries into objects, for stories, and for keys that were used again. This code runs in
Spark's workers."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

import attrs
import numpy as np

from failover.audit.read.columns import KEY_TYPE, Ints, Rows, hashed, unpack
from failover.audit.read.facts import epoch_of
from failover.audit.read.inventory import Row
from failover.audit.read.segments import Wanted
from topic.blocks import BlockView
from topic.identity import NAME_LENGTH
from topic.journal import Event

KEYS_LISTED = 10
OF_MESSAGES: Final = (Event.ENQUEUED, Event.RETURNED, Event.LEFT)
"""The events that replicas log about the messages of queues."""
QueuePlace = tuple[str, int]
"""A place of a message in a queue: the address of the queue's egress, and the message's position."""


@attrs.frozen(slots=True)
class DeliveryEntry(Row):
    """One log entry about one delivery. The fields are the columns of the rows."""

    outcome: int
    n: int
    epoch_hlc: int | None
    publisher: str | None
    subscriber: str | None
    peer: str | None
    detail: str | None
    key: str


def has_key(start: str) -> Wanted:
    """A filter of blocks. It lets a block pass if the block may have a key with this beginning."""
    return lambda block: start.encode() in block.keys


def has_position(positions: Collection[int]) -> Wanted:
    """A filter of blocks. It lets a block pass if a replica logs a message at one of these positions in the block."""

    def is_told(block: BlockView) -> bool:
        columns = (block.columns[name] for name in ("event", "count", "n", "ns"))
        return any(
            position in (ns or range(n, n + count))
            for event, count, n, ns in zip(*columns, strict=True)
            if event in OF_MESSAGES
            for position in positions
        )

    return is_told


def find_keys(start: str, parts: Iterable[bytes]) -> set[str]:
    """Find keys that begin with `start`. From each of the `parts`, at most KEYS_LISTED + 1 keys are returned. This is
    one key more than the caller lists, so that the caller sees whether there are more."""
    kind, found = f"S{len(start)}", set[str]()
    for part in parts:
        keys = unpack([part]).key
        same = keys[keys.astype(kind) == start.encode()] if start else keys
        found.update(key.decode() for key in np.unique(same)[: KEYS_LISTED + 1].tolist())
    return found


def queue_places(key: str, parts: Iterable[bytes]) -> set[QueuePlace]:
    """The positions, each with its queue, at which this delivery brought a message into a queue, or took one out. A
    delivery to a topic may have a position in each queue that is bound to the topic."""
    found = set[QueuePlace]()
    for part in parts:
        rows = unpack([part])
        at = np.flatnonzero(np.isin(rows.event, OF_MESSAGES) & (rows.key == key.encode()))
        found |= {(rows.strings[rows.address[row]], int(rows.n[row])) for row in at.tolist()}
    return found


def keys_at(places: Collection[QueuePlace], parts: Iterable[bytes]) -> set[tuple[str, bool]]:
    """The keys of the deliveries that brought the messages at these places into their queues, or took them out. Each
    key comes with a flag: whether the delivery brought the message."""
    found = set[tuple[str, bool]]()
    for part in parts:
        rows = unpack([part])
        near = np.isin(rows.event, OF_MESSAGES) & np.isin(rows.n, [n for _, n in places])
        for row in np.flatnonzero(near).tolist():
            if (rows.strings[rows.address[row]], int(rows.n[row])) in places:
                found.add((rows.key[row].decode(), bool(rows.event[row] == Event.ENQUEUED)))
    return found


def pick_entries(keys: Sequence[str], parts: Iterable[bytes]) -> list[DeliveryEntry]:
    """Find the entries about these deliveries in packed rows."""
    wanted, found = hashed(np.array([key.encode() for key in keys], KEY_TYPE)), list[DeliveryEntry]()
    for part in parts:
        rows = unpack([part])
        at = np.flatnonzero(np.isin(hashed(rows.key), wanted))
        found += [entry for entry in entries_at(rows, at) if entry.key in keys]
    return found


def entries_at(rows: Rows, at: Ints) -> Iterator[DeliveryEntry]:
    texts = [*rows.strings, None]
    for index in at.tolist():
        log, key = rows.logs[rows.log[index]], rows.key[index].decode()
        epoch = texts[rows.epoch[index]] or ""
        yield DeliveryEntry(
            source=log.source,
            role=log.role,
            incarnation=log.incarnation,
            host=log.host,
            place=int(rows.place[index]),
            time=int(rows.time[index]),
            hlc=int(rows.hlc[index]),
            event=int(rows.event[index]),
            outcome=int(rows.outcome[index]),
            n=int(rows.n[index]),
            epoch_hlc=epoch_of(epoch)[0],
            publisher=key[:NAME_LENGTH],
            subscriber=texts[rows.subscriber[index]],
            peer=texts[rows.peer[index]],
            detail=texts[rows.detail[index]],
            key=key,
        )
