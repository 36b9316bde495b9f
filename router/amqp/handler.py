"""The callbacks of one `Connection` to its owner.

All callbacks run inside `Connection.receive`, `receive_eof` or `tick`, synchronously and in the order of the wire.
Transfers, dispositions and credit are an exception, as they are gathered: one call brings a link's whole batch of one
`receive` (`batches`), before any later event of another kind. Resumed transfers are gathered too, and keep their place
among the others.

Only the owner settles a handle. If the peer has settled a delivery, it comes with `settled` true in `on_dispositions`,
and the owner then calls `Link.settle`, which sends nothing and frees the handle. A delivery that the owner has settled
is not reported any more. Dispositions are also ignored for a message that is not fully written.
"""

from collections.abc import Mapping

from router.amqp.batches import Dispositions, PostedMessage, ResumedTransfers, Transfers
from router.amqp.connection import Connection
from router.amqp.format.values import ErrorCondition
from router.amqp.proton.link import Link


class Handler:
    """The base class of an owner. Each callback does nothing by default."""

    def on_open(self, connection: Connection) -> None:
        """The peer's open arrived: its container and properties are known. A server answers with `open()`."""

    def on_close(self, connection: Connection, condition: ErrorCondition | None) -> None:
        """The connection has ended; called exactly once. All its links end with it: `connection.links` has the links
        that were not detached before, and no `on_detach` follows for them. All links and handles of the connection are
        invalid afterwards."""

    def on_attach(self, link: Link) -> None:
        """The peer has attached a link. The owner calls `link.answer()` or `link.refuse()`, now or later. The peer may
        have sent flows right after the attach; `link.credit` has their credit after the answer. If `link.former` is
        set, this may be a re-attach: then the owner calls `link.continue_former()`."""

    def on_attached(self, link: Link) -> None:
        """The peer has answered an attach of ours. If it refused the attach, `on_detach` follows, and the terminus is
        absent."""

    def on_detach(self, link: Link, closed: bool, condition: ErrorCondition | None) -> None:
        """The link no longer exists for the owner: the peer detached it (`closed` false: suspended), the peer ended its
        session (`closed` false), or the engine detached it because the peer broke a limit (`closed` false, with that
        condition). The engine sends the answering detach. The link and its handles are invalid when this call returns.
        A re-attach is the exception: the peer has suspended the link, and its `context` is kept. The callback is not
        called if the owner began the detach.
        """

    def on_credit(self, link: Link) -> None:
        """A sending link's `credit` or `draining` changed."""

    def on_transfers(self, link: Link, transfers: Transfers) -> None:
        """Complete messages have arrived. The engine itself rejects a message that is too large, without a call of this
        method."""

    def on_posted(self, link: Link, posted: PostedMessage) -> None:
        """A complete message within a transaction has arrived."""

    def on_part_lost(self, connection: Connection, transaction: bytes) -> None:
        """A message of this transaction was not taken, or an outcome in the transaction names a delivery that is
        already settled."""

    def on_dispositions(self, link: Link, dispositions: Dispositions) -> None:
        """Dispositions of the peer have come."""

    def on_resumed(self, link: Link, resumed: ResumedTransfers) -> None:
        """Resumed or aborted deliveries came."""

    def on_echo(self, link: Link) -> None:
        """The peer has answered `Link.echo`: it has read everything that we sent before, as far as AMQP can show this
        (`router.amqp.frames.echo`). Some peers ignore echoes and never answer."""

    def state_of(self, link: Link) -> Mapping[str, int] | None:
        """The link properties for a flow of ours on this link, or None."""
        return None
