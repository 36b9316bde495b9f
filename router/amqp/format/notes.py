"""What the tap notes of an incoming frame that means more than proton sees."""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from router.amqp.format.values import DeliveryState

Wire: TypeAlias = tuple[bytes, bytes]  # channel and handle, as encoded


class BeginFrame(NamedTuple):
    """A session of the peer's."""

    channel: bytes
    handle_max: int


class AttachFrame(NamedTuple):
    """An attach, and its map."""

    channel: bytes
    handle: int
    unsettled: Mapping[bytes, DeliveryState] | None
    incomplete: bool
    steals: bool  # a link of this name and direction is attached in the session


class FlowFrame(NamedTuple):
    """A flow that asks for an echo, or may be one, or to drain, or tells properties of its link, or numbers that proton
    would take for others."""

    echo: bool
    drain: bool
    wire: Wire  # of the peer's end; the handle is null if the flow is the session's
    limit: int | None  # delivery-count plus link-credit, if it names both
    properties: bytes  # as encoded
    is_vast: bool  # its credit is of 2^31 and more
    turns: bool  # and was less, or the other way round
    lowers: bool  # credit or window; `former` is the limit of the flow before
    former: int

    @property
    def is_odd(self) -> bool:
        """Whether it says more than how much credit or room there is."""
        return self.echo or self.drain or self.turns or self.lowers


class EndFrame(NamedTuple):
    """The end of a session: its channel is free for what follows."""

    channel: bytes


class TransferFrame(NamedTuple):
    """The first frame of a delivery that is resumed, or of a message-format other than 0; any within a transaction."""

    resumed: bool
    format: int
    transactional: bool


class LaterDisposition(NamedTuple):
    """A receiver's, which does not settle, behind one of the same input that does. Both may name a delivery."""


class UnnamedFrame(NamedTuple):
    """A transfer without its delivery-id or its delivery-tag: one that goes on with a delivery may be (AMQP 1.0
    2.7.5)."""

    channel: bytes
    handle: int
    lacks: str  # which of them
    transfer: TransferFrame | None  # what else it means


class SessionError(NamedTuple):
    """A frame that breaks AMQP in its session: that is over, the connection goes on."""

    channel: bytes
    condition: str
    what: str


Note: TypeAlias = (
    BeginFrame | EndFrame | AttachFrame | FlowFrame | TransferFrame | UnnamedFrame | LaterDisposition | SessionError
)
Piece: TypeAlias = tuple[bytes, int, int, Note | None]  # bytes, from where to where: plain, as on every hot path
