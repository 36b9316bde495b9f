"""What the tap notes of an incoming frame that means more than proton sees."""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from router.amqp.format.values import DeliveryState

Wire: TypeAlias = tuple[bytes, bytes]  # channel and handle, as encoded


class BeginFrame(NamedTuple):
    """A session of the peer's."""

    channel: bytes


class AttachFrame(NamedTuple):
    """An attach, and its map."""

    channel: bytes
    unsettled: Mapping[bytes, DeliveryState] | None
    incomplete: bool


class FlowFrame(NamedTuple):
    """A flow that asks for an echo, or may be one, or tells properties of its link."""

    echo: bool
    wire: Wire  # of the peer's end; the handle is null if the flow is the session's
    limit: int | None  # delivery-count plus link-credit, if it names both
    properties: bytes  # as encoded


class TransferFrame(NamedTuple):
    """The first frame of a delivery that is resumed, or of a message-format other than 0; any within a transaction."""

    resumed: bool
    format: int
    transactional: bool


class StrayFrame(NamedTuple):
    """A transfer on a handle that is not attached."""

    channel: bytes
    handle: int


Note: TypeAlias = BeginFrame | AttachFrame | FlowFrame | TransferFrame | StrayFrame
Piece: TypeAlias = tuple[bytes, int, int, Note | None]  # bytes, from where to where: plain, as on every hot path
