"""What one input brought to a link, all at once: plain parallel columns, no object a message (this is the hot path).

A `Handle` names one delivery on one link. It is hashable, equal only to itself, and valid from the call that brought it
(or from `Link.send`) until we settle it or its link or connection ends. After that it must be forgotten: the engine
uses its memory again. A message of another format than 0 is in an envelope (`message`).
"""

from collections.abc import Iterator

from attrs import define

from router.amqp.format.values import Handle


@define
class Transfers:
    """Complete messages, in the order of their arrival. The handle of a settled one is None: there is nothing left to
    say about it."""

    handles: list[Handle]
    tags: list[bytes]
    messages: list[bytes]
    settled: list[bool]

    def __iter__(self) -> Iterator[tuple[Handle, bytes, bytes, bool]]:
        return zip(self.handles, self.tags, self.messages, self.settled, strict=True)


@define
class ResumedTransfers:
    """Deliveries that are resumed (transfers with `resume` true), and all that are aborted, resumed or not. A message
    is empty where it was left out. An aborted delivery is settled, has neither message nor handle, and its credit was
    given back."""

    handles: list[Handle]
    tags: list[bytes]
    messages: list[bytes]
    settled: list[bool]
    states: list[int]
    """The sender's."""
    aborted: list[bool]

    def __iter__(self) -> Iterator[tuple[Handle, bytes, bytes, bool, int, bool]]:
        return zip(self.handles, self.tags, self.messages, self.settled, self.states, self.aborted, strict=True)

    def as_new(self) -> Transfers:
        """Those that are not aborted, where nothing is to be resumed."""
        rows = [row[:4] for row in self if not row[5]]
        return Transfers(*map(list, zip(*rows, strict=True))) if rows else Transfers([], [], [], [])


@define
class Dispositions:
    """The peer's news about deliveries, each handle once, with its latest state (0: none). On a sending link outcomes,
    on a receiving one settlements by the sender. What is settled the owner must still settle itself."""

    handles: list[Handle]
    states: list[int]
    settled: list[bool]

    def __iter__(self) -> Iterator[tuple[Handle, int, bool]]:
        return zip(self.handles, self.states, self.settled, strict=True)
