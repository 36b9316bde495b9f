"""Notes about incoming frames that proton does not fully understand. The tap (`frames/tap`) makes a note when it parses
the frame, and `intake` reads the note when it gives the frame to proton."""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from router.amqp.format.values import DeliveryState

Wire: TypeAlias = tuple[bytes, bytes]  # a channel and a handle, both encoded as in the frame


class BeginFrame(NamedTuple):
    """The peer begins a session."""

    channel: bytes
    handle_max: int


class AttachFrame(NamedTuple):
    """An attach, and its unsettled map."""

    channel: bytes
    handle: int
    unsettled: Mapping[bytes, DeliveryState] | None
    incomplete: bool
    # True if the peer has a link of this name and direction on the session already, and has not detached that link.
    steals: bool


class FlowFrame(NamedTuple):
    """A flow that asks for an echo, may answer one, drains, has link properties, or has numbers that proton would
    misread."""

    echo: bool
    drain: bool
    # The channel and handle of the peer's end. The handle is null in a flow that concerns only the session.
    wire: Wire
    # The sum of delivery-count and link-credit; None if the flow lacks one of them.
    limit: int | None
    properties: bytes  # the link properties of the flow, encoded
    is_vast: bool  # True if the flow gives credit of 2^31 or more
    turns: bool  # True if `is_vast` differs from that of the previous flow of the link
    lowers: bool  # True if the flow lowers the credit or the session's window
    former: int  # the `limit` of the link's previous flow

    @property
    def is_odd(self) -> bool:
        """Whether the flow does more than add credit or room: asks for an echo, drains, lowers an amount, or
        `is_vast` differs from that of the previous flow."""
        return self.echo or self.drain or self.turns or self.lowers


class EndFrame(NamedTuple):
    """The end of a session, whose channel is free for later frames."""

    channel: bytes


class TransferFrame(NamedTuple):
    """The first frame of a delivery that is resumed, or that has another message-format than 0. Within a transaction,
    any frame of a delivery."""

    resumed: bool
    format: int
    transactional: bool


class LaterDisposition(NamedTuple):
    """A receiver's disposition that does not settle, while an earlier disposition of the same input settles. Both may
    name the same delivery.
    """


class TransactionalDisposition(NamedTuple):
    """A receiver's disposition within a transaction. It takes effect before the frames that follow it, such as the
    discharge of the transaction."""

    transaction: bytes  # the name of the transaction; empty if the delivery state is malformed
    deliveries: int  # the number of deliveries that the disposition names


class UnnamedFrame(NamedTuple):
    """A transfer without delivery-id or delivery-tag. Only a transfer that continues a delivery may lack them (AMQP 1.0
    2.7.5)."""

    channel: bytes
    handle: int
    lacks: str  # the name of the missing field: "delivery-id" or "delivery-tag"
    transfer: TransferFrame | None  # the note for this transfer if it continues a delivery


class SessionError(NamedTuple):
    """A frame with which the peer breaks AMQP in a session. The session ends, and the connection continues."""

    channel: bytes
    condition: str
    what: str


Note: TypeAlias = (
    BeginFrame
    | EndFrame
    | AttachFrame
    | FlowFrame
    | TransferFrame
    | UnnamedFrame
    | LaterDisposition
    | TransactionalDisposition
    | SessionError
)
# A piece of the input: the bytes, the offsets of its start and end, and its note. A plain tuple is the fastest form.
Piece: TypeAlias = tuple[bytes, int, int, Note | None]
