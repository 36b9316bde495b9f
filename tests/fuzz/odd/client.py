"""A legal client, which draws what to say next.

What it says waits in a buffer, and its router reads any part of that at a time: what the router says meanwhile comes at
once. That is all there is to two directions of which one is slow. The router owes an answer from when it has read the
question.
"""

from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tests.fuzz.mesh import LONGEST_S, Guest
from tests.fuzz.odd.codec import Described, Typed, symbol, ulong
from tests.fuzz.odd.ledger import AGAIN, DYNAMIC, Ledger, Message, is_for_one
from tests.fuzz.odd.links import MOD, Container, Kept, Link, Received, Receiver, Sender, Sent, ahead
from tests.fuzz.odd.messages import annotations, message, value
from tests.fuzz.odd.performatives import CONDITIONS, Writer, read_frame
from tests.fuzz.odd.session import EPOCH, GENERATION, Session

if TYPE_CHECKING:
    from tests.fuzz.mesh import FuzzRouter

HEADER: Final = b"AMQP\x00\x01\x00\x00"
LEAST_FRAME: Final = 512
ADDRESSES: Final = ("topic/odd/o0", "topic/odd/o1")
WORK: Final = "work/odd"
PATTERNS: Final = ("topic/odd/*", "topic/odd/+", "topic/odd/#")
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
EDGES: Final = (0, 1, 2**31 - 2, 2**31 - 1, 2**31, 2**32 - 3, 2**32 - 1)
MOST_SESSIONS: Final = 4
MOST_LINKS: Final = 5


class OddClient(Guest):
    def __init__(self, router: "FuzzRouter", container: Container, rng: Random, ledger: Ledger) -> None:
        super().__init__(router)
        self.container, self.name, self.draw = container, container.name, container.draw
        self.rng, self.ledger, draw = rng, ledger, container.draw
        container.connections.append(self)
        container.connected += 1
        self.label = f"{self.name}.{container.connected}@{router.name}"
        self.sessions: dict[int, Session] = {}
        """By our channel: begun by us, and not ended."""
        self._all: list[Session] = []
        """Not ended at both ends."""
        self._theirs: dict[int, Session] = {}
        self.said: list[tuple[bytes, Callable[[], None]]] = []
        """What the router has yet to read, and what is to be done once it has."""
        self._heard = b""
        self._greeted, self._sasl_told = False, True
        self.idle_ms = rng.choice((1000, 1500)) if draw.has("idle") else 0
        self.heard_at = 0.0
        self.opened = self.closed = self.ended = False
        """By the router; by us; by the router."""
        self.left = False
        """The connection is lost, or about to be: nobody hears what the router says."""
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
        """One frame; no larger than the router takes. `whole`: nothing can be left out of it."""
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

    # what the router reads

    def feed(self, size: int | None = None) -> None:
        """It reads so much of what was said; all, if nothing is said."""
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
        """What holds between two readings."""
        for session in self._all:
            session.lenient = session.room
            for link in (*session.mine.values(), *session.theirs.values()):
                if isinstance(link, Receiver):
                    link.lenient, link.may_drain = link.room, link.draining

    # what the router says

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
        """The router's, too, which keeps the place of a client that has opened; ours is `greet`."""

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
        """All at once: ANONYMOUS says all in its first frame."""
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
        """The connection is lost, with what was said and not read."""
        self.ledger.notes.append(f"{self.label} is lost, {self.waiting()} bytes wait")
        self.left = True
        self.container.connections.remove(self)
        for session in list(self.sessions.values()):
            for link in list(session.mine.values()):
                self.suspend(link)
        self.leave()

    @staticmethod
    def over(link: Link) -> None:
        """It is owed nothing from here on."""
        if isinstance(link, Receiver) and link.subscription is not None:
            link.subscription.over = True

    # links that go and come back

    def suspend(self, link: Link) -> None:
        """It is detached, or its session or connection is over: whether it comes back is its timeout's business."""
        if not link.timeout or link.stolen or link.gone or (link.answered and link.refused):
            self.over(link)
            return
        until = self.ledger.time() + link.timeout
        left = link.former.unsettled if link.former is not None else {}
        if link.former is not None and (link.answered or link.continues):
            left = {tag: row for tag, row in left.items() if tag in link.former.named}
        rows = {**left, **(self._take_sent(link) if isinstance(link, Sender) else self._take_received(link))}
        if isinstance(link, Receiver) and link.subscription is not None:
            link.subscription.until = min(until, link.subscription.until or until)
            link.subscription.loose = link.subscription.loose or link.modes[1] == 0
        self.container.kept.append(Kept(link, until, rows))

    def _take_received(self, link: Link) -> dict[bytes, Any]:
        """What is released comes again, so it is forgotten."""
        rows = [row for row in link.session.received.values() if row.link is link]
        for row in rows:
            del link.session.received[row.id]
        return {row.tag: row for row in rows if row.outcome not in AGAIN}

    def _take_sent(self, link: Sender) -> dict[bytes, Any]:
        rows = [row for row in link.session.sent.values() if row.link is link]
        for row in rows:
            del link.session.sent[row.id]
        rows = [row for row in (*rows, *link.resuming) if not (row.settled or row.message.aborted)]
        for row in rows:
            row.message.loose = row.message.loose or row.first
        return {row.tag: row for row in sorted(rows, key=lambda row: row.message.number)}

    def resume(self, session: Session, kept: Kept) -> bool:
        """Whether there was a handle for it."""
        handle = self._free_handle(session)
        if handle is None or not self.opened or self.left:
            return False
        self.container.kept.remove(kept)
        for other in self.container.connections:  # it is not attached there any more, when it is attached here
            other.feed()
        former = kept.link
        link = self._endpoint(session, handle, former)
        link.former = kept if former.epoch is not None else None
        self._say_attach(link, self._map(kept) if link.former is not None else None)
        return True

    def _endpoint(self, session: Session, handle: int, former: Link) -> Link:
        """Of a link that was attached before."""
        link: Link
        common = (session, former.name, former.receives, handle, former.address, former.modes)
        if isinstance(former, Receiver):
            link = Receiver(*common, max_message=former.max_message, subscription=former.subscription)
        else:
            assert isinstance(former, Sender)
            initial = self.rng.choice(EDGES) if self.draw.has("wrap") else 0
            link = Sender(*common, count=initial, initial=initial, number=former.number, life=former.first)
        link.timeout, link.epoch, link.generation = former.timeout, former.epoch, former.generation
        session.mine[handle] = link
        session.waiting.append(link)
        return link

    def _map(self, kept: Kept) -> dict[bytes, Any]:
        return {tag: self.writer.composite(row.outcome) if row.outcome else None for tag, row in kept.unsettled.items()}

    def reattach(self, link: Link) -> None:
        """On the same session, with a null map: nothing has happened to its deliveries (2.6.4)."""
        session = link.session
        self.detach(link, closed=False, for_good=True)
        handle = self._free_handle(session)
        if handle is None:
            self.suspend(link)
            return
        again = self._endpoint(session, handle, link)
        again.continues, again.former, link.heir = True, link.former, again
        rows: list[Any] = [*session.received.values(), *session.sent.values()]
        for row in [row for row in rows if row.link is link]:
            row.link = again
        if isinstance(link, Receiver) and isinstance(again, Receiver):
            again.tags = link.tags
        elif isinstance(link, Sender) and isinstance(again, Sender):
            again.resuming = link.resuming
            if link.under_way is not None:
                link.under_way.message.aborted = True
                session.sent.pop(link.under_way.id, None)
        self._say_attach(again, None)

    # links

    def links(self) -> list[Link]:
        return [link for session in self.sessions.values() for link in session.mine.values()]

    def attach(self, session: Session) -> Link | None:
        """A new link of the session."""
        handle = self._free_handle(session)
        if handle is None or len(self.links()) >= MOST_LINKS:
            return None
        receives, address = self.rng.random() < 0.5, self.rng.choice(ADDRESSES)
        if receives and self.draw.has("patterns") and self.rng.random() < 0.4:
            address = self.rng.choice(PATTERNS)
        if not receives and self.draw.has("anonymous") and self.rng.random() < 0.4:
            address = ""
        if self.draw.has("balanced") and self.rng.random() < 0.4:
            address = WORK
        dynamic = self.draw.has("dynamic") and receives and self.rng.random() < 0.3
        if self.draw.has("dynamic") and not receives and self.ledger.dynamic and self.rng.random() < 0.6:
            address = self.rng.choice(self.ledger.dynamic)
        address = "" if dynamic else address
        return self._attach(session, handle, self._new_name(receives), receives, address, dynamic=dynamic)

    def _new_name(self, receives: bool) -> str:
        """Names are of one direction (2.6.1)."""
        if self.draw.has("names") and self.container.single:
            name, its_direction = self.container.single.pop()
            if its_direction != receives:
                return name
        self.container.links += 1
        name = f"l{self.container.links}"
        self.container.single.append((name, receives))
        return name

    def _free_handle(self, session: Session) -> int | None:
        rng, held = self.rng, set(session.mine)
        if not self.draw.has("pipelined_handles"):
            held |= {link.handle for link in session.parting}
        used = len(session.theirs) + len(session.waiting)
        if used > session.handle_max:
            return None
        most = session.their_handle_max
        choices = {*range(10), *((most, rng.randint(0, most)) if self.draw.has("wide_handles") else ())}
        free = sorted(number for number in choices if number not in held and number <= most)
        return rng.choice(free) if free else None

    def _attach(
        self, session: Session, handle: int, name: str, receives: bool, address: str, dynamic: bool = False
    ) -> Link:
        rng = self.rng
        modes = (rng.choice((0, 1, 2)), rng.choice((0, 1))) if self.draw.has("modes") else (2, rng.choice((0, 1)))
        link: Link
        if receives:
            if modes[0] == 0 and not self.draw.has("all_unsettled"):
                modes = 2, modes[1]
            limit = rng.choice((0, 2**63, 2**64 - 1)) if self.draw.has("max_message_size") else None
            if self.draw.has("small_messages"):
                limit = rng.choice((20, 300, 1000))
            link = Receiver(session, name, True, handle, address, modes, max_message=limit or 0)
        else:
            initial = rng.choice(EDGES) if self.draw.has("wrap") else 0
            limit = None
            link = Sender(session, name, False, handle, address, modes, count=initial, initial=initial)
        link.dynamic, link.refusable = dynamic, address.startswith(DYNAMIC)
        lasts = self.draw.has("resume") or self.draw.has("reattach")
        link.timeout = (
            LONGEST_S
            if lasts and address and not link.refusable and not self.draw.has("small_frames") and rng.random() < 0.7
            else 0
        )
        session.mine[handle] = link
        session.waiting.append(link)
        self._say_attach(link, {} if rng.random() < 0.2 else None)
        return link

    def _say_attach(self, link: Link, unsettled: dict[bytes, Any] | None) -> None:
        rng, address, receives = self.rng, link.address, link.receives
        properties = self._any_properties()
        if link.epoch is not None:
            properties = {**(properties or {}), EPOCH: link.epoch}
        if link.generation is not None:
            properties = {**(properties or {}), GENERATION: link.generation}
        self._emit(link.session.channel, "attach", {
            "name": link.name, "handle": link.handle, "role": receives,
            "snd_settle_mode": link.modes[0], "rcv_settle_mode": link.modes[1],
            "source": self._terminus("source", link, address if receives else None),
            "target": self._terminus("target", link, None if receives else address),
            "unsettled": unsettled,
            "initial_delivery_count": link.initial if isinstance(link, Sender) else self._unneeded(),
            "max_message_size": link.max_message if isinstance(link, Receiver) else None,
            "desired_capabilities": ("q",) if self.draw.has("capabilities") else None,
            "properties": properties,
        }, whole=True)  # fmt: skip
        if isinstance(link, Receiver) and rng.random() < 0.5:
            self.flow(link.session, link)

    def _unneeded(self) -> int | None:
        """In a field that says nothing there."""
        return self.rng.choice((None, 0, 7, 2**32 - 1)) if self.draw.has("flow_fields") else None

    def _terminus(self, name: str, link: Link, address: str | None) -> Any:
        """At our end one may be missing, or have any address."""
        ours = address is None
        rng, fields = self.rng, dict[str, Any]()
        if ours and rng.random() < 0.4:
            if self.draw.has("null_termini") and rng.random() < 0.5:
                return None
            address = rng.choice((None, "mine"))
        if self.draw.has("termini"):
            fields["durable"] = rng.choice((None, 0, 1, 2)) if ours else None
            fields["expiry_policy"] = rng.choice((None, "link-detach", "session-end", "connection-close"))
            fields["timeout"] = rng.choice((None, 0, 2**32 - 1)) if ours else None
            fields["capabilities"] = rng.choice((None, ("topic",), ("a", "b")))
            if name == "source":
                outcomes = ("amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list")
                fields["outcomes"] = rng.choice((None, outcomes))
                fields["distribution_mode"] = rng.choice((None, "copy", "move"))
                fields["filter"] = rng.choice((None, {}))
        if name == "source" and not ours:
            fields.update(self._of_source(link))
        if link.timeout and not ours:
            fields["timeout"] = rng.choice((LONGEST_S, 2**32 - 1))
        if link.dynamic and not ours:
            address, fields["dynamic"] = None, True
        return self.writer.composite(name, address=address or None, **fields)

    def _of_source(self, link: Link) -> dict[str, Any]:
        rng, fields = self.rng, dict[str, Any]()
        if self.draw.has("default_outcomes"):
            default = rng.choice(("accepted", "rejected", "released", "modified", ""))
            fields["default_outcome"] = self.writer.composite(default) if default else None
            fields["outcomes"] = rng.choice(
                (None, ("amqp:accepted:list",), ("amqp:released:list", "amqp:accepted:list"))
            )
        if self.draw.has("filters") and self.opened:
            unknown = Described(symbol("x:unknown:string"), value(rng, 0))
            selector = Described(
                rng.choice((symbol("apache.org:selector-filter:string"), ulong(0x468C00000004))), "1 = 1"
            )
            if link.dynamic or is_for_one(link.address):
                selector = unknown
            filters = {symbol("u"): unknown, symbol("s"): selector, symbol("also"): unknown}
            fields["filter"] = {key: val for key, val in filters.items() if rng.random() < 0.5}
        return fields

    def detach(self, link: Link, *, closed: bool | None = None, for_good: bool = False) -> None:
        """`for_good`: if it comes back at all, that is the caller's business."""
        session = link.session
        link.closed = self.rng.random() < 0.6 if closed is None else closed
        error = self._error() if self.rng.random() < 0.05 else None
        link.detached = True
        del session.mine[link.handle]
        if not link.gone:
            session.parting.append(link)
        if link.closed:
            self.over(link)
        elif not for_good:
            self.suspend(link)
        self._emit(session.channel, "detach", {"handle": link.handle, "closed": link.closed, "error": error})

    def steal(self, link: Link) -> None:
        """Attach it once more, here or on another session: the former attach is over (2.6.1)."""
        session = self.rng.choice(list(self.sessions.values()))
        handle = self._free_handle(session)
        if self.draw.has("small_windows"):
            return  # a detach of the router's waits for room behind what it has sent: two would be attached
        if (
            handle is None
            or link.stolen
            or link.gone
            or link.timeout
            or link.dynamic
            or len(self.links()) >= MOST_LINKS
        ):
            return
        link.stolen = True
        self.over(link)
        self._attach(session, handle, link.name, link.receives, link.address)

    # flow

    def flow(self, session: Session, link: Link | None = None, *, most: bool = False) -> None:
        """`most`: windows and credit for all that there is."""
        rng = self.rng
        known = session.next_in if session.begun else None
        if session.window < 2**31 or not self.draw.has("huge_windows"):
            former, session.window = session.window, self._window(most)
            if not self.draw.has("less_window"):
                session.window = max(session.window, former - ahead(session.next_in, session.stated_in))
        session.stated_in = session.next_in
        window, echo = session.window, not most and self.draw.has("echo") and rng.random() < 0.3
        if link is not None and not link.answered and not self.draw.has("echo_at_once"):
            echo = False
        if link is not None and link.asked:
            echo = False  # an answer asks nothing (docs/clients.md)
        fields: dict[str, Any] = {
            "next_incoming_id": known, "incoming_window": window, "next_outgoing_id": session.next_out,
            "outgoing_window": rng.choice((0, 1000, 2**32 - 1)), "echo": echo,
        }  # fmt: skip
        session.asked = session.asked and link is not None
        then: Callable[[], None] = lambda: None  # noqa: E731
        if isinstance(link, Receiver):
            then = self._receivers_flow(link, fields, most)
        elif isinstance(link, Sender):
            then = self._senders_flow(link, fields)

        def read() -> None:
            session.window_read(known, window)
            session.owes_flow = session.owes_flow or (echo and link is None)
            then()

        self._emit(session.channel, "flow", fields, then=read)

    def _window(self, most: bool) -> int:
        return 2000 if most else self.rng.choice((0, 1, 2, 5)) if self.draw.has("small_windows") else 1000

    def _receivers_flow(self, link: Receiver, fields: dict[str, Any], most: bool) -> Callable[[], None]:
        rng, link.asked = self.rng, False
        credits = (0, 1, 2, 5, 100, *((2**31 - 1, 2**31, 2**32 - 1) if self.draw.has("much_credit") else ()))
        credit = 1000 if most else rng.choice(credits)
        drain = not most and self.draw.has("drain") and rng.random() < 0.3
        count = link.count
        stated = link.initial if count is None else count
        if not self.draw.has("less_credit"):
            credit = max(credit, link.stated - max(0, ahead(stated, link.stated_at)))
        link.stated, link.stated_at, link.drains = credit, stated, drain
        fields.update(handle=link.handle, delivery_count=count, link_credit=credit, drain=drain)
        fields.update(available=self._unneeded(), properties=self._any_properties())
        echo = fields["echo"]

        def read() -> None:
            used = (link.count - (link.initial if count is None else count)) % MOD if link.count is not None else 0
            link.room = max(0, credit - used)
            link.lenient = max(link.lenient, link.room)
            link.draining, link.may_drain, link.owes_drain = drain, link.may_drain or drain, drain
            link.owes_flow = "an echo" if echo else link.owes_flow

        return read

    def _senders_flow(self, link: Sender, fields: dict[str, Any]) -> Callable[[], None]:
        available = self.rng.choice((None, 0, 5))
        is_short = self.draw.has("flow_fields") and not link.asked and self.rng.random() < 0.5
        credit = None if is_short else link.credit  # an answer has all of it (docs/clients.md)
        link.asked = False
        fields.update(handle=link.handle, delivery_count=link.count, link_credit=credit, available=available)
        echo = fields["echo"]

        def read() -> None:
            link.owes_flow = "an echo" if echo else link.owes_flow

        return read

    # transfers

    def send(self, link: Sender, *, last: bool = False) -> bool:
        """The next frame of a delivery of the link; `last`: no new delivery is begun. Whether there was anything."""
        if link.session.their_window <= 0:
            return False
        if not link.pieces:
            if link.credit <= 0 or (last and not link.resuming):
                return False
            if link.resuming:
                self._begin_again(link, link.resuming.popleft())
            else:
                self._begin_delivery(link)
        self._transfer(link)
        return True

    def _begin_delivery(self, link: Sender) -> None:
        rng, session = self.rng, link.session
        self.container.marks += 1
        mark = f"{self.name} {self.container.marks}".encode()
        address = link.address or rng.choice(ADDRESSES)
        to = None if link.address else address
        message_format, payload = message(rng, self.writer, mark, rich=self.draw.has("sections"),
                                          foreign=self.draw.has("formats"), to=to)  # fmt: skip
        if len(payload) > (link.max_message or 9000):
            message_format, payload = message(rng, self.writer, mark, rich=False, foreign=False, to=to)
        presettled = link.modes[0] == 1 or (link.modes[0] == 2 and rng.random() < 0.15)
        one = Message(link.first, link.number, address, message_format, payload, presettled, len(payload),
                      self.ledger.now())  # fmt: skip
        self.ledger.publish(one)
        tag = str(link.number).encode().ljust(rng.choice((1, 4, 32)) if self.draw.has("tags") else 4, b".")
        mode = rng.choice((None, 0, 1)) if self.draw.has("transfer_modes") and not presettled else None
        first = link.modes[1] == 0 or mode == 0
        if link.modes[1] == 0 and mode == 1:
            mode = None
        link.number += 1
        self._begin_sent(link, Sent(session.next_id, tag, one, link, first), mode)

    def _begin_again(self, link: Sender, row: Sent) -> None:
        """Of a former attach: with `resume` if the router has it."""
        assert link.former is not None
        sent = Sent(link.session.next_id, row.tag, row.message, link, link.modes[1] == 0)
        self._begin_sent(link, sent, None, resumed=row.tag in link.former.named)

    def _begin_sent(self, link: Sender, sent: Sent, mode: int | None, *, resumed: bool = False) -> None:
        session = link.session
        link.count = (link.count + 1) % MOD
        link.credit -= 1
        session.next_id = (session.next_id + 1) % MOD
        link.under_way = sent
        if not sent.message.presettled:
            session.sent[sent.id] = sent
        link.pieces.extend(self._pieces(link, sent, mode))
        if resumed:
            link.pieces[0]["resume"] = True

    def _pieces(self, link: Sender, sent: Sent, mode: int | None) -> list[dict[str, Any]]:
        rng, one = self.rng, sent.message
        room = self._most_frame - 150
        cuts = [0, *range(room, len(one.payload), room), len(one.payload)]
        if self.draw.has("many_frames"):
            cuts = sorted([*cuts, *(rng.randint(0, len(one.payload)) for _ in range(rng.randrange(4)))])
        late = one.presettled and self.draw.has("settled_late")
        always = one.presettled and not late and not self.draw.has("settled_first")
        parts = [one.payload[start:end] for start, end in pairwise(cuts)]
        pieces = []
        for at, part in enumerate(parts):
            is_last = at == len(parts) - 1
            says = at == 0 or rng.random() < 0.3
            settled = one.presettled and (is_last if late else (at == 0 or always or rng.random() < 0.5))
            unsaid = (None, False) if late or not one.presettled else (None,)
            pieces.append({
                "handle": link.handle,
                "delivery_id": sent.id if says else None,
                "delivery_tag": sent.tag if says else None,
                "message_format": (one.format or None) if says else None,
                "settled": True if settled else rng.choice(unsaid),
                "more": not is_last,
                "rcv_settle_mode": mode if at == 0 else None,
                "batchable": rng.choice((None, True)),
                "payload": part,
            })  # fmt: skip
        is_new = not (link.former or one.whole)
        if is_new and len(pieces) > 1 and self.draw.has("abort") and rng.random() < 0.2:
            del pieces[rng.randrange(1, len(pieces)) :]
            pieces.append({"handle": link.handle, "aborted": True, "more": rng.choice((None, True, False)),
                           "payload": rng.choice((b"", b"ignored"))})  # fmt: skip
            one.aborted = True
        return pieces

    def _transfer(self, link: Sender) -> None:
        session, sent, fields = link.session, link.under_way, link.pieces.popleft()
        assert sent is not None
        payload = fields.pop("payload")
        session.next_out = (session.next_out + 1) % MOD
        session.their_window -= 1
        is_last = not link.pieces

        def read() -> None:
            sent.known = True

        self._emit(session.channel, "transfer", fields, payload, then=read)
        if is_last:
            link.under_way = None
            sent.message.whole = sent.message.whole or not sent.message.aborted
            sent.message.settled = sent.message.presettled
            if sent.message.aborted:
                session.sent.pop(sent.id, None)

    # outcomes

    def answer(self, session: Session, *, accept: bool = False) -> bool:
        """The oldest deliveries that have no answer. Whether there were any."""
        rng = self.rng
        rows = [one for one in session.received.values() if one.link.usable and not one.outcome]
        if not rows:
            return False
        first = rows[0]
        kinds = ["accepted"] * 4 + [kind for kind in ("rejected", "released", "modified", "received", "none")
                                    if self.draw.has(f"outcome_{kind}")]  # fmt: skip
        kind = "accepted" if accept else rng.choice(kinds)
        mode = first.link.modes[1]
        if kind == "none" and (mode == 1 or not first.link.default_outcome):
            kind = "accepted"
        alike = [first]
        if rng.random() < 0.7:  # a range has all that is unsettled in it
            for number in range(1, rng.choice((1, 5, 50))):
                following = session.received.get((first.id + number) % MOD)
                if following is None and not self.draw.has("wide_ranges"):
                    break
                if following is not None:
                    if following.link.modes[1] != mode or following.outcome or not following.link.usable:
                        break
                    alike.append(following)
        settles = kind == "none" or (mode == 0 and kind != "received" and (accept or rng.random() < 0.7))
        self._disposition(session, alike, kind, settles)
        return True

    def _disposition(self, session: Session, rows: list[Received], kind: str, settles: bool) -> None:
        rng = self.rng
        details: dict[str, Any] = {}
        final = False
        match kind:
            case "received":
                details = {"section_number": 0, "section_offset": 0}
            case "rejected":
                details = {"error": self._error() if rng.random() < 0.5 else None}
            case "modified":
                final = rng.random() < 0.2
                details = {"delivery_failed": rng.choice((None, True)), "undeliverable_here": True if final else None,
                           "message_annotations": annotations(rng) if rng.random() < 0.5 else None}  # fmt: skip
        state = None if kind == "none" else self.writer.composite(kind, **details)
        first, last = rows[0].id, rows[-1].id
        self._emit(session.channel, "disposition", {
            "role": True, "first": first, "last": None if first == last and rng.random() < 0.5 else last,
            "settled": settles, "state": state, "batchable": rng.choice((None, True)),
        })  # fmt: skip
        for row in rows:
            if kind != "received":
                row.outcome = row.link.default_outcome if kind == "none" else kind
                assert row.link.subscription is not None
                self.ledger.answer(row.link.subscription, row.message, row.outcome, final=final)
            if settles:
                self._settled(session, row)

    def _settled(self, session: Session, row: Received) -> None:
        row.settled = True
        session.received.pop(row.id, None)
        row.link.tags.pop(row.tag, None)

    def say_nothing_new(self, session: Session) -> None:
        """Of a delivery in either direction."""
        row = next((one for one in session.received.values() if one.link.usable), None)
        sent = next((one for one in session.sent.values() if one.known and one.message.whole and one.link.usable), None)
        if row is not None:
            state = self.writer.composite(row.outcome) if row.outcome in ("accepted", "rejected") else None
            self._emit(session.channel, "disposition", {"role": True, "first": row.id, "last": row.id, "state": state})
        elif sent is not None:
            self._emit(
                session.channel, "disposition", {"role": False, "first": sent.id, "last": None, "settled": False}
            )

    def settle_received(self, session: Session) -> bool:
        """In mode first, what was answered before. Whether there was anything."""
        rows = [one for one in session.received.values() if one.link.modes[1] == 0 and one.outcome and one.link.usable]
        for row in rows[:1]:
            state = self.writer.composite("accepted") if row.outcome == "accepted" and self.rng.random() < 0.5 else None
            self._emit(session.channel, "disposition", {
                "role": True, "first": row.id, "last": None, "settled": True, "state": state})  # fmt: skip
            self._settled(session, row)
        return bool(rows)

    def settle_sent(self, session: Session, *, early: bool = False) -> bool:
        """The oldest that have an outcome, `early`: or not. Whether there were any."""
        rows = [
            one for one in session.sent.values() if one.message.whole and not one.settled and (one.outcome or early)
        ]
        if not rows:
            return False
        alike = [rows[0]]
        while (following := session.sent.get((alike[-1].id + 1) % MOD)) in rows and self.rng.random() < 0.7:
            assert following is not None
            alike.append(following)
        state = self.writer.composite("accepted") if self.rng.random() < 0.2 and rows[0].outcome == "accepted" else None
        if any(one.outcome != "accepted" for one in alike):
            state = None
        first, last = alike[0].id, alike[-1].id
        for one in alike:
            one.settled = one.message.settled = True
        self._emit(session.channel, "disposition", {
            "role": False, "first": first, "last": None if first == last else last, "settled": True, "state": state,
        })  # fmt: skip
        return True


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
