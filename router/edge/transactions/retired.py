"""The deliveries of one consumer whose outcomes belong to transactions (AMQP 1.0 4.4.2).

The core gets such an outcome only when the transaction is committed. If the transaction is rolled back, the consumer
has the delivery as before. If the consumer has settled it, however, the message goes back to its queue as a failed
delivery, because the consumer may have begun to process it."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Protocol

from router.amqp.format.values import Handle, OutcomeDetails
from router.amqp.proton.link import Link
from router.edge.transactions.parts import transaction_of
from topic.actions import RetirementsOver, TransactionEnd
from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import Record
from topic.edge.subscriber import LocalSubscriber
from topic.identity import queue_of
from topic.node import Node
from topic.queues.transactions.transactions import Retired, Transaction, Transactions

OUTCOMES = {int(outcome): outcome for outcome in DeliveryOutcome}


class RetiringEnd(Protocol):
    """The end of a consumer's link: `router.edge.subscriber_link`."""

    link: Link
    subscriber: LocalSubscriber

    def settle_here(self, records: Sequence[Record]) -> None:
        """Settle deliveries on this link."""

    def added(self, outcome: OutcomeDetails) -> bytes:
        """The annotations of this outcome for the next consumer, or for a dead letter."""


class RetiredDeliveries:
    """The deliveries of one consumer's link whose outcomes belong to transactions."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._retired: dict[Record, Retired] = {}

    def __bool__(self) -> bool:
        return bool(self._retired)

    def take(
        self, end: RetiringEnd, handles: Iterable[Handle], records: Iterable[Record], settled: Iterable[bool]
    ) -> bool:
        """Take dispositions within transactions. Returns False if one of them has made the router detach the link."""
        address = end.subscriber.identity.address
        for handle, record, is_settled in zip(handles, records, settled, strict=True):
            name, told = end.link.remote_transaction(handle)
            found = transaction_of(end.link, self._node, address, name)
            if found is None:
                return False
            transactions, one = found
            if told.state or is_settled:
                self._retire(end, transactions, one, record, told, is_settled=is_settled)
            if is_settled:
                end.settle_here([record])
        self._node.transacts()
        return True

    def _retire(
        self,
        end: RetiringEnd,
        transactions: Transactions,
        one: Transaction,
        record: Record,
        told: OutcomeDetails,
        *,
        is_settled: bool,
    ) -> None:
        known = self._retired.get(record)
        if known is not None and known.of is not one:
            why = "a delivery belongs to two transactions"
            transactions.fail(known.of, TransactionEnd.ROLLED_BACK, why)
            transactions.fail(one, TransactionEnd.ROLLED_BACK, why)
        set_, queue = queue_of(end.subscriber.identity.address)
        retired = self._retired[record] = Retired(
            of=one,
            link=end,
            record=record,
            queue=queue,
            consumer=end.subscriber.name,
            key=record.key,
            # A client that names no outcome means the default-outcome of our source.
            outcome=OUTCOMES.get(told.state, DeliveryOutcome.RELEASED),
            final=told.undeliverable,
            failed=told.failed,
            annotations=end.added(told),
            is_settled=is_settled,
        )
        transactions.retire(retired, set_, self._node.now())

    def replace(self, records: Sequence[Record], states: Sequence[int], settled: Sequence[bool]) -> None:
        """Take outcomes of deliveries outside of transactions. If one of these deliveries belongs to a transaction
        already, the transaction can only be rolled back."""
        for record, state, is_settled in zip(records, states, settled, strict=True):
            retired = self._retired.pop(record, None) if state or is_settled else None
            if retired is not None:
                self._fail(retired, "its client has told another outcome of a delivery, outside of it")

    def _fail(self, retired: Retired, why: str) -> None:
        transactions = self._node.transactions
        assert transactions is not None
        transactions.fail(retired.of, TransactionEnd.ROLLED_BACK, why)
        self._node.transacts()

    def forget(self, records: Iterable[Record]) -> None:
        """Forget deliveries that the core has settled."""
        for record in records:
            self._retired.pop(record, None)

    def drop_all(self) -> None:
        """Let all transactions with deliveries of this link fail, because the link has ended. They can only be rolled
        back."""
        retired, self._retired = self._retired, {}
        for one in retired.values():
            self._fail(one, "a link has ended on which it has outcomes")

    def over(self, end: RetiringEnd, action: RetirementsOver) -> None:
        """Handle the end of a transaction. After a commit, the core gets the outcomes. After a rollback, settled
        deliveries go back to their queue as failed."""
        outcomes: Sequence[Retired] = action.outcomes
        there = [one for one in outcomes if self._retired.get(one.record) is one]
        for one in there:
            del self._retired[one.record]
        if action.committed:
            end.settle_here([one.record for one in there])
            for told, run in groupby(there, lambda one: (one.outcome, one.final, one.failed, one.annotations)):
                self._tell(end, [one.record for one in run], *told)
        else:
            back = [one.record for one in there if one.is_settled]
            self._tell(end, back, DeliveryOutcome.MODIFIED, False, True, b"")

    def _tell(
        self,
        end: RetiringEnd,
        records: list[Record],
        outcome: DeliveryOutcome,
        final: bool,
        failed: bool,
        annotations: bytes,
    ) -> None:
        self._node.topic.outcomes(end.subscriber, records, outcome, final=final, failed=failed, annotations=annotations)
