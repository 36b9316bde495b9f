"""Clients that are legal except for one frame: what the mistake costs them, and how the router reports it.

A mistake has a scope: the link, the session or the connection that it ends. Everything outside of the scope continues,
and the router sends one of AMQP's conditions.
"""

from random import Random
from typing import Any, Final, TypeAlias

from attrs import frozen

from tests.fuzz.mesh import FuzzMesh
from tests.fuzz.odd.client import OddClient
from tests.fuzz.odd.codec import Described, symbol, ulong
from tests.fuzz.odd.connection import HEADER
from tests.fuzz.odd.features import Draw
from tests.fuzz.odd.ledger import Ledger
from tests.fuzz.odd.links import Container
from tests.fuzz.odd.performatives import CONDITIONS, read_frame

FREE: Final = 9
"""A handle, and a channel, that is not in use."""
SESSION, OTHER = 1, 2
"""The channels of the two sessions."""
SENDS, RECEIVES = 0, 1
"""The handles of the two links in either session."""


Frame: TypeAlias = tuple[int, str, dict[str, Any]]
"""(channel, performative, fields)"""


@frozen
class Mistake:
    scope: str
    """What the mistake ends: `detach`, `end` or `close`."""
    conditions: tuple[str, ...]
    frames: tuple[Frame, ...] = ()
    raw: bytes = b""


UNATTACHED: Final = ("amqp:session:unattached-handle",)
INVALID: Final = ("amqp:invalid-field", "amqp:decode-error", "amqp:not-allowed", "amqp:connection:framing-error")
BROKEN: Final = ("amqp:connection:framing-error", "amqp:decode-error", "amqp:not-allowed")
STATE: Final = ("amqp:connection:framing-error", "amqp:not-allowed", "amqp:illegal-state")


def _transfer(handle: int = SENDS, number: int | None = 1, tag: bytes | None = b"t", **more: Any) -> Frame:
    return SESSION, "transfer", {"handle": handle, "delivery_id": number, "delivery_tag": tag, **more}


def _flow(**fields: Any) -> Frame:
    numbers = {"next_incoming_id": 0, "incoming_window": 100, "next_outgoing_id": 0, "outgoing_window": 100}
    return SESSION, "flow", {**numbers, **fields}


def _attach(channel: int, handle: int) -> Frame:
    return channel, "attach", {"name": "new", "handle": handle, "role": True, "source": None, "target": None}


def _begin(channel: int) -> Frame:
    return channel, "begin", {"next_outgoing_id": 0, "incoming_window": 100, "outgoing_window": 100}


def _body(data: bytes) -> bytes:
    return (8 + len(data)).to_bytes(4, "big") + bytes((2, 0, 0, SESSION)) + data


NESTED: Final = Described(
    ulong(0x1D), [symbol("x:y"), "d", {symbol("i"): Described(symbol("x:a"), Described(symbol("x:b"), "v"))}]
)


MISTAKES: Final[dict[str, Mistake]] = {
    "transfer on no handle": Mistake("end", UNATTACHED, (_transfer(FREE),)),
    "flow of no handle": Mistake("end", UNATTACHED, (_flow(handle=FREE, link_credit=1),)),
    "detach of no handle": Mistake("end", UNATTACHED, ((SESSION, "detach", {"handle": FREE}),)),
    "attach on a handle in use": Mistake("end", ("amqp:session:handle-in-use",), (_attach(SESSION, SENDS),)),
    "transfer on a receiving link": Mistake("close", INVALID, (_transfer(RECEIVES),)),
    "no delivery-id": Mistake("end", INVALID, (_transfer(number=None),)),
    "no delivery-tag": Mistake("detach", INVALID, (_transfer(tag=None),)),
    "a tag of 33 bytes": Mistake("close", INVALID, (_transfer(tag=b"x" * 33),)),
    "a gap between delivery-ids": Mistake("close", INVALID, (_transfer(number=1), _transfer(number=5, tag=b"u"))),
    "begin on a channel in use": Mistake("close", STATE, (_begin(SESSION),)),
    "attach on no channel": Mistake("close", BROKEN, (_attach(FREE, FREE),)),
    "end of no channel": Mistake("close", BROKEN, ((FREE, "end", {}),)),
    "a second open": Mistake("close", STATE, ((0, "open", {"container_id": "again"}),)),
    "a frame that is too large": Mistake("close", BROKEN, raw=(10_000).to_bytes(4, "big") + bytes(9_996)),
    "a frame that is too short": Mistake("close", BROKEN, raw=b"\0\0\0\x07\x02\0\0\0"),
    "an offset within the header": Mistake("close", BROKEN, raw=b"\0\0\0\x08\x01\0\0\0"),
    "an offset behind the frame": Mistake("close", BROKEN, raw=b"\0\0\0\x08\x03\0\0\0"),
    "a performative of no name": Mistake("close", BROKEN, raw=_body(b"\0\x53\x19\x45")),
    "no performative": Mistake("close", BROKEN, raw=_body(b"\x45")),
    "a cut list": Mistake("close", BROKEN, raw=_body(b"\0\x53\x12\xc0\x10\x03")),
    "no name of a link": Mistake("close", INVALID, raw=_body(b"\0\x53\x12\xc0\x05\x03\x40\x52\x03\x41")),
    "a described value within one": Mistake(
        "close", ("amqp:not-implemented",), ((SESSION, "detach", {"handle": SENDS, "error": NESTED}),)
    ),
    "another header": Mistake("close", BROKEN, raw=HEADER),
}


class WrongClient(OddClient):
    """A client with two sessions, each with a link in either direction. It makes a mistake on the first session."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.told: list[tuple[int, str, str | None]] = []
        """(channel, name, condition) of every detach, end and close."""
        self.heard: list[tuple[int, str, dict[str, Any]]] = []

    def hears(self, data: bytes) -> None:
        self._heard += data if not self.left else b""
        if self._heard.startswith(HEADER):
            self._heard = self._heard[8:]
        while len(self._heard) >= 8 and len(self._heard) >= (size := int.from_bytes(self._heard[:4], "big")):
            channel, name, fields, payload = read_frame(self._heard[:size])
            self._heard = self._heard[size:]
            if name:
                self._note("hears", channel, name, fields, payload)
                self.heard.append((channel, name, fields))
            if name in ("detach", "end", "close"):
                error = fields["error"]
                self.told.append((channel, name, error[1]["condition"] if error else None))

    def feed(self, size: int | None = None) -> None:
        data = b"".join(piece for piece, _ in self.said)
        self.said.clear()
        if data and not self.connection.closed:
            self.say(data)

    def prepare(self) -> None:
        self.greet()
        for channel in (SESSION, OTHER):
            self.tell(channel, "begin", {"next_outgoing_id": 0, "incoming_window": 100, "outgoing_window": 100})
            for handle, role in ((SENDS, False), (RECEIVES, True)):
                end = self.writer.composite("source" if role else "target", address="topic/o0")
                ends = {"source": end, "target": None} if role else {"source": None, "target": end}
                fields = {"name": f"l{handle} of {channel}", "handle": handle, "role": role, **ends}
                if not role:
                    fields["initial_delivery_count"] = 0
                self.tell(channel, "attach", fields)
        self.feed()

    def tell(self, channel: int, name: str, fields: dict[str, Any]) -> None:
        self._emit(channel, name, dict(fields), b"\0\x53\x75\xa0\x01x" if name == "transfer" else b"")

    def greet(self) -> None:
        self._most_frame = 4096
        super().greet()

    def begin_of(self, channel: int) -> int:
        """The router's channel for one of ours."""
        return next(at for at, name, fields in self.heard if name == "begin" and fields["remote_channel"] == channel)


class WrongRound:
    def __init__(self, rng: Random, name: str | None = None) -> None:
        self.rng = rng
        self.name = name or rng.choice(sorted(MISTAKES))
        self.mistake = MISTAKES[self.name]
        self.mesh = FuzzMesh("a", "b")
        self.ledger = Ledger(self.mesh.settings.redeliveries, lambda: self.mesh.now)
        draw = Draw(rng)
        draw.names &= {"widths", "offset", "capabilities"}
        self.client = WrongClient(self.mesh.routers["a"], Container("wrong", draw), rng, self.ledger)
        self.mesh.routers["a"].guests.append(self.client)

    def play(self) -> None:
        client = self.client
        client.prepare()
        assert not client.told, f"{client.told} before there is a mistake"
        client.tell(*_transfer(number=0, tag=b"fine", settled=True))
        client.feed()
        client.told.clear()
        for frame in self.mistake.frames:
            client.tell(*frame)
        if self.mistake.raw:
            client.write(self.mistake.raw)
        client.feed()
        self._judge()
        client.left = True
        client.leave()
        self.mesh.check()
        self.mesh.check_forgotten()
        self.mesh.end()

    def _judge(self) -> None:
        client, mistake = self.client, self.mistake
        first, other = client.begin_of(SESSION), client.begin_of(OTHER)
        said = [(channel, name, condition) for channel, name, condition in client.told if condition is not None]
        assert said, f"{self.name}: nothing is said; {client.told}"
        channel, name, condition = said[0]
        assert condition in CONDITIONS, f"{self.name}: {condition} is no condition of AMQP"
        order = ("detach", "end", "close")
        narrow = order.index(name) <= order.index(mistake.scope)
        assert narrow, f"{self.name}: {name} {condition}, expected {mistake.scope}"
        assert condition in mistake.conditions or name == "detach", f"{self.name}: {name} with {condition}"
        if name != "close":
            assert channel == first, f"{self.name}: {name} on another channel"
            assert not client.connection.closed
            client.told.clear()
            client.tell(OTHER, "flow", {
                "next_incoming_id": 0, "incoming_window": 100, "next_outgoing_id": 0, "outgoing_window": 100,
                "echo": True,
            })  # fmt: skip
            before = len(client.heard)
            client.feed()
            assert any(at == other and kind == "flow" for at, kind, _ in client.heard[before:]), f"{self.name}: silence"
            assert not client.told, f"{self.name}: {client.told}"


def wrong(rng: Random) -> None:
    """Play a round of clients that are legal except for one frame."""
    WrongRound(rng).play()
