"""Bytes that no peer may send, and the condition that answers them, for each listener of a router. If AMQP has no way
to report the condition, the router closes the connection, and the condition is in its log.

Inputs for SASL go to listeners that require authentication. Inputs at the beginning of a connection, or with broken
frames, go to listeners of an open mesh. Inputs in bodies go over a link between routers, from a peer that has connected
as a neighbour.
"""

import random
from typing import Final

from attrs import frozen

from router.amqp.format.codec import Symbol as SaslSymbol
from router.amqp.format.codec import ubyte as sasl_ubyte
from router.amqp.frames.bodies import PART
from router.amqp.sasl.layer import CHALLENGE, INIT, OUTCOME, RESPONSE, SASL_HEADER, sasl_frame
from router.amqp.sasl.scram import SCRAM
from router.amqp.sasl.server import ANONYMOUS, EXTERNAL, PLAIN
from router.edge.attach import LONGEST_ADDRESS, LONGEST_NAME
from router.neighbours import LANES, MESH, VERSION, WIRE
from tests.router.amqp.frames import (
    ATTACH,
    BEGIN,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    HEADER,
    OPEN,
    SOURCE,
    TARGET,
    TRANSFER,
    Described,
    Raw,
    Symbol,
    attach,
    body_frame,
    frame,
    opening,
    transfer,
)
from topic.properties import EPOCH, GENERATION

FRAMING, NOT_ALLOWED, DECODE = "amqp:connection:framing-error", "amqp:not-allowed", "amqp:decode-error"
INVALID, LIMIT, UNATTACHED = "amqp:invalid-field", "amqp:resource-limit-exceeded", "amqp:session:unattached-handle"
TRANSFER_LIMIT, NOT_IMPLEMENTED = "amqp:link:transfer-limit-exceeded", "amqp:not-implemented"
NOT_FOUND, UNAUTHORIZED = "amqp:not-found", "amqp:unauthorized-access"
HALF: Final = Raw(b"\x73\x00\x00\xd8\x00")
"""A char that is half of a surrogate pair."""
DENIED: Final = sasl_frame(OUTCOME, sasl_ubyte(1))

CLIENTS, ROUTERS, ASKED, ASKED_ROUTERS = "clients", "routers", "clients, who they are", "routers, who they are"


@frozen
class Bad:
    listener: str
    said: bytes
    told: bytes
    """Bytes that the answer contains."""
    first: bytes = b""
    """Bytes that are sent before. They end with an attach, which the router answers."""
    logged: str = ""
    """The condition in the log, if the answer does not have it."""
    limit: str = ""
    """The limit that the input exceeds."""


def bad(told: str, said: bytes, listener: str = CLIENTS, limit: str = "") -> Bad:
    return Bad(listener, said, told.encode(), limit=limit)


def behind(first: bytes, told: str, said: bytes) -> Bad:
    """An input on an attached link."""
    return Bad(CLIENTS, said, told.encode(), first)


def refused(said: bytes, listener: str = ASKED) -> Bad:
    return Bad(listener, SASL_HEADER + said, DENIED)


def out_of_step(said: bytes, listener: str = ASKED, logged: str = FRAMING) -> Bad:
    """An input that is neither correct SASL nor AMQP: the router answers only with its header (AMQP 1.0 2.2)."""
    return Bad(listener, said, SASL_HEADER, logged=logged)


SENDER = opening() + attach("link", 0, receiver=False)
RECEIVER = opening() + attach("link", 0, receiver=True)
MAX_FRAME = 64 * 1024
MAP = {b"%04d" % n: None for n in range(5000)}
FIRST = b"n,,n=bob,r=abc"

SASL = {
    "PLAIN, a wrong password": refused(sasl_frame(INIT, PLAIN, b"\0bob\0wrong")),
    "PLAIN, no such user": refused(sasl_frame(INIT, PLAIN, b"\0eve\0open sesame")),
    "PLAIN, for another": refused(sasl_frame(INIT, PLAIN, b"root\0bob\0open sesame")),
    "PLAIN, one word": refused(sasl_frame(INIT, PLAIN, b"bob")),
    "PLAIN, not UTF-8": refused(sasl_frame(INIT, PLAIN, b"\0\xff\0\xff")),
    "PLAIN, a password with a NUL": refused(sasl_frame(INIT, PLAIN, b"\0bob\0open\0sesame")),
    "ANONYMOUS, where it is not offered": refused(sasl_frame(INIT, ANONYMOUS)),
    "EXTERNAL, without a certificate": refused(sasl_frame(INIT, EXTERNAL, b"bob")),
    "a mechanism of their own": refused(sasl_frame(INIT, SaslSymbol("X-OWN"), b"")),
    "a mechanism that is no symbol": refused(sasl_frame(INIT, "PLAIN", b"\0bob\0open sesame")),
    "SCRAM, a wrong proof": refused(
        sasl_frame(INIT, SCRAM, FIRST) + sasl_frame(RESPONSE, b"c=biws,r=abc,p=" + b"A" * 43 + b"=")
    ),
    "SCRAM, no proof": refused(sasl_frame(INIT, SCRAM, FIRST) + sasl_frame(RESPONSE, b"")),
    "SCRAM, channel binding": refused(sasl_frame(INIT, SCRAM, b"p=tls-unique,,n=bob,r=abc")),
    "SCRAM, for another": refused(sasl_frame(INIT, SCRAM, b"n,a=root,n=bob,r=abc")),
    "SCRAM, nobody": refused(sasl_frame(INIT, SCRAM, b"n,,n=,r=abc")),
    "SCRAM, not UTF-8": refused(sasl_frame(INIT, SCRAM, b"\xff\xff")),
    "a user at the port for routers": refused(sasl_frame(INIT, PLAIN, b"\0bob\0open sesame"), ASKED_ROUTERS),
    "a router without the secret": refused(
        sasl_frame(INIT, SCRAM, b"n,,n=a,r=abc") + sasl_frame(RESPONSE, b"c=biws,r=abc,p=" + b"A" * 43 + b"="),
        ASKED_ROUTERS,
    ),
    "AMQP without SASL": out_of_step(opening(), logged=UNAUTHORIZED),
    "AMQP without SASL, as a router": out_of_step(opening(), ASKED_ROUTERS, UNAUTHORIZED),
    "a response before the init": out_of_step(SASL_HEADER + sasl_frame(RESPONSE, b"early")),
    "an outcome": out_of_step(SASL_HEADER + sasl_frame(OUTCOME, sasl_ubyte(0))),
    "a challenge": out_of_step(SASL_HEADER + sasl_frame(CHALLENGE, b"")),
    "two inits": out_of_step(SASL_HEADER + 2 * sasl_frame(INIT, SCRAM, FIRST)),
    "an init without fields": out_of_step(SASL_HEADER + sasl_frame(INIT)),
    "a SASL frame of 600 bytes": out_of_step(SASL_HEADER + sasl_frame(INIT, PLAIN, bytes(600))),
    "an AMQP frame amid SASL": out_of_step(SASL_HEADER + frame(OPEN, "hostile")),
    "random bytes in place of SASL": out_of_step(SASL_HEADER + random.Random(3).randbytes(2000)),
}

BEGINS = {
    "random bytes": (None, random.Random(1).randbytes(2000)),
    "an HTTP request": (None, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    "a TLS handshake": (None, bytes.fromhex("160301020001000001fc0303") + bytes(500)),
    "another version of AMQP": (None, b"AMQP\x00\x00\x09\x01" + bytes(8)),
    "random bytes behind the header": (FRAMING, HEADER + random.Random(2).randbytes(2000)),
    "a frame that is too small": (FRAMING, HEADER + b"\x00\x00\x00\x03\x02\x00\x00\x00"),
    "a frame of 2 GiB": (FRAMING, HEADER + b"\x7f\xff\xff\xff\x02\x00\x00\x00" + bytes(100)),
    "a value cut short": (DECODE, HEADER + frame(OPEN, Raw(b"\xb1\x00\x00\xff\xffshort"))),
    "a container-id with a NUL": (INVALID, HEADER + frame(OPEN, "name\0of another")),
    "a begin before the open": (NOT_ALLOWED, HEADER + frame(BEGIN, None, 0, 1000, 1000)),
    "an attach before the open": (NOT_ALLOWED, HEADER + attach("link", 0, receiver=True)),
}

FRAMES = {
    "a second open": bad(NOT_ALLOWED, opening() + frame(OPEN, "hostile again")),
    "a frame larger than was agreed": bad(FRAMING, opening() + frame(OPEN, "x" * MAX_FRAME), limit="max_frame"),
    "a frame of nothing we know": bad(FRAMING, opening() + frame(0x7E, Described(0x7F, 1))),
    "a frame without a performative": bad(FRAMING, opening() + b"\x00\x00\x00\x10\x02\x00\x00\x00nonsense"),
    "a session more than there are channels": bad(
        FRAMING, HEADER + frame(OPEN, "x") + frame(BEGIN, None, 0, 1000, 1000, channel=300)
    ),
    "more sessions than anybody needs": bad(
        LIMIT, HEADER + frame(OPEN, "x") + 50 * (frame(BEGIN, None, 0, 1000, 1000) + frame(END)), limit="sessions"
    ),
    "a link name that is not UTF-8": bad(DECODE, opening() + attach("\udcff", 0, receiver=False)),
    "a link name with a NUL": bad(INVALID, opening() + attach("link\0", 0, receiver=False)),
    "an address with a NUL": bad(INVALID, opening() + attach("link", 0, receiver=False, address="topic/\0x")),
    "a container-id that is too long": bad(INVALID, HEADER + frame(OPEN, "x" * (LONGEST_NAME + 1))),
    "a link name that is too long": bad(INVALID, opening() + attach("x" * (LONGEST_NAME + 1), 0, receiver=False)),
    "an address that is too long": bad(
        INVALID, opening() + attach("link", 0, receiver=True, address="topic/" + "x." * (LONGEST_ADDRESS // 2))
    ),
    "half a character in an open": bad(
        DECODE, HEADER + frame(OPEN, "x", None, 65536, 255, None, None, None, None, None, {Symbol("x"): HALF})
    ),
    "more links than anybody needs": bad(
        LIMIT,
        opening() + b"".join(attach(f"{n}", n, receiver=True, address="none") for n in range(400)),
        limit="links",
    ),
    "an address of no node": bad(NOT_FOUND, opening() + attach("link", 0, receiver=True, address="queue/x")),
    "a generation of another length": bad(
        INVALID, opening() + attach("link", 0, receiver=False, properties={Symbol(GENERATION): b"short"})
    ),
    "an epoch that is none": bad(
        INVALID, opening() + attach("link", 0, receiver=False, properties={Symbol(EPOCH): "yesterday"})
    ),
    "a settle mode that there is not": bad(INVALID, opening() + attach("link", 0, receiver=True, modes=(7, 0))),
    "a durability that there is not": bad(
        INVALID,
        opening()
        + frame(ATTACH, "link", 0, True, None, None, Described(SOURCE, "topic/x", 9), Described(TARGET, "topic/x")),
    ),
    "an unsettled map that is a list": bad(DECODE, opening() + attach("link", 0, receiver=False, unsettled=[b"t"])),
    "an unsettled map of numbers": bad(DECODE, opening() + attach("link", 0, receiver=False, unsettled={1: None})),
    "a tag of 40 bytes in a map": bad(
        INVALID, opening() + attach("link", 0, receiver=False, unsettled={bytes(40): None})
    ),
    "a map of more entries than agreed": bad(
        LIMIT, opening() + attach("link", 0, receiver=False, unsettled=MAP), limit="unsettled"
    ),
    "a handle twice": behind(SENDER, UNATTACHED, frame(DETACH, 0, True) + frame(DETACH, 0, True)),
    "a transfer on no link": bad(UNATTACHED, opening() + transfer(7, 0)),
    "a transfer in no session": bad(NOT_ALLOWED, HEADER + frame(OPEN, "x") + transfer(0, 0)),
    "a transfer without credit": behind(
        opening() + attach("link", 0, receiver=False, modes=(None, 1)),
        TRANSFER_LIMIT,
        b"".join(transfer(0, n, b"%d" % n) for n in range(2000)),
    ),
    "a delivery-id out of order": behind(SENDER, INVALID, transfer(0, 0) + transfer(0, 5)),
    "a transfer towards a sender": behind(RECEIVER, NOT_ALLOWED, transfer(0, 0)),
    "a tag of 33 bytes": behind(SENDER, INVALID, transfer(0, 0, bytes(33))),
    "a transfer within a transaction": behind(
        SENDER,
        NOT_IMPLEMENTED,
        frame(TRANSFER, 0, 0, b"t", 0, False, False, None, Described(0x34, b"id"), payload=b"m"),
    ),
    "a transfer of too few fields": behind(SENDER, INVALID, frame(TRANSFER)),
    "a disposition in no session": bad(NOT_ALLOWED, HEADER + frame(OPEN, "x") + frame(DISPOSITION, True, 0, 0, True)),
    "annotations for all of a range": behind(
        RECEIVER,
        LIMIT,
        frame(DISPOSITION, True, 0, 9, False, Described(0x27, False, False, {Symbol("x"): "y" * 5000})),
    ),
    "a flow in no session": bad(NOT_ALLOWED, HEADER + frame(OPEN, "x") + frame(FLOW, 0, 1000, 0, 1000)),
    "a detach of no link": bad(UNATTACHED, opening() + frame(DETACH, 7, True)),
    "an end of no session": bad(NOT_ALLOWED, HEADER + frame(OPEN, "x") + frame(END, channel=5)),
    "an array without end": bad(
        LIMIT,
        opening()
        + attach("link", 0, receiver=True, properties={Symbol("x"): Raw(b"\xf0\0\0\0\x05\x7f\xff\xff\xff\x45")}),
    ),
    "a receiver settle mode that there is not": bad(
        INVALID, opening() + attach("link", 0, receiver=False, modes=(0, 5))
    ),
    "a router that nobody knows": bad(NOT_ALLOWED, opening(), ROUTERS),
    "a client's link at the port for routers": bad(NOT_ALLOWED, RECEIVER, ROUTERS),
}
RAW: Final = (
    SASL
    | {
        f"{name}, to {to}": out_of_step(said, to) if told is None else bad(told, said, to)
        for name, (told, said) in BEGINS.items()
        for to in (CLIENTS, ROUTERS)
    }
    | FRAMES
)


def as_router(name: str, mesh: str) -> bytes:
    """The header and the open of a router."""
    return HEADER + frame(OPEN, name, *[None] * 8, {Symbol(MESH): mesh, Symbol(WIRE): VERSION})


AS_ROUTER: Final = as_router("d", "ring")
BODIES: Final = {
    f"{what} on lane {lane}": (DECODE, AS_ROUTER + body_frame(lane, body))
    for lane in range(len(LANES))
    for what, body in {
        "random bytes": random.Random(5).randbytes(300),
        "a body cut short": b"\x93",
        "a number": b"\x01",
        "deep nesting": b"\x91" * 3000,
        "a list of 2^32": b"\xdd\xff\xff\xff\xff",
    }.items()
} | {
    "a lane that there is not": (FRAMING, AS_ROUTER + body_frame(len(LANES), b"\xc4\x00")),
    "a body before the open": (NOT_ALLOWED, HEADER + body_frame(0, b"\xc4\x00")),
    "a part before the open": (NOT_ALLOWED, HEADER + body_frame(0, bytes(1000), PART)),
    "a part of nothing": (FRAMING, AS_ROUTER + body_frame(0, b"", PART)),
    "a body behind bytes of its own": (FRAMING, AS_ROUTER + body_frame(0, bytes(12), offset=3)),
    "a body without a head": (FRAMING, AS_ROUTER + b"\0\0\0\x07\x02\x02\0\0"),
    "a frame of no type": (FRAMING, AS_ROUTER + body_frame(0, b"\xc4\x00", 9)),
    "a frame beyond the limit": (FRAMING, AS_ROUTER + body_frame(1, bytes(300 * 1024))),
    "a body without an end": (LIMIT, AS_ROUTER + 70 * body_frame(1, bytes(250 * 1024), PART)),
}
"""Inputs of a neighbour that end its connection -> the condition."""
