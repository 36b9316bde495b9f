"""Proton's C functions: the names that we call, their check at start-up, and conversions of values for the cold path.

`lib` and `ffi` are python-qpid-proton's own cffi module. The project calls it directly, because proton's Python classes
cost about ten times as much per message. Proton does not promise to keep this module. So the package's version is
pinned, and the names are checked when this module is loaded.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

import cproton_ffi

from router.amqp.format.codec import Symbol, decode, encode
from router.amqp.format.errors import DECODE_ERROR, AmqpError
from router.amqp.format.values import (
    EXPIRE_CONNECTION,
    EXPIRE_LINK,
    EXPIRE_NEVER,
    EXPIRE_SESSION,
    MAX_TAG,
    ErrorCondition,
    Terminus,
)

ffi: Final[Any] = cproton_ffi.ffi
lib: Final[Any] = cproton_ffi.lib

NEEDED: Final = """
pn_collector pn_collector_peek pn_collector_pop pn_collector_release pn_condition_get_description pn_condition_get_name
pn_condition_info pn_condition_is_set pn_condition_set_description pn_condition_set_name pn_connection
pn_connection_close pn_connection_collect pn_connection_condition pn_connection_open pn_connection_properties
pn_connection_release pn_connection_remote_condition pn_connection_remote_container pn_connection_remote_hostname
pn_connection_remote_properties pn_connection_set_container pn_connection_set_hostname pn_connection_state pn_data_clear
pn_data_decode
pn_data_encode pn_data_encoded_size pn_decref pn_delivery pn_delivery_aborted pn_delivery_link pn_delivery_local
pn_delivery_local_state pn_delivery_partial
pn_delivery_pending pn_delivery_readable pn_delivery_remote pn_delivery_remote_state pn_delivery_settle
pn_delivery_settled pn_delivery_tag pn_delivery_update pn_disposition_annotations pn_disposition_condition
pn_disposition_data
pn_disposition_is_failed pn_disposition_is_undeliverable pn_disposition_set_failed pn_disposition_set_undeliverable
pn_event_delivery pn_event_link pn_event_session pn_event_type pn_link_advance pn_link_close pn_link_condition
pn_link_credit pn_link_current pn_link_detach pn_link_drain pn_link_drained pn_link_flow pn_link_free pn_link_get_drain
pn_link_is_sender pn_link_name pn_link_open pn_link_properties pn_link_queued pn_link_recv pn_link_remote_condition
pn_link_remote_max_message_size pn_link_remote_properties pn_link_remote_rcv_settle_mode pn_link_remote_snd_settle_mode
pn_link_remote_source pn_link_remote_target pn_link_send pn_link_session pn_link_set_max_message_size
pn_link_set_rcv_settle_mode pn_link_set_snd_settle_mode pn_link_source pn_link_target pn_link_unsettled pn_receiver
pn_sender pn_session pn_session_close pn_session_condition pn_session_free pn_session_open pn_session_outgoing_bytes
pn_session_remote_condition pn_session_set_incoming_capacity pn_session_state pn_terminus_capabilities pn_terminus_copy
pn_terminus_filter pn_terminus_get_address pn_terminus_get_distribution_mode pn_terminus_get_durability
pn_terminus_get_expiry_policy pn_terminus_get_timeout pn_terminus_get_type pn_terminus_is_dynamic
pn_terminus_outcomes pn_terminus_properties
pn_terminus_set_address pn_terminus_set_distribution_mode pn_terminus_set_durability pn_terminus_set_dynamic
pn_terminus_set_expiry_policy pn_terminus_set_timeout pn_terminus_set_type pn_transport pn_transport_bind
pn_transport_capacity pn_transport_close_tail pn_transport_condition pn_transport_get_remote_idle_timeout
pn_transport_peek pn_transport_pending pn_transport_pop pn_transport_push pn_transport_set_channel_max
pn_transport_set_idle_timeout pn_transport_set_max_frame pn_transport_set_server pn_transport_tick pn_transport_unbind
"""

_missing = [name for name in NEEDED.split() if not hasattr(lib, name)]
if _missing or (lib.PN_VERSION_MAJOR, lib.PN_VERSION_MINOR) != (0, 40):
    raise ImportError(
        f"python-qpid-proton 0.40 is needed, found {lib.PN_VERSION_MAJOR}.{lib.PN_VERSION_MINOR}"
        + (f" without {', '.join(_missing)}" if _missing else "")
    )

SCRATCH_SIZE: Final = 256 * 1024
OUTPUT_SIZE: Final = 256 * 1024


class Memory(threading.local):
    """Memory that a thread uses again and again. A thread copies the content out before it does anything else; proton's
    calls let other threads run meanwhile, so each thread has memory of its own."""

    def __init__(self) -> None:
        # Holds the part of a message in one frame, which is usually all of it.
        self.scratch = ffi.new("char[]", SCRATCH_SIZE)
        # Holds as much output as is usually written at once.
        self.output = ffi.new("char[]", OUTPUT_SIZE)
        self._bytes = ffi.new("char[]", MAX_TAG)
        self.tag_view = memoryview(ffi.buffer(self._bytes, MAX_TAG))
        # Holds each tag that we send. Filling one object again is cheaper than allocating a new one.
        self.tag = ffi.new("pn_bytes_t *")
        self.tag.start = self._bytes


MEMORY: Final = Memory()

# The highest number of bytes of an error's description, so that it fits into small frames.
MOST_TOLD: Final = 1024

_POLICY_NAMES: Final = {
    lib.PN_EXPIRE_WITH_LINK: EXPIRE_LINK,
    lib.PN_EXPIRE_WITH_SESSION: EXPIRE_SESSION,
    lib.PN_EXPIRE_WITH_CONNECTION: EXPIRE_CONNECTION,
    lib.PN_EXPIRE_NEVER: EXPIRE_NEVER,
}
_POLICY_CODES: Final = {name: code for code, name in _POLICY_NAMES.items()}


def as_tag(tag: bytes) -> Any:
    """The tag in proton's form; valid until the thread's next call."""
    memory = MEMORY
    struct = memory.tag
    size = struct.size = len(tag)
    memory.tag_view[:size] = tag
    return struct[0]


def tag_of(delivery: Any) -> bytes:
    tag = lib.pn_delivery_tag(delivery)
    return bytes(ffi.unpack(tag.start, tag.size)) if tag.size else b""


def text(pointer: Any) -> str | None:
    """The text of a C string from the peer; None for a null pointer. Raises AmqpError if it is not UTF-8."""
    if not pointer:
        return None
    try:
        return str(ffi.string(pointer), "utf-8")
    except UnicodeDecodeError:
        raise AmqpError(DECODE_ERROR, "a string is not UTF-8") from None


def read_data(data: Any) -> Any:
    """The AMQP value in `data`, or None."""
    encoded = read_encoded(data)
    return decode(encoded)[0] if encoded else None


def read_encoded(data: Any) -> bytes:
    """The encoded value in `data`; empty if there is none, or if it is larger than SCRATCH_SIZE."""
    size = lib.pn_data_encoded_size(data) if data else 0
    if not 0 < size <= SCRATCH_SIZE or lib.pn_data_encode(data, scratch := MEMORY.scratch, SCRATCH_SIZE) != size:
        return b""
    return bytes(ffi.unpack(scratch, size))


def read_map(data: Any) -> dict[str, Any]:
    """A map such as link properties, without keys that are no text or symbol; empty if the value is no map."""
    value = read_data(data)
    if not isinstance(value, dict):
        return {}
    return {str(key): item for key, item in value.items() if isinstance(key, str)}


def write_map(values: Mapping[str, Any] | None, data: Any) -> None:
    """Replace the value in `data`. Without this proton would append a second map, for example if an outcome is sent
    again."""
    lib.pn_data_clear(data)
    if values:
        encoded = encode({Symbol(key): value for key, value in values.items()})
        assert lib.pn_data_decode(data, encoded, len(encoded)) == len(encoded)


def write_list(values: Sequence[Any], data: Any) -> None:
    """Replace the value in `data` by a list of these values."""
    lib.pn_data_clear(data)
    encoded = encode([*values])
    assert lib.pn_data_decode(data, encoded, len(encoded)) == len(encoded)


def write_symbols(names: Sequence[str], data: Any) -> None:
    """Write an array of symbols, or nothing if there are no names."""
    if names:
        symbols = b"".join(bytes((len(name),)) + name.encode() for name in names)
        encoded = b"\xe0" + bytes((len(symbols) + 2, len(names), 0xA3)) + symbols
        assert lib.pn_data_decode(data, encoded, len(encoded)) == len(encoded)


def write_symbol(name: str, data: Any) -> None:
    """Write a symbol, or nothing if `name` is empty."""
    if name:
        encoded = encode(Symbol(name))
        assert lib.pn_data_decode(data, encoded, len(encoded)) == len(encoded)


def read_symbols(data: Any) -> tuple[str, ...]:
    """The symbols of a symbol or of an array of symbols."""
    value = read_data(data)
    if isinstance(value, str):
        return (str(value),)
    return tuple(map(str, value)) if isinstance(value, list) else ()


def read_condition(condition: Any) -> ErrorCondition | None:
    if not lib.pn_condition_is_set(condition):
        return None
    name = text(lib.pn_condition_get_name(condition)) or ""
    return ErrorCondition(
        name,
        text(lib.pn_condition_get_description(condition)) or "",
        read_map(lib.pn_condition_info(condition)),
    )


def write_condition(condition: Any, name: str | None, description: str, info: Mapping[str, Any] | None = None) -> None:
    if name is not None:
        lib.pn_condition_set_name(condition, name.encode())
        told = description.encode()[:MOST_TOLD].decode(errors="ignore")
        lib.pn_condition_set_description(condition, told.encode())
        write_map(info, lib.pn_condition_info(condition))


def read_terminus(terminus: Any) -> Terminus | None:
    kind = lib.pn_terminus_get_type(terminus)
    if kind == lib.PN_UNSPECIFIED:
        return None
    if kind == lib.PN_COORDINATOR:
        return Terminus(coordinator=True)
    return Terminus(
        address=text(lib.pn_terminus_get_address(terminus)),
        durable=lib.pn_terminus_get_durability(terminus),
        expiry_policy=_POLICY_NAMES[lib.pn_terminus_get_expiry_policy(terminus)],
        timeout=lib.pn_terminus_get_timeout(terminus),
        dynamic=lib.pn_terminus_is_dynamic(terminus),
        filters=read_map(lib.pn_terminus_filter(terminus)),
        capabilities=read_symbols(lib.pn_terminus_capabilities(terminus)),
        node_properties=read_map(lib.pn_terminus_properties(terminus)),
    )


def write_lifetime(terminus: Any, durable: int, expiry_policy: str, timeout: int) -> None:
    """Write how long a terminus lives (AMQP 1.0 3.5.3, 3.5.4)."""
    lib.pn_terminus_set_durability(terminus, durable)
    lib.pn_terminus_set_expiry_policy(terminus, _POLICY_CODES[expiry_policy])
    lib.pn_terminus_set_timeout(terminus, timeout)
