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

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from attrs import frozen

if TYPE_CHECKING:
    from router.amqp.connection import Connection
    from router.amqp.link import Link

Handle: TypeAlias = Any  # a cffi pointer; opaque to everybody but Link

# Delivery states as they come in `states`: the AMQP descriptor codes, and 0 for none.
NO_STATE: Final = 0
RECEIVED: Final = 0x23
ACCEPTED: Final = 0x24
REJECTED: Final = 0x25
RELEASED: Final = 0x26
MODIFIED: Final = 0x27

MAX_TAG: Final = 32  # bytes of a delivery-tag (AMQP 1.0 2.8.7)

# snd-settle-mode and rcv-settle-mode as on the wire.
SND_UNSETTLED: Final = 0
SND_SETTLED: Final = 1
SND_MIXED: Final = 2
RCV_FIRST: Final = 0
RCV_SECOND: Final = 1

# terminus-expiry-policy as on the wire.
EXPIRE_LINK: Final = "link-detach"
EXPIRE_SESSION: Final = "session-end"
EXPIRE_CONNECTION: Final = "connection-close"
EXPIRE_NEVER: Final = "never"


@frozen
class Terminus:
    """A source or target as the peer asked for it in its attach."""

    address: str | None = None
    durable: int = 0  # 0 none, 1 configuration, 2 unsettled-state
    expiry_policy: str = EXPIRE_SESSION
    timeout: int = 0  # seconds
    dynamic: bool = False
    coordinator: bool = False  # a transaction coordinator stands in the target's place
    filtered: bool = False  # a source with a filter set
    capabilities: tuple[str, ...] = ()


@frozen
class Outcome:
    """A delivery's remote state in full, for outcomes that carry more than their code."""

    state: int = NO_STATE
    condition: str | None = None  # of rejected
    description: str = ""
    info: Mapping[str, Any] = {}  # of rejected, as of any error
    failed: bool = False  # of modified
    undeliverable: bool = False  # of modified: undeliverable-here
    annotations: bytes = b""  # of modified: message-annotations, as they are encoded; empty if there are none


@frozen
class DeliveryState:
    """What an unsettled map says about a delivery."""

    state: int = NO_STATE
    section_number: int = 0  # of received: from where on the rest is to be sent
    section_offset: int = 0


@frozen
class Condition:
    """The error of a close, end or detach."""

    name: str
    description: str = ""
    info: Mapping[str, Any] = {}


class Handler(Protocol):
    """The owner of connections: the edge of a router, a neighbour link, a client, a test."""

    def on_open(self, connection: "Connection") -> None:
        """The peer's open arrived: its container and properties are known. A server answers with `open()`."""

    def on_close(self, connection: "Connection", condition: Condition | None) -> None:
        """The connection is over, however it came to be: called exactly once. All its links are over with it:
        `connection.links` has those that were not detached before, there is no `on_detach` for them. Links and
        handles of the connection are invalid from here on."""

    def on_attach(self, link: "Link") -> None:
        """The peer attached; it waits for `link.answer()` or `link.refuse()`, now or at any later time. Flow that the
        peer pipelined behind the attach is kept and seen in `link.credit` once answered. With `link.former` it may be
        a re-attach: the owner says so by `link.continue_former()`."""

    def on_attached(self, link: "Link") -> None:
        """The peer answered an attach of ours. A refused one is followed by `on_detach` (its terminus is absent)."""

    def on_detach(self, link: "Link", closed: bool, condition: Condition | None) -> None:
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
