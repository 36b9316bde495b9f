"""The open transactions of one router's clients on queues (protocol 14.20), without I/O.

    client ── declare ─▶ open ── post, retire ─▶ open ── discharge ─▶ deciding ── answer of the set ─▶ over
                          ╰── its client fails or goes, or it lasts too long ──▶ rolled back: over

Until the client discharges a transaction, the router sends nothing of it to other routers. To commit the transaction,
the router sends a `Commit` to the leader of the set, and the leader makes one log entry of it. For a rollback, the
router sends nothing: it forgets the messages, and the ends of the consumers have their deliveries as before.

While the leader decides, only the log of the set has the result of the transaction. So if the leader is lost, the
router asks each next leader until one answers, even if the client has gone.

This module does not know links, nor the form of messages and outcomes.
"""

import math
from collections import deque
from collections.abc import Iterator
from itertools import count, groupby
from typing import Any, Final

import attrs

from topic.actions import Discharged, LinkAction, RetirementsOver, TransactionEnd
from topic.delivery.allowance import Allowance
from topic.delivery.outcomes import DeliveryOutcome
from topic.queues.operations import Answer, Commit, Done, Post, Retirement
from topic.queues.sets import ReplicaSets
from topic.queues.transactions.decided import MOST_UNANSWERED

MOST_OPEN: Final = 256
"""The highest number of open transactions of one connection."""
MOST_PARTS: Final = 10_000
"""The highest number of messages and outcomes in one transaction."""
NAME_BYTES: Final = 12
"""The number of bytes of the name of a transaction. The tap leaves short delivery states unparsed
(`router.amqp.frames.walk`). A state with a name of this length is longer, so the tap parses it."""
TIMEOUT_S: Final = 300.0
"""The seconds that a transaction may last from its first message or outcome."""
MOST_DECIDING: Final = 64
"""The highest number of transactions of one router that a set decides at a time. A router numbers its transactions at a
set one after the other. The router sends a transaction only if the number of the transaction exceeds the lowest
unanswered number by less than this."""
assert MOST_DECIDING <= MOST_UNANSWERED


class UnknownTransactionError(Exception):
    """The client has no open transaction of this name."""


class TooManyTransactionsError(Exception):
    """The client has as many open transactions as it may have."""


@attrs.define(eq=False, slots=True)
class Transaction:
    """A transaction of a client that is not over."""

    id: bytes
    connection: Any
    coordinator: Any
    """The end of the client's link to the coordinator."""
    account: Allowance
    set: str = ""
    """The set of the transaction's queues; empty while the transaction has no queue."""
    posts: dict[str, list[bytes]] = attrs.Factory(dict)
    """Maps the name of each queue to the messages for the queue, in order."""
    retired: dict[Any, "Retired"] = attrs.Factory(dict)
    """The outcomes that are part of the transaction, each by its delivery."""
    count: int = 0
    """The number of messages in `posts`."""
    size: int = 0
    """The bytes of the messages in `posts`, and of the annotations of all outcomes."""
    until: float = math.inf
    """The time at which the transaction times out; infinite while it has neither messages nor outcomes."""
    end: TransactionEnd = TransactionEnd.COMMITTED
    """How the transaction ends, as far as this router knows."""
    why: str = ""
    """The reason for which the transaction can only be rolled back; empty if it may be committed."""


@attrs.define(eq=False, slots=True)
class Retired:
    """The outcome that a client gives one delivery in a transaction."""

    of: Transaction
    link: Any
    """The end of the link of the consumer that gives the outcome."""
    record: Any
    """The delivery to which the outcome belongs."""
    queue: str
    consumer: bytes
    """The name of the consumer's link."""
    key: bytes
    outcome: DeliveryOutcome
    final: bool
    failed: bool
    annotations: bytes
    """`final`, `failed` and `annotations` are as in `Topic.outcomes`."""
    is_settled: bool
    """Whether the client has settled the delivery. If so, and the transaction is rolled back, the client no longer has
    the message."""


class Transactions:
    """The transactions of one router. Callers have to call `flush` after each call of another method."""

    def __init__(self, router: str, incarnation: int, sets: ReplicaSets, most_bytes: int) -> None:
        """`most_bytes`: the highest number of bytes of the messages of one transaction."""
        self._router = router
        self._incarnation = incarnation
        self._sets = sets
        self._most_bytes = most_bytes
        self._names = count(1)
        self._open: dict[bytes, Transaction] = {}
        """The open transactions, keyed by name."""
        self._of: dict[Any, int] = {}
        """Maps each connection with open transactions to their number."""
        self._waiting: dict[str, deque[Transaction]] = {}
        """Maps each set to the transactions to be committed that this router has not sent to the set's leader yet."""
        self._deciding: dict[int, tuple[Transaction, int]] = {}
        """The transactions that their sets have to decide. Maps the number of the request at this router to the
        transaction, and to the transaction's number at its set."""
        self._numbers: dict[str, int] = {}
        """Maps each set to the number that the next transaction at this set gets."""
        self._out: list[LinkAction] = []

    # The methods from here on are about events of clients.

    def declare(self, connection: Any, coordinator: Any, account: Allowance) -> bytes:
        """Begin a transaction. Returns its name. Raises TooManyTransactionsError."""
        if self._of.get(connection, 0) >= MOST_OPEN:
            raise TooManyTransactionsError
        self._of[connection] = self._of.get(connection, 0) + 1
        name = next(self._names).to_bytes(NAME_BYTES)
        self._open[name] = Transaction(name, connection, coordinator, account)
        return name

    def find(self, connection: Any, name: bytes) -> Transaction:
        """The open transaction of this name. Raises UnknownTransactionError."""
        found = self._open.get(name)
        if found is None or found.connection is not connection:
            raise UnknownTransactionError
        return found

    def post(self, to: Transaction, set_: str, queue: str, message: bytes, now: float) -> None:
        """Add a message, which the client puts into a queue of this set."""
        if not self._takes(to, set_, len(message), now):
            return
        to.posts.setdefault(queue, []).append(message)
        to.count += 1
        to.size += len(message)
        to.account.add(len(message))

    def retire(self, retired: Retired, set_: str, now: float) -> None:
        """Add the client's outcome of a delivery of a queue of this set. It replaces an earlier outcome of the same
        delivery."""
        one, size = retired.of, len(retired.annotations)
        if self._takes(one, set_, size, now):
            one.retired[retired.record] = retired
            one.size += size
            one.account.add(size)
        else:
            self._tell([retired], committed=False)

    def _takes(self, to: Transaction, set_: str, size: int, now: float) -> bool:
        if to.set and to.set != set_:
            why = f"it has queues of the sets {to.set} and {set_}, and a transaction has queues of one set"
            self.fail(to, TransactionEnd.NOT_IMPLEMENTED, why)
        elif to.count + len(to.retired) >= MOST_PARTS:
            why = f"it has {MOST_PARTS} messages and outcomes, which is the most"
            self.fail(to, TransactionEnd.TOO_LARGE, why)
        elif to.size + size > self._most_bytes:
            self.fail(to, TransactionEnd.TOO_LARGE, f"it has more than {self._most_bytes} bytes, which is the most")
        elif size and (limit := to.account.refuses):
            self.fail(to, TransactionEnd.TOO_LARGE, f"its client has as many bytes here as {limit} allows")
        to.set = set_
        to.until = min(to.until, now + TIMEOUT_S)
        return not to.why

    def fail(self, to: Transaction, end: TransactionEnd, why: str) -> None:
        """Mark the transaction as failed: from now on it can only be rolled back. Its client reads the error when it
        discharges the transaction. The call has no effect after the discharge."""
        if not to.why and self._open.get(to.id) is to:
            to.end, to.why = end, why
            self._drop(to)

    def leave(self, coordinator: Any) -> None:
        """Handle the end of a link to the coordinator: roll back all its transactions that no set knows yet."""
        for one in [one for one in self._open.values() if one.coordinator is coordinator]:
            self._close(one)
            self._drop(one)
        for waiting in self._waiting.values():
            for one in [one for one in waiting if one.coordinator is coordinator]:
                waiting.remove(one)
                self._drop(one)

    def discharge(self, one: Transaction, *, fail: bool) -> None:
        """End the transaction, as its client has asked: roll it back if `fail` is set, or else commit it. The action
        `Discharged` has the result."""
        self._close(one)
        if fail or one.why:
            self._over(one, TransactionEnd.ROLLED_BACK if fail else one.end, "" if fail else one.why)
        elif one.posts or any(map(_is_for_set, one.retired.values())):
            self._waiting.setdefault(one.set, deque()).append(one)
        else:
            self._over(one, TransactionEnd.COMMITTED)

    def _close(self, one: Transaction) -> None:
        """Remove the transaction from the list of open transactions."""
        del self._open[one.id]
        self._of[one.connection] -= 1
        if not self._of[one.connection]:
            del self._of[one.connection]

    def _over(self, one: Transaction, end: TransactionEnd, why: str = "") -> None:
        self._drop(one, committed=end is TransactionEnd.COMMITTED)
        self._out.append(Discharged(one.coordinator, one.id, end, why))

    def _drop(self, one: Transaction, *, committed: bool = False) -> None:
        """Forget the messages, and tell the consumers whether their outcomes are committed."""
        one.account.add(-one.size)
        one.posts, one.count, one.size = {}, 0, 0
        retired, one.retired = [*one.retired.values()], {}
        self._tell(retired, committed=committed)

    def _tell(self, retired: list[Retired], *, committed: bool) -> None:
        for link, outcomes in groupby(retired, lambda one: one.link):
            self._out.append(RetirementsOver(link, [*outcomes], committed))

    # The methods from here on are about the sets.

    def answered(self, number: int, answer: Answer) -> bool:
        """Take the answer to the request of this number. Returns whether the request is one for a transaction."""
        one, _ = self._deciding.pop(number, (None, 0))
        if one is None:
            return False
        if isinstance(answer, Done):
            self._over(one, TransactionEnd.COMMITTED)
        else:
            self._over(one, TransactionEnd.ROLLED_BACK, answer.why)
        return True

    def _ask(self, now: float) -> None:
        """Send the waiting transactions to the leaders of their sets, as many as a set may decide at a time."""
        for set_, waiting in self._waiting.items():
            deciding = [number for one, number in self._deciding.values() if one.set == set_]
            number = self._numbers.get(set_, 0)
            floor = min(deciding, default=number)
            while waiting and number < floor + MOST_DECIDING:
                one = waiting.popleft()
                self._deciding[self._sets.ask(self._commit(one, number, floor), now)] = one, number
                number += 1
            self._numbers[set_] = number
        self._waiting = {set_: waiting for set_, waiting in self._waiting.items() if waiting}

    def _commit(self, one: Transaction, number: int, floor: int) -> Commit:
        posts = tuple(Post(queue, tuple(messages)) for queue, messages in one.posts.items())
        keys: dict[tuple[str, bytes, bool], dict[bytes, bytes]] = {}
        for retired in filter(_is_for_set, one.retired.values()):
            is_rejected = retired.outcome is DeliveryOutcome.REJECTED
            them = keys.setdefault((retired.queue, retired.consumer, is_rejected), {})
            them[retired.key] = retired.annotations if is_rejected else b""
        retirements = tuple(
            Retirement(queue, who, tuple(them), no, tuple(them.values()) if any(them.values()) else ())
            for (queue, who, no), them in keys.items()
        )
        name = posts[0].queue if posts else retirements[0].queue
        return Commit(name, self._router, self._incarnation, number, floor, posts, retirements)

    # The methods from here on are about time and the actions on links.

    def look(self, now: float) -> None:
        """Roll back the transactions whose time is over."""
        for one in self._open.values():
            if one.until <= now:
                self.fail(one, TransactionEnd.TIMED_OUT, f"it has lasted for {TIMEOUT_S:g} s, which is the most")

    def flush(self, now: float) -> Iterator[LinkAction]:
        """Send waiting transactions to the leaders of their sets, and yield the actions on links."""
        self._ask(now)
        while self._out:
            out, self._out = self._out, []
            yield from out


def _is_for_set(retired: Retired) -> bool:
    """Whether the set decides the outcome together with the transaction. The set decides only *accepted* and
    *rejected*. With another outcome the message stays in its queue, so the router itself handles the outcome when the
    transaction is committed."""
    return retired.outcome in (DeliveryOutcome.ACCEPTED, DeliveryOutcome.REJECTED)
