"""Every interleaving of a transaction with cuts, restarts and the next leader (protocol 14.20). Larger scopes: `make
exhaustive`."""

from functools import partial

import pytest

from tests.topic.queues.transaction_search import LONG, QUICK, TransactionModel, TransactionScope
from tests.topic.raft.mutants import Broken, must_notice
from tests.topic.raft.search import Search
from topic.actions import TransactionEnd
from topic.queues.leader.commits import Commits
from topic.queues.requests import Requests
from topic.queues.state import SetState
from topic.queues.transactions.transactions import Transactions

COMMITTED, ROLLED_BACK = TransactionEnd.COMMITTED, TransactionEnd.ROLLED_BACK
WHOLE, NOTHING = (COMMITTED, True), (ROLLED_BACK, False)
IN_DOUBT = {(None, True), (None, False)}
ENDS = {
    "a link is lost": {WHOLE, (None, True)},
    "a rollback": {NOTHING},
    "a message comes back": {WHOLE, NOTHING, *IN_DOUBT},
    "a restart": {WHOLE, *IN_DOUBT},
    "a cut and the next leader": {WHOLE},
    "a cut and the next leader, at the leader": {WHOLE},
    "the leader dies": {WHOLE},
    "the leader dies, and disks are slow": {WHOLE},
    "the leader dies with the client": {WHOLE, *IN_DOUBT},
}
"""For each scope: what the client of a discharged transaction has read, and whether the leader has the transaction."""


def search(scope: TransactionScope) -> TransactionModel:
    found = Search(scope, TransactionModel)
    found.run()
    assert found.is_complete and isinstance(found.model, TransactionModel)
    return found.model


@pytest.mark.parametrize("scope", QUICK, ids=lambda scope: scope.name)
def test_all_or_nothing_in_any_order(scope: TransactionScope) -> None:
    assert search(scope).ends == ENDS[scope.name]


def searched(name: str) -> None:
    [scope] = [scope for scope in QUICK + LONG if scope.name == name]
    search(scope)


BROKEN: list[Broken] = [
    # half a commit
    (SetState, "_commit", "in asked.retires", "in ()", partial(searched, "a link is lost")),
    (SetState, "_commit", "in asked.enqueues", "in ()", partial(searched, "a link is lost")),
    (SetState, "_why_not", "not has or", "", partial(searched, "a message comes back")),
    # a rollback that forgets
    (Transactions, "_drop", "self._tell(retired, committed=committed)", "pass", partial(searched, "a rollback")),
    (Transactions, "leave", "self._close(one)\n        self._drop(one)", "self._close(one)",
     partial(searched, "a link is lost")),
    (Transactions, "_over", "committed=end is TransactionEnd.COMMITTED", "committed=True",
     partial(searched, "a rollback")),
    # a discharge that comes twice
    (SetState, "_transact", "self._transactions.answer(asked), False", "None, False",
     partial(searched, "a cut and the next leader")),
    (Commits, "take", "if not self._log.transact(number, transact):",
     "if why:\n        self._sets.answer(self._name, router, number, Refused(RefusedFor.ROLLED_BACK, why))\n"
     "    elif not self._log.transact(number, transact):", partial(searched, "a cut and the next leader")),
    # no answer
    (Requests, "learn", "self._send_anew()", "pass", partial(searched, "a cut and the next leader")),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_a_rule_that_is_broken_is_noticed(number: int) -> None:
    must_notice(BROKEN[number])
