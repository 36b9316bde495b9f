"""Gives transfers their audience and forwards them, and withholds the ones that have to wait (protocol 5).

A home withholds a transfer in four cases: an older delivery has its key; the home first has to answer a router that
asked about the key; too many bytes are under way to a router of the audience; or the home first sends the message in
pieces, ahead of its Forward. It then also withholds all later transfers of the same publisher. A withheld transfer has
no place in the publisher's order, and no audience.
"""

from collections.abc import Callable, Sequence
from itertools import repeat
from math import inf

from topic.delivery.record import HomeStream, Record, State, await_audience, presettle
from topic.delivery.streams import Streams
from topic.edge.edge import Edge
from topic.home.decisions import Decisions
from topic.home.settlement import HomeSettlement
from topic.home.ttl import TimeToLive
from topic.wire.outgoing import FLUSH_BYTES


class Publishing:
    """Takes the transfers of one router's publishers, and forwards them."""

    def __init__(
        self,
        edge: Edge,
        settlement: HomeSettlement,
        home: Decisions,
        streams: Streams[HomeStream],
        piece: int,
    ) -> None:
        """`piece`: the bytes of one piece. A message longer than two pieces is sent in pieces, ahead of its Forward."""
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
        """The routers to which no more can be sent at present, because the channel to them is full."""
        self._queue: dict[HomeStream, None] = {}
        """The streams of publishers that wait because a channel is full, or until it is their turn."""
        self._may_go_on = False
        """Whether a channel may have got room since `forward_withheld` last looked."""

    def publish(
        self,
        stream: HomeStream,
        tags: list[bytes],
        messages: list[bytes],
        *,
        presettled: bool,
        until: Sequence[float] | None = None,
    ) -> list[Record]:
        """Take a batch of transfers of one publisher, in order. Returns their records in the same order."""
        if stream.expected or stream.unconfirmed:
            rows = zip(tags, messages, until or repeat(inf, len(tags)), strict=True)
            return [self._publish_again(stream, *row, presettled=presettled) for row in rows]
        return self._publish_new(stream, stream.new_keys(tags), tags, messages, until, presettled=presettled)

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
        elif presettled:
            # Subscribers may have other deliveries under these keys, but presettled records hold no key.
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
            for record in records:
                self._tell_apart(stream, record)
            stream.withhold(records)
            if over:
                self._home.expire(stream, over)
            self._release(stream)
        else:
            self._forward_new(stream, records, self._edge.delivery.take)
        self._settlement.grant(stream)
        return records

    def _publish_again(
        self, stream: HomeStream, tag: bytes, message: bytes, until: float, *, presettled: bool
    ) -> Record:
        """Take a transfer of a publisher that still has to repeat deliveries of its map. If this is one of them, a
        subscriber may already have the delivery, so its time to live does not count."""
        key = stream.keys.key(tag)
        is_expected = stream.came_again(key) is not None
        record = self._edge.unconfirmed.take(stream, key) if is_expected else None
        if record is None:
            keys = [key] if is_expected else stream.new_keys([tag])
            alone = keys, [tag], [message], None if is_expected else [until]
            (record,) = self._publish_new(stream, *alone, presettled=presettled, is_expected=is_expected)
            return record
        return self.publish_again(stream, tag, record, message, settled=presettled)

    def publish_again(
        self, stream: HomeStream, tag: bytes, record: Record, message: bytes | None = None, *, settled: bool = False
    ) -> Record:
        """Give a delivery that was unconfirmed here an audience in this epoch (7.3). `message`: the message, if the
        publisher has transferred it again. `settled`: the publisher has transferred it as settled."""
        if settled:
            stream.transferred_settled([record])
        record.transferred_again(tag, message)
        stream.transferred((), [record.size])
        self.records.received[stream.kind.name] += 1
        if stream.withheld:
            stream.withhold([record])
        else:
            self._forward_new(stream, [record], self._edge.delivery.take_again)
        self._settlement.grant(stream)
        return record

    def _forward_new(
        self, stream: HomeStream, records: list[Record], take: Callable[[HomeStream, list[Record]], None]
    ) -> None:
        assert not stream.abandoned
        stream.kind.forward(self._home, stream, records, take)

    def forward_to_all(
        self, stream: HomeStream, records: list[Record], take: Callable[[HomeStream, list[Record]], None]
    ) -> None:
        """Forward these records to all subscribers of the address. `take` gives them to the local subscribers."""
        audience = self.directory.audience(stream.address)
        first = stream.place(len(records))
        routers = audience.routers
        ahead = bool(stream.ahead) and self._went_ahead(stream, records[0], routers)
        await_audience(records, first, audience)
        if not audience.size:
            stream.placed_for_nobody()
        if routers or records[0].presettled:
            stream.stop_time(records)
        if not records[0].presettled:
            self.outlet.trace_received(stream, records, audience)
        if routers:
            self.outlet.batches.forward(routers, stream, records, self.directory.applied, None, ahead=ahead)
        take(stream, records)
        self._home.decide(stream, records)

    # The methods from here on are about withheld transfers.

    def _release(self, stream: HomeStream) -> None:
        """Forward withheld deliveries in order, as far as nothing holds them up: their keys are free, no router waits
        for an answer about their keys, and the channels have room.

        At most one batch goes at a time; then it is the turn of other publishers. An expired delivery holds up all
        later ones until its publisher has settled it. Otherwise the publisher could resume elsewhere and transfer the
        expired delivery again, behind the later ones.
        """
        room = FLUSH_BYTES
        while stream.withheld and stream not in self._queue:
            record = stream.withheld[0]
            if record.state is State.ACCEPTED:
                return
            if record.state is not State.IN_DOUBT:
                stream.release_withheld()
                self._drop_pieces(stream, record.key)
            elif stream.is_questioned(record.key):
                return
            elif self._tell_apart(stream, record):
                continue
            elif room <= 0 or self._awaits_room(stream) or self._send_ahead(stream, record):
                self._queue[stream] = None
                self._may_go_on = True
            elif self.records.by_key.get(record.key) is record:
                # The record leaves the queue before it is forwarded, because forwarding may call this method again.
                stream.release_withheld()
                room -= record.size
                self._forward_new(stream, [record], self._edge.delivery.take_again)
            elif self._enters(record):
                batch = self._taken_with(stream, record, room)
                room -= sum(record.size for record in batch)
                self._forward_new(stream, batch, self._edge.delivery.take)
            else:
                self.records.busy_keys[record.key] = stream
                self.outlet.batches.end_delays()
                return

    def _tell_apart(self, stream: HomeStream, record: Record) -> bool:
        """Give the record another key if a settled delivery holds its key, and no router computes keys of this life
        from tags. Returns whether the record has another key now."""
        if stream.needs_tags or record.presettled or stream.ahead:
            return False
        older = self.records.by_key.get(record.key)
        if older is None or older is record or older.state is not State.SETTLED:
            return False
        key = record.key
        stream.rename(record)
        self._settlement.answer_askers(stream, key)
        return True

    def _enters(self, record: Record) -> bool:
        """Whether the record is entered under its key; False if an older delivery still holds the key. A presettled
        record needs no key."""
        return record.presettled or self.records.enter([record])

    def _taken_with(self, stream: HomeStream, first: Record, room: int) -> list[Record]:
        """Remove the first withheld record, and the following ones that can be forwarded in the same batch. The records
        of a batch are all presettled or all not, all new or all repeated; none is large; and they have at most `room`
        bytes."""
        withheld, batch = stream.withheld, [first]
        stream.release_withheld()
        room -= first.size
        while withheld and room > 0 and max(first.size, withheld[0].size) <= 2 * self._piece:
            record = withheld[0]
            is_held = record.state is not State.IN_DOUBT or stream.is_questioned(record.key)
            is_alike = record.presettled == first.presettled and record.chosen == first.chosen
            self._tell_apart(stream, record)
            if is_held or not is_alike or not self._enters(record):
                break
            batch.append(stream.release_withheld())
            room -= record.size
        return batch

    def _send_ahead(self, stream: HomeStream, record: Record) -> bool:
        """Send the next piece of a large message to the routers of its audience that lack it. Returns False if no
        router lacks any.

        Other messages to these routers then wait for one piece only, not for the whole message (protocol 5, Large
        messages).
        """
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
        """Whether these routers already have the whole message, because it was sent to them in pieces. Other routers
        that have pieces of it are told to drop them."""
        found = stream.arrived_ahead(routers)
        self._drop_pieces(stream, record.key)
        assert all(at == record.size for at in found)
        return found != []

    def gone(self, stream: HomeStream) -> None:
        """Forward none of the withheld deliveries, because the publisher has moved or gone."""
        if stream.ahead:
            self._drop_pieces(stream, stream.withheld[0].key)

    def _drop_pieces(self, stream: HomeStream, key: bytes) -> None:
        """Tell routers that have pieces of this delivery, and will get no Forward of it, to drop the pieces."""
        for router, at in stream.recall().items():
            if router in self.directory.contacts:
                self.outlet.batches.body((router,), stream, key, at, b"")

    def release_freed(self) -> None:
        """Forward withheld records whose keys have become free. Called only at the end of an event, because before it
        the directory may list subscribers that the home has not joined yet."""
        unblocked = self.records.unblocked
        while unblocked:
            stream = unblocked.pop(0)
            if isinstance(stream, HomeStream):
                self._release(stream)
            else:
                self._edge.release(stream)

    # The methods from here on are about routers whose channel is full.

    def full(self, router: str) -> None:
        """Withhold new deliveries for this router, because the channel to it is full."""
        self._full.add(router)

    def contact_lost(self, router: str) -> None:
        """Handle a lost contact. The lost router has dropped the pieces that it was sent."""
        for stream in self._streams.values():
            stream.lost_ahead(router)
        self.room(router)

    def room(self, router: str) -> None:
        """The channel to the router has room again, or the router is lost."""
        self._full.discard(router)
        self._may_go_on = True

    def forward_withheld(self) -> bool:
        """Forward withheld records of the next publisher whose channels have room. Returns False if there is none."""
        if not self._may_go_on:
            return False
        stream = next((stream for stream in self._queue if not self._awaits_room(stream)), None)
        self._may_go_on = stream is not None
        if stream is not None:
            del self._queue[stream]
            self._release(stream)
        return stream is not None

    def awaited_routers(self, stream: HomeStream) -> list[str]:
        """The routers with a full channel for which this publisher waits."""
        routers = self.directory.audience(stream.address).routers if stream in self._queue else ()
        return [router for router in routers if router in self._full]

    def _awaits_room(self, stream: HomeStream) -> bool:
        return bool(self._full) and not self._full.isdisjoint(self.directory.audience(stream.address).routers)
