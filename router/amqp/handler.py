"""What the engine tells its owner: the callbacks of one `Connection`, and the values they carry.

All callbacks run inside `Connection.receive`, `receive_eof` or `tick`, synchronously and in the order of the wire, but
transfers, dispositions and credit are gathered: a link's whole batch of one `receive` comes in one call, before any
later event of another kind. Resumed transfers are gathered too, and keep their place among the ordinary ones. Plain
parallel lists, no object per message: this is the hot path.

Handles. A `Handle` names one delivery on one link. It is hashable, equal only to itself, and valid from the call
that brought it (or from `Link.send`) until we settle it or its link or connection ends. After that it must be
forgotten: the engine uses its memory again. Nobody settles a handle but the owner: a delivery that the peer settled
comes with `settled` true in `on_dispositions`, and the owner then calls `Link.settle`, which sends nothing but
frees it. A transfer that arrives settled has no handle (None): there is nothing left to say about it.

What the owner has settled, on its own account, is not reported any more.
"""

from typing import TYPE_CHECKING, Protocol

from router.amqp.values import ErrorCondition, Handle

if TYPE_CHECKING:
    from router.amqp.connection import Connection
    from router.amqp.link import Link


class Handler(Protocol):
    """The owner of connections: the edge of a router, a neighbour link, a client, a test."""

    def on_open(self, connection: "Connection") -> None:
        """The peer's open arrived: its container and properties are known. A server answers with `open()`."""

    def on_close(self, connection: "Connection", condition: ErrorCondition | None) -> None:
        """The connection is over, however it came to be: called exactly once. All its links are over with it:
        `connection.links` has those that were not detached before, there is no `on_detach` for them. Links and
        handles of the connection are invalid from here on."""

    def on_attach(self, link: "Link") -> None:
        """The peer attached; it waits for `link.answer()` or `link.refuse()`, now or at any later time. Flow that the
        peer pipelined behind the attach is kept and seen in `link.credit` once answered. With `link.former` it may be
        a re-attach: the owner says so by `link.continue_former()`."""

    def on_attached(self, link: "Link") -> None:
        """The peer answered an attach of ours. A refused one is followed by `on_detach` (its terminus is absent)."""

    def on_detach(self, link: "Link", closed: bool, condition: ErrorCondition | None) -> None:
        """The peer detached (`closed` false: suspended), or ended the link's session (false as well), or the engine
        detached it for breaking a limit (false, with that condition). The answering detach is sent by the engine. The
        link and its handles are invalid when this returns, but for a re-attach: if the peer has suspended a link whose
        `context` is kept. Not called for detaches that the owner began."""

    def on_credit(self, link: "Link") -> None:
        """A sending link's `credit` or `draining` changed."""

    def on_transfers(
        self,
        link: "Link",
        deliveries: list[Handle],
        tags: list[bytes],
        messages: list[bytes],
        settled: list[bool],
    ) -> None:
        """Complete messages in the order of their arrival: parallel lists. The handle of a settled one is None. Of
        one that is aborted, or too large, nothing is told: the engine gives its credit back, or rejects it. A message
        of another format than 0 is in an envelope (`message`), as is one for `Link.send`."""

    def on_dispositions(self, link: "Link", deliveries: list[Handle], states: list[int], settled: list[bool]) -> None:
        """The peer's news about deliveries, each handle at most once a call, with its latest state (0 = none). On a
        sending link: outcomes. On a receiving one: settlements by the sender. What is `settled` the owner must still
        `settle` itself."""

    def on_resumed(
        self,
        link: "Link",
        deliveries: list[Handle],
        tags: list[bytes],
        messages: list[bytes],
        settled: list[bool],
        states: list[int],
        aborted: list[bool],
    ) -> None:
        """Resumed deliveries (transfers with `resume` true), like `on_transfers`: `states` are the sender's, the
        message is empty where it was left out. An aborted one is settled and has neither message nor handle."""

    def on_echo(self, link: "Link") -> None:
        """The peer has answered `Link.echo`: it has read all that was sent before, as far as AMQP lets us tell (see
        `echo`). Peers that ignore echoes never do."""
