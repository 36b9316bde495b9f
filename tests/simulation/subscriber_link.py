"""A subscriber's link: it carries deliveries and settlements one way, outcomes and credit the other."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from router.amqp.format.values import OutcomeDetails
from tests.failures import unmarked
from tests.simulation.filters import as_asked, leaves_out
from tests.simulation.link import Link
from tests.simulation.transactions import DealingEnd
from topic.actions import (
    AnswerSubscriber,
    Deliver,
    Discharged,
    Echo,
    LinkAction,
    Redeliver,
    Resume,
    RetirementsOver,
    SettleSubscriber,
)
from topic.delivery.outcomes import GIVEN_BACK, DeliveryOutcome
from topic.delivery.record import Record
from topic.edge.subscriber import LocalSubscriber
from topic.identity import Epoch

if TYPE_CHECKING:
    from tests.simulation.router import Router
    from tests.simulation.subscriber import SubscriberClient


class SubscriberLink(Link):
    client: "SubscriberClient"
    subscriber: LocalSubscriber
    contacts: dict[str, object]
    """The contacts of its router when the attach reached the router."""

    def __init__(
        self, router: "Router", client: "SubscriberClient", number: int, first: bool, sends_settled: bool
    ) -> None:
        super().__init__(router, client, number, first)
        self.sends_settled = sends_settled
        self.wants = client.wants
        self.no_local = client.no_local
        reader = router.judge.readers[client.name]
        reader.links.append(self)
        reader.recent.append(self)
        self.answered_at = 0.0
        self.joined_by: set[tuple[str, int]] = set()
        """Incarnations of homes that have joined this link, after its attach was answered."""
        self.lapsed_at: set[tuple[str, int]] = set()
        """Incarnations of homes that have waited for it in vain while they were out of contact with its router."""
        self.settled_there: dict[bytes, Record] = {}
        """Messages in its client's map -> the settled record that the router had under the key when it answered the
        attach.
        """
        self.named: set[bytes] | None = None
        """Keys without an outcome in the map of the attach. None before the attach reaches the router."""
        self._limit = 0
        self._sent = 0
        self._draining = False
        self._writes = False
        self._unwritten = 0
        """Bytes of messages that the connection has not written yet."""
        self._records: dict[int, Record] = {}
        self._handles: dict[Record, int] = {}
        self._given_back: dict[Record, tuple[bytes, bool]] = {}
        """Deliveries that the client has given back -> the message, and whether the delivery counts as failed."""
        self.dealing = DealingEnd(self)
        self.forgotten: set[Record] = set()
        """Deliveries that the client has settled with a final outcome on this link, as its router knows."""
        self._due: dict[bytes, float] = {}
        """Key -> when its latest transfer reaches the client, if nothing breaks."""

    def is_bringing(self, key: bytes) -> bool:
        """Whether a transfer of the key is under way to the client."""
        return key in self._due and self.router.schedule.now <= self._due[key] <= self._until[1]

    def attach(self, seen: Epoch, unsettled: dict[bytes, int] | None, complete: bool) -> None:
        topic, now, client = self.router.topic, self.router.schedule.now, self.client
        self._arrived()
        self.afresh = unsettled is None
        self.named = {key for key, state in (unsettled or {}).items() if not state}
        judge, here = self.router.judge, self.router
        judge.comes(self, unsettled)
        self.contacts = {name: judge.contact(here, name) for name in here.names}
        judge.memory.named = set(unsettled or ())
        self.subscriber = topic.attach_subscriber(
            client.identity, self, now, seen=seen, first=self.first, sends_settled=self.sends_settled,
            lifetime=client.lifetime, unsettled=unsettled, complete=complete, wants=as_asked(self),
        )  # fmt: skip
        judge.memory.named = set()
        self._given(self.subscriber.epoch)

    def is_current(self) -> bool:
        """Whether the router knows the subscriber by this link."""
        entry = self.router.topic.directory.subscriber(self.subscriber.name)
        return not self.ended and entry is not None and entry.live and entry.epoch == self.epoch

    def knows(self) -> None:
        self.router.topic.ending_known(self.subscriber)

    def suspend(self) -> None:
        self.dealing.leave()
        self.router.judge.plain.gone(self)
        self.router.topic.suspend_subscriber(self.subscriber, self, self.router.schedule.now)

    def detach(self) -> None:
        self.dealing.leave()
        self.router.judge.plain.gone(self)
        self.router.topic.detach_subscriber(self.subscriber, self, self.router.schedule.now)

    def lost(self) -> None:
        self.router.judge.plain.gone(self)

    def stolen(self) -> None:
        self.dealing.leave()
        later = any(link.attached and link.number > self.number for link in self.client.opened)
        if not later:
            self.router.judge.plain.overtaken(self)

    def flow(self, limit: int, *, drain: bool = False) -> None:
        """The client takes this many deliveries in all. The limit is lower than before if the client takes credit
        back."""
        self._limit = limit
        self._draining = drain
        self.router.topic.credit(self.subscriber, max(limit - self._sent, 0))
        self.router.node.perform()
        self._perhaps_drained()

    def _perhaps_drained(self) -> None:
        waits = self.subscriber.room <= 0 and self.subscriber.ready
        if self._draining and self.answered and not self.ended and not waits:
            self._drained()

    def drain(self, limit: int) -> None:
        self.flow(limit, drain=True)

    def _drained(self) -> None:
        """The router has sent what it could. The rest of the credit is used up."""
        self._draining = False
        unused = max(self._limit - self._sent, 0)
        self._limit -= unused
        self.router.topic.credit(self.subscriber, 0)
        self.to_client(self.client.drained, unused)

    def echoed(self) -> None:
        self.router.topic.echoed(self.subscriber)

    def outcome(
        self, handle: int, outcome: DeliveryOutcome, final: bool, settled: bool, failed: bool, annotations: bytes
    ) -> None:
        record = self._records.get(handle)
        if record is None:
            return
        self.dealing.replace(record, int(outcome), settled)
        if settled:
            del self._records[handle], self._handles[record]
            if outcome not in GIVEN_BACK:
                self.forgotten.add(record)
        if outcome in GIVEN_BACK and record.message is not None:
            text = unmarked(record.message)[0]
            self.gives_back(record, text, failed, annotations)
            if not final:
                self.router.judge.balanced.comes_back(self, text)
        self.router.topic.outcomes(
            self.subscriber, [record], outcome, final=final, failed=failed, settled=settled, annotations=annotations
        )

    def gives_back(self, record: Record, text: bytes, failed: bool, annotations: bytes) -> None:
        """The router hands on that the client gives a delivery back."""
        self._given_back[record] = text, failed
        self.router.judge.queues.gives_back(self, text, annotations)

    def record_of(self, handle: int) -> Record | None:
        """The unsettled delivery with this handle."""
        return self._records.get(handle)

    @property
    def link(self) -> DealingEnd:
        """The link in the form in which `router.edge.transactions` needs the end of a consumer."""
        return self.dealing

    def settle_here(self, records: Sequence[Record]) -> None:
        """Settle deliveries within a transaction."""
        for record in records:
            if (handle := self._handles.pop(record, None)) is not None:
                del self._records[handle]
                self.to_client(self.client.settled, [handle], record in self._given_back)

    def carry_out(self, action: LinkAction) -> None:
        if isinstance(action, AnswerSubscriber):
            self.router.note(self.router.name, f"answers {self}: {action.unsettled}")
            self.check(not self.answered, "5 one answer: an attach is answered once")
            self.answered = True
            self.check(action.epoch == self.epoch, f"2 epoch: {self} is answered with another one than it was given")
            self.router.judge.termini.answered(self)
            self.router.judge.attached(self)
            self.settled_there = self.router.judge.memory.settled_at(self)
            self.to_client(self.client.attached, action.epoch, *self.fit(action.unsettled))
            self.router.topic.room(self.subscriber, self.router.knobs.unwritten)
            self.router.node.later(self._take_first_credit)
        elif isinstance(action, Deliver):
            for record in action.records:
                self._transfer(record, 0)
        elif isinstance(action, Redeliver):
            self._settle([action.record], again=True)
            assert action.attempts > 0
            self._transfer(action.record, action.attempts)
        elif isinstance(action, Resume):
            self._resume(action)
        elif isinstance(action, RetirementsOver):
            self.dealing.over(action)
        elif isinstance(action, Discharged):
            self.dealing.discharged(action)
        elif isinstance(action, Echo):
            self.to_client(self.client.echo)
        else:
            assert isinstance(action, SettleSubscriber)
            self._settle(action.records)

    def _take_first_credit(self) -> None:
        if not self.ended:
            self.flow(self._limit, drain=self._draining)

    def _next(self, record: Record, settled: bool) -> int:
        self.check(self._sent < self._limit, f"6 credit: {self} is sent more than it takes")
        handle = self._sent
        self._sent += 1
        if not settled:
            self.check(record not in self._handles, f"1 exactly once: {record.message!r} twice on {self}")
            self._records[handle] = record
            self._handles[record] = handle
        return handle

    def _transfer(self, record: Record, attempts: int) -> None:
        self.check(record.message is not None, f"4 message: gone before {self} has it")
        assert record.message is not None
        text, _ = unmarked(record.message)
        wanted = attempts > 0 or not leaves_out(self, text)
        self.check(wanted, f"6 filter: {text.decode()} goes to {self}, which wants {as_asked(self)}")
        settled = self.sends_settled or record.presettled
        self._give(record)
        handle = self._next(record, settled)
        self.client.applications.transferred(self, record, attempts)
        self.to_client(self.client.delivered, handle, record.key, text, settled, attempts, False)
        self._due[record.key] = self._arrival[1]

    def _give(self, record: Record) -> None:
        """Give the message to the connection, which writes soon when it is full."""
        fits = self._unwritten < self.router.knobs.unwritten or self.router.knobs.presettled > 0
        self.check(fits, f"6 bytes: {self} is given more while {self._unwritten} are not written")
        self._unwritten += record.size
        if self.subscriber.room <= 0 and not self._writes:
            self._writes = True
            at = self.router.schedule.now + self._soon(self.router.knobs.client_delay)
            self.router.schedule.at(at, self.router.handle, self._written)

    def _written(self) -> None:
        self._unwritten = 0
        self._writes = False
        if not self.ended:
            self.router.topic.room(self.subscriber, self.router.knobs.unwritten)
            self.router.node.perform()
            self._perhaps_drained()

    def _resume(self, action: Resume) -> None:
        """Transfer with resume=true: the state that both ends agree on, or the payload unless the delivery is
        settled."""
        record, client = action.record, self.client
        self._give(record)
        handle = self._next(record, action.settled)
        self.client.applications.resumed(self, record, action.state, action.settled)
        if action.state or action.settled:
            self.to_client(client.restated, handle, record.key, action.state, action.settled)
        else:
            self.check(record.message is not None, f"4 message: gone before {self} has it")
            text, _ = unmarked(record.message or b"")
            self.to_client(client.delivered, handle, record.key, text, False, 0, True)

    def added(self, outcome: OutcomeDetails) -> bytes:
        """See `RetiringEnd.added`."""
        return outcome.annotations

    def _settle(self, records: list[Record], *, again: bool = False) -> None:
        self.dealing.settled(records)
        for record in records:
            if (given_back := self._given_back.pop(record, None)) is not None:
                self.router.judge.queues.came_back(self, *given_back)
        handles = [handle for record in records if (handle := self._handles.pop(record, None)) is not None]
        for handle in handles:
            del self._records[handle]
        if handles:
            self.to_client(self.client.settled, handles, again)
