"""The notes of the tap about incoming frames that proton does not fully understand."""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from router.amqp.format.values import DeliveryState

Wire: TypeAlias = tuple[bytes, bytes]  # channel and handle, as encoded


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
    steals: bool  # a link of this name and direction is attached in the session


class FlowFrame(NamedTuple):
    """A flow that asks for an echo, may answer one, drains, has link properties, or has numbers that proton would
    misread."""

    echo: bool
    drain: bool
    wire: Wire  # channel and handle at the peer's end; the handle is null in a flow of the session
    limit: int | None  # delivery-count plus link-credit, if it names both
    properties: bytes  # the link properties of the flow, encoded
    is_vast: bool  # the flow gives credit of 2^31 or more
    turns: bool  # `is_vast` differs from the flow before
    lowers: bool  # the flow lowers the credit or the window
    former: int  # the limit of the flow before

    @property
    def is_odd(self) -> bool:
        """Whether the flow says more than an amount of credit or room."""
        return self.echo or self.drain or self.turns or self.lowers


class EndFrame(NamedTuple):
    """The end of a session, whose channel is free for later frames."""

    channel: bytes


class TransferFrame(NamedTuple):
    """The first frame of a delivery that is resumed, or of a message-format other than 0; any frame within a
    transaction."""

    resumed: bool
    format: int
    transactional: bool


class LaterDisposition(NamedTuple):
    """A receiver's disposition that does not settle, after one of the same input that settles. Both may name one
    delivery."""


class UnnamedFrame(NamedTuple):
    """A transfer without delivery-id or delivery-tag, as a transfer that continues a delivery may be (AMQP 1.0
    2.7.5)."""

    channel: bytes
    handle: int
    lacks: str  # "delivery-id" or "delivery-tag"
    transfer: TransferFrame | None  # the note of the transfer, if it is valid


class SessionError(NamedTuple):
    """A frame that breaks AMQP in its session: the session ends, the connection continues."""

    channel: bytes
    condition: str
    what: str


Note: TypeAlias = (
    BeginFrame | EndFrame | AttachFrame | FlowFrame | TransferFrame | UnnamedFrame | LaterDisposition | SessionError
)
Piece: TypeAlias = tuple[bytes, int, int, Note | None]  # data, start, end, note: a plain tuple for the hot path
