"""Transactions of consumers of queues (protocol 14.20): the client, and its router's end of it.

A client puts outcomes of messages that it has, and new messages for queues, into a transaction, and discharges it. It
may settle a delivery itself in the transaction, discharge twice, and disappear at any time. Its consumer's link, its
link to the coordinator, and its messages share a connection, which is the `SubscriberLink` here.

The model leaves out undeliverable-here and annotations in transactions, a coordinator that outlives the consumer's
link, and the time limit. `tests/topic/queues/test_transactions.py` has these.

`tests.simulation.transaction_judge` judges the transactions.
"""

from collections.abc import Iterable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

import attrs

from router.amqp.format.values import OutcomeDetails
from router.edge.transactions.retired import RetiredDeliveries
from tests.failures import unmarked
from topic.actions import Discharged, RetirementsOver, TransactionEnd
from topic.delivery.allowance import unbounded
from topic.delivery.outcomes import GIVEN_BACK, DeliveryOutcome
from topic.queues.transactions.transactions import Transactions, UnknownTransactionError

if TYPE_CHECKING:
    from tests.simulation.link import Link
    from tests.simulation.queues import QueueWorld
    from tests.simulation.subscriber import SubscriberClient
    from tests.simulation.subscriber_link import SubscriberLink
    from topic.delivery.record import Record

MOST_PARTS = 5
"""A client discharges a transaction with so many parts."""
OUTCOMES: Final = (DeliveryOutcome.REJECTED, DeliveryOutcome.RELEASED, DeliveryOutcome.MODIFIED)


@attrs.define(eq=False)
class Retirement:
    """An outcome in a transaction."""

    key: bytes
    text: bytes
    outcome: DeliveryOutcome
    is_settled: bool
    """Whether the client has settled the delivery itself."""


@attrs.define(eq=False)
class Deal:
    """A transaction of a client."""

    client: str
    queue: str
    """The queue of the client's consumer."""
    link: "SubscriberLink"
    name: bytes | None = None
    """The name that the router has given to the transaction. None before the client has read it."""
    posts: list[tuple[str, bytes]] = attrs.Factory(list)
    """(queue, message)"""
    retired: list[Retirement] = attrs.Factory(list)
    unsent: list[Retirement | tuple[str, bytes]] = attrs.Factory(list)
    """The parts that wait for the name."""
    is_closing: bool = False
    """The client adds nothing any more."""
    commits: bool = False
    """The client has asked for a commit."""
    is_discharged: bool = False
    """The client has sent the discharge."""
    end: TransactionEnd | None = None
    """How the transaction has ended, as the client has read it."""

    def __str__(self) -> str:
        posts = [f"{text.decode()} for {queue}" for queue, text in self.posts]
        return f"transaction of {self.client} with {posts} and {[one.text.decode() for one in self.retired]}"


class DealingClient:
    """The part of a consumer that has transactions, one at a time."""

    def __init__(self, client: "SubscriberClient", queues: "QueueWorld", seed: int) -> None:
        self._client = client
        self._queues = queues
        self._dice = Random(f"transactions {seed} {client.name}")
        self._judge = client.judge.queues.deals
        self._queue = client.judge.queues.consumers[client.name].queue
        self._count = 0
        self.deal: Deal | None = None
        self._held: dict[bytes, bytes] = {}
        """Key -> message: deliveries in transactions whose answer was lost. The client does not process them before its
        router says that it has them."""

    # actions of the client

    def plan(self, until: float) -> None:
        """Plan transactions that only put messages into queues, unless one with outcomes is open."""
        for _ in range(self._dice.choice((0, 2, 5))):
            self._client.schedule.at(self._dice.random() * until, self._act)

    def _act(self) -> None:
        if self._begin():
            self._post()
            self._post()

    def _begin(self) -> bool:
        client = self._client
        link = client.link
        if link is None or not client.answered or client.calm or client.sends_settled:
            return False
        if self.deal is None:
            self.deal = Deal(client.name, self._queue, link)
            link.to_router(link.dealing.declare, self.deal)
            client.schedule.after(self._dice.random() * 3, self._close, self.deal)
        return not self.deal.is_closing

    def takes(self, key: bytes, text: bytes) -> bool:
        """The application has processed a message. Returns whether its outcome goes into a transaction."""
        client = self._client
        has_it = key in client.handles.values()
        if not has_it or self._dice.random() >= client.knobs.transactions or not self._begin():
            return False
        deal = self.deal
        assert deal is not None
        is_refused = self._dice.random() < min(client.knobs.refusing, 0.5)
        outcome = self._dice.choice(OUTCOMES) if is_refused else DeliveryOutcome.ACCEPTED
        one = Retirement(key, text, outcome, client.settles or self._dice.random() < 0.3)
        client.note(client.name, f"{outcome.name} {text.decode()} in its transaction{', settled' * one.is_settled}")
        deal.retired.append(one)
        self._add(deal, one)
        for _ in range(self._dice.choice((0, 1, 1, 2))):
            self._post()
        return True

    def _post(self) -> None:
        deal = self.deal
        if deal is None or deal.is_closing:
            return
        own = [name for name in self._queues.names if self._queues.set_of(name) == self._queues.set_of(self._queue)]
        queue = self._dice.choice(self._queues.names if self._dice.random() < 0.1 else own)
        self._count += 1
        text = b"%s.t%d" % (self._client.name.encode(), self._count)
        deal.posts.append((queue, text))
        self._judge.posted(queue, text)
        self._add(deal, (queue, text))

    def _add(self, deal: Deal, part: Retirement | tuple[str, bytes]) -> None:
        deal.unsent.append(part)
        if deal.name is not None:
            self._send(deal)
        if len(deal.posts) + len(deal.retired) >= MOST_PARTS:
            self._close(deal)

    def _send(self, deal: Deal) -> None:
        client, link = self._client, deal.link
        for part in deal.unsent:
            if isinstance(part, tuple):
                link.to_router(link.dealing.post, deal.name, *part)
                continue
            handle = next((handle for handle, key in client.handles.items() if key == part.key), None)
            if handle is None:  # its router has settled the delivery meanwhile
                link.to_router(link.dealing.lose_part, deal.name)
                continue
            link.to_router(link.dealing.retire, deal.name, handle, part.outcome, part.is_settled)
            if part.is_settled:
                del client.handles[handle], client.unsettled[part.key], client.texts[part.key]
                client.applications.settles(client.name, part.text)
        deal.unsent.clear()

    def _close(self, deal: Deal) -> None:
        deal.is_closing = True
        if deal is self.deal and deal.name is not None and not deal.is_discharged:
            self._discharge(deal)

    def _discharge(self, deal: Deal) -> None:
        deal.is_discharged = True
        deal.commits = self._client.calm or self._dice.random() < 0.8
        for _ in range(self._dice.choice((1, 1, 1, 2))):
            deal.link.to_router(deal.link.dealing.discharge, deal, not deal.commits)

    # answers of its router

    def declared(self, link: "Link", deal: Deal, name: bytes) -> None:
        if deal is self.deal:
            deal.name = name
            self._send(deal)
            if deal.is_closing:
                self._close(deal)

    def discharged(self, link: "Link", deal: Deal, end: TransactionEnd) -> None:
        if deal is not self.deal:
            return
        self._client.note(self._client.name, f"reads of its {deal}: {end.name}")
        deal.end, self.deal = end, None
        self._judge.told(deal)
        if end is not TransactionEnd.COMMITTED:
            self._have_again(deal.retired)

    def gives_back(self, key: bytes) -> bool:
        """Whether the client has given the delivery back in a transaction that it commits."""
        deal = self.deal
        return deal is not None and deal.commits and any(one.key == key for one in _given_back(deal))

    # the ends of links

    def left(self) -> None:
        """The client has lost its link, and its transaction with it."""
        deal, self.deal = self.deal, None
        if deal is None:
            return
        self._judge.lost(deal)
        if not deal.is_discharged:
            self._have_again(deal.retired)
            return
        self._client.note(self._client.name, f"does not know how its {deal} ends")
        for one in deal.retired:
            if one.key in self._client.unsettled:
                self._client.todo[one.key] = self._held[one.key] = one.text

    def attached(self) -> None:
        """Its next attach is answered: what its router has left out of its map is gone."""
        held, self._held = self._held, {}
        for key, text in held.items():
            if self._client.todo.get(key) is text:
                self._process_later(key, text)

    def _have_again(self, retired: Iterable[Retirement]) -> None:
        client = self._client
        for one in retired:
            if one.key in client.unsettled and client.unsettled[one.key] == 0:
                client.todo[one.key] = one.text
                self._process_later(one.key, one.text)

    def _process_later(self, key: bytes, text: bytes) -> None:
        self._client.later(partial(self._client.process, key, text))


def _given_back(deal: Deal) -> list[Retirement]:
    return [one for one in deal.retired if one.outcome in GIVEN_BACK]


def as_consumer(link: "SubscriberLink") -> Any:
    """The link as `RetiringEnd`. Only its `link`, the end of AMQP, is a double."""
    return link


class DealingEnd:
    """The transactions of one link at its router."""

    def __init__(self, link: "SubscriberLink") -> None:
        self._end = link
        self._retired: RetiredDeliveries | None = None
        """None before the first transaction."""
        self._told: dict[int, tuple[bytes, OutcomeDetails]] = {}
        self._deals: dict[bytes, Deal] = {}
        """The transactions that are not over, by name."""
        self.connection = self

    @property
    def _transactions(self) -> Transactions:
        found = self._end.router.node.transactions
        assert found is not None
        return found

    # as `router.edge.transactions` sees the link

    def remote_transaction(self, handle: int) -> tuple[bytes, OutcomeDetails]:
        return self._told[handle]

    def expel(self, link: object, condition: str, why: str) -> None:
        raise AssertionError(f"{self._end}: {condition}: {why}")

    # what the client sends

    def declare(self, deal: Deal) -> None:
        end = self._end
        if self._retired is None:
            self._retired = RetiredDeliveries(end.router.node)
        name = self._transactions.declare(self, end, unbounded())
        self._deals[name] = deal
        end.client.judge.queues.deals.declared(end.router, name, deal)
        assert end.client.dealing is not None
        end.to_client(end.client.dealing.declared, deal, name)

    def post(self, name: bytes, queue: str, text: bytes) -> None:
        set_ = self._end.client.judge.queues.set_of(queue)
        now = self._end.router.schedule.now
        self._transactions.post(self._transactions.find(self, name), set_, queue, text, now)
        self._end.router.node.transacts()

    def retire(self, name: bytes, handle: int, outcome: DeliveryOutcome, is_settled: bool) -> None:
        end = self._end
        record = end.record_of(handle)
        if record is None:
            self.lose_part(name)
            return
        details = OutcomeDetails(int(outcome), failed=outcome is DeliveryOutcome.MODIFIED and handle % 2 == 0)
        self._told[handle] = name, details
        assert self._retired is not None, "the transaction was declared on this link"
        self._retired.take(as_consumer(end), [handle], [record], [is_settled])

    def lose_part(self, name: bytes) -> None:
        """A delivery was over before its outcome came."""
        found = self._transactions.find(self, name)
        self._transactions.fail(found, TransactionEnd.ROLLED_BACK, "a delivery was over before its outcome came")
        self._end.router.node.transacts()

    def discharge(self, deal: Deal, fail: bool) -> None:
        assert deal.name is not None
        try:
            found = self._transactions.find(self, deal.name)
        except UnknownTransactionError:  # the client is told so
            return
        self._end.router.note(self._end.router.name, f"is asked to {'roll back' if fail else 'commit'} the {deal}")
        if not fail:
            self._end.client.judge.queues.deals.asked(deal)
        self._transactions.discharge(found, fail=fail)
        self._end.router.node.transacts()

    # ends of links

    def replace(self, record: "Record", outcome: int, is_settled: bool) -> None:
        """The client tells an outcome outside of a transaction."""
        if self._retired is not None:
            self._retired.replace([record], [outcome], [is_settled])

    def settled(self, records: "list[Record]") -> None:
        if self._retired is not None:
            self._retired.forget(records)

    def leave(self) -> None:
        """The link ends at its router."""
        if self._retired is not None:
            self._retired.drop_all()
            self._transactions.leave(self._end)
            self._end.router.node.transacts()

    # what the core says

    def over(self, action: RetirementsOver) -> None:
        assert self._retired is not None
        for one in action.outcomes:
            is_there = self._retired._retired.get(one.record) is one
            back = one.outcome if action.committed else DeliveryOutcome.MODIFIED if one.is_settled else None
            if is_there and back in GIVEN_BACK and one.record.message is not None:
                text, _ = unmarked(one.record.message)
                failed = one.failed if action.committed else True
                self._end.gives_back(one.record, text, failed, b"")
        self._retired.over(as_consumer(self._end), action)

    def discharged(self, action: Discharged) -> None:
        deal = self._deals.pop(action.transaction)
        self._end.router.note(self._end.router.name, f"ends the {deal}: {action.end.name} {action.why}")
        assert self._end.client.dealing is not None
        self._end.to_client(self._end.client.dealing.discharged, deal, action.end)
