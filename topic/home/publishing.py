"""How transfers get an audience and are forwarded, and which wait before that (protocol 5).

A transfer is withheld, with all of its publisher that come behind it, while an older delivery holds its key, while
somebody who asked about the key is to be answered first, while too much is under way to a router of its audience, or
while its message goes ahead of it in pieces. It has no place in its publisher's order and no audience until it goes on.
"""

from collections.abc import Callable, Sequence
from itertools import repeat
from math import inf

from topic.delivery.record import HomeStream, Record, State, presettle, spread
from topic.delivery.streams import Streams
from topic.edge.edge import Edge
from topic.home.decisions import Decisions
from topic.home.settlement import HomeSettlement
from topic.home.ttl import TimeToLive
from topic.wire.outgoing import FLUSH_BYTES


class Publishing:
    """What the publishers of one router transfer."""

    def __init__(
        self,
        edge: Edge,
        settlement: HomeSettlement,
        home: Decisions,
        streams: Streams[HomeStream],
        piece: int,
    ) -> None:
        """A message of more than two pieces goes ahead, each of so many
        bytes."""
        self.outlet = edge.outlet
        self.records = edge.records
        self.directory = edge.directory
        self._edge = edge
        self._settlement = settlement
        self._home = home
        self._streams = streams
        self._piece = piece
        self.ttl = TimeToLive(streams, home)
        self._full: set[str] = set()
        """Routers to which too much is under way."""
        self._queue: dict[HomeStream, None] = {}
        """Publishers that wait for room, or for their turn."""
        self._may_go_on = False
        """Perhaps: there is room since it was looked last."""

    def publish(
        self,
        stream: HomeStream,
        tags: list[bytes],
        messages: list[bytes],
        *,
        presettled: bool,
        until: Sequence[float] | None = None,
    ) -> list[Record]:
        """Take a batch of transfers of one publisher, in order. Returns their records, in the same order."""
        if stream.expected or stream.unconfirmed:
            rows = zip(tags, messages, until or repeat(inf, len(tags)), strict=True)
            return [self._publish_again(stream, *row, presettled=presettled) for row in rows]
        key = stream.keys.key
        return self._publish_new(stream, list(map(key, tags)), tags, messages, until, presettled=presettled)

    def _publish_new(
        self,
        stream: HomeStream,
        keys: list[bytes],
        tags: list[bytes],
        messages: list[bytes],
        until: Sequence[float] | None,
        *,
        presettled: bool,
        is_expected: bool = False,
    ) -> list[Record]:
        records = [Record(stream, *columns) for columns in zip(keys, tags, messages, strict=True)]
        if not is_expected and not stream.incomplete:
            stream.kind.nobody_has(records)
        elif presettled:  # somebody may have these under their keys, which presettled records do not hold
            stream.transferred_settled(records)
            presettled = False
        sizes = list(map(len, messages))
        stream.transferred(keys, sizes)
        self.records.received[stream.kind.name] += len(records)
        if presettled:
            presettle(records)
        asked = stream.questions and any(stream.is_questioned(key) for key in keys)
        is_large = max(sizes) > 2 * self._piece and not presettled and stream.kind.goes_in_pieces
        over = self.ttl.begin(stream, records, until) if until is not None else []
        waits = stream.withheld or asked or is_large or over or self._awaits_room(stream)
        if waits or not (presettled or self.records.enter(records)):
            stream.withhold(records)
            if over:
                self._home.expire(stream, over)
            self._release(stream)
        else:
            self._spread(stream, records, self._edge.delivery.take)
        self._settlement.grant(stream)
        return records

    def _publish_again(
        self, stream: HomeStream, tag: bytes, message: bytes, until: float, *, presettled: bool
    ) -> Record:
        """Take a transfer while deliveries of the publisher's map are expected: it may be one of them, which somebody
        may have, whatever its time."""
        key = stream.keys.key(tag)
        is_expected = stream.came_again(key) is not None
        record = self._edge.unconfirmed.take(stream, key) if is_expected else None
        if record is None:
            alone = [key], [tag], [message], None if is_expected else [until]
            (record,) = self._publish_new(stream, *alone, presettled=presettled, is_expected=is_expected)
            return record
        return self.again(stream, tag, record, message, settled=presettled)

    def again(
        self, stream: HomeStream, tag: bytes, record: Record, message: bytes | None = None, *, settled: bool = False
    ) -> Record:
        """A delivery that was unconfirmed here gets an audience in this epoch (7.3). `message` is what came, if it came
        again. The publisher may have `settled` it by that (7.3)."""
        if settled:
            stream.transferred_settled([record])
        record.transferred_again(tag, message)
        stream.transferred((), [record.size])
        self.records.received[stream.kind.name] += 1
        if stream.withheld:
            stream.withhold([record])
        else:
            self._spread(stream, [record], self._edge.delivery.take_again)
        self._settlement.grant(stream)
        return record

    def _spread(
        self, stream: HomeStream, records: list[Record], take: Callable[[HomeStream, list[Record]], None]
    ) -> None:
        assert not stream.abandoned
        stream.kind.spread(self._home, stream, records, take)

    def spread_to_all(
        self, stream: HomeStream, records: list[Record], take: Callable[[HomeStream, list[Record]], None]
    ) -> None:
        """Each is for all subscribers of the address. The edge is to `take` them for those here."""
        audience = self.directory.audience(stream.address)
        first = stream.place(len(records))
        routers = audience.routers
        ahead = bool(stream.ahead) and self._went_ahead(stream, records[0], routers)
        spread(records, first, audience)
        if not audience.size:
            stream.placed_for_nobody()
        if routers or records[0].presettled:
            stream.had(records)
        if not records[0].presettled:
            self.outlet.trace_received(stream, records, audience)
        if routers:
            self.outlet.batches.forward(routers, stream, records, self.directory.applied, None, ahead=ahead)
        take(stream, records)
        self._home.evaluate(stream, records)

    # what is withheld

    def _release(self, stream: HomeStream) -> None:
        """Let withheld deliveries go on, in order, as far as their keys are free, nobody waits to hear of an older
        delivery of the key, and there is room: a batch at most, then it is others' turn. What was ended for its time
        holds up what is behind it until its publisher knows: else, resumed elsewhere, it would come after that."""
        room = FLUSH_BYTES
        while stream.withheld and stream not in self._queue:
            record = stream.withheld[0]
            if record.state is State.ACCEPTED:
                return
            if record.state is not State.IN_DOUBT:
                stream.go_on()
                self._recall(stream, record.key)
            elif stream.is_questioned(record.key):
                return
            elif room <= 0 or self._awaits_room(stream) or self._send_ahead(stream, record):
                self._queue[stream] = None
                self._may_go_on = True
            elif self.records.by_key.get(record.key) is record:
                stream.go_on()  # before it is spread: that may settle it at once, and come back here
                room -= record.size
                self._spread(stream, [record], self._edge.delivery.take_again)
            elif self._enters(record):
                batch = self._taken_with(stream, record, room)
                room -= sum(record.size for record in batch)
                self._spread(stream, batch, self._edge.delivery.take)
            else:
                self.records.busy_keys[record.key] = stream
                self.outlet.batches.hurry()
                return

    def _enters(self, record: Record) -> bool:
        """False: an older delivery holds its key. A presettled one needs none."""
        return record.presettled or self.records.enter([record])

    def _taken_with(self, stream: HomeStream, first: Record, room: int) -> list[Record]:
        """It is withheld no more, nor are those behind it that may go on with it: alike (all presettled, or
        none; all new, or none), none of them large, in so many bytes."""
        withheld, batch = stream.withheld, [first]
        stream.go_on()
        room -= first.size
        while withheld and room > 0 and max(first.size, withheld[0].size) <= 2 * self._piece:
            record = withheld[0]
            is_held = record.state is not State.IN_DOUBT or stream.is_questioned(record.key)
            is_alike = record.presettled == first.presettled and record.chosen == first.chosen
            if is_held or not is_alike or not self._enters(record):
                break
            batch.append(stream.go_on())
            room -= record.size
        return batch

    def _send_ahead(self, stream: HomeStream, record: Record) -> bool:
        """Send a piece of a large message to who lacks it; False if nobody of its audience does. What is said meanwhile
        waits for a piece, not for the message (protocol 5, Large messages)."""
        routers = self.directory.audience(stream.address).routers
        goes_whole = record.presettled or not stream.kind.goes_in_pieces
        if record.message is None or goes_whole or record.size <= 2 * self._piece or not routers:
            return False
        at = min(stream.ahead.get(router, 0) for router in routers)
        if at == record.size:
            return False
        lacking = tuple(router for router in routers if stream.ahead.get(router, 0) == at)
        piece = record.message[at : at + self._piece]
        self.outlet.batches.body(lacking, stream, record.key, at, piece)
        stream.went_ahead(lacking, at + len(piece))
        return True

    def _went_ahead(self, stream: HomeStream, record: Record, routers: tuple[str, ...]) -> bool:
        """Whether these have the message of the delivery that goes on. Who else does need not keep it."""
        found = stream.arrived_ahead(routers)
        self._recall(stream, record.key)
        assert all(at == record.size for at in found)
        return found != []

    def gone(self, stream: HomeStream) -> None:
        """What is withheld does not go on: the publisher is elsewhere, or gone."""
        if stream.ahead:
            self._recall(stream, stream.withheld[0].key)

    def _recall(self, stream: HomeStream, key: bytes) -> None:
        """Who was sent what went ahead of this delivery, and is not forwarded it, need not keep that."""
        for router, at in stream.recall().items():
            if router in self.directory.contacts:
                self.outlet.batches.body((router,), stream, key, at, b"")

    def release_freed(self) -> None:
        """Let go on what waited for keys that are free now. Only at the end of an event: in its middle the directory
        may be ahead of who is joined."""
        unblocked = self.records.unblocked
        while unblocked:
            stream = unblocked.pop(0)
            if isinstance(stream, HomeStream):
                self._release(stream)
            else:
                self._edge.release(stream)

    # budgets of routers

    def full(self, router: str) -> None:
        """As much is under way to the router as may be."""
        self._full.add(router)

    def lost(self, router: str) -> None:
        """The contact is over, and what went ahead in it is gone."""
        for stream in self._streams.values():
            stream.lost_ahead(router)
        self.room(router)

    def room(self, router: str) -> None:
        """There is room again, or the router is lost."""
        self._full.discard(router)
        self._may_go_on = True

    def go_on(self) -> bool:
        """Let the next publisher of those that wait for room go on. False if there is none."""
        if not self._may_go_on:
            return False
        stream = next((stream for stream in self._queue if not self._awaits_room(stream)), None)
        self._may_go_on = stream is not None
        if stream is not None:
            del self._queue[stream]
            self._release(stream)
        return stream is not None

    def awaited_routers(self, stream: HomeStream) -> list[str]:
        """Those that the publisher waits for: too much is under way to them."""
        routers = self.directory.audience(stream.address).routers if stream in self._queue else ()
        return [router for router in routers if router in self._full]

    def _awaits_room(self, stream: HomeStream) -> bool:
        return bool(self._full) and not self._full.isdisjoint(self.directory.audience(stream.address).routers)
