"""The client's end of a session, according to the specification (AMQP 1.0 2.5, 2.7). It checks every frame of the
router.
"""

from typing import TYPE_CHECKING, Any

from attrs import define, field

from tests.fuzz.odd.codec import Typed
from tests.fuzz.odd.ledger import DYNAMIC, Ledger
from tests.fuzz.odd.links import MOD, Kept, Link, Received, Receiver, Sender, Sent, ahead
from tests.fuzz.odd.performatives import CONDITIONS

if TYPE_CHECKING:
    from tests.fuzz.odd.connection import OddConnection

EPOCH, GENERATION = Typed("symbol", "oncemesh:epoch"), Typed("symbol", "oncemesh:generation")


@define(eq=False, repr=False)
class Session:
    client: "OddConnection"
    ledger: Ledger
    channel: int
    handle_max: int
    window: int
    """The number of transfers that we take, as we have last sent it."""
    next_out: int
    """The transfer number of our next transfer."""
    next_id: int
    """The delivery-id of our next delivery."""
    begun: bool = False
    """Whether the router has begun it."""
    ended: bool = False
    """We have ended it. `gone`: the router has."""
    gone: bool = False
    their_channel: int | None = None
    their_handle_max: int = 3
    """The default of any peer, until the router has sent its own."""
    their_window: int = 0
    """The number of transfers that we may still send."""
    stated_in: int = 0
    """`next_in` when we last sent our window."""
    first_in: int = 0
    next_in: int = 0
    """The transfer number of the router's next transfer, and of its first one."""
    room: int = 0
    """The number of transfers that the router may still send, by the latest begin or flow that it has read."""
    lenient: int = 0
    expected: int | None = None
    """The delivery-id of the router's next delivery."""
    owes_flow: bool = False
    asked: bool = False
    mine: dict[int, Link] = field(factory=dict)
    """Keyed by our handle: links that we have attached."""
    theirs: dict[int, Link] = field(factory=dict)
    waiting: list[Link] = field(factory=list)
    """Attaches without an answer, in order."""
    parting: list[Link] = field(factory=list)
    """Links that we have detached, and the router has not."""
    sent: dict[int, Sent] = field(factory=dict)
    received: dict[int, Received] = field(factory=dict)
    """Deliveries that are not settled at both ends."""

    def __repr__(self) -> str:
        return f"{self.client.name} channel {self.channel}"

    def window_read(self, next_in: int | None, window: int) -> None:
        """The router has read a begin or a flow of ours."""
        used = ahead(self.next_in, self.first_in if next_in is None else next_in) if self.begun else 0
        self.room = window - used
        self.lenient = max(self.lenient, self.room)

    # frames of the router

    def take(self, name: str, fields: dict[str, Any], payload: bytes) -> None:
        assert self.begun or name == "begin", f"{self}: {name} before begin"
        assert not self.gone, f"{self}: {name} after end"
        getattr(self, f"_take_{name}")(fields, payload)

    def begin(self, channel: int, fields: dict[str, Any]) -> None:
        self.begun, self.their_channel = True, channel
        self.their_handle_max = fields["handle_max"]
        self.first_in = self.next_in = self.stated_in = fields["next_outgoing_id"]
        self.their_window = fields["incoming_window"]

    def _take_end(self, fields: dict[str, Any], _: bytes) -> None:
        assert self.ended, f"{self}: the router has ended the session: {fields['error']}"
        self.gone = True

    def _take_attach(self, fields: dict[str, Any], _: bytes) -> None:
        handle = fields["handle"]
        assert handle <= self.handle_max, f"{self}: handle {handle} is above handle-max {self.handle_max}"
        assert handle not in self.theirs, f"{self}: handle {handle} is in use"
        key = fields["name"], not fields["role"]
        link = next((one for one in self.waiting if (one.name, one.receives) == key), None)
        assert link is not None, f"{self}: nobody has asked for link {fields['name']}"
        for other in self.theirs.values():
            assert (other.name, other.receives) != key or other.session is not self, f"{self}: {key} is attached twice"
        self.waiting.remove(link)
        link.their_handle, link.answered = handle, True
        self.theirs[handle] = link
        self._attached(link, fields)

    def _attached(self, link: Link, fields: dict[str, Any]) -> None:
        terminus = fields["source" if link.receives else "target"]
        link.refused = terminus is None
        assert not link.refused or link.refusable or link.stolen or link.detached or self.ended, f"{link} is refused"
        if isinstance(link, Receiver):
            assert fields["initial_delivery_count"] is not None, f"{link}: no initial-delivery-count"
            link.count = link.initial = fields["initial_delivery_count"]
            default = terminus[1]["default_outcome"] if terminus is not None else None
            link.default_outcome = default[0] if default is not None else ""
        elif isinstance(link, Sender):
            link.max_message = fields["max_message_size"] or 0
        if link.refused:
            return
        sender, receiver = link.modes
        if sender == 0 and isinstance(link, Receiver):
            sender = 2  # other publishers send settled messages
        assert fields["snd_settle_mode"] == sender, f"{link}: snd-settle-mode is {fields['snd_settle_mode']}"
        assert fields["rcv_settle_mode"] == receiver, f"{link}: rcv-settle-mode is {fields['rcv_settle_mode']}"
        if link.dynamic:
            assert (terminus[1]["address"] or "").startswith(DYNAMIC) and terminus[1]["dynamic"], f"{link}: {terminus}"
            link.address = terminus[1]["address"]
            self.ledger.dynamic.append(link.address)
            if sender == 1:
                self.ledger.settles.add(link.address)
        assert terminus[1]["address"] == (link.address or None), f"{link} is attached to {terminus}"
        properties = fields["properties"] or {}
        link.epoch, link.generation = properties.get(EPOCH), properties.get(GENERATION) or link.generation
        if link.former is not None and not link.continues:
            self._resumed(link, link.former, fields, properties)
        elif link.former is not None and isinstance(link, Receiver):
            theirs = (fields["unsettled"] or {}).keys()
            assert theirs <= link.former.named, f"{link}: the router's map names what is resumed, or was never named"
            link.former.named &= theirs  # deliveries that it leaves out are settled (protocol 6.8, 6.11)
        if isinstance(link, Receiver):
            if link.subscription is None:
                link.subscription = self.ledger.begin(repr(link), link.address, presettled=sender == 1)
            if link.detached or self.ended:
                link.subscription.over = link.subscription.over or link.former is None
            else:
                link.subscription.until = None

    def _resumed(self, link: Link, former: Kept, fields: dict[str, Any], properties: dict[Any, Any]) -> None:
        """The router's map determines the deliveries that it resumes (2.6.13)."""
        theirs = fields["unsettled"]
        assert theirs is not None, f"{link} was not forgotten, and its map is null"
        assert not fields["incomplete_unsettled"], f"{link}: an incomplete map, and our frames have room"
        assert theirs.keys() <= former.unsettled.keys(), f"{link}: the router's map names what ours does not"
        former.named = set(theirs)
        if not isinstance(link, Sender):
            return
        assert properties.get(GENERATION) == former.link.generation, f"{link}: another generation"
        for row in former.unsettled.values():
            assert isinstance(row, Sent)
            if row.outcome:
                row.message.settled = True
            else:
                link.resuming.append(row)

    def _take_detach(self, fields: dict[str, Any], _: bytes) -> None:
        link = self.theirs.pop(fields["handle"], None)
        assert link is not None, f"{self}: a detach of handle {fields['handle']}, which is not attached"
        link.gone = True
        if link in self.parting:
            self.parting.remove(link)
            assert not link.closed or fields["closed"] or fields["error"], f"{link}: a closing detach is not answered"
        if fields["error"]:
            condition = fields["error"][1]["condition"]
            assert condition in CONDITIONS, f"{link}: {condition} is no condition of AMQP"
            expected = link.refused or link.stolen or link.refusable or link.detached or self.ended
            assert expected, f"{link} is detached: {fields['error']}"
        else:
            assert link.detached or link.stolen or self.ended, f"{link} is detached"
        if isinstance(link, Receiver) and not link.detached:
            self.client.over(link)

    def _take_flow(self, fields: dict[str, Any], _: bytes) -> None:
        known = fields["next_incoming_id"]
        assert known is not None or self.ended, f"{self}: a flow without next-incoming-id"
        if known is None:
            return
        assert ahead(self.next_out, known) >= 0, f"{self}: the router has got what was not sent"
        self.their_window = max(0, fields["incoming_window"] - ahead(self.next_out, known))
        assert fields["next_outgoing_id"] == self.next_in, f"{self}: next-outgoing-id {fields['next_outgoing_id']}"
        self.owes_flow = False
        if fields["handle"] is None:
            self.asked = self.asked or fields["echo"]
            return
        link = self.theirs.get(fields["handle"])
        assert link is not None, f"{self}: a flow of handle {fields['handle']}, which is not attached"
        link.owes_flow = ""
        link.asked = link.asked or fields["echo"]
        if isinstance(link, Sender):
            count = link.initial if fields["delivery_count"] is None else fields["delivery_count"]
            link.credit = max(0, (fields["link_credit"] or 0) - max(0, ahead(link.count, count)))
        elif isinstance(link, Receiver):
            self._take_senders_flow(link, fields)

    def _take_senders_flow(self, link: Receiver, fields: dict[str, Any]) -> None:
        assert fields["delivery_count"] is not None and link.count is not None, f"{link}: a flow without delivery-count"
        advance = (fields["delivery_count"] - link.count) % MOD
        if link.partial is not None and advance == MOD - 1:  # the delivery that is half sent may count or not
            return
        assert advance <= max(link.room, link.lenient, 0), f"{link}: delivery-count goes {advance} ahead"
        assert not advance or link.may_drain, (
            f"{link}: delivery-count {fields['delivery_count']}, expected {link.count}"
        )
        link.count = fields["delivery_count"]
        link.room -= advance
        link.lenient = max(link.room, 0)
        if link.owes_drain and link.room <= 0:
            assert fields["link_credit"] in (0, None), f"{link} is drained, and has credit"
            link.owes_drain = False

    def _take_transfer(self, fields: dict[str, Any], payload: bytes) -> None:
        self.next_in = (self.next_in + 1) % MOD
        self.room, self.lenient = self.room - 1, self.lenient - 1
        assert max(self.room, self.lenient) >= 0, f"{self}: a transfer beyond the session's window"
        link = self.theirs.get(fields["handle"])
        assert isinstance(link, Receiver), f"{self}: a transfer on handle {fields['handle']}"
        if link.partial is None:
            self._begin_delivery(link, fields)
        first = link.partial
        assert first is not None
        for name in ("delivery_id", "delivery_tag", "message_format"):
            assert fields[name] in (None, first[name]), f"{link}: {name} changes within a delivery"
        first["settled"] = bool(first["settled"] or fields["settled"])
        link.parts += payload
        assert first["resume"] or not (fields["aborted"] or fields["resume"]), f"{link}: aborted or resumed"
        if fields["aborted"] or not fields["more"]:
            parts, link.parts, link.partial = link.parts, b"", None
            while isinstance(link.heir, Receiver):
                link = link.heir
            if link.detached or self.ended:
                return
            if first["resume"]:
                self._again(link, {**first, "aborted": fields["aborted"]}, parts)
            else:
                self._whole(link, first, parts)

    def _begin_delivery(self, link: Receiver, fields: dict[str, Any]) -> None:
        number, tag = fields["delivery_id"], fields["delivery_tag"]
        assert number is not None and tag is not None, f"{link}: a first transfer without delivery-id or tag"
        assert self.expected in (None, number), f"{self}: delivery-id {number}, expected {self.expected}"
        self.expected = (number + 1) % MOD
        assert len(tag) <= 32, f"{link}: a tag of {len(tag)} bytes"
        is_over = link.detached or self.ended  # later settlements are not noted any more
        assert tag not in link.tags or is_over, f"{link}: a tag is used twice"
        is_named = link.former is not None and tag in link.former.named
        assert fields["resume"] or not is_named, f"{link}: {tag!r} is in both maps, and not resumed"
        assert link.count is not None
        link.count = (link.count + 1) % MOD
        link.room, link.lenient = link.room - 1, link.lenient - 1
        assert max(link.room, link.lenient) >= 0, f"{link}: a delivery beyond the link's credit"
        link.partial = dict(fields)

    def _whole(self, link: Receiver, fields: dict[str, Any], payload: bytes) -> None:
        assert link.subscription is not None, f"{link}: a transfer before attach"
        settled = fields["settled"]
        assert settled or link.modes[0] != 1, f"{link}: not settled in mode settled"
        message = self.ledger.deliver(link.subscription, fields["message_format"] or 0, payload, given=False)
        if link.max_message:
            assert len(payload) <= link.max_message, f"{link}: {len(payload)} bytes, of {link.max_message} at most"
        received = Received(fields["delivery_id"], fields["delivery_tag"], link, message)
        if settled:
            self.ledger.answer(link.subscription, message, "accepted")
            received.settled = True
        else:
            self.received[received.id] = link.tags[received.tag] = received

    def _again(self, link: Receiver, fields: dict[str, Any], payload: bytes) -> None:
        """A delivery in both maps is resumed (2.7.5)."""
        tag, former = fields["delivery_tag"], link.former
        assert former is not None and tag in former.named, f"{link}: {tag!r} is resumed, which is not in both maps"
        former.named.discard(tag)
        row = former.unsettled[tag]
        assert isinstance(row, Received) and link.subscription is not None
        if fields["aborted"]:
            return
        theirs = fields["state"][0] if fields["state"] else ""
        if not theirs and not row.outcome:
            self.ledger.deliver(link.subscription, fields["message_format"] or 0, payload, given=True)
        received = Received(fields["delivery_id"], tag, link, row.message, outcome=row.outcome or theirs)
        if not fields["settled"]:
            self.received[received.id] = link.tags[tag] = received

    def _take_disposition(self, fields: dict[str, Any], _: bytes) -> None:
        first, last = fields["first"], fields["first"] if fields["last"] is None else fields["last"]
        assert 0 <= ahead(last, first) < 100_000, f"{self}: a disposition of {first} to {last}"
        for number in ((first + i) % MOD for i in range(ahead(last, first) + 1)):
            if fields["role"]:
                self._take_outcome(number, fields)
            elif fields["settled"]:
                received = self.received.pop(number, None)
                if received is not None:
                    received.settled = True
                    received.link.tags.pop(received.tag, None)

    def _take_outcome(self, number: int, fields: dict[str, Any]) -> None:
        sent = self.sent.get(number)
        if sent is None:
            return
        assert sent.known, f"{self}: an outcome of {sent.message}, which the router has not read"
        if fields["state"] is not None:
            name, details = fields["state"]
            if name == "rejected" and details["error"] is not None:
                condition = details["error"][1]["condition"]
                assert condition in CONDITIONS, f"{sent.message}: {condition} is no condition of AMQP"
            assert name != "received" or not fields["settled"], f"{sent.message} is settled as received"
            if name != "received":
                self.ledger.told(sent.message, name)
                sent.outcome = name
        if fields["settled"] and not sent.link.detached:
            assert sent.outcome or sent.settled, f"{sent.message} is settled without an outcome"
            assert sent.first or sent.settled, f"{sent.message} is settled by the router first in mode second"
        if fields["settled"]:
            sent.told_settled = sent.message.settled = True
            del self.sent[number]
