"""The deliveries and dispositions that one input brought to a link, as parallel lists: the hot path makes no object for
each message.

A `Handle` names one delivery on one link. It is hashable and equal only to itself. A handle is valid from the call that
brought the delivery (or from `Link.send`) until we settle the delivery, or until its link or connection ends. Then the
owner must forget the handle, because the engine uses its memory for other deliveries. A message of another format than
0 is in an envelope (`message`).
"""

from collections.abc import Iterator

from attrs import define

from router.amqp.format.values import Handle


@define
class Transfers:
    """Complete messages, in the order of their arrival. The handle of a settled message is None, because it needs no
    answer."""

    handles: list[Handle]
    tags: list[bytes]
    messages: list[bytes]
    settled: list[bool]

    def __iter__(self) -> Iterator[tuple[Handle, bytes, bytes, bool]]:
        return zip(self.handles, self.tags, self.messages, self.settled, strict=True)


@define
class ResumedTransfers:
    """Resumed deliveries (transfers with `resume` true), and all aborted deliveries, resumed or not. A message is empty
    if the transfer left it out. An aborted delivery is settled and has neither message nor handle; the engine has given
    its credit back."""

    handles: list[Handle]
    tags: list[bytes]
    messages: list[bytes]
    settled: list[bool]
    states: list[int]
    """The delivery states that the sender named, as AMQP's codes; 0: none."""
    aborted: list[bool]

    def __iter__(self) -> Iterator[tuple[Handle, bytes, bytes, bool, int, bool]]:
        return zip(self.handles, self.tags, self.messages, self.settled, self.states, self.aborted, strict=True)

    def as_new(self) -> Transfers:
        """The deliveries that are not aborted, for an owner that treats a resumed delivery as a new one."""
        rows = [row[:4] for row in self if not row[5]]
        return Transfers(*map(list, zip(*rows, strict=True))) if rows else Transfers([], [], [], [])


@define
class Dispositions:
    """The peer's dispositions: each handle once, with its latest state (0: none). On a sending link they are outcomes,
    on a receiving link settlements of the sender. If the peer has settled a delivery, our owner must settle it, too."""

    handles: list[Handle]
    states: list[int]
    settled: list[bool]

    def __iter__(self) -> Iterator[tuple[Handle, int, bool]]:
        return zip(self.handles, self.states, self.settled, strict=True)


@define
class PostedMessage:
    """A complete message that belongs to a transaction (AMQP 1.0 4.4.1). The handle of a settled message is None."""

    handle: Handle
    message: bytes
    transaction: bytes
    """The name of the transaction; empty if the peer has named none."""
    tag: bytes
