"""Holds the entries about deliveries as columns, which are packed into bytes for each bucket of delivery keys, and
unpacked again. This code runs in Spark's Python workers.

Spark moves the bytes, so no entry becomes an object, of Python or of Java. All entries about one delivery come into one
bucket, whatever log they are from, and a worker holds one bucket at a time.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import msgpack
import numpy as np
from numpy.typing import NDArray

from topic.blocks import BlockView
from topic.directory.addresses import is_pattern, meets
from topic.identity import KEY_LENGTH

Ints = NDArray[np.int64]
Codes = NDArray[np.int32]
Flags = NDArray[np.bool_]
Texts = NDArray[np.bytes_]

# The place of a row in its log is the number of its block, times this constant, plus the number of the row in the
# block.
ROWS_PER_BLOCK = 1 << 20
NONE = -1
NOWHERE = -2
"""Stands for an address that no row has."""
KEY_TYPE = f"S{KEY_LENGTH}"
MIX = np.uint64(0x9E3779B97F4A7C15)
NUMBERS = {"event": "u1", "outcome": "u1", "time": "i8", "hlc": "i8"}
NAMES = ("address", "subscriber", "peer", "epoch", "detail")
TYPES = NUMBERS | {"place": "i8", "n": "i8", "log": "i4"} | dict.fromkeys(NAMES, "i4") | {"key": KEY_TYPE}


class LogName(NamedTuple):
    """The name of a log: one incarnation of one writer."""

    source: str
    role: str
    incarnation: int
    host: str

    @property
    def name(self) -> str:
        """The name of the log as router.incarnation, by which epochs name homes."""
        return f"{self.source}.{self.incarnation}"


class Rows:
    """Rows of entries: one for each entry and each delivery that it is about. Names are indexes into `strings`, logs
    are indexes into `logs`; `NONE` stands for no name."""

    def __init__(self, columns: dict[str, Any], strings: Sequence[str], logs: Sequence[LogName]) -> None:
        self.event: NDArray[np.uint8] = columns["event"]
        self.outcome: NDArray[np.uint8] = columns["outcome"]
        self.time: Ints = columns["time"]
        self.hlc: Ints = columns["hlc"]
        self.place: Ints = columns["place"]
        self.n: Ints = columns["n"]
        self.log: Codes = columns["log"]
        self.address: Codes = columns["address"]
        self.subscriber: Codes = columns["subscriber"]
        self.peer: Codes = columns["peer"]
        self.epoch: Codes = columns["epoch"]
        self.detail: Codes = columns["detail"]
        self.key: Texts = columns["key"]
        self.undated: Flags = np.zeros(len(self.event), np.bool_)
        """Flags the rows of logs whose clock cannot be used. For the audit, such a row may have happened at any time
        (`mesh.clocks`)."""
        self.strings = strings
        self.logs = logs

    def __len__(self) -> int:
        return len(self.event)

    @cached_property
    def _addresses(self) -> dict[str, int]:
        """The addresses that rows have, each with its code."""
        return {self.strings[code]: code for code in np.flatnonzero(np.bincount(self.address + 1)[1:]).tolist()}

    @property
    def has_address(self) -> Flags:
        """Flags the rows that have the address of their delivery. A row with a pattern has no such address: the pattern
        is the address to which the subscriber has subscribed."""
        patterns = [code for address, code in self._addresses.items() if is_pattern(address)]
        return ~np.isin(self.address, [NONE, *patterns])

    def meets(self, addresses: Codes | Ints, subscribed: str | None) -> Flags:
        """Flags the addresses that a subscription covers. The subscription is one address, or a pattern."""
        if subscribed and is_pattern(subscribed):
            return np.isin(addresses, [code for at, code in self._addresses.items() if meets(at, subscribed)])
        found: Flags = addresses == self._addresses.get(subscribed or "", NOWHERE)
        return found


class Packer:
    """Gathers blocks of files, and packs their rows by bucket."""

    def __init__(self, *, tagged: bool = False) -> None:
        """`tagged`: also keep the delivery-tag of each key. Tables have the tags; no rule needs them."""
        self._tags: dict[bytes, bytes] | None = {} if tagged else None
        self._columns: dict[str, list[Any]] = {name: [] for name in TYPES}
        self._strings: dict[str, int] = {}
        self._logs: dict[LogName, int] = {}

    def __len__(self) -> int:
        return sum(map(len, self._columns["event"]))

    def add(self, block: BlockView, source: str) -> None:
        """Add the entries of a block that are about deliveries."""
        columns = block.columns
        count = np.array(columns["count"], np.int64)
        entry = np.repeat(np.arange(len(count)), count)
        if not len(entry):
            return
        log = LogName(source, block.role, block.incarnation, block.host)
        codes = self._coded(block.strings)
        found: dict[str, Any] = {name: np.array(columns[name], kind)[entry] for name, kind in NUMBERS.items()}
        found |= {name: codes[np.array(columns[name], np.int32)][entry] for name in NAMES}
        found["place"] = places(block, count, entry)
        found["n"] = positions(columns, entry, np.arange(len(entry)) - (np.cumsum(count) - count)[entry])
        found["log"] = np.full(len(entry), self._logs.setdefault(log, len(self._logs)), np.int32)
        found["key"] = np.frombuffer(block.keys, KEY_TYPE)
        if self._tags is not None:
            self._tags.update(_tags(found["key"], columns["tags"], np.cumsum(count) - count))
        for name, column in found.items():
            self._columns[name].append(column)

    def _coded(self, strings: Sequence[str]) -> Codes:
        """The packer's codes for the codes of a block. The last element is for -1, which stands for no text."""
        known = self._strings
        return np.array([*(known.setdefault(text, len(known)) for text in strings), NONE], np.int32)

    def buckets(self, number: int) -> Iterator[tuple[int, bytes]]:
        """Spread the gathered rows over `number` buckets. Yields the number of each bucket, and its packed bytes."""
        if not self._columns["event"]:
            return
        columns = {name: np.concatenate(parts) for name, parts in self._columns.items()}
        bucket = (hashed(columns["key"]) >> np.uint64(40)) % np.uint64(number)
        order = np.argsort(bucket, kind="stable")
        ends = np.cumsum(np.bincount(bucket.astype(np.int64), minlength=number))
        columns = {name: column[order] for name, column in columns.items()}
        for index, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            if end > start:
                yield index, self._packed({name: column[start:end] for name, column in columns.items()})

    def _packed(self, columns: dict[str, Any]) -> bytes:
        parts = {name: columns[name].astype(kind, copy=False).tobytes() for name, kind in TYPES.items()}
        tags = self._tags and {key: self._tags[key] for key in set(columns["key"].tolist()) & self._tags.keys()}
        head = {"strings": list(self._strings), "logs": list(self._logs), "tags": tags or {}}
        packed: bytes = msgpack.packb(head | parts)
        return packed


def _tags(keys: Texts, tags: Sequence[Sequence[bytes] | None], starts: Ints) -> Iterator[tuple[bytes, bytes]]:
    """Yield each key with its delivery-tag, from the entries that have tags."""
    for listed, start in zip(tags, starts.tolist(), strict=True):
        if listed:
            yield from zip(keys[start : start + len(listed)].tolist(), listed, strict=True)


def pack(rows: Rows) -> bytes:
    """Pack rows like `Packer`, without the names that no row has."""
    columns = {name: getattr(rows, name) for name in TYPES}
    logs, named = np.unique(rows.log), np.unique(np.concatenate([columns[name] for name in NAMES]))
    kept = named[named != NONE].tolist()
    codes = np.full(len(rows.strings) + 1, NONE, np.int32)
    codes[kept] = np.arange(len(kept))
    columns |= {name: codes[columns[name]] for name in NAMES}
    columns["log"] = np.searchsorted(logs, rows.log)
    head = {"strings": [rows.strings[code] for code in kept], "logs": [rows.logs[log] for log in logs.tolist()]}
    parts = {name: columns[name].astype(kind, copy=False).tobytes() for name, kind in TYPES.items()}
    packed: bytes = msgpack.packb(head | {"tags": {}} | parts)
    return packed


def tags_of(parts: Iterable[bytes]) -> dict[bytes, bytes]:
    """The delivery-tags of keys, if the rows were packed with them."""
    found: dict[bytes, bytes] = {}
    for part in parts:
        found |= msgpack.unpackb(part, strict_map_key=False)["tags"]
    return found


def unpack(parts: Iterable[bytes]) -> Rows:
    """Unpack the rows of one bucket, which come in parts from several files."""
    strings: dict[str, int] = {}
    logs: dict[LogName, int] = {}
    columns: dict[str, list[Any]] = {name: [] for name in TYPES}
    for part in parts:
        fields = msgpack.unpackb(part, strict_map_key=False)
        codes = np.array([*(strings.setdefault(text, len(strings)) for text in fields["strings"]), NONE], np.int32)
        of_logs = [logs.setdefault(LogName(*log), len(logs)) for log in fields["logs"]]
        for name, kind in TYPES.items():
            column = np.frombuffer(fields[name], kind)
            if name in NAMES:
                column = codes[column]
            elif name == "log":
                column = np.array(of_logs, np.int32)[column]
            columns[name].append(column)
    whole = {name: np.concatenate([np.empty(0, TYPES[name]), *columns[name]]) for name in TYPES}
    return Rows(whole, list(strings), list(logs))


def before(rows: Rows, ends: Mapping[str, int]) -> Rows:
    """Return the rows before the end of their log. `ends`: for some logs, the place at which they end."""
    if not ends:
        return rows
    end = np.array([ends.get(log.name, np.iinfo(np.int64).max) for log in rows.logs], np.int64)
    kept = rows.place < end[rows.log]
    return chosen(rows, kept)


def chosen(rows: Rows, kept: Flags) -> Rows:
    """Return the flagged rows, and no others."""
    found = Rows({name: getattr(rows, name)[kept] for name in TYPES}, rows.strings, rows.logs)
    found.undated = rows.undated[kept]
    return found


def hashed(keys: Texts) -> NDArray[np.uint64]:
    """A hash of each key. It is made of the last 24 of the key's 32 bytes, which are almost random already."""
    words = np.ascontiguousarray(keys).view("<u8").reshape(len(keys), KEY_LENGTH // 8)
    with np.errstate(over="ignore"):
        mixed: NDArray[np.uint64] = (words[:, 2] * MIX) ^ (words[:, 3] + words[:, 1] * MIX)
        return (mixed ^ (mixed >> np.uint64(29))) * MIX


def places(block: BlockView, count: Ints, entry: Ints) -> Ints:
    """The place of each row in its log. An entry without keys takes a place, too."""
    width = np.maximum(count, 1)
    assert width.sum() < ROWS_PER_BLOCK
    before, keys_before = np.cumsum(width) - width, np.cumsum(count) - count
    found: Ints = block.number * ROWS_PER_BLOCK + np.arange(len(entry)) + (before - keys_before)[entry]
    return found


def positions(columns: dict[str, list[Any]], entry: Ints, offset: Ints) -> Ints:
    """The `n` of each row (its place in the publisher's order); `NONE` if it is unknown. An entry about several
    deliveries either lists the `n` of each delivery, or has only the first `n`. The other deliveries of this entry then
    have the following numbers."""
    first = np.array(columns["n"], np.int64)[entry]
    n: Ints = np.where(first < 0, NONE, first + offset)
    for index, listed in enumerate(columns["ns"]):
        if listed:
            n[np.searchsorted(entry, index) :][: len(listed)] = listed
    return n
