"""The coordinator of transactions: a link on which a client begins transactions (declares them) and ends them
(discharges them; AMQP 1.0 4.2, 4.3).

The transactions of a connection are known on all its sessions. They end with the link to their coordinator."""

from collections.abc import Mapping
from typing import Any, Final

from router.amqp.batches import ResumedTransfers, Transfers
from router.amqp.format.codec import Described
from router.amqp.format.errors import (
    DECODE_ERROR,
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT,
    ROLLBACK,
    TRANSACTION_TIMEOUT,
    UNKNOWN_ID,
    AmqpError,
)
from router.amqp.format.message import VALUE, sections_of
from router.amqp.format.values import ACCEPTED, EXPIRE_LINK, Handle
from router.amqp.proton.link import Link
from router.edge.ends import End
from topic.actions import Discharged, LinkAction, TransactionEnd
from topic.delivery.allowance import Allowance
from topic.node import Node
from topic.queues.transactions.transactions import (
    MOST_OPEN,
    TooManyTransactionsError,
    Transactions,
    UnknownTransactionError,
)

CAPABILITIES: Final = ("amqp:local-transactions", "amqp:multi-txns-per-ssn", "amqp:multi-ssns-per-txn")
"""The capabilities of transactions that the router supports (AMQP 1.0 4.5.3)."""
CREDIT: Final = 100
"""The highest number of declarations and discharges that a client may send at once."""
DECLARE: Final = (0x31, "amqp:declare:list")
DISCHARGE: Final = (0x32, "amqp:discharge:list")
CONDITIONS: Final[Mapping[TransactionEnd, str]] = {
    TransactionEnd.ROLLED_BACK: ROLLBACK,
    TransactionEnd.TIMED_OUT: TRANSACTION_TIMEOUT,
    TransactionEnd.TOO_LARGE: RESOURCE_LIMIT,
    TransactionEnd.NOT_IMPLEMENTED: NOT_IMPLEMENTED,
}


class CoordinatorLink(End):
    """The router's end of a link to the coordinator."""

    __slots__ = ("_allowance", "_discharging", "_transactions", "node")

    def __init__(self, link: Link, node: Node, transactions: Transactions, allowance: Allowance) -> None:
        super().__init__(link)
        self.node = node
        self._transactions = transactions
        self._allowance = allowance
        self._discharging: dict[bytes, Handle] = {}
        """Maps the name of a transaction to the delivery that discharges it. The handle is None if the delivery is
        settled."""

    def begin(self) -> None:
        """Answer the attach of the client."""
        self.link.answer(expiry_policy=EXPIRE_LINK, capabilities=CAPABILITIES)
        self.link.flow(CREDIT)

    # The methods from here on handle events of the link.

    def on_transfers(self, transfers: Transfers) -> None:
        for handle, _, message, _ in transfers:
            if not self.link.ended:
                self._take(handle, message)
        self.link.flow(len(transfers.handles))
        self.node.transacts()

    def on_resumed(self, resumed: ResumedTransfers) -> None:
        """Take resumed transfers as new ones if they have a message. Nothing is resumed, because a transaction ends
        with the link to its coordinator."""
        if (new := resumed.as_new()).handles:
            self.on_transfers(new)

    def _take(self, handle: Handle, message: bytes) -> None:
        asked = _asked_in(message)
        match asked:
            case Described(descriptor, [*fields]) if descriptor in DECLARE:
                self._declare(handle, fields)
            case Described(descriptor, [bytes(name), *more]) if descriptor in DISCHARGE:
                self._discharge(handle, name, fail=more[:1] == [True])
            case _:
                self._refuse(handle, DECODE_ERROR, "expected a declare or a discharge, with its fields")

    def _declare(self, handle: Handle, fields: list[Any]) -> None:
        if fields[:1] not in ([], [None]):
            self._refuse(handle, NOT_IMPLEMENTED, "a global transaction, expected a local one: without a global-id")
            return
        # The client has settled the declaration, so it cannot learn the name of the transaction.
        if handle is None:
            return
        try:
            name = self._transactions.declare(self.link.connection, self, self._allowance)
        except TooManyTransactionsError:
            self._refuse(handle, RESOURCE_LIMIT, f"the connection has {MOST_OPEN} open transactions already")
        else:
            self.link.declare(handle, name)

    def _discharge(self, handle: Handle, name: bytes, *, fail: bool) -> None:
        try:
            found = self._transactions.find(self.link.connection, name)
        except UnknownTransactionError:
            self._refuse(handle, UNKNOWN_ID, "there is no open transaction of this name on the connection")
            return
        if found.coordinator is not self:
            self._refuse(handle, UNKNOWN_ID, "the transaction was declared on another link")
            return
        self._discharging[name] = handle
        self._transactions.discharge(found, fail=fail)

    def _refuse(self, handle: Handle, condition: str, why: str) -> None:
        """Reject a declaration or a discharge. A client that does not take this outcome learns of it by a detach (AMQP
        1.0 4.2, 4.3)."""
        if not self.link.ended and not self.link.takes_rejections:
            self.link.connection.expel(self.link, condition, why)
        elif handle is not None:
            self.link.reject(handle, condition, why, settle=True)

    def gone(self, now: float, *, closed: bool) -> None:
        self._transactions.leave(self)
        self.node.transacts()

    # The core calls the methods from here on.

    def perform(self, action: LinkAction) -> None:
        assert isinstance(action, Discharged)
        handle = self._discharging.pop(action.transaction)
        if action.end is not TransactionEnd.COMMITTED and action.why:
            self._refuse(handle, CONDITIONS[action.end], action.why)
        elif handle is not None:
            self.link.update(handle, ACCEPTED, settle=True)


def _asked_in(message: bytes) -> Any:
    """The value of a message whose body is an amqp-value; None for any other message."""
    try:
        sections = dict(sections_of(message))
    except AmqpError:
        return None
    return sections.get(VALUE)
