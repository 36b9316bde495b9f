"""Messages with any sections and values (AMQP 1.0 3.2), and the part of a message that no router may change."""

from random import Random
from typing import Any, Final

from tests.fuzz.odd.codec import Array, Described, Typed, decode, symbol, timestamp, uint, ulong
from tests.fuzz.odd.performatives import Writer, name_of

ANNOTATIONS: Final = ("header", "delivery-annotations", "message-annotations")
"""The sections that routers may change. The bare message and the footer follow them."""
FOREIGN: Final = (1, 0x80013700, 2**32 - 1)
"""Message formats other than AMQP's."""


def value(rng: Random, deep: int = 2, *, nests: bool = True) -> Any:
    """A value of any type."""
    kinds = ("null", "boolean", "ubyte", "ushort", "uint", "ulong", "byte", "short", "int", "long", "float", "double",
             "char", "timestamp", "uuid", "decimal32", "decimal64", "decimal128", "binary", "string", "symbol", "list",
             "map", "array", "described")  # fmt: skip
    kind = rng.choice(kinds if deep else kinds[:21])
    bits = {"ubyte": 8, "ushort": 16, "uint": 32, "ulong": 64, "byte": 8, "short": 16, "int": 32, "long": 64,
            "timestamp": 64}  # fmt: skip
    opaque = {"uuid": 16, "decimal32": 4, "decimal64": 8, "decimal128": 16}
    match kind:
        case "null":
            return None
        case "boolean":
            return rng.random() < 0.5
        case "ubyte" | "ushort" | "uint" | "ulong":
            return Typed(kind, rng.choice((0, 1, 2 ** bits[kind] - 1, rng.randrange(2 ** bits[kind]))))
        case "byte" | "short" | "int" | "long" | "timestamp":
            half = 2 ** (bits[kind] - 1)
            return Typed(kind, rng.choice((0, 1, -1, half - 1, -half)))
        case "float" | "double":
            return Typed(kind, rng.choice((0.0, -1.5, float("inf"))))
        case "char":
            return Typed(kind, rng.choice((0x41, 0x1F600)))
        case "uuid" | "decimal32" | "decimal64" | "decimal128":
            return Typed(kind, rng.randbytes(opaque[kind]))
        case "binary":
            return rng.randbytes(rng.choice((0, 1, 20, 255, 256)))
        case "string":
            return rng.choice(("", "a", "é€😀", "x" * 255, "y" * 256))
        case "symbol":
            return symbol(rng.choice(("", "a", "s" * 255)))
        case "list":
            return [value(rng, deep - 1, nests=nests) for _ in range(rng.randrange(4))]
        case "map":
            return {f"k{i}": value(rng, deep - 1, nests=nests) for i in range(rng.randrange(4))}
        case "array":
            return rng.choice(
                (
                    Array("symbol", ("a", "b")),
                    Array("uint", (0, 2**32 - 1)),
                    Array("binary", (b"", b"x")),
                    Array("null", 6 * (None,)),
                )
            )
        case _:
            inner = value(rng, deep - 1, nests=nests)
            while not nests and isinstance(inner, Described):
                inner = value(rng, deep - 1, nests=nests)
            return Described(rng.choice((symbol("x:y:z"), ulong(2**40))), inner)


def annotations(rng: Random, *, nests: bool = True) -> dict[Any, Any]:
    return {symbol(f"x-opt-{i}"): value(rng, nests=nests) for i in range(rng.randrange(3))}


def _header(rng: Random, writer: Writer, ttl: int | None) -> Any:
    return writer.composite(
        "header",
        durable=rng.choice((None, True, False)),
        priority=rng.choice((None, 0, 4, 255)),
        ttl=ttl or rng.choice((None, None, 2**31, 2**32 - 1)),
        first_acquirer=rng.choice((None, True)),
        delivery_count=rng.choice((None, 0, 7, 2**32 - 1)),
    )


def _properties(rng: Random, writer: Writer, to: str | None) -> Any:
    identifier = rng.choice((None, "id", b"id", ulong(2**64 - 1), Typed("uuid", rng.randbytes(16))))
    return writer.composite(
        "properties",
        message_id=identifier,
        user_id=rng.choice((None, b"", b"user")),
        to=to or rng.choice((None, "topic/elsewhere")),
        subject=rng.choice((None, "s" * 300)),
        correlation_id=identifier,
        content_type=rng.choice((None, "text/plain")),
        absolute_expiry_time=rng.choice((None, 2**50)),
        creation_time=rng.choice((None, -1, 0)),
        group_sequence=rng.choice((None, 2**32 - 1)),
    )


def _body(rng: Random, writer: Writer, mark: bytes) -> list[Any]:
    """A body that contains `mark`, so that no two messages are equal."""
    match rng.randrange(3):
        case 0:
            more = [rng.randbytes(rng.choice((0, 1, 100, 3000))) for _ in range(rng.choice((0, 0, 1, 2)))]
            return [writer.described("data", data) for data in (mark, *more)]
        case 1:
            others = [[value(rng) for _ in range(rng.randrange(3))] for _ in range(rng.randrange(2))]
            return [writer.described("amqp-sequence", items) for items in ([mark, value(rng)], *others)]
        case _:
            return [writer.described("amqp-value", rng.choice((mark, [mark, value(rng)], {"mark": mark})))]


def message(
    rng: Random,
    writer: Writer,
    mark: bytes,
    *,
    rich: bool,
    foreign: bool,
    to: str | None = None,
    ttl: int | None = None,
) -> tuple[int, bytes]:
    """The message-format and the payload. `rich`: with any sections. `foreign`: perhaps of another format. `to`: the
    message's address. `ttl`: in milliseconds."""
    if foreign and to is None and ttl is None and rng.random() < 0.2:
        return rng.choice(FOREIGN), rng.randbytes(rng.choice((0, 10, 500))) + mark
    if not rich:
        properties = [writer.composite("properties", to=to)] if to is not None else []
        header = [_header(rng, writer, ttl)] if ttl is not None else []
        return 0, b"".join(map(writer.encode, (*header, *properties, writer.described("data", mark))))
    sections = [
        (0.4 if ttl is None else 1.0, _header(rng, writer, ttl)),
        (0.3, writer.described("delivery-annotations", annotations(rng))),
        (0.3, writer.described("message-annotations", annotations(rng))),
        (0.4 if to is None else 1.0, _properties(rng, writer, to)),
        (0.3, writer.described("application-properties", {"n": uint(5), "when": timestamp(0), "": None})),
        *[(1.0, part) for part in _body(rng, writer, mark)],
        (0.2, writer.described("footer", annotations(rng))),
    ]
    return 0, b"".join(writer.encode(section) for share, section in sections if rng.random() < share)


def bare(message_format: int, payload: bytes) -> bytes:
    """The message without the sections that routers may change."""
    at = 0
    while message_format == 0 and at < len(payload):
        section, end = decode(payload, at)
        if name_of(section.descriptor) not in ANNOTATIONS:
            break
        at = end
    return payload[at:]
