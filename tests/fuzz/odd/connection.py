"""The connection of a legal client and its sessions: the frames of both ends, and what the router has read of them.

The client's frames wait in a buffer, and its router reads any part of them at a time. The router's frames arrive at
once. This covers two directions of which one is slow. The router owes an answer once it has read the question.
"""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tests.fuzz.mesh import Guest
from tests.fuzz.odd.codec import Described, Typed, symbol
from tests.fuzz.odd.ledger import Ledger
from tests.fuzz.odd.links import Container, Link, Receiver
from tests.fuzz.odd.messages import value
from tests.fuzz.odd.performatives import CONDITIONS, Writer, read_frame
from tests.fuzz.odd.session import Session

if TYPE_CHECKING:
    from tests.fuzz.mesh import FuzzRouter

HEADER: Final = b"AMQP\x00\x01\x00\x00"
LEAST_FRAME: Final = 512
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
EDGES: Final = (0, 1, 2**31 - 2, 2**31 - 1, 2**31, 2**32 - 3, 2**32 - 1)
MOST_SESSIONS: Final = 4


class OddConnection(Guest):
    def __init__(self, router: "FuzzRouter", container: Container, rng: Random, ledger: Ledger) -> None:
        super().__init__(router)
        self.container, self.name, self.draw = container, container.name, container.draw
        self.rng, self.ledger, draw = rng, ledger, container.draw
        container.connections.append(self)
        container.connected += 1
        self.label = f"{self.name}.{container.connected}@{router.name}"
        self.sessions: dict[int, Session] = {}
        """Keyed by our channel: sessions that we have begun and not ended."""
        self._all: list[Session] = []
        """Sessions that have not ended at both ends."""
        self._theirs: dict[int, Session] = {}
        self.said: list[tuple[bytes, Callable[[], None]]] = []
        """Data that the router has not read yet, and the function to call when it has."""
        self._heard = b""
        self._greeted, self._sasl_told = False, True
        self.idle_ms = rng.choice((1000, 1500)) if draw.has("idle") else 0
        self.heard_at = 0.0
        self.opened = self.closed = self.ended = False
        """`opened`: by the router. `closed`: by us. `ended`: by the router."""
        self.left = False
        """The connection is lost, or about to be: nobody reads the router's frames."""
        self._most_frame, self._channels = LEAST_FRAME, 0
        symbolic = 0.3 if draw.has("symbolic_inner") else 0.0
        outer = 0.3 if draw.has("symbolic_performatives") else 0.0
        self.writer = Writer(rng if draw.has("widths") else None, symbolic=symbolic, outer=outer)
        self._plain = Writer()
        self.max_frame = (
            rng.choice((512, 513, 520, 1000)) if draw.has("small_frames") else rng.choice((4096, 2**32 - 1))
        )
        self.channel_max = 0 if draw.has("one_channel") else rng.choice((3, 7, 65535))

    # frames

    def _emit(self, channel: int, name: str, fields: dict[str, Any], payload: bytes = b"",
              then: Callable[[], None] = lambda: None, whole: bool = False) -> None:  # fmt: skip
        """Write one frame, no larger than the router takes. `whole`: no field of it may be left out."""
        body = self.writer.encode(self.writer.composite(name, outer=True, **fields)) + payload
        offset = self.rng.choice((2, 2, 3, 4, 40)) if self.draw.has("offset") else 2
        if 4 * offset + len(body) > self._most_frame:
            offset, spare = 2, {key: val for key, val in fields.items() if whole or key not in _SPARE}
            body = self._plain.encode(self._plain.composite(name, **spare)) + payload
        self.write(self._frame(channel, body, offset), then)
        self._note("says", channel, name, fields, payload)

    def _frame(self, channel: int, body: bytes, offset: int) -> bytes:
        size = 4 * offset + len(body)
        assert size <= self._most_frame, f"a frame of {size} bytes"
        extended = self.rng.randbytes(4 * offset - 8)
        return size.to_bytes(4, "big") + bytes((offset, 0)) + channel.to_bytes(2, "big") + extended + body

    def _note(self, verb: str, channel: int, name: str, fields: dict[str, Any], payload: bytes) -> None:
        said = " ".join(f"{key}={_short(val)}" for key, val in fields.items() if val is not None and val is not False)
        self.ledger.notes.append(f"{self.label} {verb} {channel} {name} {said}" + f" +{len(payload)}" * bool(payload))

    def write(self, data: bytes, then: Callable[[], None] = lambda: None) -> None:
        self.said.append((data, then))

    def heartbeat(self) -> None:
        offset = self.rng.choice((2, 3)) if self.draw.has("offset") else 2
        channel = self.rng.choice((0, 5, 65535)) if self.draw.has("odd_heartbeats") else 0
        self.write(self._frame(channel, b"", offset))

    # the router reads

    def feed(self, size: int | None = None) -> None:
        """The router reads `size` bytes of our data; all if None."""
        self._now_lenient()
        data = b""
        while self.said and (size is None or len(data) < size):
            piece, then = self.said.pop(0)
            if size is not None and len(data) + len(piece) > size:
                cut = size - len(data)
                self.said.insert(0, (piece[cut:], then))
                data += piece[:cut]
                break
            data += piece
            then()
        if data and not self.ended:
            self.ledger.notes.append(f"{self.label}: {len(data)} bytes are read, {self.waiting()} wait")
            self.say(data)
            assert self.ended or not self.connection.closed, f"{self.name}: the connection has ended"
        self._now_lenient()

    def waiting(self) -> int:
        return sum(len(piece) for piece, _ in self.said)

    def _now_lenient(self) -> None:
        """Note the bounds that hold between two readings."""
        for session in self._all:
            session.lenient = session.room
            for link in (*session.mine.values(), *session.theirs.values()):
                if isinstance(link, Receiver):
                    link.lenient, link.may_drain = link.room, link.draining

    # frames of the router

    def acknowledges(self) -> bool:
        asked = list(self.connection.proofs)
        self.connection.proofs.clear()
        for told in asked:
            told()
        return bool(asked)

    def hears(self, data: bytes) -> None:
        self._heard += data if not self.left else b""
        self.heard_at = self.ledger.time()
        if not self._sasl_told:
            self._hear_sasl()
        if self._sasl_told and not self._greeted and len(self._heard) >= 8:
            assert self._heard.startswith(HEADER), self._heard[:8]
            self._greeted, self._heard = True, self._heard[8:]
        while (
            self._greeted
            and len(self._heard) >= 8
            and len(self._heard) >= (size := int.from_bytes(self._heard[:4], "big"))
        ):
            frame, self._heard = self._heard[:size], self._heard[size:]
            assert size <= self.max_frame, f"{self.name}: a frame of {size} bytes, of {self.max_frame} at most"
            self._take(*read_frame(frame))

    def _hear_sasl(self) -> None:
        assert self._heard.startswith(SASL_HEADER[: len(self._heard)]), self._heard
        at = 8
        while at + 8 <= len(self._heard) and not self._sasl_told:
            size = int.from_bytes(self._heard[at : at + 4], "big")
            _, name, fields, _ = read_frame(self._heard[at : at + size], 1)
            at += size
            if name == "sasl-outcome":
                assert fields["code"] == 0, f"{self.name}: ANONYMOUS is refused"
                self._sasl_told, self._heard = True, self._heard[at:]

    def tick(self) -> None:
        """A moment has passed."""
        if not self.left and not self.connection.closed:
            with self.router.mesh.acting(self.router):
                self.connection.tick(self.ledger.time())
            self.router.mesh.flow()
        silence = self.ledger.time() - self.heard_at
        if self.idle_ms and self.opened and not (self.ended or self.left):
            assert silence * 1000 <= self.idle_ms, f"{self.name}: silent for {silence} s"

    def _take(self, channel: int, name: str, fields: dict[str, Any], payload: bytes) -> None:
        if not name:
            return
        self._note("hears", channel, name, fields, payload)
        assert not self.ended, f"{self.name}: {name} after close"
        assert self.opened or name == "open", f"{self.name}: {name} before open"
        if name == "open":
            assert not self.opened, "a second open"
            self.opened = True
            self._most_frame, self._channels = min(fields["max_frame_size"], 1 << 20), fields["channel_max"]
        elif name == "close":
            assert self.closed, f"{self.name}: the router has closed: {fields['error']}"
            self.ended = True
        elif name == "begin":
            self._begin(channel, fields)
        else:
            assert channel in self._theirs, f"{self.name}: {name} on channel {channel}, which has no session"
            session = self._theirs[channel]
            session.take(name, fields, payload)
            if session.gone:
                del self._theirs[channel]
                self._all.remove(session)

    def _begin(self, channel: int, fields: dict[str, Any]) -> None:
        assert channel <= self.channel_max, f"{self.name}: channel {channel} is above channel-max {self.channel_max}"
        assert channel not in self._theirs, f"{self.name}: channel {channel} is in use"
        ours = fields["remote_channel"]
        session = next((one for one in self._all if one.channel == ours and not one.begun), None)
        assert session is not None, f"{self.name}: nobody has begun a session on channel {ours}"
        session.begin(channel, fields)
        self._theirs[channel] = session

    # connection and sessions

    def open(self) -> None:
        """The router keeps the place of a client that has opened. Our open is in `greet`."""

    def greet(self) -> None:
        rng = self.rng
        if self.draw.has("sasl"):
            self._sasl()
        self.write(HEADER)
        rich = self.draw.has("capabilities")
        self._emit(0, "open", {
            "container_id": self.name,
            "hostname": rng.choice((None, "", "a.example.org")),
            "max_frame_size": None if self.max_frame == 2**32 - 1 else self.max_frame,
            "channel_max": None if self.channel_max == 65535 else self.channel_max,
            "idle_time_out": self.idle_ms if self.idle_ms else rng.choice((None, 0, 2**32 - 1)) if rich else None,
            "outgoing_locales": ("en-US",) if rich else None,
            "incoming_locales": ("en-US", "de") if rich else None,
            "desired_capabilities": rng.choice((None, ("a", "b"), ("c",))) if rich else None,
            "offered_capabilities": rng.choice((None, ("a", "b"), ("c",))) if rich else None,
            "properties": self._any_properties(),
        })  # fmt: skip

    def _sasl(self) -> None:
        """Write the SASL frames at once: ANONYMOUS needs only its first frame."""
        rng, trace = self.rng, self.rng.choice((None, b"", b"guest"))
        init = self.writer.composite(
            "sasl-init", True, mechanism="ANONYMOUS", initial_response=trace, hostname=rng.choice((None, "h"))
        )
        body = self.writer.encode(init)
        self.write(SASL_HEADER + (8 + len(body)).to_bytes(4, "big") + b"\x02\x01" + rng.randbytes(2) + body)
        self._sasl_told = False

    def _any_properties(self) -> dict[Any, Any] | None:
        if not self.draw.has("capabilities"):
            return None
        return self.rng.choice((None, {}, {symbol("x"): value(self.rng, 1)}))

    def begin(self) -> Session | None:
        rng = self.rng
        taken = {one.channel for one in (self._all if not self.draw.has("pipelined_channels") else ())}
        most = self._channels if self.opened else 0
        free = [number for number in {0, 1, 2, most, rng.randint(0, most)} if number <= most]
        free = sorted({number for number in free if number not in self.sessions and number not in taken})
        if not free or len(self._all) >= min(MOST_SESSIONS, self.channel_max + 1) or self.closed:
            return None
        edges = EDGES if self.draw.has("wrap") else (0, 1)
        handle_max = rng.choice((0, 1, 2)) if self.draw.has("few_handles") else rng.choice((7, 255, 2**32 - 1))
        window = rng.choice((0, 1, 3)) if self.draw.has("small_windows") else rng.choice((100, 2**31 - 1))
        if self.draw.has("huge_windows"):
            window = rng.choice((2**31, 2**32 - 1))
        session = Session(self, self.ledger, rng.choice(free), handle_max, window, rng.choice(edges), rng.choice(edges))
        self.sessions[session.channel] = session
        self._all.append(session)
        self._emit(session.channel, "begin", {
            "next_outgoing_id": session.next_out,
            "incoming_window": window,
            "outgoing_window": rng.choice((0, 1, 1000, 2**32 - 1)),
            "handle_max": None if handle_max == 2**32 - 1 else handle_max,
            "desired_capabilities": ("d",) if self.draw.has("capabilities") else None,
            "properties": self._any_properties(),
        }, then=lambda: session.window_read(None, window))  # fmt: skip
        return session

    def end(self, session: Session) -> None:
        if not self.draw.has("hasty_end"):
            self.feed()
        session.ended = True
        del self.sessions[session.channel]
        for link in list(session.mine.values()):
            self.suspend(link)
        self._emit(session.channel, "end", {"error": self._error() if self.rng.random() < 0.1 else None})

    def close(self) -> None:
        if not self.draw.has("hasty_end"):
            self.feed()
        for session in list(self.sessions.values()):
            session.ended = True
            for link in list(session.mine.values()):
                self.suspend(link)
        self.closed = True
        self._emit(0, "close", {"error": self._error() if self.rng.random() < 0.1 else None})

    def _error(self) -> Any:
        condition = self.rng.choice([*sorted(CONDITIONS), "x:other"])
        return self.writer.composite("error", condition=condition, description="d", info=self._any_properties())

    def drop(self) -> None:
        """The connection is lost, with our data that the router has not read."""
        self.ledger.notes.append(f"{self.label} is lost, {self.waiting()} bytes wait")
        self.left = True
        self.container.connections.remove(self)
        for session in list(self.sessions.values()):
            for link in list(session.mine.values()):
                self.suspend(link)
        self.leave()

    @staticmethod
    def over(link: Link) -> None:
        """The link gets nothing more."""
        if isinstance(link, Receiver) and link.subscription is not None:
            link.subscription.over = True

    def suspend(self, link: Link) -> None:
        """The link is detached, or its session or connection has ended."""
        raise NotImplementedError


def _short(value: Any) -> str:
    match value:
        case Described(descriptor=Typed(value=code), value=inner):
            return f"{code:#x}{inner}" if isinstance(code, int) else f"{code}{inner}"
        case Typed():
            return str(value.value)
        case (str(name), dict(fields)):
            return name + str({key: val for key, val in fields.items() if val is not None and val is not False})
    return str(value)


_SPARE: Final = ("properties", "desired_capabilities", "offered_capabilities", "incoming_locales", "outgoing_locales")
