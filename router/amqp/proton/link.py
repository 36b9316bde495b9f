"""One link of a connection: its attach, its detach, and the properties that both ends have sent.

Only `Endpoints` creates links. A detach settles nothing, whichever end begins it: unsettled deliveries stay unsettled
at the peer, for its next attach. `deliveries` has the deliveries and the credit of a link.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from router.amqp.format.codec import Described, decode
from router.amqp.format.errors import AmqpError
from router.amqp.format.message import content_of
from router.amqp.format.notes import AttachFrame
from router.amqp.format.performative import NULL
from router.amqp.format.values import (
    DELETE_ON_CLOSE,
    EXPIRE_SESSION,
    LIFETIME_POLICY,
    RCV_FIRST,
    SND_MIXED,
    SND_UNSETTLED,
    DeliveryState,
    ErrorCondition,
    Terminus,
)
from router.amqp.proton.deliveries import DeliveryHost, LinkDeliveries
from router.amqp.proton.library import (
    lib,
    read_condition,
    read_map,
    read_symbols,
    read_terminus,
    write_condition,
    write_lifetime,
    write_map,
    write_symbols,
)

LINK_NUMBER: Final = "link-number"
"""A link property that never leaves the process: the number by which the tap finds the link of an outgoing attach."""

"""The properties of a dynamic node (AMQP 1.0 messaging 3.5.10)."""

REJECTED_SYMBOL: Final = "amqp:rejected:list"

Place = tuple[Any, bool, str]
"""The place of a link: its session, direction and name. Two attached links of a connection never have
the same place."""


class Host(DeliveryHost, Protocol):
    """The connection, as its links and their owners use it."""

    context: Any
    origin: str
    remote_container: str
    remote_properties: Mapping[str, Any]
    user: str
    closed: bool
    opened: bool
    closing: bool
    can_prove: bool
    error: AmqpError | None

    @property
    def links(self) -> "Sequence[Link]": ...
    def wake(self) -> None: ...
    def close(self, condition: str | None = None, description: str = "") -> None: ...
    def prove(self, told: Callable[[], None]) -> None: ...
    def expel(self, link: "Link", condition: str, description: str, limit: str = "") -> None: ...
    def announce(self, link: "Link") -> int: ...
    def postpones(self, link: "Link") -> bool: ...
    def leaves(self, link: "Link") -> None: ...
    def continue_former(self, link: "Link", former: "Link") -> None: ...
    def answer_drain(self, link: "Link") -> None: ...
    def ask_echo(self, link: "Link") -> None: ...
    def answer_echo(self, link: "Link") -> None: ...


class Link(LinkDeliveries):
    """One link. The comments describe the attributes. "Engine only" marks members that the owner of the connection does
    not use.
    """

    __slots__ = (
        "_closed",
        "_opened",
        "_postponed",
        "_properties",
        "answered",
        "closed_by_peer",
        "context",
        "continued",
        "detach_answered",
        "detached",
        "former",
        "incomplete_unsettled",
        "limit",
        "moves",
        "name",
        "number",
        "offers",
        "omitted",
        "remote_channel",
        "remote_handle",
        "remote_incomplete_unsettled",
        "remote_max_message_size",
        "remote_properties",
        "remote_rcv_settle_mode",
        "remote_snd_settle_mode",
        "remote_source",
        "remote_target",
        "remote_unsettled",
        "session",
        "told",
        "unsettled",
        "wire",
    )

    connection: Host

    def __init__(self, connection: Host, pointer: Any, name: str, max_message: int) -> None:
        super().__init__(connection, pointer, max_message)
        self.session = lib.pn_link_session(pointer)
        self.name = name
        self.context: Any = None  # an object of the owner, which keeps its knowledge about this link there
        self.answered = False  # True once both ends have attached
        # True once either end has detached the link, or its session has ended.
        self.detached = False
        self.detach_answered: Callable[[], None] | None = None  # the argument `answered` of `detach`
        # The link that the peer's attach may continue (`continue_former`).
        self.former: Link | None = None
        # The attributes from here on are the fields of the peer's attach. A terminus that the attach lacks is None.
        self.remote_source: Terminus | None = None
        self.remote_target: Terminus | None = None
        self.remote_snd_settle_mode = SND_MIXED
        self.remote_rcv_settle_mode = RCV_FIRST
        self.remote_max_message_size = 0
        self.remote_properties: Mapping[str, Any] = {}
        # None stands for a null map. An empty map is not None.
        self.remote_unsettled: Mapping[bytes, DeliveryState] | None = None
        self.remote_incomplete_unsettled = False
        # Tags of our map that were left out, because the written attach had no room for them.
        self.omitted: tuple[bytes, ...] = ()
        self.closed_by_peer = False  # True once the peer sent a closing detach
        # The distribution mode (AMQP 1.0 messaging 3.5.7).
        # True: move, which gives a message to one receiver. False: copy.
        self.moves = False
        self.offers = ""  # the capability that our attach offers
        # If we send: the link properties of the peer's last flow that had some, encoded.
        self.told = NULL
        # Engine only: pointers of former links whose deliveries belong to this link.
        self.continued: list[Any] = []
        self._opened = False  # True once our attach was handed to proton, or postponed
        # True while our attach waits for the detach of another link in this place.
        self._postponed = False
        self._closed = False  # True if our detach closes the link
        self._properties: Mapping[str, Any] | None = None
        # Only the tap uses the attributes from here on.
        self.unsettled: Mapping[bytes, int] | None = None  # our map; None once it is written
        self.incomplete_unsettled = False
        self.number = 0  # the value of LINK_NUMBER in our attach
        self.wire = (b"", b"")  # the channel and handle of our end
        # If we send: the sum of delivery-count and credit in the peer's last flow.
        self.limit = 0
        # The channel and handle in the peer's attach.
        self.remote_channel, self.remote_handle = b"", 0

    def __repr__(self) -> str:
        return f"<Link {self.name!r} {'to' if self.is_sender else 'from'} {self.connection.remote_container!r}>"

    @property
    def address(self) -> str | None:
        """The address of our node, on a link that the peer attached: the source's address if we send, the target's
        address if we receive.
        """
        terminus = self.remote_source if self.is_sender else self.remote_target
        return terminus.address if terminus else None

    @property
    def browses(self) -> bool:
        """Whether the peer, as a receiver, asks for distribution mode copy (AMQP 1.0 messaging 3.5.7)."""
        mode = lib.pn_terminus_get_distribution_mode(lib.pn_link_remote_source(self.pointer))
        return self.is_sender and bool(mode == lib.PN_DIST_MODE_COPY)

    @property
    def takes_rejections(self) -> bool:
        """Whether the source of the peer's attach supports the outcome *rejected*, or names no outcomes (AMQP 1.0
        messaging 3.5.3)."""
        outcomes = read_symbols(lib.pn_terminus_outcomes(lib.pn_link_remote_source(self.pointer)))
        return not outcomes or REJECTED_SYMBOL in outcomes

    @property
    def place(self) -> Place:
        """Engine only: the link's place."""
        return self.session, self.is_sender, self.name

    def takes(self, message: bytes) -> bool:
        """Whether the peer's attach, as a receiver, allows a message of this size."""
        return not 0 < self.remote_max_message_size < len(content_of(message))

    # -- The methods from here on attach and detach the link.

    def recall(self, source: Terminus) -> None:
        """Answer a receiver's attach that lacks a source as if the attach had named `source`."""
        assert self.remote_source is None and not self.answered
        self.remote_source = source

    def continue_former(self) -> None:
        """Declare this attach a re-attach (AMQP 1.0 2.6.4, 2.7.3). The peer has detached `former` without closing it,
        and the owner has kept its `context`. The deliveries of `former` and their handles stay valid, and belong to
        this link from now on. `remote_state` gives the present state of a delivery; later dispositions are reported
        after this link is answered."""
        assert self.former is not None and not self.answered
        self.connection.continue_former(self, self.former)

    def answer(
        self,
        *,
        durable: int = 0,
        expiry_policy: str = EXPIRE_SESSION,
        timeout: int = 0,
        max_message_size: int | None = None,
        properties: Mapping[str, Any] | None = None,
        unsettled: Mapping[bytes, int] | None = None,
        incomplete_unsettled: bool = False,
        address: str | None = None,
        policy: int = DELETE_ON_CLOSE,
        filters: Mapping[str, Any] | None = None,
        capabilities: Sequence[str] = (),
    ) -> None:
        """Answer the peer's attach.

        The answer repeats the peer's termini, with these `filters`, and with these `capabilities` of a coordinator. It
        repeats the settle modes, with one exception: a receiver that asks for *unsettled* gets *mixed*, because some
        publishers send settled messages. If the peer names a distribution mode, the answer names ours (`moves`). The
        terminus at our end gets the given durability, expiry policy and timeout. A dynamic node gets the `address` and
        the lifetime `policy`. Without `max_message_size`, a receiving link has the limit of the connection. A source of
        ours has `released` as its default outcome.

        `unsettled`: our map, from tags to states. If the map is too large for the peer's frames, its last entries are
        left out (`omitted`), and the attach says that the map is incomplete.
        """
        if self.ended:
            return
        assert not self._opened
        source, target = lib.pn_link_source(self.pointer), lib.pn_link_target(self.pointer)
        self._echo_termini(source, target)
        write_map(filters, lib.pn_terminus_filter(source))
        write_symbols(capabilities, lib.pn_terminus_capabilities(target))
        ours = source if self.is_sender else target
        write_lifetime(ours, durable, expiry_policy, timeout)
        if address is not None:
            lib.pn_terminus_set_address(ours, address.encode())
            write_map({LIFETIME_POLICY: Described(policy, [])}, lib.pn_terminus_properties(ours))
        if max_message_size is not None:
            self.max_message = max_message_size
        self.describe(properties, unsettled, incomplete_unsettled)
        asked = self.remote_snd_settle_mode
        self.open(SND_MIXED if self.is_sender and asked == SND_UNSETTLED else asked, self.remote_rcv_settle_mode)
        self.answered = True

    def describe(
        self, properties: Mapping[str, Any] | None, unsettled: Mapping[bytes, int] | None, incomplete_unsettled: bool
    ) -> None:
        """Engine only: set the contents of our attach."""
        self._properties = properties
        self.unsettled = unsettled
        self.incomplete_unsettled = incomplete_unsettled

    def _echo_termini(self, source: Any, target: Any) -> None:
        lib.pn_terminus_copy(source, lib.pn_link_remote_source(self.pointer))
        lib.pn_terminus_copy(target, lib.pn_link_remote_target(self.pointer))
        # The attach had no source; the owner has named one since (`recall`).
        if self.remote_source is not None and lib.pn_terminus_get_type(source) == lib.PN_UNSPECIFIED:
            lib.pn_terminus_set_type(source, lib.PN_SOURCE)
            lib.pn_terminus_set_address(source, (self.remote_source.address or "").encode())
        # A distribution mode is answered only if the peer asks for one.
        if lib.pn_terminus_get_distribution_mode(source) != lib.PN_DIST_MODE_UNSPECIFIED:
            mode = lib.PN_DIST_MODE_MOVE if self.moves else lib.PN_DIST_MODE_COPY
            lib.pn_terminus_set_distribution_mode(source, mode)
        for data in (
            lib.pn_terminus_filter(source),
            lib.pn_terminus_properties(source),
            lib.pn_terminus_properties(target),
            lib.pn_terminus_capabilities(source),
            lib.pn_terminus_capabilities(target),
        ):
            lib.pn_data_clear(data)

    def open(self, snd_settle_mode: int, rcv_settle_mode: int) -> None:
        """Engine only: send our attach."""
        self.number = self.connection.announce(self)
        write_map({LINK_NUMBER: self.number, **(self._properties or {})}, lib.pn_link_properties(self.pointer))
        lib.pn_link_set_snd_settle_mode(self.pointer, snd_settle_mode)
        lib.pn_link_set_rcv_settle_mode(self.pointer, rcv_settle_mode)
        if not self.is_sender:
            lib.pn_link_set_max_message_size(self.pointer, self.max_message)
        self._opened = True
        self._postponed = self.connection.postpones(self)
        if not self._postponed:
            lib.pn_link_open(self.pointer)

    def attach_postponed(self) -> None:
        """Engine only: write the postponed attach, and our detach if the link has been detached meanwhile."""
        self._postponed = False
        lib.pn_link_open(self.pointer)
        if self.detached:
            self._detach(self._closed)

    def refuse(self, condition: str, description: str = "") -> None:
        """Answer the peer's attach without a terminus at our end, then detach with the error (AMQP 1.0 2.6.3)."""
        self.detach(condition, description)

    def detach(
        self,
        condition: str | None = None,
        description: str = "",
        closed: bool = True,
        *,
        answered: Callable[[], None] | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> None:
        """Detach the link, or close it if `closed`. The link and its handles are invalid after this call, and no
        `on_detach` follows. `answered` is called if the peer answers the detach (AMQP 1.0 2.6.4)."""
        if self.ended:
            return
        self.detach_answered = answered
        self.leave(condition, description, closed, info)

    def leave(
        self, condition: str | None, description: str, closed: bool, info: Mapping[str, Any] | None = None
    ) -> None:
        """Engine only: send our detach, which may answer the peer's. If our attach is not sent yet, it goes first."""
        self.end()
        self.detached = True
        if not self._opened:
            lib.pn_terminus_set_type(lib.pn_link_source(self.pointer), lib.PN_UNSPECIFIED)
            lib.pn_terminus_set_type(lib.pn_link_target(self.pointer), lib.PN_UNSPECIFIED)
            # The answer names default settle modes, because the peer's settle modes may be the reason of the refusal.
            self.open(SND_MIXED, RCV_FIRST)
        write_condition(lib.pn_link_condition(self.pointer), condition, description, info)
        self._closed = closed
        if not self._postponed:
            self._detach(closed)

    def _detach(self, closed: bool) -> None:
        self.connection.leaves(self)
        (lib.pn_link_close if closed else lib.pn_link_detach)(self.pointer)

    def forget(self) -> None:
        """Engine only: drop references, because no link will continue this one. Otherwise Python would free the
        objects only when it searches for cycles."""
        self.context = self.detach_answered = self.former = None

    def end(self) -> None:
        """Engine only: mark the link as ended. It ignores all later calls."""
        self.ended = True
        self.credit = 0
        self.draining = False
        self.drop_partial()

    def read_attach(self, frame: AttachFrame | None) -> None:
        """Engine only: copy the fields of the peer's attach into the link."""
        if frame is not None:
            self.remote_channel, self.remote_handle = frame.channel, frame.handle
            self.remote_unsettled, self.remote_incomplete_unsettled = frame.unsettled, frame.incomplete
        pointer = self.pointer
        self.remote_source = read_terminus(lib.pn_link_remote_source(pointer))
        self.remote_target = read_terminus(lib.pn_link_remote_target(pointer))
        self.remote_snd_settle_mode = lib.pn_link_remote_snd_settle_mode(pointer)
        self.remote_rcv_settle_mode = lib.pn_link_remote_rcv_settle_mode(pointer)
        self.remote_max_message_size = lib.pn_link_remote_max_message_size(pointer)
        self.remote_properties = read_map(lib.pn_link_remote_properties(pointer))

    def forget_map(self) -> None:
        """Drop the peer's map, which the owner has read: it is the largest part of the attach."""
        self.remote_unsettled = None

    def remote_condition(self) -> ErrorCondition | None:
        """Engine only: the error of the peer's detach."""
        return read_condition(lib.pn_link_remote_condition(self.pointer))

    # -- The methods from here on are about flow.

    def drained(self, available: int | None = None) -> None:
        """Give back the remaining credit to a draining receiver, as soon as all sent messages are written. `available`:
        about how many messages still wait; None: our flows give no number.
        """
        if not self.ended and self.draining:
            self.available = available
            self.connection.answer_drain(self)
            self.credit = 0
            self.draining = False

    @property
    def remote_state_properties(self) -> Mapping[str, Any]:
        """The link properties of the receiver's last flow that had some, if they have at most 1,024 bytes. Empty if
        there were none, or if they are malformed.
        """
        try:
            told = decode(self.told)[0]
        except AmqpError:
            return {}
        return told if isinstance(told, dict) else {}

    def echo(self) -> None:
        """Send an echo to the peer. `on_echo` is called if the peer answers."""
        if not self.ended:
            assert self.answered
            self.connection.ask_echo(self)

    def answer_echo(self) -> None:
        """Answer an echo of the peer (see `asked` of `Connection`)."""
        if not self.ended:
            self.connection.answer_echo(self)
