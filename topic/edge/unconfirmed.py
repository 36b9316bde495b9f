"""Deliveries whose home has not vouched for them: *unconfirmed* ones (protocol 6.1, 7.4 and 8).

A delivery becomes unconfirmed when the contact with its home is lost, when its publisher has attached anew, or when the
unsettled map of a subscriber names it and it is not here (a *placeholder*, without message). Nothing unconfirmed is
delivered, and no outcome of it is reported: its subscribers may have gone elsewhere and come back. What they have said
stays true. It leaves when home forwards it again, or says that it is settled.
"""

from collections.abc import Callable, Iterable, Mapping

from topic.delivery.outcomes import GIVEN_BACK, LOGGED, DeliveryOutcome
from topic.delivery.record import AWAITING_HOME, Record, State, Stream
from topic.delivery.records import RecordTable
from topic.directory.directory import Directory
from topic.edge.subscriber import LocalSubscriber
from topic.identity import GENERATION_LENGTH, KEY_LENGTH, NAME_LENGTH, Epoch, LinkIdentity
from topic.journal import BY_MAP, Event
from topic.outlet import Outlet

FINAL = (DeliveryOutcome.ACCEPTED, DeliveryOutcome.REJECTED)
"""Outcomes in a map that end the matter; what a client has released it is given again."""
NOWHERE = Epoch(0, "", 0)
UNKNOWN = bytes(GENERATION_LENGTH)
"""Epoch and generation of a stream whose publisher nobody in contact knows."""


class Unconfirmed:
    """The unconfirmed deliveries of one router; each stream has its own in `Stream.unconfirmed`."""

    def __init__(
        self, outlet: Outlet, records: RecordTable, directory: Directory, subscribers: Mapping[bytes, LocalSubscriber]
    ) -> None:
        self.outlet = outlet
        self.records = records
        self.directory = directory
        self.ask_here: Callable[[Stream, list[bytes]], None]
        """The question to home, where that is this router."""
        self._subscribers = subscribers

    # into this state

    def hold(self, stream: Stream) -> None:
        """All of the stream that is not settled."""
        self._drop_waiting(stream)
        held = [record for record in stream.records.values() if record.state is not State.SETTLED]
        for record in held:
            if record.presettled:
                self.records.forget(record)
            else:
                record.hold()
                stream.unconfirmed[record.key] = record
        for subscriber in self._subscribers.values():
            subscriber.hold_back([stream.publisher])

    def _drop_waiting(self, stream: Stream) -> None:
        """What waited for an older delivery of its key comes again, if it is still in doubt."""
        for record, _ in stream.withheld_at_edge:
            if self.records.by_key.get(record.key) is not record:
                stream.records.pop(record.n, None)
        stream.withheld_at_edge.clear()
        self.take_back(stream)
        for key in [key for key, blocked in self.records.busy_keys.items() if blocked is stream]:
            del self.records.busy_keys[key]

    def take_back(self, stream: Stream) -> None:
        """What was unconfirmed, was transferred again, and then had to wait behind a delivery that is withheld."""
        for record in stream.withheld:
            if self.records.by_key.get(record.key) is record:
                stream.unconfirmed[record.key] = record
        stream.withheld.clear()

    def move(self, old: Stream, new: Stream, records: list[Record]) -> None:
        """The publisher has a new epoch: what is held of it waits for the word of its new home (7.4)."""
        for record in records:
            del old.unconfirmed[record.key]
            record.stream = new
            new.unconfirmed[record.key] = record
        if records:
            self.outlet.trace_records(Event.REHOMED, new, records)

    def hold_for(self, subscriber: LocalSubscriber, records: Iterable[Record]) -> None:
        """It attached again: what it had not answered comes when its home has named it once more."""
        for record in records:
            record.hold_for(subscriber)

    def name(
        self, subscriber: LocalSubscriber, said: Mapping[bytes, int], stream_of: Callable[[bytes], Stream]
    ) -> list[Record]:
        """The unsettled map of an attach: what it states is recorded, what is not here gets a placeholder, and home is
        asked. What it names may have come here, too, and wait behind an older delivery. Returns what is named and
        here. What is left out of our map is settled, or no delivery of ours."""
        known: list[Record] = []
        unknown: dict[Stream, list[bytes]] = {}
        for key, state in said.items():
            record = self.records.by_key.get(key)
            if record is None and len(key) == KEY_LENGTH:
                stream = stream_of(key[:NAME_LENGTH])
                if stream.address != subscriber.identity.address:
                    continue
                record = stream.put_off(key)
                if record is None:
                    record = stream.unconfirmed[key] = Record(stream, key, b"", None)
                    unknown.setdefault(stream, []).append(key)
                self.records.by_key[key] = record
            if record is not None and _is_meant(subscriber, record, state):
                self._state(subscriber, record, state)
                known.append(record)
        for stream, keys in unknown.items():
            records = [self.records.by_key[key] for key in keys]
            self.outlet.trace_records(Event.PLACEHOLDER, stream, records, subscriber=subscriber.name)
            self.ask(stream, keys)
        return known

    def _state(self, subscriber: LocalSubscriber, record: Record, state: int) -> None:
        if state in FINAL:
            outcome = DeliveryOutcome(state)
            if record.state_outcome(subscriber, outcome):
                columns = {"subscriber": subscriber.name, "outcome": LOGGED[outcome], "detail": BY_MAP}
                self.outlet.trace_records(Event.OUTCOME, record.stream, [record], **columns)
        else:
            if state not in GIVEN_BACK:
                record.had_again(subscriber)
            if subscriber not in record.locals:
                record.name(subscriber, AWAITING_HOME)

    # out of it

    def ask(self, stream: Stream, keys: list[bytes]) -> None:
        """Home, if it is in contact; else as soon as it is."""
        if not keys:
            return
        if stream.here:
            self.ask_here(stream, keys)
        elif _is_reached(self.directory, stream.epoch):
            self.outlet.batches.resolve(stream.home, stream, keys)

    def take(self, stream: Stream, key: bytes) -> Record | None:
        """Home has forwarded it: no longer unconfirmed."""
        return stream.unconfirmed.pop(key, None)


def nowhere(publisher: bytes, address: str) -> Stream:
    """For placeholders of a publisher that nobody in contact knows; when it comes back they move to its stream."""
    return Stream(publisher, LinkIdentity("", "", address), NOWHERE, UNKNOWN)


def _is_meant(subscriber: LocalSubscriber, record: Record, state: int) -> bool:
    """Of what is abandoned only an outcome counts: nobody forwards it again."""
    stream = record.stream
    is_ours = stream.address == subscriber.identity.address and record.state is not State.SETTLED
    return is_ours and (state in FINAL or not stream.abandoned)


def _is_reached(directory: Directory, epoch: Epoch) -> bool:
    return directory.contacts.get(epoch.router) == epoch.incarnation
