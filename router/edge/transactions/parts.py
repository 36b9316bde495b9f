"""The parts of transactions that arrive on links to queues: messages for a queue from publishers, and outcomes from
consumers (AMQP 1.0 4.4.1, 4.4.2)."""

from contextlib import suppress
from typing import Any, Final

from router.amqp.batches import PostedMessage
from router.amqp.format.errors import NO_TRANSACTIONS, NOT_IMPLEMENTED, UNKNOWN_ID
from router.amqp.proton.link import Link
from topic.actions import TransactionEnd
from topic.identity import INSIDE, queue_of
from topic.node import Node
from topic.queues.transactions.transactions import Transaction, Transactions, UnknownTransactionError

NONE_OF_THIS_NAME: Final = "there is no open transaction of this name on the connection"
PART_LOST: Final = "a message of it was not taken, or a delivery was over before its outcome came"


def transaction_of(link: Link, node: Node, address: str, name: bytes) -> tuple[Transactions, Transaction] | None:
    """The open transaction of this name, for a part that concerns the given address in the mesh. If there is no such
    transaction, or if the address is no queue, the link is detached, and the result is None."""
    transactions = node.transactions
    try:
        found = transactions.find(link.connection, name) if transactions is not None else None
    except UnknownTransactionError:
        link.connection.expel(link, UNKNOWN_ID, NONE_OF_THIS_NAME)
        return None
    if transactions is not None and found is not None and address.startswith(INSIDE):
        return transactions, found
    if transactions is not None and found is not None:
        transactions.fail(found, TransactionEnd.NOT_IMPLEMENTED, NO_TRANSACTIONS)
        node.transacts()
    link.connection.expel(link, NOT_IMPLEMENTED, NO_TRANSACTIONS)
    return None


def lose_part(connection: Any, node: Node, name: bytes) -> None:
    """A part of the open transaction of this name has no effect. So the transaction, if there is one, can only be
    rolled back."""
    if node.transactions is not None:
        with suppress(UnknownTransactionError):
            found = node.transactions.find(connection, name)
            node.transactions.fail(found, TransactionEnd.ROLLED_BACK, PART_LOST)
            node.transacts()


def posting(link: Link, node: Node, address: str, posted: PostedMessage) -> bool:
    """Add a message to the transaction that its transfer names, and give its publisher the provisional outcome.
    `address`: the message's address in the mesh. Returns False if the link is detached instead."""
    found = transaction_of(link, node, address, posted.transaction)
    if found is None:
        return False
    transactions, one = found
    transactions.post(one, *queue_of(address), posted.message, node.now())
    node.transacts()
    if posted.handle is not None:
        link.take_provisionally(posted.handle, posted.transaction)
    return True
