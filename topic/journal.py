"""The delivery log, written by routers and clients for the audit (docs/architecture.md). Bytes in, bytes out.

A writer owns one `Block` and appends an entry per *batch* of deliveries. Before anything that entries tell of leaves,
it puts `unsaved()` into the tail of the current segment (`topic.tail`); every now and then, and when the tail is full,
it writes `encode()` to the segment's end, and begins the next one. This module never opens a file, reads a clock or
decides anything; routers write the log and never read it.

Files
    `<run_dir>/<router>/log/<segment>` and `<run_dir>/clients/<name>/log/<segment>`, segment as
    `segment_name` says, numbered from 0 on; the next one begins when a segment has reached `SEGMENT_LIMIT`.
    A client's incarnation is the ms of wall clock at its start. Each file opens with the region of its tail,
    or with the first byte of a block.

Block
    b"OML2", u32be length of the payload, u32be crc32 of the payload, payload: a msgpack map of
    source str, role "router"|"publisher"|"subscriber", incarnation int;
    host str: writers with the same host share a wall clock, "" where unknown;
    number: the blocks of an incarnation are numbered from 0 on, across its segments, so that a lost one is
    noticed;
    strings [str]: the table the columns point into;
    keys bin: the delivery keys that the entries tell of, 32 bytes each;
    and columns, lists with one element per entry:
    event, outcome (`Event`, `LoggedOutcome`), time (µs of wall clock), hlc (a router's; 0 in a client);
    address, publisher, subscriber, peer, generation (hex), epoch ("hlc.router.incarnation"), detail (JSON):
    indexes into strings, -1 = none;
    count: how many keys, and at: which of the block's the first of them is, as most deliveries are told of more
    than once; n: of the first key, the others follow on, -1 = unknown; ns: nil or the n of every key;
    tags: nil or the delivery-tag of every key.

Entries
    `publisher` and `subscriber` are the 12 characters of `identity.link_name`. An entry is appended *before*
    what it tells of leaves (the frame is sent, the message handed on). `peer` tells edge from home: entries
    about a delivery name its home at an edge, and have none at the home itself.

    router, on deliveries: all with keys, address, publisher, and the epoch of the home
    RECEIVED     home: a transfer began a record (tags, n, generation). Edge: a Forward did (peer, n)
    AUDIENCE     home: detail = JSON list of the subscribers awaited, remote ones and orphans included;
                 again, with all or with the new names, when the audience grows. "one of many", a JSON string, at a
                 balanced address: the one that FORWARDED or DELIVERED is for, or another if that gives it back
    FORWARDED    home: to router `peer`
    DELIVERED    transferred to the local `subscriber`; again for every further transfer of the message
    OUTCOME      what the local `subscriber` answered; also an outcome after which it is redelivered. detail = "map":
                 as the unsettled map of its attach has it
    APART        home: accepted without `subscriber`, which lives for all that is known but was out of contact (or
                 suspended) for longer than its timeout: it is waited for no more, and no AUDIENCE lists it. One entry
                 per subscriber, right before ACCEPTED
    ACCEPTED     home: `outcome`, whatever it is, goes to the publisher. detail = "ttl": nobody had it when its time was
                 over; its last AUDIENCE may be of nobody. To the egress of a queue RELEASED and MODIFIED say that the
                 message came back: SETTLED once its queue has that, then RECEIVED under another key. The tags of both
                 begin with the position of the message
    SETTLED      home: the publisher settled after the outcome. Edge (peer): that was applied here
    ABANDONED    the publisher settled before an outcome, or its generation was given up: nothing is owed any
                 more. detail = the generation (hex) of the publisher's next life, if that has ended this one
    PASSED       the filter of the local `subscriber` leaves it out: it is not given it on this attach
    FORGOTTEN    the record is gone
    PLACEHOLDER  a record without its message, named by the map of `subscriber`
    RESOLVED     the home (peer) said that it is settled
    REHOMED      the record follows `epoch` now, home `peer`
    FENCED       from `peer`, dropped for its lower epoch

    router with a replica of a set, on messages of queues (protocol 14): all with keys, n is the position of the first
    message, address that of the egress of the queue (`identity.egress_address`). The replica tells it as it applies
    the log of the set. When it applies entries again, it tells it again
    ENQUEUED     the queue has these messages. The keys are of the deliveries that brought them; if their publisher had
                 settled these, of the first deliveries of the egress
    RETURNED     the egress' deliveries with these keys have ended, and the messages are for nobody
    LEFT         the messages are gone. The keys are of the last deliveries of the egress, or of those that would have
                 been next. detail = "dequeued" (a consumer has accepted or rejected it), "sent" (it is in the outbox of
                 the set, and goes to another address as a dead letter, or back), "expired", "purged", "deleted" (with
                 its queue)

    router with a replica of a set, on the set: no keys
    CONTENT      what the replica has, as it begins with that, and whenever replicas compare their states: detail = JSON
                 {"set", "life", "index": the last entry of the set's log that is applied, "messages": how many,
                 "positions": the sum of their positions, "begins": whether it begins with that}

    router, on links and routers: no keys
    ATTACHED     a local link's attach was answered: publisher or subscriber, address, epoch, a publisher's
                 generation; detail = JSON {"role": "publisher"|"subscriber", "container", "link", "address",
                 "mode": "first"|"second" (receiver settle mode), "timeout": seconds}; and "afresh": true, of a
                 subscriber whose map was null, and of a publisher whose map was null and that echoed no epoch;
                 "unordered": true, of a client that brought a map and did not echo its last epoch
    SUSPENDED    a local link lost its connection and its terminus lives on
    CLOSED       publisher or subscriber left for good, `epoch` that of the attach that ended: owed nothing
                 from here on. At its custodian; repeating it elsewhere does no harm
    EXPIRED      its terminus, of the attach that `epoch` names, expired in the view of this router: the same, but
                 only for what is not ACCEPTED yet, and homed here or at a router that has heard of it since. JOINED may
                 follow in the same epoch. detail = text: by whom and why, where something was accepted without it
    STOLEN       a local link is attached at router `peer` now: gone here, owed as before
    JOINED       subscriber (address, epoch of its attach; peer = its custodian, none if local) is in the
                 audience of what is published here from now on. A higher epoch than before: a new stay
    GATED        subscriber is kept from what `publisher` publishes here. Joining anew ends older gates, so those
                 that stand are told after JOINED
    ADMITTED     no longer
    CONTACT      with router `peer`; detail = JSON {"incarnation": int}
    LOST         that contact. detail = JSON {"grace": seconds}: the plain subscribers of the router are waited for; no
                 detail: they are not
    GIVEN_UP     the plain subscribers of router `peer` are waited for no more, until they are JOINED anew; detail =
                 JSON {"incarnation": int}
    BOOT         first entry of every log, written to disk at once; also a client's. A router's: detail = JSON {"dead":
                 `timing.dead` in seconds}
    KEPT         what the state store had when the router started: (no link) detail = JSON {"found": whether there was
                 one}; then each subscriber that it waits for (address, epoch)
    STOPPED      last entry of every log that ends in a clean shutdown, also a client's. A log without one
                 may lack its end, if its machine lost power
    CONTINUED    first entry of a segment, where a router keeps only its latest: detail = JSON {"first": [incarnation,
                 number] of the first that it keeps, or null if none was deleted; "dead": as in BOOT}. What holds of
                 links and routers then is told anew behind it: CONTACT and ATTACHED, "again": true in their details;
                 JOINED, GATED, SUSPENDED
    GAP          any writer's: the log could not be written, and entries are missing from here on, detail = JSON {"why":
                 text}; and where it is written again, detail = JSON {"entries": how many are missing}. The second
                 may never come

    publisher: ATTACHED as above with generation, also in the detail, and epoch, if the router told one; on deliveries:
    all with keys, address, publisher
    PUBLISHED    sent for the first time, in this order (tags, generation); all within 1 ms of the entry's time
    OUTCOME      `outcome` as the router told it
    SETTLED      settled

    KEPT         it came back with what its store had: (no keys) detail = JSON {"published": how many it ever
                 had}; then (keys) what of that is not settled, in order, `outcome` 0 while it has none

    subscriber: ATTACHED as above with epoch, "afresh" also if it was the router's map that was null; on deliveries: all
    with keys, address, subscriber
    DELIVERED    handed to the application; again for every further transfer
    PROCESSED    the application is done with it and answers `outcome`
    SETTLED      the key is forgotten
    KEPT         as a publisher's, without detail
    CLOSED       (no keys) its own closing detach: owed nothing from here on
"""

import zlib
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import msgpack

MAGIC = b"OML2"
HEADER_LENGTH = len(MAGIC) + 8
SEGMENT_LIMIT = 32 << 20
BY_MAP = "map"
"""The detail of an OUTCOME that an unsettled map states."""
ONE_OF_MANY = '"one of many"'
"""The detail of an AUDIENCE at a balanced address."""
BY_TTL = "ttl"
"""The detail of an ACCEPTED that rejects what nobody had when its time was over."""


class Event(IntEnum):
    """What an entry says; the numbers are part of the format."""

    BOOT = 0
    STOPPED = 1
    CONTACT = 2
    LOST = 3
    ATTACHED = 4
    SUSPENDED = 5
    CLOSED = 6
    EXPIRED = 7
    STOLEN = 8
    JOINED = 9
    GATED = 10
    ADMITTED = 11
    RECEIVED = 12
    AUDIENCE = 13
    FORWARDED = 14
    DELIVERED = 15
    OUTCOME = 16
    ACCEPTED = 17
    SETTLED = 18
    ABANDONED = 19
    FORGOTTEN = 20
    PLACEHOLDER = 21
    RESOLVED = 22
    REHOMED = 23
    FENCED = 24
    PUBLISHED = 25
    PROCESSED = 26
    KEPT = 27
    APART = 28
    GAP = 29
    CONTINUED = 30
    PASSED = 31
    GIVEN_UP = 32
    ENQUEUED = 33
    RETURNED = 34
    LEFT = 35
    CONTENT = 36


class LoggedOutcome(IntEnum):
    """The outcome column: AMQP's delivery outcomes."""

    NONE = 0
    ACCEPTED = 1
    REJECTED = 2
    RELEASED = 3
    MODIFIED = 4


TABLED = ("address", "publisher", "subscriber", "peer", "generation", "epoch", "detail")
COLUMNS = ("event", "outcome", "time", "hlc", *TABLED, "count", "at", "n", "ns", "tags")
HEAD = ("source", "role", "incarnation", "host", "number", "strings", "keys")

Name = str | bytes | None


class Block:
    """The block being written by one source; reused for all its blocks, as it numbers them."""

    __slots__ = ("_keys", "_number", "_rows", "_saved_keys", "_saved_rows", "_starts", "head")

    def __init__(self, source: str, role: str, incarnation: int, *, host: str = "") -> None:
        assert role in ("router", "publisher", "subscriber")
        self.head = (source, role, incarnation, host)
        """What all its blocks begin with."""
        self._number = 0
        self._rows: list[tuple[Any, ...]] = []
        self._keys: list[bytes] = []
        self._starts: dict[bytes, int] = {}
        """Where in the keys those are that entries began with, or would go on with."""
        self._saved_rows = 0
        self._saved_keys = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def number(self) -> int:
        """How many were written before it."""
        return self._number

    def append(
        self,
        event: Event,
        *,
        time_us: int,
        hlc: int,
        keys: Sequence[bytes] = (),
        address: Name = None,
        publisher: Name = None,
        subscriber: Name = None,
        peer: Name = None,
        generation: bytes | None = None,
        epoch: Name = None,
        outcome: int = LoggedOutcome.NONE,
        n: int = -1,
        ns: Sequence[int] | None = None,
        tags: Sequence[bytes] | None = None,
        detail: str | None = None,
    ) -> None:
        """Append one entry. Hot path, once per batch: a tuple is kept, all other work waits for `unsaved` and `encode`.

        `keys` is read at once; `ns` and `tags` are kept, so the caller must not change them afterwards.
        """
        at = self._place(keys) if keys else 0
        names = (address, publisher, subscriber, peer, generation, epoch, detail)
        self._rows.append((event, outcome, time_us, hlc, *names, len(keys), at, n, ns, tags))

    def _place(self, keys: Sequence[bytes]) -> int:
        """Where these are in the block's: what is told of many deliveries is soon told again of as many, or a part."""
        known = self._keys
        at = self._starts.get(keys[0], len(known))
        end = at + len(keys)
        if known[at:end] != keys:
            at = self._starts[keys[0]] = len(known)
            known.extend(keys)
        elif end < len(known):
            self._starts[known[end]] = end
        return at

    def unsaved(self) -> bytes | None:
        """The entries since `saved` was last called, as a frame of the tail (`topic.tail`); None if there are none."""
        rows = self._rows[self._saved_rows :]
        return _packed((self._number, rows, b"".join(self._keys[self._saved_keys :]))) if rows else None

    def saved(self) -> None:
        """All its entries are in the tail."""
        self._saved_rows, self._saved_keys = len(self._rows), len(self._keys)

    def drop_unsaved(self) -> int:
        """Without the entries since `saved` was last called. Returns how many these were."""
        dropped = len(self._rows) - self._saved_rows
        del self._rows[self._saved_rows :], self._keys[self._saved_keys :]
        self._starts.clear()
        return dropped

    def encode(self) -> bytes:
        """The block as bytes for the end of the segment."""
        assert self._rows, "an empty block is not written"
        payload = encode_rows(self.head, self._number, self._rows, b"".join(self._keys))
        return MAGIC + len(payload).to_bytes(4, "big") + zlib.crc32(payload).to_bytes(4, "big") + payload

    def begin_next(self) -> None:
        """This one is written: the block is the next one, and empty."""
        self._number += 1
        self._rows, self._saved_rows = [], 0
        self._keys, self._starts, self._saved_keys = [], {}, 0


def _packed(value: object) -> bytes:
    packed: bytes = msgpack.packb(value)
    return packed


def encode_rows(head: tuple[str, str, int, str], number: int, rows: Sequence[Sequence[Any]], keys: bytes) -> bytes:
    """The payload of a block."""
    columns: dict[str, list[Any]] = dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True))
    columns["generation"] = [value and value.hex() for value in columns["generation"]]
    strings: dict[str, int] = {}
    for name in TABLED:
        columns[name] = _tabled(columns[name], strings)
    return _packed(dict(zip(HEAD, (*head, number, list(strings), keys), strict=True)) | columns)


def _tabled(column: list[Name], strings: dict[str, int]) -> list[int]:
    """Replace the texts of a column by indexes into the string table, which grows by the new ones."""
    known: dict[Name, int] = {None: -1}
    for value in column:
        if value not in known:
            known[value] = strings.setdefault(_text(value), len(strings))
    return [known[value] for value in column]


def _text(value: Name) -> str:
    """Names are ASCII bytes in the cores."""
    assert value is not None
    return value if isinstance(value, str) else value.decode("ascii")


def segment_name(incarnation: int, number: int) -> str:
    """File name of a segment; names sort in the order of writing."""
    return f"{incarnation}-{number:06}.oml"


def parse_segment_name(name: str) -> tuple[int, int] | None:
    """(incarnation, number) of a segment's file name, None for any other file."""
    stem, _, suffix = name.rpartition(".")
    incarnation, dash, number = stem.partition("-")
    if suffix != "oml" or not dash or not incarnation.isdigit() or not number.isdigit():
        return None
    return int(incarnation), int(number)
