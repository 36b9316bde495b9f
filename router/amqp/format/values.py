"""The named values of AMQP 1.0: values of links, deliveries and errors, and the options of our own attaches.

This module imports no other module of the project. Other modules encode these values, and act on them.
"""

from collections.abc import Mapping
from typing import Any, Final, Protocol, TypeAlias, TypedDict

from attrs import frozen

Handle: TypeAlias = Any  # a cffi pointer, which only the class Link reads

# The next values are AMQP's descriptor codes of delivery states. 0 stands for no state.
NO_STATE: Final = 0
RECEIVED: Final = 0x23
ACCEPTED: Final = 0x24
REJECTED: Final = 0x25
RELEASED: Final = 0x26
MODIFIED: Final = 0x27
ERROR: Final = 0x1D
DECLARED: Final = 0x33
TRANSACTIONAL: Final = 0x34

HEARTBEAT: Final = b"\0\0\0\x08\x02\0\0\0"  # a heartbeat: a frame without a body (AMQP 1.0 2.4.5)

MAX_TAG: Final = 32  # the highest number of bytes of a delivery-tag (AMQP 1.0 2.8.7)

# The two descriptors by which a filter set may name a selector.
SELECTOR: Final = "apache.org:selector-filter:string"
SELECTOR_CODE: Final = 0x0000_468C_0000_0004
NO_LOCAL: Final = "apache.org:no-local-filter:list"
NO_LOCAL_CODE: Final = 0x0000_468C_0000_0003

# The next values are the encoded numbers of snd-settle-mode and rcv-settle-mode.
SND_UNSETTLED: Final = 0
SND_SETTLED: Final = 1
SND_MIXED: Final = 2
RCV_FIRST: Final = 0
RCV_SECOND: Final = 1

# The next values are the symbols of terminus-expiry-policy.
EXPIRE_LINK: Final = "link-detach"
EXPIRE_SESSION: Final = "session-end"
EXPIRE_CONNECTION: Final = "connection-close"
EXPIRE_NEVER: Final = "never"

# The property that says how long a dynamic node lives, and the code for a node that ends with its link.
LIFETIME_POLICY: Final = "lifetime-policy"
DELETE_ON_CLOSE: Final = 0x2B


@frozen
class Terminus:
    """A source or target, as the peer requested it in its attach."""

    address: str | None = None
    # 0: not durable. 1: the terminus' configuration is durable. 2: its unsettled deliveries are durable, too.
    durable: int = 0
    expiry_policy: str = EXPIRE_SESSION
    timeout: int = 0  # seconds for which the terminus outlives its connection
    dynamic: bool = False
    coordinator: bool = False  # True if the attach has a transaction coordinator in place of the target
    filters: Mapping[str, Any] = {}  # the filters of a source: name -> described value
    capabilities: tuple[str, ...] = ()
    node_properties: Mapping[str, Any] = {}  # the properties of a dynamic node


@frozen
class OutcomeDetails:
    """A delivery's remote state in full, for outcomes that carry more than their code."""

    state: int = NO_STATE
    condition: str | None = None  # the condition of the error, if the state is `rejected`
    description: str = ""
    info: Mapping[str, Any] = {}  # the info of the error, if the state is `rejected`
    failed: bool = False  # the field delivery-failed of `modified`
    undeliverable: bool = False  # the field undeliverable-here of `modified`
    annotations: bytes = b""  # the encoded message-annotations of `modified`; empty: none


@frozen
class DeliveryState:
    """The entry of a delivery in an unsettled map."""

    state: int = NO_STATE
    # If the state is `received`: the sender continues the message at this section and at `section_offset`.
    section_number: int = 0
    section_offset: int = 0


@frozen
class ErrorCondition:
    """The error of a close, end or detach."""

    name: str
    description: str = ""
    info: Mapping[str, Any] = {}
    limit: str = ""
    """The limit that the peer has exceeded, by its name in the topology. Empty if we detached no link for a limit."""


class HeldBytes(Protocol):
    """Counts the bytes of messages that we hold for a peer."""

    def add(self, size: int) -> None: ...

    @property
    def refuses(self) -> str:
        """The name of the limit that refuses more bytes; empty if more bytes are taken."""


class Uncounted(HeldBytes):
    """Stands for a `HeldBytes` where nothing counts the bytes of a peer. It refuses no bytes."""

    def add(self, size: int) -> None:
        pass

    @property
    def refuses(self) -> str:
        return ""


class AttachOptions(TypedDict, total=False):
    """The keyword arguments of `Attach`. An argument that is left out has the default of `Attach`."""

    snd_settle_mode: int
    rcv_settle_mode: int
    durable: int
    expiry_policy: str
    timeout: int
    properties: Mapping[str, Any] | None
    unsettled: Mapping[bytes, int] | None
    incomplete_unsettled: bool
    filters: Mapping[str, Any] | None


@frozen
class Attach:
    """Make the options of an attach of ours. The source and the target both get `durable`, `expiry_policy` and
    `timeout`. `unsettled`: our map, as in `Link.answer`. Before the peer's open has come (`on_open`), we do not know
    the peer's max-frame-size. So an attach that is written earlier keeps to the least max-frame-size of AMQP, and few
    entries of the map fit into the attach."""

    snd_settle_mode: int = SND_MIXED
    rcv_settle_mode: int = RCV_FIRST
    durable: int = 0
    expiry_policy: str = EXPIRE_SESSION
    timeout: int = 0  # seconds for which the terminus outlives its connection
    properties: Mapping[str, Any] | None = None
    unsettled: Mapping[bytes, int] | None = None
    incomplete_unsettled: bool = False
    filters: Mapping[str, Any] | None = None  # filters of the source: described values, keyed by name


@frozen
class Bounds:
    """The limits of one connection of a peer."""

    sessions: int = 512
    """The highest number of sessions, including ended sessions that are not freed yet. At most 255 can be open at
    once."""
    links: int = 4096
    """The highest number of links, including ended links that are not freed yet."""
    unsettled: int = 2**32
    """The highest number of entries of the unsettled map of an attach."""
    opening: float | None = None
    """The peer has this many seconds for SASL and open; None: as long as the idle timeout."""


@frozen
class StreamFigures:
    """The kernel's figures of one connection's stream, since the stream was made."""

    sent: int
    """Bytes that the peer's machine has acknowledged."""
    received: int
    rtt_s: float
    """The smoothed round-trip time, in seconds."""
