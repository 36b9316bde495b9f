"""The format of the delivery log, which routers and clients write for the audit (docs/architecture.md).

A writer owns one `Block` and appends one entry for each *batch* of deliveries. An entry is about a message or
frame. Before the writer sends this frame, it puts the result of `unsaved()` into the tail of the current segment
(`topic.tail`). From time to time, and when the tail is full, it appends the result of `encode()` to the segment, and
begins the next block. Routers write the log and never read it.

This module only turns entries into bytes. It opens no file, reads no clock and decides nothing.

Files
    `<run_dir>/<router>/log/<segment>` and `<run_dir>/clients/<name>/log/<segment>`. `segment_name` gives the name of a
    segment. Segments are numbered from 0 on; the next one begins when a segment has reached `SEGMENT_LIMIT`. The
    incarnation of a client is the wall clock at its start, in ms. Each file begins with the region of its tail, or with
    the first byte of a block.

Block
    b"OML2", u32be length of the payload, u32be crc32 of the payload, payload: a msgpack map of
    source str, role "router"|"publisher"|"subscriber", incarnation int;
    host str: writers with the same host share a wall clock; "" if unknown;
    number: the number of the block, from 0 on across all segments of the incarnation. A gap shows that a block is lost;
    strings [str]: the table of the texts that columns have by index;
    keys bin: the delivery keys of the entries, 32 bytes each;
    and columns, lists with one element per entry:
    event, outcome (`Event`, `LoggedOutcome`), time (µs of wall clock), hlc (a router's; 0 in a client);
    address, publisher, subscriber, peer, generation (hex), epoch ("hlc.router.incarnation"), detail (JSON):
    indexes into strings, -1 = none;
    count: the number of the entry's keys, and at: the index of the first of them in keys. Entries may share keys,
    because most deliveries have several entries;
    n: the n of the first key, from which the others count up; -1 = unknown; ns: nil or the n of every key;
    tags: nil or the delivery-tag of every key.

Entries
    `publisher` and `subscriber` are the 12 characters of `identity.link_name`. The writer appends an entry *before* it
    sends the frame, or passes on the message, that the entry is about. An entry about a delivery has the delivery's
    home as its `peer` if an edge writes it, and no peer if the home writes it.

    Of a router, about deliveries. All have keys, address, publisher, and the epoch of the home.
    RECEIVED     home: a transfer has begun a record (tags, n, generation). Edge: a Forward has begun it (peer, n)
    AUDIENCE     home: the awaited subscribers, also the remote ones and orphans. detail = a JSON list of their names.
                 When the audience grows, the home writes another entry, with all subscribers or with the new ones. At a
                 balanced address, detail = "one of many", a JSON string: the delivery is for the subscriber of
                 FORWARDED or DELIVERED, or for another one if this one gives it back
    FORWARDED    home: the delivery goes to router `peer`
    DELIVERED    edge: the delivery was transferred to the local `subscriber`. Each further transfer has an entry, too
    OUTCOME      edge: the local `subscriber` has given this outcome, even if the message is then transferred again.
                 detail = "map": the unsettled map of the subscriber's attach states the outcome
    APART        home: the delivery is accepted without `subscriber`. As far as the home knows, this subscriber lives,
                 but it was out of contact (or suspended) for longer than its timeout. No home awaits it any more, and
                 no AUDIENCE lists it. Each such subscriber has an entry, right before ACCEPTED
    ACCEPTED     home: the publisher gets `outcome`, which may be any outcome. detail = "ttl": the time to live ended
                 before any subscriber had the delivery; its last AUDIENCE may be empty. If the publisher is the egress
                 of a queue, RELEASED and MODIFIED mean that the message came back. When the queue has it, SETTLED
                 follows, and then RECEIVED under another key. The tags of both keys begin with the position of the
                 message
    SETTLED      home: the publisher has settled after the outcome. Edge (peer): the edge has applied the settlement
    ABANDONED    the publisher has settled before an outcome, or its life has ended: no subscriber is owed the delivery
                 any more. detail = the generation (hex) of the publisher's next life, if that life has ended this one
    PASSED       edge: the filter of the local `subscriber` leaves the delivery out, so the subscriber does not get it
                 on this attach
    FORGOTTEN    the router has forgotten the record
    PLACEHOLDER  edge: a record without a message has begun, because the map of `subscriber` names the delivery
    RESOLVED     edge: the home (peer) has answered that the delivery is settled
    REHOMED      edge: from now on the record belongs to `epoch`, with home `peer`
    FENCED       edge: the router has dropped a Forward of `peer`, because its epoch is too low

    Of a router with a replica of a set, about messages of queues (protocol 14). All have keys. n is the position of the
    first message. address is the address of the queue's egress (`identity.egress_address`). The replica writes these
    entries when it applies the log of the set. If it applies the same log entries again, it writes them again.
    ENQUEUED     the queue has these messages. The keys name the deliveries that brought the messages. But if the
                 publisher of these deliveries had settled them, or if a transaction has put the messages there, the
                 keys name the first deliveries of the egress
    RETURNED     the deliveries of the egress with these keys have ended, and no consumer has the messages
    LEFT         the messages have left the queue. The keys name the last deliveries of the egress, or the deliveries
                 that would have been next. detail = "dequeued" (a consumer has accepted or rejected the message),
                 "transacted" (the same, in a transaction), "sent" (the message is in the outbox of the set, and goes to
                 another address as a dead letter, or back), "expired", "purged", "deleted" (together with the queue)

    Of a router with a replica of a set, about the set. No keys.
    CONTENT      the content of the replica. The replica writes it when it starts, and whenever replicas compare their
                 states. detail = JSON {"set", "life", "index": the last entry of the set's log that is applied,
                 "messages": their number, "positions": the sum of their positions, "begins": whether the replica starts
                 with this content}

    Of a router, about links and routers. No keys.
    ATTACHED     the router has answered the attach of a local link: publisher or subscriber, address, epoch, and the
                 generation of a publisher. detail = JSON {"role": "publisher"|"subscriber", "container", "link",
                 "address", "mode": "first"|"second" (receiver settle mode), "timeout": seconds}. Also "afresh": true,
                 if a subscriber's map was null, or if a publisher's map was null and it echoed no epoch. Also
                 "unordered": true, if the client brought a map and did not echo its last epoch
    SUSPENDED    a local link has lost its connection, and its terminus lives on
    CLOSED       the publisher or subscriber has left for good; `epoch` names the attach that has ended. From here on
                 the link is owed nothing. The owner of the link writes this; the same entry of another router does no
                 harm
    EXPIRED      this router regards the terminus of the attach in `epoch` as expired. The link is not owed a delivery
                 that was not ACCEPTED before, and whose home is this router or a router that has heard of the expiry
                 since. JOINED may follow in the same epoch. If a message was accepted without the subscriber, detail =
                 a text that names the router that accepted it, and the reason
    STOLEN       a local link is now attached at router `peer`. It has left this router, and is owed deliveries as
                 before
    JOINED       the subscriber is in the audience of all messages that are published here from now on (address; epoch
                 of its attach; peer: its custodian, none if local). If the epoch is higher than before, a new stay
                 begins
    GATED        the subscriber gets no newer messages that `publisher` publishes here. JOINED ends older gates, and the
                 present gates follow it
    ADMITTED     the gate has ended
    CONTACT      a contact with router `peer` begins. detail = JSON {"incarnation": int}
    LOST         the contact has ended. detail = JSON {"grace": seconds}: homes wait for the plain subscribers of the
                 router. Without detail, they do not wait
    GIVEN_UP     homes no longer wait for the plain subscribers of router `peer`, until JOINED names them again. detail
                 = JSON {"incarnation": int}
    BOOT         the first entry of every log, also of a client's, written to disk at once. In a router's log, detail =
                 JSON {"dead": `timing.dead` in seconds}
    KEPT         the content of the state store when the router started. The first entry has no link, and detail = JSON
                 {"found": whether there was a store}. Then each subscriber that the router waits for has an entry
                 (address, epoch)
    STOPPED      the last entry of every log that ends in a clean shutdown, also of a client's. A log without it may
                 lack its end, if its machine lost power
    CONTINUED    the first entry of a segment, if a router keeps only its latest segments. detail = JSON {"first":
                 [incarnation, number] of the first segment that it keeps, or null if none was deleted; "dead": as in
                 BOOT}. Entries with the present state of links and routers follow: CONTACT and ATTACHED, with "again":
                 true in their details; JOINED, GATED, SUSPENDED
    GAP          any writer: the log could not be written, and from here on entries are missing. detail = JSON {"why":
                 text}. When the log can be written again: detail = JSON {"entries": the number of missing entries}. The
                 second entry may never come

    Of a publisher: ATTACHED as above, with the generation, also in the detail, and with the epoch if the router named
    one. About deliveries, all with keys, address and publisher:
    PUBLISHED    the publisher has sent the deliveries for the first time, in this order (tags, generation), all within
                 1 ms of the entry's time
    OUTCOME      the publisher has read `outcome` from its router
    SETTLED      the publisher has settled

    KEPT         the publisher came back with the content of its store. The first entry has no keys, and detail = JSON
                 {"published": the number of deliveries that it ever had}. The next ones have the keys of the unsettled
                 deliveries among these, in order, with `outcome` 0 if there is none

    Of a subscriber: ATTACHED as above, with the epoch, and "afresh" also if the router's map was null. About
    deliveries, all with keys, address and subscriber:
    DELIVERED    the application has got the delivery. Each further transfer has an entry, too
    PROCESSED    the application has processed the message and answers `outcome`
    SETTLED      the subscriber has forgotten the key
    KEPT         as for a publisher, without detail
    CLOSED       without keys: the subscriber has closed its link. From here on it is owed nothing
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
"""The `detail` of an OUTCOME entry, if the outcome comes from an unsettled map."""
ONE_OF_MANY = '"one of many"'
"""The `detail` of an AUDIENCE entry for a delivery at a balanced address."""
BY_TTL = "ttl"
"""The `detail` of an ACCEPTED entry, if the home rejects the delivery because the delivery's time to live is over."""


class Event(IntEnum):
    """The kinds of entries, each for one kind of event. The numbers are part of the format."""

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
    """The values of the column `outcome`; they stand for the delivery outcomes of AMQP."""

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
    """The block that a source is writing. After it is written, the same object becomes the next block."""

    __slots__ = ("_keys", "_number", "_rows", "_saved_keys", "_saved_rows", "_starts", "head")

    def __init__(self, source: str, role: str, incarnation: int, *, host: str = "") -> None:
        assert role in ("router", "publisher", "subscriber")
        self.head = (source, role, incarnation, host)
        """The first fields of every block of this source: source, role, incarnation and host."""
        self._number = 0
        self._rows: list[tuple[Any, ...]] = []
        self._keys: list[bytes] = []
        self._starts: dict[bytes, int] = {}
        """Maps a key to its place among the block's keys. It has the first key of each entry, and the key after the
        entry's last one. By these places `_place` finds keys that the block already has."""
        self._saved_rows = 0
        self._saved_keys = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def number(self) -> int:
        """The number of this block. It equals the number of blocks that the source has written before."""
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
        """Append one entry. The method is called once for each batch of deliveries, so it has to be fast: it only keeps
        a tuple, and leaves all other work to `unsaved` and `encode`.

        The method copies `keys` at once. It keeps `ns` and `tags` as they are, so the caller must not change them
        afterwards.
        """
        at = self._place(keys) if keys else 0
        names = (address, publisher, subscriber, peer, generation, epoch, detail)
        self._rows.append((event, outcome, time_us, hlc, *names, len(keys), at, n, ns, tags))

    def _place(self, keys: Sequence[bytes]) -> int:
        """The place of these keys among the block's keys. If the block does not have them yet, they are appended. A
        later entry often has the same keys as an earlier one, or a part of them."""
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
        """The entries since the last call of `saved`, as a frame for the tail (`topic.tail`); None if there are
        none."""
        rows = self._rows[self._saved_rows :]
        return _packed((self._number, rows, b"".join(self._keys[self._saved_keys :]))) if rows else None

    def saved(self) -> None:
        """Note that the tail now has all entries of this block."""
        self._saved_rows, self._saved_keys = len(self._rows), len(self._keys)

    def drop_unsaved(self) -> int:
        """Drop the entries since the last call of `saved`, and return their number."""
        dropped = len(self._rows) - self._saved_rows
        del self._rows[self._saved_rows :], self._keys[self._saved_keys :]
        self._starts.clear()
        return dropped

    def encode(self) -> bytes:
        """The bytes of the block, which the writer appends to the segment."""
        assert self._rows, "an empty block is not written"
        payload = encode_rows(self.head, self._number, self._rows, b"".join(self._keys))
        return MAGIC + len(payload).to_bytes(4, "big") + zlib.crc32(payload).to_bytes(4, "big") + payload

    def begin_next(self) -> None:
        """Become the next block, without entries, because this one is written."""
        self._number += 1
        self._rows, self._saved_rows = [], 0
        self._keys, self._starts, self._saved_keys = [], {}, 0


def _packed(value: object) -> bytes:
    packed: bytes = msgpack.packb(value)
    return packed


def encode_rows(head: tuple[str, str, int, str], number: int, rows: Sequence[Sequence[Any]], keys: bytes) -> bytes:
    """Encode the payload of a block."""
    columns: dict[str, list[Any]] = dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True))
    columns["generation"] = [value and value.hex() for value in columns["generation"]]
    strings: dict[str, int] = {}
    for name in TABLED:
        columns[name] = _tabled(columns[name], strings)
    return _packed(dict(zip(HEAD, (*head, number, list(strings), keys), strict=True)) | columns)


def _tabled(column: list[Name], strings: dict[str, int]) -> list[int]:
    """Replace the texts of a column by indexes into the string table `strings`. New texts are added to the table."""
    known: dict[Name, int] = {None: -1}
    for value in column:
        if value not in known:
            known[value] = strings.setdefault(_text(value), len(strings))
    return [known[value] for value in column]


def _text(value: Name) -> str:
    """The name as a text. The cores have names as ASCII bytes."""
    assert value is not None
    return value if isinstance(value, str) else value.decode("ascii")


def segment_name(incarnation: int, number: int) -> str:
    """The file name of a segment. When sorted, the names are in the order of writing."""
    return f"{incarnation}-{number:06}.oml"


def parse_segment_name(name: str) -> tuple[int, int] | None:
    """(incarnation, number) of a segment's file name; None for any other file."""
    stem, _, suffix = name.rpartition(".")
    incarnation, dash, number = stem.partition("-")
    if suffix != "oml" or not dash or not incarnation.isdigit() or not number.isdigit():
        return None
    return int(incarnation), int(number)
