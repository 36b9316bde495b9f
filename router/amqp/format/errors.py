"""The exceptions of the AMQP edge for faults of a peer.

An `AmqpError` ends the connection of the peer, with its condition; it never ends the process. The names are AMQP's
error conditions (AMQP 1.0 2.8.15 to 2.8.18).
"""

from typing import Final

FRAME_SIZE_TOO_SMALL: Final = "amqp:frame-size-too-small"
FRAMING_ERROR: Final = "amqp:connection:framing-error"
INTERNAL_ERROR: Final = "amqp:internal-error"
DECODE_ERROR: Final = "amqp:decode-error"
INVALID_FIELD: Final = "amqp:invalid-field"
NOT_ALLOWED: Final = "amqp:not-allowed"
NOT_FOUND: Final = "amqp:not-found"
NOT_IMPLEMENTED: Final = "amqp:not-implemented"
PRECONDITION_FAILED: Final = "amqp:precondition-failed"
RESOURCE_LIMIT: Final = "amqp:resource-limit-exceeded"
MESSAGE_SIZE: Final = "amqp:link:message-size-exceeded"
HANDLE_IN_USE: Final = "amqp:session:handle-in-use"
UNATTACHED_HANDLE: Final = "amqp:session:unattached-handle"
TRANSFER_LIMIT: Final = "amqp:link:transfer-limit-exceeded"
UNAUTHORIZED: Final = "amqp:unauthorized-access"
STOLEN: Final = "amqp:link:stolen"

ROLLBACK: Final = "amqp:transaction:rollback"
TRANSACTION_TIMEOUT: Final = "amqp:transaction:timeout"
UNKNOWN_ID: Final = "amqp:transaction:unknown-id"

NO_TRANSACTIONS: Final = (
    "only the queues of one set take part in a transaction; docs/clients.md, Transactions, gives the reason"
)
NO_ACQUISITION: Final = "a flow names a transaction, and no queue gives messages to a transaction as it sends them"

OF_PROTON: Final = {"amqp:not allowed": NOT_ALLOWED, "amqp:session:invalid-field": INVALID_FIELD}
"""Maps proton's names for two conditions to AMQP's."""
SILENCE_OF_PROTON: Final = "local-idle-timeout expired"
"""Proton's description of a peer that was silent for longer than the idle timeout."""


class PeerFaultError(Exception):
    """The peer broke its protocol, AMQP or another. Its connection ends, and nothing else."""


class AmqpError(PeerFaultError):
    """The peer broke AMQP. Its connection ends, and nothing else."""

    def __init__(self, condition: str, description: str = "") -> None:
        super().__init__(f"{condition}: {description}" if description else condition)
        self.condition = condition
        self.description = description


class LimitError(AmqpError):
    """The peer wants more than one connection may have: `limit` names the field of `Bounds`, or the frame size."""

    def __init__(self, limit: str, description: str, condition: str = RESOURCE_LIMIT) -> None:
        super().__init__(condition, description)
        self.limit = limit


TOO_MANY: Final = "too many wrong passwords came from this address"


class TurnError(AmqpError):
    """A password was not checked, because too many earlier passwords from the same place were wrong."""

    def __init__(self) -> None:
        super().__init__(UNAUTHORIZED, TOO_MANY)
