"""Delivery records and the streams that order them (protocol section 4).

Each router that holds a delivery has one record of it. Only this module writes the fields of records and streams;
`topic.home` and `topic.edge` decide *when*. An event of one record is a method with its name. An event of a batch is a
function over the records, because a call for each would cost too much. For the same reason other modules write three
fields: `unread` (`topic.edge.receipts` and `settlement`), `message` when it is dropped, and a stream's `records` when
they are forgotten (`topic.delivery.records`). A `HomeStream` also has everything that only the home knows of a stream.

The record as a whole:

    IN_DOUBT ── accept ──▶ ACCEPTED ── settle ──▶ SETTLED       accept: home answers the publisher; an edge its home
        ▲  ╰───────────────── settle ───────────────▲           settled, abandoned, or handed on (presettled)
        ╰── forward, hold ──────╯                               its home, or the next one, forwards it again

One of its local subscribers:

                 name                 send                 answer
    not named ─────────▶ QUEUED ──────────────▶ SENT ───────────────▶ its final outcome, one of four
        │                  ▲  ▲───── queue ──────╯  released or modified: once more
        │   name           │ queue: its key is free
        ├─────────▶ WITHHELD                                          not even queued
        │   name
        ├─────────▶ AWAITING_HOME                                     home must name it again: name, queue as above
        │             ▲── hold ── QUEUED, WITHHELD; SENT as it attaches anew
        ╰── let_go, drop ── all but a final outcome                   no longer awaited

Records are the hot path: slotted, compared by identity, and handled in batches.
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
    """States of a record as a whole, in this order."""

    IN_DOUBT = 1
    ACCEPTED = 2
    SETTLED = 3


QUEUED = 0
SENT = 1
WITHHELD = 2
AWAITING_HOME = 3
"""States of a local subscriber in a record before its outcome; plain ints, for the hot path."""
OPEN = (QUEUED, SENT, WITHHELD, AWAITING_HOME)

Question = Union[bytes, tuple[str, list[bytes]], "list[Record]"]
"""A question that only a sign of the publisher's life answers: the backlog of a subscriber; or a router, and keys that
it asked about and the home does not have; or accepted deliveries that gate until the publisher has read their
outcome."""


class Record:
    """One delivery at this router."""

    _offer: Any  # unset until the home offers the record at another router
    _annotations: bytes  # unset in nearly all records, to save memory

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
        """The place in the publisher's order at its home; -1 while the record is withheld (protocol 5) or
        unconfirmed."""
        self.state, self.presettled = State.IN_DOUBT, False
        self.chosen: bytes | None = None  # one of many: the chosen subscriber, or `UNASSIGNED`; None: its holder
        self.taken = False  # one of many: a subscriber has accepted it, at any router
        self.known = False  # at home: its publisher has answered an echo after the outcome, so it has stored it
        self.tries = 0  # one of many, at home: how often it was given back
        self.refused_by: tuple[bytes, ...] = ()  # one of many, at home: subscribers that refused it for themselves
        self.locals: dict[Any, int] = {}
        """Local subscriber -> QUEUED, SENT, WITHHELD, AWAITING_HOME or its final `DeliveryOutcome`."""
        self.open = 0  # how many locals have no final outcome yet
        self.unread = 0  # settled: how many locals may not have read of the settlement
        self.given: tuple[Epoch, int] | None = None  # unconfirmed: attach and place of its last Forward
        self.refusals: Refusals | None = None
        """Final outcomes other than accepted, counted; None while there are none."""
        self.moved: tuple[bytes, ...] = ()
        """Edge: subscribers that the home may await here, but that have left for another router."""
        self.routers: tuple[str, ...] = ()
        """Home: the routers to which it forwarded the record, and which get the settlement."""
        self.awaited: set[str] = set()
        """Home: routers whose outcome (in doubt) or acknowledgement of the settlement (settled) is awaited. Edge: the
        home, if it waits until this router has forgotten the delivery."""
        self.orphans: set[bytes] = set()
        """Home: subscribers that it awaits by name, because no router in contact holds them."""
        self.without = NOBODY
        """Home: lapsed subscribers that the home would otherwise await (8, Apart). Records share this dict."""

    @property
    def is_placeholder(self) -> bool:
        """Whether the record has no message, because only an unsettled map has named it."""
        return self.message is None and self.state is not State.SETTLED

    @property
    def last_given(self) -> tuple[Epoch, int]:
        """The attach of the publisher by which the record was forwarded last, and its place in the publisher's
        order."""
        if self.n >= 0:
            return self.stream.epoch, self.n
        assert self.given is not None, "no home has forwarded the record"
        return self.given

    @property
    def size(self) -> int:
        """Bytes of the message that is here."""
        return len(self.message) if self.message is not None else 0

    # as a whole

    def forward(self, n: int, message: bytes | None, moved: tuple[bytes, ...]) -> None:
        """The home forwards the record under this place in its order, and waits for an outcome."""
        assert n >= 0 and self.state is not State.SETTLED
        if n != self.n:
            self.n = n
            self.message = message  # a zombie home's may be that of an older delivery with the same tag
            self.stream.records[n] = self
        self.moved = moved
        self.state = State.IN_DOUBT

    def hold(self) -> None:
        """The home is out of contact, or another router is home now: no subscriber gets the record until a home
        forwards it."""
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
        """The publisher has a new attach: the record waits until that home forwards it."""
        self.stream = stream

    def transferred_again(self, tag: bytes, message: bytes | None) -> None:
        """The publisher, which is attached here, has transferred the record again, with or without the message."""
        self.tag = tag
        if message is not None:
            self.message = message

    # at home: the awaited routers and subscribers

    def forwarded_to(self, router: str) -> None:
        """The home has forwarded the record to the router, and awaits its outcome."""
        self.awaited.add(router)
        if router not in self.routers:
            self.routers = (*self.routers, router)

    def await_router(self, router: str) -> None:
        """Await the outcome of a router that already has the record."""
        self.awaited.add(router)

    def await_router_no_more(self, router: str) -> None:
        """The router has answered, is gone for good, or has settled its subscribers."""
        self.awaited.discard(router)

    def lost_at(self, router: str) -> None:
        """The contact with the router is lost: the router does not get the settlement."""
        if router in self.routers:
            self.routers = tuple(other for other in self.routers if other != router)

    def await_by_name(self, names: Iterable[bytes]) -> None:
        """Await these subscribers by name: no router in contact holds them, or their backlog is not under way."""
        self.orphans.update(names)

    def await_by_name_no_more(self, names: Iterable[bytes]) -> None:
        """These subscribers have gone or lapsed, or the home awaits their routers instead."""
        self.orphans.difference_update(names)

    def leave_out(self, lapsed: dict[bytes, None]) -> None:
        """Do not await these lapsed subscribers. They replace the former ones. Records may share the dict."""
        self.without = lapsed

    def is_back(self, name: bytes) -> None:
        """The subscriber had lapsed, and is back or has ended. This also changes the records that share the dict."""
        self.without.pop(name, None)

    def await_no_router(self) -> None:
        """Await no router: the publisher's next home asks for the missing outcomes."""
        self.awaited.clear()

    def await_nobody(self) -> None:
        """Await no router and no subscriber: the record has ended, or its publisher is gone."""
        self.awaited.clear()
        self.orphans.clear()

    def await_settled(self, router: str) -> None:
        """At an edge: the home waits until this router has forgotten the record."""
        self.awaited = {router}

    def count(self, refusals: Refusals | None) -> None:
        """Add the refusals of one router."""
        self.refusals = add_refusals(self.refusals, refusals)

    def left_without(self, subscriber: bytes) -> None:
        """The subscriber left this router before it had the record."""
        self.moved = (*self.moved, subscriber)

    @property
    def last_offer(self) -> Any:
        """The last argument of `offered_in`; None if the record was never offered to a subscriber at another router."""
        return getattr(self, "_offer", None)

    def offered_in(self, offers: Any) -> None:
        """The home offers the record, as one of these offers (`topic.home.balancing`)."""
        self._offer = offers

    @property
    def annotations(self) -> bytes:
        """The annotations that a queue's consumer added when it gave the message back; empty if there are none."""
        return getattr(self, "_annotations", b"")

    def annotate(self, annotations: bytes) -> None:
        """Replace the annotations by those of the consumer that gave the message back."""
        self._annotations = annotations

    # one of many

    def seek_holders(self) -> None:
        """The record is only for the subscriber that has it, which is not known yet."""
        self.chosen = None

    def choose(self, subscriber: bytes) -> None:
        """The record is for this subscriber, or for none yet (`UNASSIGNED`)."""
        self.chosen = subscriber

    def sum_up(self, refusals: Refusals | None) -> None:
        """Replace the refusals by this summary."""
        self.refusals = refusals

    def refused_for_itself(self, subscriber: bytes) -> None:
        """Do not offer the record to this subscriber again."""
        if subscriber not in self.refused_by:
            self.refused_by = (*self.refused_by, subscriber)

    def may_be_offered(self, subscriber: bytes) -> None:
        """The subscriber's link has ended: its refusal does not count any more."""
        self.refused_by = tuple(name for name in self.refused_by if name != subscriber)

    def offer_again(self, nobody: bytes, *, given_back: bool) -> None:
        """The record has no subscriber, and waits for another one. `given_back` counts as a try."""
        self.tries += given_back
        self.chosen, self.refusals = nobody, None

    # at its local subscribers

    def name(self, subscriber: Any, state: int) -> None:
        """The record is for this subscriber, too, or again."""
        assert state in (QUEUED, WITHHELD, AWAITING_HOME)
        self.open += self.locals.get(subscriber) not in OPEN
        self.locals[subscriber] = state

    def withhold_all(self) -> None:
        """Withhold the record from all: an older delivery with its key is still here, or a delivery before it is
        withheld."""
        assert self.open == len(self.locals)
        self.locals = dict.fromkeys(self.locals, WITHHELD)

    def withhold(self, subscriber: Any) -> None:
        """The client may know of the record: its map was incomplete."""
        assert self.locals[subscriber] == QUEUED
        self.locals[subscriber] = WITHHELD

    def queue(self, subscriber: Any) -> None:
        """The record may be sent to the subscriber, for the first time or again."""
        assert self.locals[subscriber] in (WITHHELD, SENT)
        self.locals[subscriber] = QUEUED

    def hold_for(self, subscriber: Any) -> None:
        """The subscriber attached anew: a record that it has not answered waits until the home names it again."""
        if self.locals.get(subscriber) in OPEN:
            self.locals[subscriber] = AWAITING_HOME

    def state_outcome(self, subscriber: Any, outcome: DeliveryOutcome) -> bool:
        """The subscriber's map states this outcome. Returns False if another outcome is known already: that one
        stays."""
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
        """The subscriber gave the record back here, and got it again elsewhere: its outcome does not count any more."""
        known = self.locals.get(subscriber)
        if known in GIVEN_BACK:
            self.locals[subscriber] = AWAITING_HOME
            self.open += 1
            if self.stream.kind.counts_again(known):
                self.refusals = take_refusal(self.refusals, DeliveryOutcome(known))

    def stop_awaiting(self, subscriber: Any, *, has_it: bool) -> None:
        """Await the subscriber no more. If it `has_it`, the record is released on its link, and settled there later."""
        assert self.locals[subscriber] in OPEN
        if has_it:
            self.locals[subscriber] = DeliveryOutcome.RELEASED
        else:
            del self.locals[subscriber]
        self.open -= 1

    def drop(self, subscriber: Any) -> bool:
        """Remove the subscriber. Returns whether it was awaited."""
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


# events of many records at once: the hot path


def await_audience(records: Sequence[Record], first: int, audience: AddressAudience) -> None:
    """The home gives the records their places, from `first` on, and awaits this audience."""
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
    """An edge gives new records the places that the home has chosen, from `first` on."""
    in_order = stream.records
    for n, record in enumerate(records, first):
        record.n = n
        record.moved = moved
        in_order[n] = record


def forwarded_again(records: Iterable[Record], moved: tuple[bytes, ...]) -> None:
    """The home forwards these again, under the same places, and waits for an outcome."""
    for record in records:
        record.moved = moved
        record.state = State.IN_DOUBT


def presettle(records: Iterable[Record]) -> None:
    """The publisher transferred these settled."""
    for record in records:
        record.presettled = True


def choose(records: Iterable[Record], subscriber: bytes) -> None:
    """These are for this subscriber, or for none yet (`UNASSIGNED`)."""
    for record in records:
        record.chosen = subscriber


def taken(records: Iterable[Record]) -> None:
    """Balanced: a subscriber has accepted these."""
    for record in records:
        record.taken = True


def answered_by(router: str, records: Iterable[Record]) -> None:
    """All subscribers at the router have answered, or have read the settlement."""
    for record in records:
        record.awaited.discard(router)


def await_settlement(records: Iterable[Record]) -> None:
    """The home sends the settlement to all routers in contact that have these, and waits until they have forgotten
    them."""
    for record in records:
        if record.routers or record.awaited:
            record.awaited = set(record.routers)


def accept(records: Iterable[Record]) -> None:
    """The home answers the publisher, or an edge reports to the home."""
    for record in records:
        assert record.state is State.IN_DOUBT
        record.state = State.ACCEPTED


def outcome_kept(records: Iterable[Record]) -> None:
    """The publisher has answered an echo behind the outcome of these: it has stored the outcome."""
    for record in records:
        record.known = True


def settle(records: Iterable[Record]) -> None:
    """The publisher has settled these, or it will never do so."""
    for record in records:
        record.state = State.SETTLED


def name_all(records: Iterable[Record], subscribers: Sequence[Any]) -> None:
    """These new records are for all these subscribers."""
    count = len(subscribers)
    for record in records:
        record.locals = dict.fromkeys(subscribers, QUEUED)
        record.open = count


def send(records: Iterable[Record], subscriber: Any) -> None:
    """These records are transferred to the subscriber now."""
    for record in records:
        record.locals[subscriber] = SENT


def answer(
    records: Iterable[Record], subscriber: Any, outcome: DeliveryOutcome, *, failed: bool = False
) -> list[Record]:
    """Set the final outcome that the subscriber gave to records sent to it. Returns the records that await no
    subscriber here any more."""
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
"""Gives records to the subscriber that was chosen for them."""


class Choosing(Protocol):
    """Gives each delivery to one subscriber, which it chooses: `topic.home.balancing`."""

    asked: "set[Record]"
    """Until the home has booted: deliveries that a subscriber may have had before, which the home asks for."""

    def take(self, stream: "HomeStream", records: list[Record]) -> None:
        """Give new transfers their places in the publisher's order, and each to one subscriber."""

    def ask_all(self, stream: "HomeStream", records: list[Record]) -> None:
        """Give places to transfers that a subscriber may already have, and ask the whole audience for each."""

    def ask_holders(self, stream: "HomeStream", records: list[Record]) -> None:
        """Give transfers their places, and ask for each the subscriber that may have it, according to the publisher."""

    def hand_on(self, stream: "HomeStream", records: list[Record]) -> None:
        """Give presettled transfers to subscribers that have room now, or drop them."""

    def share_out(self, stream: "HomeStream", give: Giving) -> None:
        """Choose subscribers with room for the waiting records."""

    def assign(self, stream: "HomeStream", records: list[Record], entry: LinkEntry) -> None:
        """Offer the records to the subscriber."""

    def propose(self, stream: "HomeStream", records: list[Record], entry: LinkEntry) -> None:
        """Ask the publisher, which is a queue, to agree to the subscriber."""

    def want(self, stream: "HomeStream") -> None:
        """Tell the publisher, which is a queue, if subscribers have room for more."""

    def is_there(self, subscriber: bytes) -> bool:
        """Whether the subscriber can get deliveries, now or later."""

    def refused(self, record: Record, router: str) -> None:
        """No subscriber at the router has the record, and none has refused it."""

    def claimed(self, stream: "HomeStream", record: Record, router: str) -> None:
        """A subscriber's map at the router names the record."""

    def untold(self, stream: "HomeStream", records: list[Record]) -> Collection[Record]:
        """Decide records that await no subscriber. Returns the records that another subscriber may still get."""

    def choose_again(self, stream: "HomeStream", records: Iterable[Record]) -> None:
        """Give these to other subscribers."""


class AtHome(Protocol):
    """The actions of a home that a kind calls: `topic.home.home`."""

    @property
    def balancing(self) -> Choosing: ...

    def forward_to_all(
        self, stream: "HomeStream", records: list[Record], take: Callable[["HomeStream", list[Record]], None]
    ) -> None:
        """Give transfers their places in the publisher's order, and forward them to all subscribers of the address. The
        edge's `take` gives them to the local ones."""

    def accept(self, stream: "HomeStream", records: list[Record]) -> None:
        """Send the publisher *accepted*, or the outcome that follows from the record's refusals."""


class AtEdge(Protocol):
    """The actions of an edge that a kind calls when a subscriber gives records back: `topic.edge.delivery`."""

    def queue_again(self, subscriber: Any, records: list[Record]) -> list[Record]:
        """Send the records to the same subscriber again. Returns the records that have been sent often enough."""

    def give_back(self, subscriber: Any, records: list[Record]) -> None:
        """Tell the home that the subscriber has given these back. The home may offer them to it again."""

    def end(self, subscriber: Any, records: list[Record], *, failed: bool) -> None:
        """Tell the home that the subscriber has given these back, which ends their deliveries."""


class AddressKind(ABC):
    """The rules of one kind of address; the kinds are in `topic.delivery.kinds`. A stream and a local subscriber hold
    the kind of their address. No other code asks which kind it is."""

    __slots__ = ()

    name: ClassVar[str]
    """The name in topology files, counters and figures."""
    keeps_order: ClassVar[bool]
    """Whether a subscriber gets no newer deliveries of a publisher while older ones that are not for it are unsettled
    (protocol 6.5, Gate)."""
    takes_filters: ClassVar[bool]
    goes_in_pieces: ClassVar[bool]
    """Whether a large message goes to the routers of its audience ahead of its Forward."""
    is_for_all: ClassVar[bool]
    """Whether each delivery is for all subscribers of the address, so that an edge names them for a whole batch."""
    tells_room: ClassVar[bool]
    """Whether edges tell homes how many deliveries each subscriber takes (protocol 12.2)."""
    asks_once: ClassVar[bool]
    """Whether a router with an unanswered Forward of a delivery gets no other Forward of it (protocol 12)."""
    in_sets: ClassVar[bool]
    """Whether replica sets decide which of these addresses exist (protocol 13). Clients cannot attach to them yet."""
    ends_with_subscribers: ClassVar[bool]
    """Whether no subscriber can follow the last one: the remaining deliveries are then rejected (protocol 12.8)."""
    is_of_set: ClassVar[bool]
    """Whether the publisher is a replica set, which comes back however long it has no leader (protocol 14.7)."""
    unfit: ClassVar[DeliveryOutcome]
    """The outcome of a delivery that its subscriber cannot take (protocol 5, Unfit)."""

    # one delivery

    @abstractmethod
    def nobody_has(self, records: Iterable[Record]) -> None:
        """The publisher has transferred these records for the first time, so no subscriber has them."""

    @abstractmethod
    def concerns(self, record: Record, subscriber: bytes) -> bool:
        """Whether the record may be for this subscriber of the address, by its name."""

    @abstractmethod
    def asks_all(self, record: Record) -> bool:
        """Whether a Forward to the router of a subscriber that was awaited by name is for all there that may have the
        record, and not for that subscriber alone."""

    @abstractmethod
    def accepted(self, records: Iterable[Record]) -> None:
        """A subscriber has accepted these records, or all subscribers at a router have."""

    @abstractmethod
    def is_over(self, record: Record) -> bool:
        """Whether the home can decide on the record without another subscriber's outcome."""

    @abstractmethod
    def counts_again(self, state: int) -> bool:
        """Whether this final outcome of a subscriber counts once more when a home has to ask again for the outcome."""

    @abstractmethod
    def sum_up(self, records: Iterable[Record]) -> None:
        """All local subscribers have answered: write the refusals that the home gets into the records."""

    @abstractmethod
    def place(self, record: Record) -> Any:
        """The sort key of the record among the waiting records of its publisher."""

    @abstractmethod
    def outcome(self, refusals: Refusals) -> DeliveryOutcome:
        """The outcome that the publisher gets for a record that ends with these refusals."""

    # at home

    @abstractmethod
    def forward(
        self,
        home: AtHome,
        stream: "HomeStream",
        records: list[Record],
        take: Callable[["HomeStream", list[Record]], None],
    ) -> None:
        """Give transfers their places in the publisher's order, and forward them to their audience."""

    @abstractmethod
    def decide(self, home: AtHome, stream: "HomeStream", records: list[Record]) -> None:
        """Decide these records: no outcome is awaited any more."""

    @abstractmethod
    def decide_early(self, home: AtHome, stream: "HomeStream", records: list[Record]) -> None:
        """Fewer outcomes are awaited for these records, and the home has not booted (protocol 8): it may not know all
        subscribers yet."""

    @abstractmethod
    def offer_waiting(self, choosing: Choosing, stream: "HomeStream") -> None:
        """Subscribers may have room for waiting records."""

    @abstractmethod
    def refused(self, home: AtHome, record: Record, router: str, refusals: Refusals, moved: Collection[bytes]) -> None:
        """The subscribers at the router have answered, and not all have accepted. The subscribers in `moved` left
        before."""

    @abstractmethod
    def claimed(self, home: AtHome, stream: "HomeStream", record: Record, router: str) -> None:
        """The router asks whether the record is settled: the map of a subscriber there names it."""

    # at the edge; subscribers are of `topic.edge.subscriber`

    @abstractmethod
    def holders(self, record: Record, subscribers: list[Any]) -> list[Any]:
        """The home has forwarded the record for all. Returns the subscribers that get it."""

    @abstractmethod
    def owed(self, record: Record, subscribers: list[Any]) -> list[Any]:
        """The home has forwarded the record for this subscriber, which it awaited by name. Empty if the subscriber's
        attach is over."""

    @abstractmethod
    def found_here(self, record: Record, subscribers: list[Any]) -> list[Any]:
        """The home is this router, and has found here this subscriber, which it awaited by name."""

    @abstractmethod
    def offered(self, record: Record, subscribers: list[Any]) -> list[Any]:
        """The home has chosen this subscriber by its room. Empty if the subscriber's attach is over, or if it has no
        room."""

    @abstractmethod
    def claims(self, client_map: Mapping[bytes, int]) -> Iterable[bytes]:
        """The keys in a subscriber's map of deliveries that no other subscriber may get."""

    @abstractmethod
    def settled(self, records: list[Record], subscribers: Iterable[Any]) -> None:
        """The records are settled; these are the local subscribers of their address."""

    @abstractmethod
    def given_back(self, edge: AtEdge, subscriber: Any, records: list[Record], *, failed: bool) -> list[Record]:
        """The subscriber has released or modified these; `failed`: delivery-failed. Returns the records for which this
        is the final outcome."""

    @abstractmethod
    def subscriber_ended(self, subscriber: Any, records: Iterable[Record]) -> None:
        """The subscriber's link has ended here without an outcome of these."""


class Stream:
    """The deliveries of one publisher under one epoch: its records by `n`, in order. A router that is not the home has
    only this part."""

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
        """The epoch as the delivery log writes it."""
        self.records: dict[int, Record] = {}
        self.unconfirmed: dict[bytes, Record] = {}
        """Keyed by delivery key: records that the present home has not forwarded in the present contact
        (`topic.edge.unconfirmed`)."""
        self.abandoned = False
        """Whether the publisher will never settle these records: they are delivered, then settled and forgotten
        here."""
        self.followed_by: str | None = None
        """The generation of the life that followed this one, as the delivery log writes it; None if none has."""
        self.withheld_at_edge: deque[tuple[Record, list[Any]]] = deque()
        """Records of another home whose key an older delivery holds, and all later records, in order, each with its
        subscribers. A record is in the table by key only if an unsettled map has named it."""

    @property
    def address(self) -> str:
        return self.identity.address

    @property
    def is_withholding(self) -> bool:
        """Whether records wait here for their keys."""
        return bool(self.withheld_at_edge)

    def stop_time(self, records: Iterable[Record]) -> None:
        """A subscriber may have these records from now on. Only a home counts their time to live."""

    def abandon(self, followed_by: bytes | None) -> None:
        """The publisher will never settle these records. `followed_by`: the generation of the publisher's next life."""
        self.abandoned = True
        self.followed_by = None if followed_by is None else followed_by.hex()

    def doubt(self, record: Record) -> None:
        """The record is unconfirmed."""
        self.unconfirmed[record.key] = record

    def confirm(self, key: bytes) -> Record | None:
        """The home has forwarded or settled the record. Returns None if it was not unconfirmed."""
        return self.unconfirmed.pop(key, None)

    def withhold_for(self, record: Record, subscribers: list[Any]) -> None:
        """Withhold a record of another home: it waits for its key, or behind a withheld record."""
        self.withheld_at_edge.append((record, subscribers))

    def go_on_at_edge(self) -> None:
        """The first withheld record goes on."""
        self.withheld_at_edge.popleft()

    def drop_withheld_at_edge(self) -> list[tuple[Record, list[Any]]]:
        """Drop all records that this edge withholds. Returns them."""
        dropped = list(self.withheld_at_edge)
        self.withheld_at_edge.clear()
        return dropped

    def drop_withheld(self) -> list[Record]:
        """Drop all records that the home withholds. Returns them; an edge has none."""
        return []

    def put_off(self, key: bytes) -> Record | None:
        """Returns the withheld delivery with this key, or None. It waits behind older deliveries with other keys."""
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
        "overtook",
        "questions",
        "received",
        "refusers",
        "reply",
        "reserving",
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
        """The transfers of this attach that are not settled, and the credit for more."""
        self.link = link
        """The shell's link; None once the publisher is gone."""
        self.lifetime = lifetime
        self.settles_first = settles_first
        """Receiver settle mode first on the publisher's link: outcomes are sent settled."""
        self.overtook = overtook  # the client had not heard of the attach before: this one may be late (6.12)
        self.unordered = unordered
        """The publisher resumes, and has not echoed its last epoch: if clocks differ, this attach may have a lower
        one."""
        self.afresh = afresh  # its map was null, and it has echoed no epoch: the same
        self.begun = False  # False: the attach waits for routers that may know its life
        self.answered = False
        self.reply: dict[bytes, int] | None = None
        """Our unsettled map in the answer to the attach, by tag; None for a null map."""
        self.expected: dict[bytes, bytes] = {}
        """Key -> tag: deliveries in doubt by the publisher's map that were not transferred on this attach."""
        self.incomplete = False  # the map was incomplete: deliveries that it lacks may be in doubt
        self.settled_again: set[Record] = set()
        """Deliveries in doubt that the publisher settled when it transferred them again: it gets no outcome."""
        self.settled_before: set[bytes] = set()
        """Keys that the publisher has settled at a former home; other routers may not know it (5, Reused tags)."""
        self.askers: dict[bytes, set[str]] = {}
        """Key -> routers that asked about the key while it was in doubt, and get `Resolved` when it is settled."""
        self.questions: list[Question] = []
        """Questions that wait for a sign of life of the publisher (6.6, Evidence)."""
        self.echo_covers: int | None = None
        """Number of questions that the echo under way covers; None if there is no echo."""
        self.next_n = 0
        self.alone = 0
        """Records with an `n` below this may have had an empty audience."""
        self.received = 0
        self.withheld: deque[Record] = deque()
        """Records that wait for their key, or for room, and all that came after (`topic.home.publishing`)."""
        self.unassigned: dict[Record, None] = {}  # one of many: records that wait for a subscriber with room, in order
        self.reserving: dict[bytes, dict[Record, None]] = {}
        """Queue: keyed by subscriber name, the records for which the home has chosen it, and the queue has not agreed
        yet."""
        self.holders: dict[bytes, bytes] = {}
        """Queue: keyed by tag, the subscriber that may have a delivery of this attach's map."""
        self.refusers: dict[bytes, tuple[bytes, ...]] = {}
        """Queue: keyed by tag, subscribers that had refused the message for themselves before its next transfer."""
        self.serves_one = False
        """Queue: whether all deliveries are for one subscriber until it has ended."""
        self.served: bytes | None = None
        """The name of that subscriber; None until it is chosen."""
        self.gap: bytes | None = None
        """Queue: the tag of the first message that the home does not have yet. Messages with later tags wait for it."""
        self.until: dict[Record, float] = {}  # deadlines of records that no subscriber can have yet
        self.ahead: dict[str, int] = {}  # bytes of the first withheld message that each router has
        self.gates: dict[bytes, Gate] = {}  # by subscriber name

    # the publisher's attach

    def name_life(self, generation: bytes) -> None:
        """The attach resumes this life, or begins it."""
        self.generation = generation
        self.keys = KeyMaker(self.publisher, generation)

    def begin(self) -> None:
        """This router is the home from now on."""
        assert not self.begun
        self.begun = True

    def resume(self, doubted: Mapping[bytes, bytes], *, complete: bool) -> None:
        """Take over the deliveries (key to tag) that the publisher's map has in doubt."""
        assert not self.records and not self.expected
        self.incomplete = not complete
        self.expected = {key: tag for key, tag in doubted.items() if key not in self.settled_before}

    def list_held(self, keys: Iterable[bytes]) -> None:
        """Put these deliveries, which the publisher has in doubt, into the map of the answer to its attach."""
        self.reply = {self.expected[key]: 0 for key in keys}

    def attached(self) -> None:
        """The router answers the publisher's attach."""
        self.answered = True

    def leave(self) -> None:
        """The publisher's link is gone. Its transfers count against no window any more."""
        self.link = None
        self.window.close()

    def suspend(self) -> None:
        """The publisher's connection is gone, and the publisher may come back."""
        self.leave()
        self.until.clear()
        self.echo_covers = None

    def supersede(self) -> None:
        """The publisher has a later attach: this stream ends."""
        self.leave()
        self.gates.clear()
        self.unassigned.clear()
        self.reserving.clear()

    def abandon(self, followed_by: bytes | None) -> None:
        super().abandon(followed_by)
        self.unassigned.clear()
        self.reserving.clear()
        self.leave()

    # transfers, and earlier settlements

    def transferred(self, keys: Iterable[bytes], sizes: Sequence[int]) -> None:
        """The publisher has transferred messages of these sizes, in bytes."""
        self.received += len(sizes)
        if self.settled_before:
            self.settled_before.difference_update(keys)
        self.window.take(sizes)

    def transferred_settled(self, records: Iterable[Record]) -> None:
        """The publisher has settled these deliveries, still in doubt, by transferring them again (protocol 7.3)."""
        self.settled_again.update(records)

    def settled_of(self, records: Iterable[Record]) -> list[Record]:
        """Returns the records among these that the publisher settled by transferring them again."""
        return [record for record in records if record in self.settled_again] if self.settled_again else []

    def settle_again(self, records: Iterable[Record]) -> None:
        """The whole audience has answered these records, so the home settles them now."""
        self.settled_again.difference_update(records)

    def came_again(self, key: bytes) -> bytes | None:
        """The publisher transfers, or gives up, a delivery of its map. Returns its tag; None if the map lacks it."""
        return self.expected.pop(key, None)

    def hand_over(self, keys: Iterable[bytes]) -> None:
        """A former home reports keys that the publisher has settled there."""
        self.settled_before.update(keys)

    def expect_no_more(self, keys: Iterable[bytes]) -> None:
        """The deliveries of the map with these keys are settled already."""
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
        """The records placed last had no audience."""
        self.alone = self.next_n

    # questions of routers, and questions to the publisher

    def asked(self, key: bytes, router: str) -> None:
        """Remember that this router asked about the delivery: it gets `Resolved` when the delivery is settled."""
        self.askers.setdefault(key, set()).add(router)

    def take_askers(self, key: bytes) -> list[str]:
        """Returns, and forgets, the routers that asked about the delivery."""
        return sorted(self.askers.pop(key, ()))

    def lost_asker(self, router: str) -> None:
        for askers in self.askers.values():
            askers.discard(router)

    def question(self, question: Question) -> None:
        """Wait for a sign of life for this question. If the question waits already, only a later sign counts."""
        if question in self.questions:
            place = self.questions.index(question)
            del self.questions[place]
            if self.echo_covers is not None and place < self.echo_covers:
                self.echo_covers -= 1
        self.questions.append(question)

    def echo(self) -> None:
        """The router sends the publisher an echo, which covers all questions so far."""
        self.echo_covers = len(self.questions)

    def proven(self) -> list[Question]:
        """The publisher has shown life after the echo. Returns the questions that this answers."""
        count, self.echo_covers = self.echo_covers or 0, None
        assert count <= len(self.questions)
        proven, self.questions = self.questions[:count], self.questions[count:]
        return proven

    def ask_no_more(self) -> None:
        """Drop all questions: the publisher's life is over."""
        self.questions.clear()

    def is_questioned(self, key: bytes) -> bool:
        """Whether a router asked about the key, and the answer waits for a sign of life. A transfer is no such sign: it
        may be late."""
        return any(isinstance(question, tuple) and key in question[1] for question in self.questions)

    # waiting records

    @property
    def is_withholding(self) -> bool:
        return bool(self.withheld)

    def withhold(self, records: Iterable[Record]) -> None:
        """Withhold these records: they get no place in the publisher's order yet."""
        self.withheld.extend(records)

    def release_withheld(self) -> Record:
        """The first withheld record goes on. Returns it."""
        return self.withheld.popleft()

    def drop_withheld(self) -> list[Record]:
        dropped = list(self.withheld)
        self.withheld.clear()
        return dropped

    def put_off(self, key: bytes) -> Record | None:
        return None if self.is_questioned(key) else _of_key(key, self.withheld)

    def went_ahead(self, routers: Iterable[str], at: int) -> None:
        """The routers have been sent the first `at` bytes of the first withheld message."""
        self.ahead.update(dict.fromkeys(routers, at))

    def arrived_ahead(self, routers: Iterable[str]) -> list[int]:
        """The message goes on. Returns the number of its bytes that each router has been sent."""
        return [self.ahead.pop(router, 0) for router in routers]

    def lost_ahead(self, router: str) -> None:
        self.ahead.pop(router, None)

    def recall(self) -> dict[str, int]:
        """The message goes on at no router. Returns the number of its bytes that each router has been sent."""
        ahead, self.ahead = self.ahead, {}
        return ahead

    def count_time(self, until: Mapping[Record, float]) -> None:
        """Count the time of these records, which no subscriber can have yet, until these moments (protocol 5, Time to
        live)."""
        self.until.update(until)

    def stop_time(self, records: Iterable[Record]) -> None:
        """A subscriber may have these records from now on, or they are over: their time counts no longer."""
        if self.until:
            for record in records:
                self.until.pop(record, None)

    def wait_for_room(self, records: Sequence[Record]) -> None:
        """Balanced: these records wait for a subscriber that has room; perhaps once more."""
        place = self.kind.place
        places = list(map(place, [*islice(reversed(self.unassigned), 1), *records]))
        self.unassigned.update(dict.fromkeys(records))
        if any(later < earlier for earlier, later in pairwise(places)):
            self.unassigned = dict.fromkeys(sorted(self.unassigned, key=place))

    @property
    def next_ones(self) -> Collection[Record]:
        """The records that wait for a subscriber, without those behind a message of the queue that home lacks."""
        gap, last = self.gap, next(reversed(self.unassigned), None)
        if gap is None or last is None or last.tag < gap:
            return self.unassigned
        return [*takewhile(lambda record: record.tag < gap, self.unassigned)]

    def before_waiting(self, records: list[Record], subscriber: bytes) -> list[Record]:
        """The first of these records: all that come before any waiting record that the subscriber may get. A record
        waits for a subscriber, or for the queue to agree to this one."""
        place = self.kind.place
        unassigned = (record for record in self.unassigned if subscriber not in record.refused_by)
        waiting = min(map(place, chain(islice(unassigned, 1), self.reserving.get(subscriber, ()))), default=None)
        return records if waiting is None else [*takewhile(lambda record: place(record) < waiting, records)]

    def wait_no_more(self, records: Iterable[Record]) -> None:
        """A subscriber was chosen for these records, or they are over."""
        for waiting in (self.unassigned, *self.reserving.values()):
            for record in records if waiting else ():
                waiting.pop(record, None)

    def is_waiting(self, record: Record) -> bool:
        """Whether the record waits for a subscriber, or for the queue to agree to one."""
        return record in self.unassigned or any(record in chosen for chosen in self.reserving.values())

    def reserved_before(self, holders: Mapping[bytes, bytes]) -> None:
        """The queue had agreed to these subscribers (tag to name) before this attach, and to no other."""
        self.holders.update(holders)

    def refused_before(self, refusers: Mapping[bytes, tuple[bytes, ...]]) -> None:
        """Do not offer these subscribers (names by tag) the delivery that the queue transfers next with the tag."""
        self.refusers.update(refusers)

    def leave_out_refusers(self, records: Iterable[Record]) -> None:
        """Apply the refusals of `refused_before` to these new records."""
        for record in records if self.refusers else ():
            record.refused_by = self.refusers.pop(record.tag, ())

    def may_be_offered(self, subscriber: bytes) -> None:
        """The subscriber's link has ended: its refusals for itself do not count any more."""
        for record in () if self.kind.is_for_all else self.records.values():
            if record.refused_by:
                record.may_be_offered(subscriber)

    def serve(self, subscriber: bytes | None, *, only: bool = True) -> None:
        """Give deliveries only to this subscriber from now on; None: to one subscriber that is still to be chosen. If
        not `only`: to all subscribers."""
        self.serves_one, self.served = only, subscriber

    def lacks(self, tag: bytes | None) -> None:
        """The queue publishes the delivery with this tag next, before all later ones; None: it has none to publish."""
        self.gap = tag

    def having(self) -> set[bytes]:
        """The names of the subscribers that may have a delivery, or for which one is reserved."""
        chosen = {one.chosen for one in self.records.values() if one.chosen and one.state is not State.SETTLED}
        return chosen | self.reserving.keys() | {*self.holders.values()}

    def take_holder(self, record: Record) -> bytes:
        """Return, and forget, the subscriber to which the queue had agreed."""
        return self.holders.pop(record.tag)

    def reserve(self, records: Iterable[Record], subscriber: bytes) -> None:
        """The queue is to agree to this subscriber for these records."""
        self.reserving.setdefault(subscriber, {}).update(dict.fromkeys(records))

    def agreed(self, records: Iterable[Record], subscriber: bytes) -> list[Record]:
        """The queue has agreed. Returns the records that were still waiting for this."""
        waiting = self.reserving.get(subscriber, {})
        found = [record for record in records if record in waiting]
        for record in found:
            del waiting[record]
        if not waiting:
            self.reserving.pop(subscriber, None)
        return found

    # gates

    def gate(self, gate: Gate) -> None:
        """Hold newer deliveries back from the gate's subscriber."""
        self.gates[gate.subscriber] = gate

    def open_gate(self, subscriber: bytes) -> None:
        """The subscriber gets newer deliveries, or is gone."""
        self.gates.pop(subscriber, None)

    def drop_gates(self) -> None:
        """Drop all gates, without telling the subscribers' routers."""
        self.gates.clear()


def _of_key(key: bytes, come: Iterable[Record]) -> Record | None:
    return next((r for r in come if r.key == key and r.state is State.IN_DOUBT and not r.presettled), None)
