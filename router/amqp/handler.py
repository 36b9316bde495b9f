"""What the engine tells its owner: the callbacks of one `Connection`.

All callbacks run inside `Connection.receive`, `receive_eof` or `tick`, synchronously and in the order of the wire, but
transfers, dispositions and credit are gathered: a link's whole batch of one `receive` comes in one call (`batches`),
before any later event of another kind. Resumed transfers are gathered too, and keep their place among the others.

Nobody settles a handle but the owner: a delivery that the peer settled comes with `settled` true in `on_dispositions`,
and the owner then calls `Link.settle`, which sends nothing but frees it. What the owner has settled, on its own
account, is not reported any more, unless a part of its message was not written yet: what the peer says of that means
nothing.
"""

from collections.abc import Mapping

from router.amqp.batches import Dispositions, ResumedTransfers, Transfers
from router.amqp.connection import Connection
from router.amqp.format.values import ErrorCondition
from router.amqp.proton.link import Link


class Handler:
    """What the owner of connections begins with: it leaves out of account whatever it does not say otherwise."""

    def on_open(self, connection: Connection) -> None:
        """The peer's open arrived: its container and properties are known. A server answers with `open()`."""

    def on_close(self, connection: Connection, condition: ErrorCondition | None) -> None:
        """The connection is over, however it came to be: called exactly once. All its links are over with it:
        `connection.links` has those that were not detached before, there is no `on_detach` for them. Links and
        handles of the connection are invalid from here on."""

    def on_attach(self, link: Link) -> None:
        """The peer attached; it waits for `link.answer()` or `link.refuse()`, now or at any later time. Flow that the
        peer pipelined behind the attach is kept and seen in `link.credit` once answered. With `link.former` it may be
        a re-attach: the owner says so by `link.continue_former()`."""

    def on_attached(self, link: Link) -> None:
        """The peer answered an attach of ours. A refused one is followed by `on_detach` (its terminus is absent)."""

    def on_detach(self, link: Link, closed: bool, condition: ErrorCondition | None) -> None:
        """The peer detached (`closed` false: suspended), or ended the link's session (false as well), or the engine
        detached it for breaking a limit (false, with that condition). The answering detach is sent by the engine. The
        link and its handles are invalid when this returns, but for a re-attach: if the peer has suspended a link whose
        `context` is kept. Not called for detaches that the owner began."""

    def on_credit(self, link: Link) -> None:
        """A sending link's `credit` or `draining` changed."""

    def on_transfers(self, link: Link, transfers: Transfers) -> None:
        """Complete messages came. The engine rejects a message that is too large, and tells nobody."""

    def on_dispositions(self, link: Link, dispositions: Dispositions) -> None:
        """The peer's news about deliveries."""

    def on_resumed(self, link: Link, resumed: ResumedTransfers) -> None:
        """Resumed or aborted deliveries came."""

    def on_echo(self, link: Link) -> None:
        """The peer has answered `Link.echo`: it has read all that was sent before, as far as AMQP lets us tell (see
        `echo`). Peers that ignore echoes never do."""

    def state_of(self, link: Link) -> Mapping[str, int] | None:
        """What the properties of a flow that answers the peer say of the link; None for none."""
        return None
