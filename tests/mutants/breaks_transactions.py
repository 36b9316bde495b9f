"""Breakages of transactions on queues (protocol 14.20), which simulated meshes notice."""

from collections.abc import Iterable
from typing import Any

import attrs

from tests.mutants.breaks_queues import BUSY
from tests.mutants.mutant import KILLS, MOVING, Method, mutant
from tests.topic.queues import test_transactions
from topic.queues.leader.egress import Egress
from topic.queues.operations import QueueId
from topic.queues.proposals import Enqueued, Transact
from topic.queues.state import SetState
from topic.queues.transactions.decided import DecidedTransactions
from topic.queues.transactions.transactions import Transactions

DEALING = BUSY | {"transactions": 1.0, "publishers": 3, "queues": 2}


@mutant(SetState, "_commit", by="1", **MOVING | DEALING)
def messages_of_a_commit_lost(original: Method) -> Method:
    """14.20: a commit puts all its messages into their queues."""

    def broken(state: SetState, asked: Transact, entry: QueueId) -> list[Enqueued]:
        return original(state, attrs.evolve(asked, enqueues=asked.enqueues[1:]), entry)  # type: ignore[no-any-return]

    return broken


@mutant(SetState, "_commit", by="1", **MOVING | DEALING)
def messages_of_a_commit_kept(original: Method) -> Method:
    """14.20: a commit takes all its messages out of their queues."""

    def broken(state: SetState, asked: Transact, entry: QueueId) -> list[Enqueued]:
        return original(state, attrs.evolve(asked, retires=asked.retires[1:]), entry)  # type: ignore[no-any-return]

    return broken


@mutant(Transactions, "_tell", by="145", **MOVING | DEALING)
def rollback_forgets(original: Method) -> Method:
    """14.20: after a rollback, a message that the client has settled goes back to its queue."""

    def broken(transactions: Transactions, retired: list[Any], *, committed: bool) -> None:
        if committed:
            original(transactions, retired, committed=committed)

    return broken


@mutant(Transactions, "leave", by="145", **MOVING | DEALING)
def lost_link_commits(_: Method) -> Method:
    """14.20: a transaction whose client has gone before its discharge is rolled back."""

    def broken(transactions: Transactions, coordinator: Any) -> None:
        for one in [one for one in transactions._open.values() if one.coordinator is coordinator]:
            transactions.discharge(one, fail=False)

    return broken


@mutant(
    DecidedTransactions,
    "answer",
    by="1",
    scenario=test_transactions.test_a_second_decision_has_the_first_answer_and_no_effect,
)
def discharged_twice(_: Method) -> Method:
    """14.20: the second entry of a transaction gets the first answer, and has no other effect."""

    def broken(decided: DecidedTransactions, asked: Transact) -> str | None:
        return None

    return broken


@mutant(Egress, "await_transaction", by="1", **MOVING | DEALING)
def later_messages_do_not_wait(_: Method) -> Method:
    """14.20: no message behind a transaction is offered before the messages of the transaction."""

    def broken(egress: Egress, index: int) -> None: ...

    return broken


@mutant(Egress, "_take", by="4", **KILLS | DEALING)
def taken_deliveries_not_aborted(original: Method) -> Method:
    """14.20: if a transaction takes a message, routers learn that the message's delivery is over."""

    def broken(egress: Egress, *waiting: Any) -> Iterable[tuple[int, bytes]]:
        egress._named = _Silent(egress._named)
        return original(egress, *waiting)  # type: ignore[no-any-return]

    return broken


class _Silent(dict[int, bytes]):
    """Does not say which deliveries the attach has named."""

    def pop(self, position: int, default: Any = None) -> None:  # type: ignore[override]
        super().pop(position, default)
