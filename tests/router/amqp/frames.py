"""Frames written by hand, which no well-behaved client would send."""

from typing import Any

from router.amqp.frames.bodies import BODY

HEADER = b"AMQP\x00\x01\x00\x00"
OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
SOURCE, TARGET, COORDINATOR = 0x28, 0x29, 0x30


class Symbol(str):
    pass


class Described:
    def __init__(self, code: int, *fields: Any) -> None:
        self.code, self.fields = code, fields


class Raw:
    """Encoded bytes, for a map that a test wants to be wrong."""

    def __init__(self, encoded: bytes) -> None:
        self.encoded = encoded


def encode(value: Any) -> bytes:
    match value:
        case None:
            return b"\x40"
        case bool():
            return b"\x41" if value else b"\x42"
        case int():
            return b"\x70" + value.to_bytes(4, "big")
        case Symbol():
            return b"\xb3" + len(value).to_bytes(4, "big") + value.encode()
        case str():
            text = value.encode("utf-8", "surrogateescape")
            return b"\xb1" + len(text).to_bytes(4, "big") + text
        case bytes():
            return b"\xb0" + len(value).to_bytes(4, "big") + value
        case list() | tuple():
            body = len(value).to_bytes(4, "big") + b"".join(map(encode, value))
            return b"\xd0" + len(body).to_bytes(4, "big") + body
        case dict():
            items = [encode(part) for item in value.items() for part in item]
            body = len(items).to_bytes(4, "big") + b"".join(items)
            return b"\xd1" + len(body).to_bytes(4, "big") + body
        case Raw():
            return value.encoded
        case Described():
            return b"\x00\x53" + bytes([value.code]) + encode(list(value.fields))
    raise TypeError(value)


def frame(code: int, *fields: Any, payload: bytes = b"", channel: int = 0) -> bytes:
    body = encode(Described(code, *fields)) + payload
    return (8 + len(body)).to_bytes(4, "big") + b"\x02\x00" + channel.to_bytes(2, "big") + body


def ubyte(value: int) -> bytes:
    return b"\x50" + bytes([value])


def opening() -> bytes:
    """A client's first bytes: header, open, begin."""
    return HEADER + frame(OPEN, "hostile") + frame(BEGIN, None, 0, 1000, 1000)


def attach(
    name: str,
    handle: int,
    *,
    receiver: bool,
    modes: tuple[int | None, int | None] = (None, None),
    address: str = "topic/x",
    unsettled: Any = None,
    properties: Any = None,
    timeout: int = 0,
) -> bytes:
    lasts = (0, Symbol("connection-close"), timeout) if timeout else ()
    source, target = Described(SOURCE, address, *lasts), Described(TARGET, address, *lasts)
    settle_modes = [None if mode is None else Raw(ubyte(mode)) for mode in modes]
    return frame(
        ATTACH, name, handle, receiver, *settle_modes, source, target, unsettled, None, 0, None, None, None, properties
    )


def transfer(
    handle: int,
    number: int,
    tag: bytes = b"t",
    *,
    more: bool = False,
    resume: bool = False,
    aborted: bool = False,
    payload: bytes = b"m",
) -> bytes:
    return frame(TRANSFER, handle, number, tag, 0, False, more, None, None, resume, aborted, payload=payload)


def body_frame(lane: int, body: bytes, kind: int = BODY, *, offset: int = 2) -> bytes:
    """A frame between routers. `offset`: where the body begins, in words."""
    return (8 + len(body)).to_bytes(4, "big") + bytes((offset, kind)) + lane.to_bytes(2, "big") + body


def settlement(first: int, last: int) -> bytes:
    """A disposition that settles, from the sender of the deliveries."""
    return frame(DISPOSITION, False, first, last, True)
