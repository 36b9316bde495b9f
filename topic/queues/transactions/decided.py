"""The transactions that a set has decided, and for which a router may still ask again (protocol 14.20).

A router sends a `Commit` again if the leader is lost before the router has the answer. So the log may have two entries
for one transaction. The state keeps the answer to the first entry under the number of the transaction. The second entry
gets this answer, and has no other effect. Each entry states up to which number the router has all answers, and the
state forgets these answers. So the state keeps only a few answers for each router, in one row.
"""

from typing import Any, Final

import attrs
import msgpack

from topic.queues.operations import unpack
from topic.queues.proposals import Transact
from topic.queues.rows import StateRows

TRANSACTIONS: Final = b"t"
"""The first byte of the keys of the rows of routers that have asked for transactions. The router's name follows."""
MOST_UNANSWERED: Final = 100
"""The highest number of transactions of one router on one set that have no answer yet. This constant must be equal at
all replicas."""
COMMITTED: Final = ""
MOST_WHY: Final = 200
"""The highest number of characters of the reason for which a transaction is rolled back."""


@attrs.frozen(slots=True)
class _Asker:
    """The data that the set keeps about a router that has asked for transactions."""

    incarnation: int
    floor: int
    """The router has the answers to all transactions with lower numbers."""
    answers: dict[int, str]
    """Maps the number of each transaction to `COMMITTED`, or to the reason for which the transaction was rolled
    back."""

    @property
    def row(self) -> bytes:
        return bytes(msgpack.packb((self.incarnation, self.floor, [*self.answers.items()])))


class DecidedTransactions:
    """The transactions of one set that are decided, with their answers."""

    def __init__(self, rows: StateRows) -> None:
        """Read the answers in `rows`, and keep all later ones there. Raises ValueError if a row is wrong."""
        self._rows = rows
        found = ((key, value) for key, value in rows.small if key[:1] == TRANSACTIONS)
        self._askers = {key[1:].decode(): _asker(value) for key, value in found}

    def answer(self, asked: Transact) -> str | None:
        """The answer to this transaction: `COMMITTED`, or the reason for which it is rolled back. None if the
        transaction is not decided yet."""
        if not asked.floor <= asked.number < asked.floor + MOST_UNANSWERED:
            return f"router {asked.router} waits for more than {MOST_UNANSWERED} transactions"
        known = self._askers.get(asked.router)
        if known is None or known.incarnation < asked.incarnation:
            return None
        if known.incarnation > asked.incarnation or asked.number < known.floor:
            return "its router waits for its answer no more"
        return known.answers.get(asked.number)

    def decide(self, asked: Transact, why: str) -> None:
        """Store the answer to a transaction that is decided now. `why`: as the result of `answer`."""
        known = self._askers.get(asked.router)
        if known is None or known.incarnation < asked.incarnation:
            known = _Asker(asked.incarnation, 0, {})
        floor = max(known.floor, asked.floor)
        answers = {number: answer for number, answer in known.answers.items() if number >= floor}
        answers[asked.number] = why[:MOST_WHY]
        asker = self._askers[asked.router] = _Asker(asked.incarnation, floor, answers)
        self._rows.put(TRANSACTIONS + asked.router.encode(), asker.row)

    def check(self) -> None:
        """Assert the invariants that hold between two proposals."""
        assert DecidedTransactions(self._rows)._askers == self._askers, "the rows are not those of the transactions"
        assert all(len(asker.answers) <= MOST_UNANSWERED for asker in self._askers.values())


def _asker(value: bytes) -> _Asker:
    """Read the router in the value of a row. Raises ValueError if the value is malformed."""
    parts = unpack(value, "a row of the state of a set")
    if [type(part) for part in parts] != [int, int, list] or not all(map(_is_answer, parts[2])):
        raise ValueError("a row of the state of a set has transactions that are none")
    return _Asker(parts[0], parts[1], dict(parts[2]))


def _is_answer(value: Any) -> bool:
    return isinstance(value, list) and [type(part) for part in value] == [int, str]
