"""The *unconfirmed* deliveries, which their present home has not forwarded (protocol 6.1, 7.4 and 8).

A delivery becomes unconfirmed when the contact with its home is lost, or when its publisher attaches anew. If the
unsettled map of a subscriber names a delivery that is not here, the edge makes a *placeholder*: an unconfirmed record
without a message.

The edge neither delivers an unconfirmed record nor reports its outcome, because the subscribers may have been at other
routers meanwhile. Outcomes that subscribers have already given stay in the record.

A delivery is confirmed when its home forwards it again, or answers that it is settled (`topic.home.resolution`).
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from topic.delivery.outcomes import GIVEN_BACK, LOGGED, DeliveryOutcome
from topic.delivery.record import AWAITING_HOME, HomeStream, Record, State, Stream
from topic.delivery.records import RecordTable
from topic.directory.addresses import ByAddress, meets
from topic.directory.directory import Directory
from topic.edge.here import HomeHere
from topic.edge.subscriber import LocalSubscriber
from topic.identity import GENERATION_LENGTH, KEY_LENGTH, NAME_LENGTH, Epoch
from topic.journal import BY_MAP, Event
from topic.outlet import Outlet

FINAL = (DeliveryOutcome.ACCEPTED, DeliveryOutcome.REJECTED)
"""The outcomes in a map that are final. *Released* is not: the edge sends a released delivery again."""
UNKNOWN = bytes(GENERATION_LENGTH)
"""Stands for the generation of a publisher that no router in contact knows."""


class Publishers(Protocol):
    """All publishers that a router knows; `topic.termini.generations` implements it."""

    def stream_named(self, subscriber: LocalSubscriber, publisher: bytes) -> Stream:
        """The stream of the publisher with this name, which stands in a key of the subscriber's map."""


class Unconfirmed:
    """All unconfirmed deliveries of one router. `Stream.unconfirmed` has the ones of a single stream."""

    def __init__(
        self,
        outlet: Outlet,
        records: RecordTable,
        directory: Directory,
        at: ByAddress[bytes, LocalSubscriber],
        home: HomeHere,
    ) -> None:
        """`at`: the local subscribers by address. `home`: the home at the same router, for questions about its
        deliveries."""
        self.outlet = outlet
        self.records = records
        self.directory = directory
        self._home = home
        self._at = at

    # The methods from here on are about records that become unconfirmed.

    def hold(self, stream: Stream) -> None:
        """Make all unsettled records of the stream unconfirmed."""
        assert not stream.abandoned
        self._drop_waiting(stream)
        held = [record for record in stream.records.values() if record.state is not State.SETTLED]
        for record in held:
            if record.presettled:
                self.records.forget(stream, [record])
            else:
                record.hold()
                stream.doubt(record)
        for subscriber in self._at.meeting(stream.address):
            subscriber.hold_back([stream.publisher])

    def _drop_waiting(self, stream: Stream) -> None:
        """Drop the records that wait for an older delivery with their key. If the delivery of a dropped record is still
        in doubt, its home forwards it again."""
        for record, _ in stream.drop_withheld_at_edge():
            if self.records.by_key.get(record.key) is not record:
                stream.records.pop(record.n, None)
        self.take_back(stream)
        for key in [key for key, blocked in self.records.busy_keys.items() if blocked is stream]:
            del self.records.busy_keys[key]

    def take_back(self, stream: Stream) -> None:
        """Withhold no records of this stream any more, because this router is not its home now. A record that was
        unconfirmed before the publisher transferred it again is unconfirmed again."""
        for record in stream.drop_withheld():
            if self.records.by_key.get(record.key) is record:
                stream.doubt(record)

    def move(self, old: Stream, new: Stream, records: list[Record]) -> None:
        """Move unconfirmed records to the stream of the publisher's new epoch. They wait for the answer of the new home
        (7.4)."""
        assert old is not new
        for record in records:
            old.confirm(record.key)
            record.rehome(new)
            new.doubt(record)
        if old.address != new.address:
            self._found_at(new.address, records)
            self.records.readdress(records, old.address)
        if records:
            self.outlet.trace_records(Event.REHOMED, new, records)

    def _found_at(self, address: str, records: list[Record]) -> None:
        """Set the address of these records, which was unknown until now. Remove each subscriber whose address does not
        cover it: the subscriber's map named these records wrongly."""
        for record in records:
            for subscriber in [s for s in record.locals if not meets(s.identity.address, address)]:
                record.drop(subscriber)
                subscriber.disown(record)
                record.hold()  # the refusal of a removed subscriber no longer counts

    def hold_for(self, subscriber: LocalSubscriber, records: Iterable[Record]) -> None:
        """The subscriber has attached anew. Until the home names it again, hold back the records that it has not
        answered."""
        for record in records:
            record.hold_for(subscriber)

    def name(
        self, subscriber: LocalSubscriber, client_map: Mapping[bytes, int], publishers: Publishers
    ) -> list[Record]:
        """Take the unsettled map of a subscriber's attach, and write the outcomes that it states into the records.

        If a named delivery is not here, make a placeholder and ask the delivery's home. If the delivery is here but
        withheld behind an older one, use its record. Returns the records that the map names.
        """
        known: list[Record] = []
        unknown: dict[Stream, list[bytes]] = {}
        for key, state in client_map.items():
            record = self.records.by_key.get(key)
            if record is None and len(key) == KEY_LENGTH:
                stream = publishers.stream_named(subscriber, key[:NAME_LENGTH])
                if not meets(stream.address, subscriber.identity.address):
                    continue
                record = stream.put_off(key)
                if record is None:
                    record = Record(stream, key, b"", None)
                    stream.doubt(record)
                    unknown.setdefault(stream, []).append(key)
                self.records.name(record)
            if record is not None and _is_meant(subscriber, record, state):
                self._state(subscriber, record, state)
                known.append(record)
        for stream, keys in unknown.items():
            records = [self.records.by_key[key] for key in keys]
            self.outlet.trace_records(Event.PLACEHOLDER, stream, records, subscriber=subscriber.name)
            self.ask(stream, keys)
        return known

    def _state(self, subscriber: LocalSubscriber, record: Record, state: int) -> None:
        """Write the state that the map gives for one delivery into its record."""
        if state in FINAL:
            outcome = DeliveryOutcome(state)
            if record.state_outcome(subscriber, outcome):
                columns = {"subscriber": subscriber.name, "outcome": LOGGED[outcome], "detail": BY_MAP}
                self.outlet.trace_records(Event.OUTCOME, record.stream, [record], **columns)
        else:
            if state not in GIVEN_BACK:
                record.void_outcome(subscriber)
            if subscriber not in record.locals:
                record.name(subscriber, AWAITING_HOME)

    # The methods from here on are about records that are confirmed.

    def ask(self, stream: Stream, keys: list[bytes]) -> None:
        """Ask the home about these keys if it is in contact. If not, the edge asks it when the next contact begins."""
        if not keys:
            return
        if isinstance(stream, HomeStream):
            self._home.resolve_here(stream, keys)
        elif _is_reached(self.directory, stream.epoch):
            self.outlet.batches.resolve(stream.home, stream, keys)

    def take(self, stream: Stream, key: bytes) -> Record | None:
        """Confirm a record, because its home has forwarded it. Returns the record; None if it was not unconfirmed."""
        return stream.confirm(key)


def _is_meant(subscriber: LocalSubscriber, record: Record, state: int) -> bool:
    """Whether the map's entry counts for the record. Only a final outcome counts for an abandoned record, because no
    router forwards it again."""
    stream = record.stream
    is_ours = meets(stream.address, subscriber.identity.address) and record.state is not State.SETTLED
    return is_ours and (state in FINAL or not stream.abandoned)


def _is_reached(directory: Directory, epoch: Epoch) -> bool:
    return directory.contacts.get(epoch.router) == epoch.incarnation
