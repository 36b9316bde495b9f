"""Delivery records and the streams that order them (protocol section 4).

Each router that holds a delivery has one record of it. Only this module writes the fields of records and streams;
`topic.home` and `topic.edge` decide *when*. A method of `Record` applies one event to one record. A module-level
function applies one event to many records, because a call for each record would cost too much. For the same reason
other modules write three fields themselves: `unread` (`topic.edge.receipts` and `settlement`), `message` when they drop
it, and a stream's `records` when they forget records (`topic.delivery.records`). A `HomeStream` also has everything
that only the home knows of a stream.

The state of a record as a whole:

    IN_DOUBT ── accept ──▶ ACCEPTED ── settle ──▶ SETTLED       accept: home answers the publisher; an edge its home
        ▲  ╰───────────────── settle ───────────────▲           settled, abandoned, or handed on (presettled)
        ╰── forward, hold ──────╯                               its home, or the next one, forwards it again

The state of one local subscriber in a record:

                 name                 send                 answer
    not named ─────────▶ QUEUED ──────────────▶ SENT ───────────────▶ its final outcome, one of four
        │                  ▲  ▲───── queue ──────╯  released or modified: once more
        │   name           │ queue: its key is free
        ├─────────▶ WITHHELD                                          not even queued
        │   name
        ├─────────▶ AWAITING_HOME                                     home must name it again: name, queue as above
        │             ▲── hold ── QUEUED, WITHHELD; SENT as it attaches anew
        ╰── let_go, drop ── all but a final outcome                   no longer awaited

A router handles very many records. So records have slots, are compared by identity, and are handled in batches.
"""

import enum
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain, islice, pairwise, takewhile
from typing import Any, ClassVar, Protocol, Union

from topic.delivery.gates import Gate
from topic.delivery.outcomes import GIVEN_BACK, DeliveryOutcome, Refusals, add_refusals, refusal, take_refusal
from topic.delivery.window import CreditWindow
from topic.directory.entry import FLEETING, NOBODY, AddressAudience, Lifetime, LinkEntry
from topic.identity import Epoch, KeyMaker, LinkIdentity


class State(enum.IntEnum):
    """The states of a record as a whole. A record passes through them in this order."""

    IN_DOUBT = 1
    ACCEPTED = 2
    SETTLED = 3


QUEUED = 0
SENT = 1
WITHHELD = 2
AWAITING_HOME = 3
"""The four values that `Record.locals` has for a subscriber before its final outcome. They are plain ints for speed."""
OPEN = (QUEUED, SENT, WITHHELD, AWAITING_HOME)

Question = Union[bytes, tuple[str, list[bytes]], "list[Record]"]
"""A question that a home can answer only after a sign of the publisher's life. It has one of three forms: the name of a
subscriber that waits for its backlog; a router, and the keys that the router asked about and that the home does not
have; accepted records that gate subscribers until the publisher has read their outcome."""


class Record:
    """The knowledge of this router about one delivery."""

    _offer: Any  # not set until the home offers the record at another router
    _annotations: bytes  # set in few records only, to save memory

    __slots__ = (
        "_annotations",
        "_offer",
        "awaited",
        "chosen",
        "given",
        "key",
        "known",
        "locals",
        "message",
        "moved",
        "n",
        "open",
        "orphans",
        "presettled",
        "refusals",
        "refused_by",
        "routers",
        "state",
        "stream",
        "tag",
        "taken",
        "tries",
        "unread",
        "without",
    )

    def __init__(self, stream: "Stream", key: bytes, tag: bytes, message: bytes | None) -> None:
        self.stream = stream
        self.key = key
        self.tag = tag
        """The publisher's delivery-tag; only the home knows it."""
        self.message: bytes | None = message
        """The encoded message. None in a placeholder, and after the record is settled."""
        self.n = -1
        """The place of the delivery in the publisher's order, as the home counts it; -1 while the record is withheld
        (protocol 5) or unconfirmed."""
        self.state, self.presettled = State.IN_DOUBT, False
        # Used for balanced addresses: the name of the chosen subscriber, or `UNASSIGNED` while none is chosen.
        # `None` means that a subscriber already has the delivery, and the home offers it to nobody else.
        self.chosen: bytes | None = None
        self.taken = False  # used for balanced addresses: whether a subscriber, at any router, has accepted the record
        # Used at the home: whether the publisher has surely stored the outcome, as its answer to a later echo shows.
        self.known = False
        self.tries = 0  # used for balanced addresses, at the home: how often subscribers gave the record back
        # Used for balanced addresses, at the home: the subscribers that refused the delivery for themselves.
        self.refused_by: tuple[bytes, ...] = ()
        self.locals: dict[Any, int] = {}
        """Maps each local subscriber to QUEUED, SENT, WITHHELD, AWAITING_HOME or its final `DeliveryOutcome`."""
        self.open = 0  # the number of local subscribers without a final outcome
        self.unread = 0  # used once the record is settled: the number of local subscribers that may not know this yet
        # Used while the record is unconfirmed: the publisher's epoch and the place `n` that the last Forward named.
        self.given: tuple[Epoch, int] | None = None
        self.refusals: Refusals | None = None
        """The counted final outcomes other than *accepted*; None while there are none."""
        self.moved: tuple[bytes, ...] = ()
        """Used at an edge: subscribers that the home may still await at this router, although they have left for
        another one."""
        self.routers: tuple[str, ...] = ()
        """Used at the home: the routers to which it forwarded the delivery. They get the settlement."""
        self.awaited: set[str] = set()
        """The routers that this router waits for. At the home: while the record is in doubt, the routers that owe an
        outcome; once it is settled, the routers that have not acknowledged the settlement. At an edge: the home, if the
        home waits until this edge has forgotten the delivery."""
        self.orphans: set[bytes] = set()
        """Used at the home: the subscribers that it awaits by name, because no router in contact has them."""
        self.without = NOBODY
        """Used at the home: the lapsed subscribers, which the home would otherwise await (8, Apart). Several records
        share one dict."""

    @property
    def is_placeholder(self) -> bool:
        """Whether the record has no message, because the router knows the delivery only from an unsettled map."""
        return self.message is None and self.state is not State.SETTLED

    @property
    def last_given(self) -> tuple[Epoch, int]:
        """The publisher's epoch in which a home last forwarded the delivery, and the place `n` that the delivery had in
        this epoch."""
        if self.n >= 0:
            return self.stream.epoch, self.n
        assert self.given is not None, "no home has forwarded the record"
        return self.given

    @property
    def size(self) -> int:
        """The number of bytes of the message; 0 if the message is not here."""
        return len(self.message) if self.message is not None else 0

    # The methods from here on change the record as a whole.

    def forward(self, n: int, message: bytes | None, moved: tuple[bytes, ...]) -> None:
        """Apply a Forward of the home: the record gets its place `n` in the home's order, and the home waits for an
        outcome."""
        assert n >= 0 and self.state is not State.SETTLED
        if n != self.n:
            self.n = n
            # Replace the message, which may come from a zombie home and belong to an older delivery with this tag.
            self.message = message
            self.stream.records[n] = self
        self.moved = moved
        self.state = State.IN_DOUBT

    def hold(self) -> None:
        """Make the record unconfirmed, because the home is out of contact, or another router is home now. No subscriber
        gets the record until a home forwards it."""
        assert not self.presettled and self.state is not State.SETTLED
        self.stream.records.pop(self.n, None)
        self.given = self.given if self.n < 0 else (self.stream.epoch, self.n)
        self.n = -1
        self.state = State.IN_DOUBT
        self.moved = self.routers = ()
        self.without = NOBODY
        self.chosen = None
        self.awaited.clear()
        self.orphans.clear()
        former, self.refusals = self.refusals, None
        for subscriber, state in self.locals.items():
            if state in (QUEUED, WITHHELD):
                self.locals[subscriber] = AWAITING_HOME
            elif state not in OPEN and self.stream.kind.counts_again(state):
                self.refusals = add_refusals(self.refusals, refusal(DeliveryOutcome(state)))
        if self.refusals is not None and former is not None:
            self.refusals = (*self.refusals[:3], former[3])

    def rehome(self, stream: "Stream") -> None:
        """Move the record to the stream of the publisher's new attach. The record waits until that home forwards it."""
        self.stream = stream

    def transferred_again(self, tag: bytes, message: bytes | None) -> None:
        """Take the tag, and the message if it came, from the publisher that is attached here and has transferred the
        delivery again."""
        self.tag = tag
        if message is not None:
            self.message = message

    # The methods from here on are for the home. They set the routers and subscribers that it awaits.

    def forwarded_to(self, router: str) -> None:
        """Await the outcome of this router, to which the home has forwarded the record."""
        self.awaited.add(router)
        if router not in self.routers:
            self.routers = (*self.routers, router)

    def await_router(self, router: str) -> None:
        """Await the outcome of a router that already has the record."""
        self.awaited.add(router)

    def await_router_no_more(self, router: str) -> None:
        """Stop awaiting the router: the router has answered, is gone for good, or has settled the delivery with its
        subscribers."""
        self.awaited.discard(router)

    def lost_at(self, router: str) -> None:
        """Send the router no settlement of the record, because the contact with it is lost."""
        if router in self.routers:
            self.routers = tuple(other for other in self.routers if other != router)

    def await_by_name(self, names: Iterable[bytes]) -> None:
        """Await these subscribers by name, because no router in contact has them, or because no backlog for them is
        under way."""
        self.orphans.update(names)

    def await_by_name_no_more(self, names: Iterable[bytes]) -> None:
        """Stop awaiting these subscribers by name: they have ended or lapsed, or the home awaits their routers
        instead."""
        self.orphans.difference_update(names)

    def leave_out(self, lapsed: dict[bytes, None]) -> None:
        """Set the lapsed subscribers, which the home does not await. Several records may share the dict."""
        self.without = lapsed

    def is_back(self, name: bytes) -> None:
        """Remove a subscriber from the lapsed ones: it is back, or it has ended. All records that share the dict
        change, too."""
        self.without.pop(name, None)

    def await_no_router(self) -> None:
        """Await no router any more: the publisher's next home asks for the missing outcomes."""
        self.awaited.clear()

    def await_nobody(self) -> None:
        """Await no router and no subscriber: the record has ended, or its publisher is gone."""
        self.awaited.clear()
        self.orphans.clear()

    def await_settled(self, router: str) -> None:
        """Used at an edge: the home, which is `router`, waits until this edge has forgotten the record."""
        self.awaited = {router}

    def count(self, refusals: Refusals | None) -> None:
        """Add one router's report of refusals to the refusals of the record."""
        self.refusals = add_refusals(self.refusals, refusals)

    def left_without(self, subscriber: bytes) -> None:
        """The subscriber left this router before it got the record."""
        self.moved = (*self.moved, subscriber)

    @property
    def last_offer(self) -> Any:
        """The latest batch of offers that contains the record (`offered_in`); None if the home has never offered the
        record at another router."""
        return getattr(self, "_offer", None)

    def offered_in(self, offers: Any) -> None:
        """The home offers the record in this batch of offers (`topic.home.balancing`)."""
        self._offer = offers

    @property
    def annotations(self) -> bytes:
        """The annotations that a queue's consumer added when it gave the message back; empty if it added none."""
        return getattr(self, "_annotations", b"")

    def annotate(self, annotations: bytes) -> None:
        """Replace the annotations with the annotations that the consumer added when it gave the message back."""
        self._annotations = annotations

    # The methods from here on are for balanced addresses. They set the chosen subscriber.

    def seek_holders(self) -> None:
        """The record is only for the subscriber that already has it. The home does not know this subscriber yet."""
        self.chosen = None

    def choose(self, subscriber: bytes) -> None:
        """Set the chosen subscriber; `UNASSIGNED` if none is chosen yet."""
        self.chosen = subscriber

    def sum_up(self, refusals: Refusals | None) -> None:
        """Replace the counted refusals of the record by this sum."""
        self.refusals = refusals

    def refused_for_itself(self, subscriber: bytes) -> None:
        """The subscriber refused the delivery for itself, so the home does not offer it to this subscriber again."""
        if subscriber not in self.refused_by:
            self.refused_by = (*self.refused_by, subscriber)

    def may_be_offered(self, subscriber: bytes) -> None:
        """Drop the refusal of this subscriber, because its link has ended."""
        self.refused_by = tuple(name for name in self.refused_by if name != subscriber)

    def offer_again(self, nobody: bytes, *, given_back: bool) -> None:
        """Leave the record without a subscriber, so that it waits for another one. `given_back`: a subscriber gave it
        back, which counts as a try."""
        self.tries += given_back
        self.chosen, self.refusals = nobody, None

    # The methods from here on change the states of the record's local subscribers.

    def name(self, subscriber: Any, state: int) -> None:
        """Add this local subscriber to the record, or set its state anew."""
        assert state in (QUEUED, WITHHELD, AWAITING_HOME)
        self.open += self.locals.get(subscriber) not in OPEN
        self.locals[subscriber] = state

    def withhold_all(self) -> None:
        """Withhold the record from all subscribers, because an older delivery with its key is still here, or because an
        earlier delivery of its publisher is withheld."""
        assert self.open == len(self.locals)
        self.locals = dict.fromkeys(self.locals, WITHHELD)

    def withhold(self, subscriber: Any) -> None:
        """Withhold the record from this subscriber, whose incomplete map does not tell whether its client has the
        delivery."""
        assert self.locals[subscriber] == QUEUED
        self.locals[subscriber] = WITHHELD

    def queue(self, subscriber: Any) -> None:
        """Queue the record for the subscriber: it may be sent, for the first time or again."""
        assert self.locals[subscriber] in (WITHHELD, SENT)
        self.locals[subscriber] = QUEUED

    def hold_for(self, subscriber: Any) -> None:
        """Hold the record for a subscriber that has attached anew and has not answered it, until the home forwards it
        again."""
        if self.locals.get(subscriber) in OPEN:
            self.locals[subscriber] = AWAITING_HOME

    def state_outcome(self, subscriber: Any, outcome: DeliveryOutcome) -> bool:
        """Take the outcome that the subscriber's map states. If the router already knows another outcome, that outcome
        stays, and the method returns False."""
        assert outcome not in GIVEN_BACK and self.state is not State.SETTLED
        known = self.locals.get(subscriber)
        if known is not None and known not in OPEN:
            return False
        self.open -= known is not None
        self.locals[subscriber] = outcome
        self.taken = self.taken or outcome is DeliveryOutcome.ACCEPTED
        self.refusals = add_refusals(self.refusals, refusal(outcome))
        return True

    def void_outcome(self, subscriber: Any) -> None:
        """Cancel the outcome of a subscriber that gave the record back here and then got it again at another router."""
        known = self.locals.get(subscriber)
        if known in GIVEN_BACK:
            self.locals[subscriber] = AWAITING_HOME
            self.open += 1
            if self.stream.kind.counts_again(known):
                self.refusals = take_refusal(self.refusals, DeliveryOutcome(known))

    def stop_awaiting(self, subscriber: Any, *, has_it: bool) -> None:
        """Stop awaiting the subscriber. `has_it`: the client has the delivery. The record then counts as released by
        this subscriber, and the router settles the delivery with the client later."""
        assert self.locals[subscriber] in OPEN
        if has_it:
            self.locals[subscriber] = DeliveryOutcome.RELEASED
        else:
            del self.locals[subscriber]
        self.open -= 1

    def drop(self, subscriber: Any) -> bool:
        """Remove the subscriber from the record. Returns whether its outcome was still awaited."""
        was_open = self.locals.pop(subscriber, None) in OPEN
        self.open -= was_open
        return was_open

    def check(self) -> None:
        """Assert the invariants that hold between two events."""
        stream, n = self.stream, self.n
        is_open = sum(map(OPEN.__contains__, self.locals.values())) if self.locals else 0
        assert self.open == is_open, f"{self.key!r}: {self.open} are open"
        if n >= 0:
            assert stream.records.get(n) is self, f"{self.key!r}: not at its place {n}"
            assert stream.unconfirmed.get(self.key) is not self, f"{self.key!r}: at place {n}, and unconfirmed"
        assert not self.unread or self.state is State.SETTLED, f"{self.key!r}: nobody can know of its settlement"


# The functions from here on apply one event to many records at once, for speed.


def await_audience(records: Sequence[Record], first: int, audience: AddressAudience) -> None:
    """Give the records of a home their places, from `first` on, and await the outcomes of this audience."""
    routers, in_order = audience.routers, records[0].stream.records
    for n, record in enumerate(records, first):
        record.n = n
        record.routers = routers
        record.awaited = set(routers)
        in_order[n] = record
    if (audience.orphans or audience.lapsed or audience.counted_on) and not records[0].presettled:
        for record in records:
            record.awaited.update(audience.counted_on)
            record.orphans = set(audience.orphans)
            record.without = audience.lapsed


def forwarded(stream: "Stream", records: Iterable[Record], first: int, moved: tuple[bytes, ...]) -> None:
    """Give new records at an edge the places that the home has chosen, from `first` on."""
    in_order = stream.records
    for n, record in enumerate(records, first):
        record.n = n
        record.moved = moved
        in_order[n] = record


def forwarded_again(records: Iterable[Record], moved: tuple[bytes, ...]) -> None:
    """Apply a repeated Forward of the home, with unchanged places: the home waits for an outcome again."""
    for record in records:
        record.moved = moved
        record.state = State.IN_DOUBT


def presettle(records: Iterable[Record]) -> None:
    """Mark these records as presettled: the publisher transferred them settled."""
    for record in records:
        record.presettled = True


def choose(records: Iterable[Record], subscriber: bytes) -> None:
    """Set the chosen subscriber of these records; `UNASSIGNED` if none is chosen yet."""
    for record in records:
        record.chosen = subscriber


def taken(records: Iterable[Record]) -> None:
    """At a balanced address: a subscriber has accepted these records."""
    for record in records:
        record.taken = True


def answered_by(router: str, records: Iterable[Record]) -> None:
    """Stop awaiting `router`, whose answer has come: all its subscribers have answered, or have read the settlement."""
    for record in records:
        record.awaited.discard(router)


def await_settlement(records: Iterable[Record]) -> None:
    """Await the acknowledgements of the settlement, which the home sends to all routers in contact that have these
    records."""
    for record in records:
        if record.routers or record.awaited:
            record.awaited = set(record.routers)


def accept(records: Iterable[Record]) -> None:
    """Mark these records as accepted: the home answers the publisher, or an edge reports to the home."""
    for record in records:
        assert record.state is State.IN_DOUBT
        record.state = State.ACCEPTED


def outcome_kept(records: Iterable[Record]) -> None:
    """The publisher has stored the outcome of these records: it has answered an echo that was sent after
    the outcome."""
    for record in records:
        record.known = True


def settle(records: Iterable[Record]) -> None:
    """Mark these records as settled: the publisher has settled them, or will never do so."""
    for record in records:
        record.state = State.SETTLED


def name_all(records: Iterable[Record], subscribers: Sequence[Any]) -> None:
    """Queue these new records for all these subscribers."""
    count = len(subscribers)
    for record in records:
        record.locals = dict.fromkeys(subscribers, QUEUED)
        record.open = count


def send(records: Iterable[Record], subscriber: Any) -> None:
    """Mark these records as sent to the subscriber."""
    for record in records:
        record.locals[subscriber] = SENT


def answer(
    records: Iterable[Record], subscriber: Any, outcome: DeliveryOutcome, *, failed: bool = False
) -> list[Record]:
    """Set the final outcome that the subscriber gave for records sent to it. Returns the records for which no local
    subscriber is awaited any more."""
    finished: list[Record] = []
    refused = refusal(outcome, failed=failed)
    for record in records:
        record.locals[subscriber] = outcome
        record.open -= 1
        if refused is not None:
            record.refusals = add_refusals(record.refusals, refused)
        if not record.open:
            finished.append(record)
    return finished


Giving = Callable[["HomeStream", list[Record], LinkEntry], None]
"""A function that gives records of a stream to the chosen subscriber. The last argument is the subscriber's directory
entry."""


class Choosing(Protocol):
    """Chooses one subscriber for each delivery; `topic.home.balancing` implements it."""

    asked: "set[Record]"
    """Deliveries that a subscriber may have got before this router started. Until the home has booted, it asks the
    subscribers whether they have these deliveries."""

    def take(self, stream: "HomeStream", records: list[Record]) -> None:
        """Give new transfers their places in the publisher's order, and choose a subscriber for each."""

    def ask_all(self, stream: "HomeStream", records: list[Record]) -> None:
        """Give places to transfers that a subscriber may already have, and ask the whole audience who has them."""

    def ask_holders(self, stream: "HomeStream", records: list[Record]) -> None:
        """Give transfers their places. For each transfer, the publisher has named the one subscriber that may have it;
        ask this subscriber."""

    def hand_on(self, stream: "HomeStream", records: list[Record]) -> None:
        """Give presettled transfers to subscribers that have room now, or drop them."""

    def share_out(self, stream: "HomeStream", give: Giving) -> None:
        """Choose a subscriber with room for each waiting record, and call `give`."""

    def assign(self, stream: "HomeStream", records: list[Record], entry: LinkEntry) -> None:
        """Offer the records to the subscriber of this directory entry."""

    def propose(self, stream: "HomeStream", records: list[Record], entry: LinkEntry) -> None:
        """Ask the publisher, which is a queue, to agree to this subscriber for the records."""

    def want(self, stream: "HomeStream") -> None:
        """If subscribers have room for more deliveries, tell the publisher, which is a queue."""

    def tell(self, stream: "HomeStream") -> None:
        """Let the publisher, which is a queue, look again at the deliveries that wait for a subscriber."""

    def is_there(self, subscriber: bytes) -> bool:
        """Whether the subscriber can get deliveries, now or later."""

    def refused(self, record: Record, router: str) -> None:
        """Handle the answer of a router where no subscriber has the record, and none has refused it."""

    def claimed(self, stream: "HomeStream", record: Record, router: str) -> None:
        """Handle the report of a router that a subscriber's map there names the record."""

    def untold(self, stream: "HomeStream", records: list[Record]) -> Collection[Record]:
        """Decide the outcomes of records for which the home awaits no subscriber. Returns the records that another
        subscriber may still get."""

    def choose_again(self, stream: "HomeStream", records: Iterable[Record]) -> None:
        """Choose other subscribers for these records, because the chosen ones have not accepted them."""


class AtHome(Protocol):
    """The methods of a home that a kind of address calls; `topic.home.home` implements them."""

    @property
    def balancing(self) -> Choosing: ...

    def forward_to_all(
        self, stream: "HomeStream", records: list[Record], take: Callable[["HomeStream", list[Record]], None]
    ) -> None:
        """Give transfers their places in the publisher's order, and forward them to all subscribers of the address.
        `take`: the edge's function that gives them to the subscribers at this router."""

    def accept(self, stream: "HomeStream", records: list[Record]) -> None:
        """Send the publisher *accepted*, or the outcome that follows from the record's refusals."""


class AtEdge(Protocol):
    """The methods of an edge that a kind of address calls when a subscriber gives records back; `topic.edge.delivery`
    implements them."""

    def queue_again(self, subscriber: Any, records: list[Record]) -> list[Record]:
        """Send the records to the same subscriber again. Returns the records that have already been sent as often as
        allowed."""

    def give_back(self, subscriber: Any, records: list[Record]) -> None:
        """Tell the home that the subscriber has given these records back. The home may offer them to the same
        subscriber again."""

    def end(self, subscriber: Any, records: list[Record], *, failed: bool) -> None:
        """Tell the home that the subscriber has given these records back, and that their deliveries end by this."""


class AddressKind(ABC):
    """The rules of one kind of address. `topic.delivery.kinds` has the kinds. Each stream and each local subscriber has
    a reference to the kind of its address, so no other code has to ask which kind it is."""

    __slots__ = ()

    name: ClassVar[str]
    """The name of the kind of address in topology files, counters and figures."""
    distribution: ClassVar[str]
    """The word by which qpid-dispatch's tools name the way in which deliveries are spread over subscribers."""
    prefers_near: ClassVar[bool] = False
    """Whether the nearest subscriber that has room gets a delivery (protocol 12.10)."""
    keeps_order: ClassVar[bool]
    """Whether a subscriber gets no newer deliveries of a publisher while older ones that are not for it are unsettled
    (protocol 6.5, Gate)."""
    takes_filters: ClassVar[bool]
    goes_in_pieces: ClassVar[bool]
    """Whether a home sends large messages in pieces to the routers of the audience, before it forwards them."""
    is_for_all: ClassVar[bool]
    """Whether each delivery is for all subscribers of the address. If so, an edge gives a whole batch to all of them at
    once."""
    tells_room: ClassVar[bool]
    """Whether edges tell homes how many deliveries each subscriber takes (protocol 12.2)."""
    asks_once: ClassVar[bool]
    """Whether a home sends a router no second Forward of a delivery while the first one is unanswered (protocol 12)."""
    in_sets: ClassVar[bool]
    """Whether replica sets decide which of these addresses exist (protocol 13)."""
    ends_with_subscribers: ClassVar[bool]
    """Whether the address ends with its last subscriber: the home then rejects the remaining deliveries (protocol
    12.8)."""
    is_of_set: ClassVar[bool]
    """Whether the publisher is a replica set. A home waits for such a publisher without limit, because a set comes back
    even if it has long had no leader (protocol 14.7)."""
    rests: ClassVar[bool]
    """Whether the topology may say how long a delivery rests that a subscriber gives back (protocol 12.11)."""
    unfit: ClassVar[DeliveryOutcome]
    """The outcome of a delivery that its subscriber cannot take (protocol 5, Unfit)."""

    # The methods from here on are rules about one delivery.

    @abstractmethod
    def nobody_has(self, records: Iterable[Record]) -> None:
        """No subscriber has these records, because the publisher has transferred them for the first time."""

    @abstractmethod
    def concerns(self, record: Record, subscriber: bytes) -> bool:
        """Whether the record may be for the subscriber of this name at the address."""

    @abstractmethod
    def asks_all(self, record: Record) -> bool:
        """Whether a Forward for a subscriber that is awaited by name goes to all subscribers at that subscriber's
        router. This is so if the home does not know which of them may have the record. If False, the Forward is for the
        named subscriber alone."""

    @abstractmethod
    def accepted(self, records: Iterable[Record]) -> None:
        """A subscriber, or all subscribers at a router, have accepted these records."""

    @abstractmethod
    def is_over(self, record: Record) -> bool:
        """Whether the home can decide on the record without another subscriber's outcome."""

    @abstractmethod
    def counts_again(self, state: int) -> bool:
        """Whether this final outcome, which a subscriber has already given, counts again after a change of the home."""

    @abstractmethod
    def sum_up(self, records: Iterable[Record]) -> None:
        """Write into the records the refusals that the edge reports to the home. All local subscribers have
        answered."""

    @abstractmethod
    def place(self, record: Record) -> Any:
        """The key by which the record is sorted among the publisher's waiting records."""

    @abstractmethod
    def outcome(self, refusals: Refusals) -> DeliveryOutcome:
        """The outcome that the home sends the publisher for a record with these refusals."""

    # The methods from here on are rules that the home applies.

    @abstractmethod
    def forward(
        self,
        home: AtHome,
        stream: "HomeStream",
        records: list[Record],
        take: Callable[["HomeStream", list[Record]], None],
    ) -> None:
        """Give transfers their places in the publisher's order, and forward them to their audience. `take`: as in
        `AtHome.forward_to_all`."""

    @abstractmethod
    def decide(self, home: AtHome, stream: "HomeStream", records: list[Record]) -> None:
        """Decide the outcomes of these records, for which the home awaits no further answer."""

    @abstractmethod
    def decide_early(self, home: AtHome, stream: "HomeStream", records: list[Record]) -> None:
        """Handle records for which the home awaits fewer outcomes than before. The home has not booted (protocol 8), so
        it may not know all subscribers yet."""

    @abstractmethod
    def offer_waiting(self, choosing: Choosing, stream: "HomeStream") -> None:
        """Offer the waiting records again, because subscribers may have room now."""

    @abstractmethod
    def refused(self, home: AtHome, record: Record, router: str, refusals: Refusals, moved: Collection[bytes]) -> None:
        """Handle the answer of a router whose subscribers have not all accepted. `moved`: subscribers that had left the
        router before it answered."""

    @abstractmethod
    def claimed(self, home: AtHome, stream: "HomeStream", record: Record, router: str) -> None:
        """Handle a router's question whether the record is settled. The router asks because a subscriber's map names
        the record."""

    # The methods from here on are rules that the edge applies to subscribers (`topic.edge.subscriber`).

    @abstractmethod
    def holders(self, record: Record, subscribers: list[Any]) -> list[Any]:
        """Apply a Forward that is for all subscribers. Returns the subscribers that get the record."""

    @abstractmethod
    def owed(self, record: Record, subscribers: list[Any]) -> list[Any]:
        """Apply a Forward for one subscriber, which the home awaited by name. Returns the subscribers that get the
        record: none if the subscriber's attach is over."""

    @abstractmethod
    def found_here(self, record: Record, subscribers: list[Any]) -> list[Any]:
        """Find at this router, which is the home, a subscriber that the home awaited by name. Returns the subscribers
        that get the record."""

    @abstractmethod
    def offered(self, record: Record, subscribers: list[Any]) -> list[Any]:
        """Apply an offer to one subscriber, which the home has chosen for its room. Returns the subscribers that get
        the record: none if the subscriber's attach is over, or if it has no room."""

    @abstractmethod
    def claims(self, client_map: Mapping[bytes, int]) -> Iterable[bytes]:
        """The keys in a subscriber's map whose deliveries no other subscriber may get."""

    @abstractmethod
    def settled(self, records: list[Record], subscribers: Iterable[Any]) -> None:
        """Forget that subscribers claimed these records, which are settled. `subscribers`: the local subscribers of
        their address."""

    @abstractmethod
    def given_back(self, edge: AtEdge, subscriber: Any, records: list[Record], *, failed: bool) -> list[Record]:
        """Handle records that the subscriber has released or modified. `failed`: the subscriber set delivery-failed.
        Returns the records for which this outcome is final."""

    @abstractmethod
    def subscriber_ended(self, subscriber: Any, records: Iterable[Record]) -> None:
        """Handle the end of a subscriber's link at this router. The subscriber gave no outcome for these records."""


class Stream:
    """The deliveries of one publisher in one epoch: its records by their place `n`, in order. Every router that holds
    records of the publisher has a stream; at the home it is a `HomeStream`."""

    __slots__ = (
        "abandoned",
        "epoch",
        "followed_by",
        "generation",
        "home",
        "identity",
        "kind",
        "label",
        "publisher",
        "records",
        "unconfirmed",
        "withheld_at_edge",
    )

    def __init__(
        self, publisher: bytes, identity: LinkIdentity, epoch: Epoch, generation: bytes, kind: AddressKind
    ) -> None:
        self.publisher = publisher
        self.identity = identity
        self.kind = kind
        """The kind of the stream's address."""
        self.epoch = epoch
        self.generation = generation
        self.home = epoch.router
        self.label = str(epoch)
        """The stream's epoch as a text, as the delivery log writes it."""
        self.records: dict[int, Record] = {}
        self.unconfirmed: dict[bytes, Record] = {}
        """The unconfirmed records by delivery key: the home has not forwarded them since the present contact with it
        began (`topic.edge.unconfirmed`)."""
        self.abandoned = False
        """Whether the publisher will never settle these records. The edge still delivers them, and then settles and
        forgets them by itself."""
        self.followed_by: str | None = None
        """The generation of the life that followed this one, as the delivery log writes it; None if none has."""
        self.withheld_at_edge: deque[tuple[Record, list[Any]]] = deque()
        """The records that this edge withholds, in order, each with its subscribers. The first one waits because an
        older delivery holds its key; all later records wait behind it. `RecordTable.by_key` has a withheld record only
        if an unsettled map has named it."""

    @property
    def address(self) -> str:
        return self.identity.address

    @property
    def is_withholding(self) -> bool:
        """Whether this router withholds records of the stream."""
        return bool(self.withheld_at_edge)

    def stop_time(self, records: Iterable[Record]) -> None:
        """Stop the times to live of these records, which a subscriber may have from now on. Only a home counts these
        times, so this method does nothing at an edge."""

    def abandon(self, followed_by: bytes | None) -> None:
        """The publisher will never settle these records. `followed_by`: the generation of the publisher's next life."""
        self.abandoned = True
        self.followed_by = None if followed_by is None else followed_by.hex()

    def doubt(self, record: Record) -> None:
        """Add the record to the unconfirmed records of the stream."""
        self.unconfirmed[record.key] = record

    def confirm(self, key: bytes) -> Record | None:
        """Confirm a record, because the home has forwarded or settled it. Returns the record; None if it was not
        unconfirmed."""
        return self.unconfirmed.pop(key, None)

    def withhold_for(self, record: Record, subscribers: list[Any]) -> None:
        """Withhold a record of another home, because an older delivery holds its key, or because an earlier record is
        withheld."""
        self.withheld_at_edge.append((record, subscribers))

    def go_on_at_edge(self) -> None:
        """Remove the first withheld record, which goes to its subscribers now."""
        self.withheld_at_edge.popleft()

    def drop_withheld_at_edge(self) -> list[tuple[Record, list[Any]]]:
        """Drop all records of the stream that this edge withholds. Returns them."""
        dropped = list(self.withheld_at_edge)
        self.withheld_at_edge.clear()
        return dropped

    def drop_withheld(self) -> list[Record]:
        """Drop all records that the home withholds. Returns them; an edge has none."""
        return []

    def put_off(self, key: bytes) -> Record | None:
        """The withheld delivery with this key; None if there is none. It waits behind an older delivery with another
        key."""
        return _of_key(key, (record for record, _ in self.withheld_at_edge))


class HomeStream(Stream):
    """A stream at the home of its publisher, with everything that only the home knows."""

    __slots__ = (
        "afresh",
        "ahead",
        "alone",
        "answered",
        "askers",
        "begun",
        "echo_covers",
        "expected",
        "gap",
        "gates",
        "holders",
        "incomplete",
        "keys",
        "lifetime",
        "link",
        "next_n",
        "numbered",
        "overtook",
        "questions",
        "received",
        "refusers",
        "reply",
        "reserving",
        "resting",
        "served",
        "serves_one",
        "settled_again",
        "settled_before",
        "settles_first",
        "unassigned",
        "unordered",
        "until",
        "window",
        "withheld",
    )

    def __init__(
        self,
        publisher: bytes,
        identity: LinkIdentity,
        epoch: Epoch,
        generation: bytes,
        kind: AddressKind,
        window: CreditWindow,
        link: Any = None,
        *,
        lifetime: Lifetime = FLEETING,
        settles_first: bool = False,
        overtook: bool = False,
        unordered: bool = False,
        afresh: bool = False,
    ) -> None:
        super().__init__(publisher, identity, epoch, generation, kind)
        self.keys = KeyMaker(publisher, generation)
        self.window = window
        """Limits the unsettled transfers of this attach, and the credit that the publisher gets."""
        self.link = link
        """The shell's object for the publisher's link; None once the publisher is gone."""
        self.lifetime = lifetime
        self.settles_first = settles_first
        """Whether the publisher's link has receiver settle mode first: the home then sends outcomes already settled."""
        # Whether the client did not know of the attach that this one replaces. If so, this attach may be late (6.12).
        self.overtook = overtook
        self.unordered = unordered
        """Whether the publisher resumes its life without an echo of its last epoch. If so, this attach may have a lower
        epoch than the attach before, because the clocks of the two routers may differ."""
        # True if the client had a null map and echoed no epoch: this attach, too, may have a lower epoch than the
        # attach before.
        self.afresh = afresh
        self.begun = False  # False while the attach waits for routers that may know the publisher's life
        self.answered = False
        self.numbered = 0  # the number of deliveries whose key is not made from their tag
        self.reply: dict[bytes, int] | None = None
        """This router's unsettled map in its answer to the attach, keyed by tag; None for a null map."""
        self.expected: dict[bytes, bytes] = {}
        """The deliveries that the publisher's map has in doubt, and that the publisher has not transferred again on
        this attach. Maps the key of each one to its tag."""
        # Whether the publisher's map was incomplete, so that deliveries which it lacks may be in doubt.
        self.incomplete = False
        self.settled_again: set[Record] = set()
        """Deliveries in doubt that the publisher transferred again as settled. The publisher gets no outcome for
        them."""
        self.settled_before: set[bytes] = set()
        """Keys that the publisher has settled at a former home. Other routers may not know of this settlement (5,
        Reused tags)."""
        self.askers: dict[bytes, set[str]] = {}
        """Maps each key in doubt to the routers that asked about it. They get `Resolved` when the delivery is
        settled."""
        self.questions: list[Question] = []
        """Questions that the home can answer only after a sign of life of the publisher (6.6, Evidence)."""
        self.echo_covers: int | None = None
        """How many of the `questions`, from the beginning of the list, the home can answer when the publisher answers
        the echo that is under way. None if no echo is under way."""
        self.next_n = 0
        self.alone = 0
        """All records with an `n` from this number on had an audience. Earlier ones may have had none."""
        self.received = 0
        self.withheld: deque[Record] = deque()
        """Records that wait because an older delivery holds their key, or because there is no room, and all records
        after them (`topic.home.publishing`)."""
        # Used for balanced addresses: the records that wait for a subscriber with room, in order.
        self.unassigned: dict[Record, None] = {}
        self.resting: dict[Record, float] = {}
        """Used for balanced addresses: the records that rest, because a subscriber has given them back, and the end of
        each rest, in seconds of the shell's clock (`topic.home.rests`)."""
        self.reserving: dict[bytes, dict[Record, None]] = {}
        """Used for queues: maps each subscriber's name to the records for which the home has chosen it, and for which
        the queue has not agreed yet."""
        self.holders: dict[bytes, bytes] = {}
        """Used for queues. When the queue attaches as a publisher, its unsettled map names deliveries that subscribers
        may have. This maps the delivery-tag of each one to the name of that subscriber."""
        self.refusers: dict[bytes, tuple[bytes, ...]] = {}
        """Used for queues: maps a tag to the subscribers that refused the message for themselves before the queue
        transferred it again."""
        self.serves_one = False
        """Used for queues: whether all deliveries go to one subscriber until it has ended."""
        self.served: bytes | None = None
        """The name of the one subscriber that gets all deliveries; None until the home has chosen it."""
        self.gap: bytes | None = None
        """Used for queues: the tag of the first message that the queue has yet to publish. Messages with later tags
        wait for it."""
        self.until: dict[Record, float] = {}  # the ends of the times to live of records that no subscriber can have yet
        # Maps each router to the number of bytes of the first withheld message that this home has already sent to the
        # router.
        self.ahead: dict[str, int] = {}
        self.gates: dict[bytes, Gate] = {}

    # The methods from here on are about the publisher's attach.

    def name_life(self, generation: bytes) -> None:
        """Set the life (generation) that the attach resumes or begins."""
        self.generation = generation
        self.keys = KeyMaker(self.publisher, generation)

    def begin(self) -> None:
        """Make this router the home of the publisher from now on."""
        assert not self.begun
        self.begun = True

    def resume(self, doubted: Mapping[bytes, bytes], *, complete: bool) -> None:
        """Take over the deliveries that the publisher's map has in doubt; `doubted` maps each key to its tag."""
        assert not self.records and not self.expected
        self.incomplete = not complete
        self.expected = {key: tag for key, tag in doubted.items() if key not in self.settled_before}

    def list_held(self, keys: Iterable[bytes]) -> None:
        """Put these deliveries, which the publisher has in doubt, into the map with which the home answers the
        attach."""
        self.reply = {self.expected[key]: 0 for key in keys}

    def attached(self) -> None:
        """Called when the router has answered the publisher's attach."""
        self.answered = True

    def leave(self) -> None:
        """Drop the publisher's link, which is gone. Its transfers no longer count against a window."""
        self.link = None
        self.window.close()

    def suspend(self) -> None:
        """Drop the publisher's connection, which is gone. The publisher may come back to this stream."""
        self.leave()
        self.until.clear()
        self.echo_covers = None

    def supersede(self) -> None:
        """End this stream, because the publisher has a later attach."""
        self.leave()
        self.gates.clear()
        self._forget_waiting()

    def abandon(self, followed_by: bytes | None) -> None:
        super().abandon(followed_by)
        self._forget_waiting()
        self.leave()

    def _forget_waiting(self) -> None:
        """Let no record wait for a subscriber any more, because this stream offers no record again."""
        self.unassigned.clear()
        self.resting.clear()
        self.reserving.clear()

    # The methods from here on are about transfers, and about settlements that belong to earlier attaches.

    def transferred(self, keys: Iterable[bytes], sizes: Sequence[int]) -> None:
        """Count messages that the publisher has transferred. `sizes`: the bytes of each."""
        self.received += len(sizes)
        if self.settled_before:
            self.settled_before.difference_update(keys)
        self.window.take(sizes)

    def transferred_settled(self, records: Iterable[Record]) -> None:
        """The publisher has settled these deliveries in doubt by transferring them again as settled (protocol 7.3)."""
        self.settled_again.update(records)

    def settled_of(self, records: Iterable[Record]) -> list[Record]:
        """Returns the given records that the publisher has settled by transferring them again."""
        return [record for record in records if record in self.settled_again] if self.settled_again else []

    def settle_again(self, records: Iterable[Record]) -> None:
        """The audience of these records has answered, so the home settles them. Remove them from `settled_again`."""
        self.settled_again.difference_update(records)

    def came_again(self, key: bytes) -> bytes | None:
        """The publisher has transferred or given up a delivery of its map. Returns the delivery's tag; None if the map
        lacks it."""
        return self.expected.pop(key, None)

    def hand_over(self, keys: Iterable[bytes]) -> None:
        """Take from a former home the keys that the publisher has settled there."""
        self.settled_before.update(keys)

    def expect_no_more(self, keys: Iterable[bytes]) -> None:
        """Drop these keys from the deliveries that the publisher has to transfer again, because they are already
        settled."""
        for key in keys:
            tag = self.expected.pop(key, None)
            if tag is not None and self.reply:
                self.reply.pop(tag, None)

    def place(self, count: int) -> int:
        """Reserve places in the publisher's order for `count` records. Returns the first place."""
        first = self.next_n
        self.next_n += count
        return first

    def placed_for_nobody(self) -> None:
        """Called when the records that got their places last had no audience."""
        self.alone = self.next_n

    # The methods from here on are about questions of other routers, and about the home's questions to the publisher.

    def asked(self, key: bytes, router: str) -> None:
        """Remember that this router asked about the delivery: it gets `Resolved` when the delivery is settled."""
        self.askers.setdefault(key, set()).add(router)

    def take_askers(self, key: bytes) -> list[str]:
        """Returns the routers that asked about the delivery, and forgets them."""
        return sorted(self.askers.pop(key, ()))

    def lost_asker(self, router: str) -> None:
        for askers in self.askers.values():
            askers.discard(router)

    def question(self, question: Question) -> None:
        """Let this question wait for a sign of the publisher's life. If the question already waits, it waits anew: only
        a later sign answers it."""
        if question in self.questions:
            place = self.questions.index(question)
            del self.questions[place]
            if self.echo_covers is not None and place < self.echo_covers:
                self.echo_covers -= 1
        self.questions.append(question)

    def echo(self) -> None:
        """The router sends the publisher an echo. The answer to the echo covers all questions so far."""
        self.echo_covers = len(self.questions)

    def proven(self) -> list[Question]:
        """Handle the publisher's answer to the echo. Returns the questions that this sign of life answers."""
        count, self.echo_covers = self.echo_covers or 0, None
        assert count <= len(self.questions)
        proven, self.questions = self.questions[:count], self.questions[count:]
        return proven

    def ask_no_more(self) -> None:
        """Drop all questions: the publisher's life is over."""
        self.questions.clear()

    def is_questioned(self, key: bytes) -> bool:
        """Whether a router has asked about the key, and the answer still waits for a sign of life. A transfer is not a
        sign of life, because the router may read it late."""
        return any(isinstance(question, tuple) and key in question[1] for question in self.questions)

    # The methods from here on are about records that wait before they are forwarded.

    @property
    def needs_tags(self) -> bool:
        """Whether a router may compute the keys of this life from the tags in a map: the publisher may resume the life,
        or has resumed it."""
        return bool(self.lifetime.timeout) or self.reply is not None

    def new_keys(self, tags: Iterable[bytes]) -> list[bytes]:
        """The keys of new deliveries with these tags. If the publisher has used a tag again, the keys are numbered."""
        return list(map(self.keys.key, tags)) if not self.numbered else [self._next_key() for _ in tags]

    def rename(self, record: Record) -> None:
        """Give this new record, which no subscriber has, a numbered key."""
        record.key = self._next_key()

    def _next_key(self) -> bytes:
        self.numbered += 1
        return self.keys.numbered(self.numbered)

    @property
    def is_withholding(self) -> bool:
        return bool(self.withheld)

    def withhold(self, records: Iterable[Record]) -> None:
        """Withhold these records: they get no place in the publisher's order yet."""
        self.withheld.extend(records)

    def release_withheld(self) -> Record:
        """Remove the first withheld record of the stream, and return it."""
        return self.withheld.popleft()

    def drop_withheld(self) -> list[Record]:
        dropped = list(self.withheld)
        self.withheld.clear()
        return dropped

    def put_off(self, key: bytes) -> Record | None:
        return None if self.is_questioned(key) else _of_key(key, self.withheld)

    def went_ahead(self, routers: Iterable[str], at: int) -> None:
        """These routers have been sent the first `at` bytes of the first withheld message."""
        self.ahead.update(dict.fromkeys(routers, at))

    def arrived_ahead(self, routers: Iterable[str]) -> list[int]:
        """Forget how much of the withheld message was sent ahead, because the home forwards it now. Returns for each
        router the number of bytes that it has been sent."""
        return [self.ahead.pop(router, 0) for router in routers]

    def lost_ahead(self, router: str) -> None:
        self.ahead.pop(router, None)

    def recall(self) -> dict[str, int]:
        """Forget how much of the withheld message was sent ahead, because the home forwards it to no router. Returns
        for each router the number of bytes that it has been sent."""
        ahead, self.ahead = self.ahead, {}
        return ahead

    def count_time(self, until: Mapping[Record, float]) -> None:
        """Start the times to live of these records, which no subscriber can have yet. `until`: when each time ends
        (protocol 5, Time to live)."""
        self.until.update(until)

    def stop_time(self, records: Iterable[Record]) -> None:
        """Stop the times to live of these records: a subscriber may have them from now on, or they are over."""
        if self.until:
            for record in records:
                self.until.pop(record, None)

    def wait_for_room(self, records: Sequence[Record]) -> None:
        """Let these records of a balanced address wait for a subscriber with room. A record may have waited before."""
        place = self.kind.place
        places = list(map(place, [*islice(reversed(self.unassigned), 1), *records]))
        self.unassigned.update(dict.fromkeys(records))
        if any(later < earlier for earlier, later in pairwise(places)):
            self.unassigned = dict.fromkeys(sorted(self.unassigned, key=place))

    @property
    def next_ones(self) -> Collection[Record]:
        """The records for which the home may choose a subscriber now. If a message of the queue is missing, the records
        behind it are left out."""
        gap, last = self.gap, next(reversed(self.unassigned), None)
        if gap is None or last is None or last.tag < gap:
            return self.unassigned
        return [*takewhile(lambda record: record.tag < gap, self.unassigned)]

    def before_waiting(self, records: list[Record], subscriber: bytes) -> list[Record]:
        """The records at the beginning of `records` that come before each waiting record that this subscriber may get.
        A waiting record waits for a subscriber with room, or for the queue to agree to this subscriber."""
        place = self.kind.place
        unassigned = (record for record in self.unassigned if subscriber not in record.refused_by)
        waiting = min(map(place, chain(islice(unassigned, 1), self.reserving.get(subscriber, ()))), default=None)
        return records if waiting is None else [*takewhile(lambda record: place(record) < waiting, records)]

    def wait_no_more(self, records: Iterable[Record]) -> None:
        """Remove these records from all waiting and resting records. Each of them has a chosen subscriber, or has
        ended, or waits in another way from now on."""
        for record in records if self.resting else ():
            self.resting.pop(record, None)
        for waiting in (self.unassigned, *self.reserving.values()):
            for record in records if waiting else ():
                waiting.pop(record, None)

    def rest(self, records: Iterable[Record], until: float) -> None:
        """Let these records rest until this time. The home offers them to nobody before."""
        self.resting.update(dict.fromkeys(records, until))

    def is_waiting(self, record: Record) -> bool:
        """Whether the record waits for a subscriber with room, for the end of its rest, or for the queue to agree to a
        subscriber."""
        if record in self.unassigned or record in self.resting:
            return True
        return any(record in chosen for chosen in self.reserving.values())

    def reserved_before(self, holders: Mapping[bytes, bytes]) -> None:
        """The queue had reserved deliveries for subscribers before its egress attached. `holders`: maps the
        delivery-tag of each reserved delivery to the name of the subscriber."""
        self.holders.update(holders)

    def refused_before(self, refusers: Mapping[bytes, tuple[bytes, ...]]) -> None:
        """These subscribers have refused a delivery and must not get it. `refusers`: for the tag that the delivery has
        when the queue transfers it again, the names of these subscribers."""
        self.refusers.update(refusers)

    def leave_out_refusers(self, records: Iterable[Record]) -> None:
        """Enter into these new records the subscribers that have refused them (`refused_before`)."""
        for record in records if self.refusers else ():
            record.refused_by = self.refusers.pop(record.tag, ())

    def may_be_offered(self, subscriber: bytes) -> None:
        """Drop all refusals of this subscriber for itself, because its link has ended."""
        for record in () if self.kind.is_for_all else self.records.values():
            if record.refused_by:
                record.may_be_offered(subscriber)

    def serve(self, subscriber: bytes | None, *, only: bool = True) -> None:
        """Set which subscribers get deliveries from now on. If `only`, `subscriber` gets all deliveries; with None, the
        home still has to choose this subscriber. If not `only`, all subscribers get deliveries."""
        self.serves_one, self.served = only, subscriber

    def lacks(self, tag: bytes | None) -> None:
        """Set the tag of the delivery that the queue publishes next, before all later ones; None if the queue has no
        delivery to publish."""
        self.gap = tag

    def having(self) -> set[bytes]:
        """The names of the subscribers that may have a delivery of this stream, or for which one is reserved."""
        chosen = {one.chosen for one in self.records.values() if one.chosen and one.state is not State.SETTLED}
        return chosen | self.reserving.keys() | {*self.holders.values()}

    def take_holder(self, record: Record) -> bytes:
        """Returns the subscriber to which the queue had agreed for this record, and forgets it."""
        return self.holders.pop(record.tag)

    def reserve(self, records: Iterable[Record], subscriber: bytes) -> None:
        """The queue was asked to agree to this subscriber for these records."""
        self.reserving.setdefault(subscriber, {}).update(dict.fromkeys(records))

    def agreed(self, records: Iterable[Record], subscriber: bytes) -> list[Record]:
        """The queue has agreed to the subscriber for these records. Returns the records that were still waiting for the
        queue's answer."""
        waiting = self.reserving.get(subscriber, {})
        found = [record for record in records if record in waiting]
        for record in found:
            del waiting[record]
        if not waiting:
            self.reserving.pop(subscriber, None)
        return found

    # The methods from here on are about gates.

    def gate(self, gate: Gate) -> None:
        """Add a gate of this publisher: it holds newer deliveries back from the gate's subscriber."""
        self.gates[gate.subscriber] = gate

    def open_gate(self, subscriber: bytes) -> None:
        """Remove the gate of this subscriber, which now gets newer deliveries, or has gone."""
        self.gates.pop(subscriber, None)

    def drop_gates(self) -> None:
        """Remove all gates, without telling the subscribers' routers."""
        self.gates.clear()


def _of_key(key: bytes, come: Iterable[Record]) -> Record | None:
    return next((r for r in come if r.key == key and r.state is State.IN_DOUBT and not r.presettled), None)
