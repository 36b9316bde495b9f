"""AMQP's composite types: writes and reads their fields by name and type (AMQP 1.0 2.7, 2.8.14, 3.2, 3.4, 3.5)."""

from random import Random
from typing import Any, Final

from tests.fuzz.odd.codec import Array, Described, Encoder, Typed, decode

Fields = list[tuple[str, str, Any]]
"""(name, type, default or None). `!` after a type: the field is mandatory."""

TYPES: Final[dict[str, tuple[int, str]]] = {
    "open": (0x10, "container-id string!; hostname string; max-frame-size uint 4294967295; channel-max ushort 65535; "
             "idle-time-out uint; outgoing-locales symbols; incoming-locales symbols; offered-capabilities symbols; "
             "desired-capabilities symbols; properties map"),
    "begin": (0x11, "remote-channel ushort; next-outgoing-id uint!; incoming-window uint!; outgoing-window uint!; "
              "handle-max uint 4294967295; offered-capabilities symbols; desired-capabilities symbols; properties map"),
    "attach": (0x12, "name string!; handle uint!; role boolean!; snd-settle-mode ubyte 2; rcv-settle-mode ubyte 0; "
               "source *; target *; unsettled map; incomplete-unsettled boolean 0; initial-delivery-count uint; "
               "max-message-size ulong; offered-capabilities symbols; desired-capabilities symbols; properties map"),
    "flow": (0x13, "next-incoming-id uint; incoming-window uint!; next-outgoing-id uint!; outgoing-window uint!; "
             "handle uint; delivery-count uint; link-credit uint; available uint; drain boolean 0; echo boolean 0; "
             "properties map"),
    "transfer": (0x14, "handle uint!; delivery-id uint; delivery-tag binary; message-format uint; settled boolean; "
                 "more boolean 0; rcv-settle-mode ubyte; state *; resume boolean 0; aborted boolean 0; "
                 "batchable boolean 0"),
    "disposition": (0x15, "role boolean!; first uint!; last uint; settled boolean 0; state *; batchable boolean 0"),
    "detach": (0x16, "handle uint!; closed boolean 0; error *"),
    "end": (0x17, "error *"),
    "close": (0x18, "error *"),
    "error": (0x1D, "condition symbol!; description string; info map"),
    "received": (0x23, "section-number uint!; section-offset ulong!"),
    "accepted": (0x24, ""),
    "rejected": (0x25, "error *"),
    "released": (0x26, ""),
    "modified": (0x27, "delivery-failed boolean; undeliverable-here boolean; message-annotations map"),
    "sasl-mechanisms": (0x40, "sasl-server-mechanisms symbols!"),
    "sasl-init": (0x41, "mechanism symbol!; initial-response binary; hostname string"),
    "sasl-outcome": (0x44, "code ubyte!; additional-data binary"),
    "source": (0x28, "address string; durable uint 0; expiry-policy symbol session-end; timeout uint 0; "
               "dynamic boolean 0; dynamic-node-properties map; distribution-mode symbol; filter map; "
               "default-outcome *; outcomes symbols; capabilities symbols"),
    "target": (0x29, "address string; durable uint 0; expiry-policy symbol session-end; timeout uint 0; "
               "dynamic boolean 0; dynamic-node-properties map; capabilities symbols"),
    "header": (0x70, "durable boolean 0; priority ubyte 4; ttl uint; first-acquirer boolean 0; delivery-count uint 0"),
    "delivery-annotations": (0x71, "#"),
    "message-annotations": (0x72, "#"),
    "properties": (0x73, "message-id *; user-id binary; to string; subject string; reply-to string; correlation-id *; "
                   "content-type symbol; content-encoding symbol; absolute-expiry-time timestamp; "
                   "creation-time timestamp; group-id string; group-sequence uint; reply-to-group-id string"),
    "application-properties": (0x74, "#"),
    "data": (0x75, "#"),
    "amqp-sequence": (0x76, "#"),
    "amqp-value": (0x77, "#"),
    "footer": (0x78, "#"),
}  # fmt: skip
"""(code, fields). `#`: one value instead of a list of fields."""

CONDITIONS: Final = frozenset(
    ["amqp:" + name for name in (
        "internal-error", "not-found", "unauthorized-access", "decode-error", "resource-limit-exceeded", "not-allowed",
        "invalid-field", "not-implemented", "resource-locked", "precondition-failed", "resource-deleted",
        "illegal-state", "frame-size-too-small", "connection:forced", "connection:framing-error",
        "connection:redirect", "session:window-violation", "session:errant-link", "session:handle-in-use",
        "session:unattached-handle", "link:detach-forced", "link:transfer-limit-exceeded",
        "link:message-size-exceeded", "link:redirect", "link:stolen",
    )]
)  # fmt: skip
"""AMQP 1.0 2.8.15 to 2.8.18."""


def _parsed(text: str) -> Fields:
    fields: Fields = []
    for part in filter(None, text.split("; ")):
        name, kind, *default = part.split()
        value: Any = None
        if default:
            value = bool(int(default[0])) if kind == "boolean" else default[0]
            value = int(default[0]) if kind in ("uint", "ushort", "ubyte") else value
        fields.append((name, kind, value))
    return fields


FIELDS: Final = {name: _parsed(text) for name, (_, text) in TYPES.items() if text != "#"}
BY_CODE: Final = {code: name for name, (code, _) in TYPES.items()}


def symbol_of(name: str) -> str:
    return f"amqp:{name}:{'list' if name in FIELDS else 'binary' if name == 'data' else 'map'}" if name not in (
        "amqp-sequence", "amqp-value") else f"amqp:{name}:{'list' if name == 'amqp-sequence' else '*'}"  # fmt: skip


BY_SYMBOL: Final = {symbol_of(name): name for name in TYPES}


class Writer:
    """Writes composite values as one client would."""

    def __init__(self, rng: Random | None = None, *, symbolic: float = 0.0, outer: float = 0.0) -> None:
        """`rng` chooses among encodings; without it all are the usual ones. `outer`: the probability that a
        performative's descriptor is a symbol. `symbolic`: the same for descriptors within a performative or message."""
        self._rng = rng
        self._symbolic = symbolic
        self._outer = outer
        self.encoder = Encoder(rng)

    def described(self, name: str, value: Any = None, outer: bool = False) -> Described:
        share = self._outer if outer else self._symbolic
        is_symbolic = self._rng is not None and self._rng.random() < share
        return Described(Typed("symbol", symbol_of(name)) if is_symbolic else Typed("ulong", TYPES[name][0]), value)

    def composite(self, name: str, /, outer: bool = False, **fields: Any) -> Described:
        """A composite value with fields by name, with `_` for `-`. A field that is None, or the default, may be written
        or left out.
        """
        values = []
        known = {field.replace("-", "_"): field for field, _, _ in FIELDS[name]}
        assert not fields.keys() - known.keys(), fields
        for field, kind, default in FIELDS[name]:
            value = fields.get(field.replace("-", "_"))
            assert value is not None or not kind.endswith("!"), f"{name} without {field}"
            if default is not None and (value is None or value == default):
                value = default if self._rng is not None and self._rng.random() < 0.2 else None
            values.append(self._field(kind.rstrip("!"), value))
        if self._rng is None or self._rng.random() < 0.7:
            while values and values[-1] is None:
                values.pop()
        return self.described(name, values, outer)

    def _field(self, kind: str, value: Any) -> Any:
        if value is None or kind in ("string", "binary", "boolean", "map", "*"):
            return value
        if kind == "symbols":
            is_single = len(value) == 1 and self._rng is not None and self._rng.random() < 0.5
            return Typed("symbol", value[0]) if is_single else Array("symbol", tuple(value))
        return Typed(kind, value)

    def encode(self, value: Any) -> bytes:
        return self.encoder.encode(value)


def name_of(descriptor: Any) -> str:
    """The name of a composite type. Raises for types that AMQP does not have."""
    assert isinstance(descriptor, Typed), descriptor
    return BY_SYMBOL[descriptor.value] if descriptor.type == "symbol" else BY_CODE[descriptor.value]


def read(value: Described) -> tuple[str, dict[str, Any]]:
    """The name and the fields of a composite value, with defaults. Raises if a field has the wrong type, or a mandatory
    one is missing."""
    name = name_of(value.descriptor)
    assert isinstance(value.value, list), f"{name}: its fields are no list"
    assert len(value.value) <= len(FIELDS[name]), f"{name} has {len(value.value)} fields"
    given = [*value.value, *[None] * (len(FIELDS[name]) - len(value.value))]
    fields = {}
    for (field, kind, default), item in zip(FIELDS[name], given, strict=True):
        assert item is not None or not kind.endswith("!"), f"{name} without {field}"
        fields[field.replace("-", "_")] = default if item is None else _read(f"{name}.{field}", kind.rstrip("!"), item)
    return name, fields


def _read(what: str, kind: str, item: Any) -> Any:
    if kind == "*":
        return read(item) if isinstance(item, Described) else item
    if kind == "symbols":
        values = (item.value,) if isinstance(item, Typed) else item.values
        assert isinstance(item, Typed | Array) and item.type == "symbol", f"{what} is {item}"
        return values
    plain = {"string": str, "binary": bytes, "boolean": bool, "map": dict}
    if kind in plain:
        assert isinstance(item, plain[kind]), f"{what} is {item!r}"
        return item
    assert isinstance(item, Typed) and item.type == kind, f"{what} is {item!r}"
    return item.value


def read_frame(frame: bytes, kind: int = 0) -> tuple[int, str, dict[str, Any], bytes]:
    """Channel, name, fields and payload. An empty frame has the name ''."""
    assert frame[5] == kind, f"a frame of type {frame[5]}"
    assert frame[4] >= 2, "an offset into the header"
    channel, at = int.from_bytes(frame[6:8], "big"), 4 * frame[4]
    if at == len(frame):
        return channel, "", {}, b""
    value, end = decode(frame, at)
    assert isinstance(value, Described), "a frame without a performative"
    name, fields = read(value)
    return channel, name, fields, frame[end:]
