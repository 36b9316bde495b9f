"""Breakages of deliveries whose time is over (protocol 5, Time to live)."""

from collections import deque
from unittest.mock import patch

from tests.mutants.mutant import KILLS, MOVING, Method, mutant
from tests.topic import test_ttl
from topic.delivery.gates import Gate
from topic.delivery.record import HomeStream, Record, State, Stream
from topic.edge.delivery import EdgeDelivery
from topic.edge.subscriber import LocalSubscriber
from topic.home.audiences import Audiences
from topic.home.publishing import Publishing

LATE = MOVING | {"ttl": 1.0, "think": 2.0, "messages": 25}
RESUMED = KILLS | {"ttl": 1.0, "restless": 1.0, "messages": 25}


@mutant(EdgeDelivery, "_deliver", by="2", **LATE)
def ended_though_given(deliver: Method) -> Method:
    """5 Time to live: a delivery that was transferred to one subscriber does not expire for the others."""

    def broken(edge: EdgeDelivery, subscriber: LocalSubscriber, stream: Stream, records: list[Record]) -> None:
        with patch.object(HomeStream, "stop_time"):  # its time still counts
            deliver(edge, subscriber, stream, records)

    return broken


@mutant(EdgeDelivery, "take_back", by="2", **LATE)
def ended_and_given(_: Method) -> Method:
    """5 Time to live: no subscriber gets a delivery that was ended."""

    def broken(edge: EdgeDelivery, stream: HomeStream, records: list[Record], gates: dict[bytes, Gate]) -> None:
        """The delivery still waits."""

    return broken


@mutant(
    Audiences,
    "_gate_by",
    by="1",
    scenario=test_ttl.test_what_waits_for_credit_here_is_rejected_and_given_to_nobody,
)
def ended_gates_nobody(_: Method) -> Method:
    """5 Time to live: behind an ended delivery, a subscriber gets nothing before the publisher knows of the end."""

    def broken(audiences: Audiences, stream: HomeStream, record: Record, name: bytes) -> None:
        """Later deliveries come."""

    return broken


@mutant(Publishing, "_release", by="1", scenario=test_ttl.test_what_waits_for_room_is_rejected_when_its_time_is_over)
def ended_holds_up_nothing(release: Method) -> Method:
    """5 Time to live: a withheld delivery that is ended holds up later ones until its publisher knows."""

    def broken(publishing: Publishing, stream: HomeStream) -> None:
        stream.withheld = deque(record for record in stream.withheld if record.state is not State.ACCEPTED)
        release(publishing, stream)

    return broken


@mutant(Publishing, "_publish_again", by="2", **RESUMED)
def resumed_and_ended(again: Method) -> Method:
    """5 Time to live: a subscriber may already have a delivery of the publisher's map."""

    def broken(
        publishing: Publishing, stream: HomeStream, tag: bytes, message: bytes, until: float, *, presettled: bool
    ) -> Record:
        key = stream.keys.key(tag)
        if key not in stream.expected or key in stream.unconfirmed:
            record: Record = again(publishing, stream, tag, message, until, presettled=presettled)
            return record
        del stream.expected[key]
        (record,) = publishing._publish_new(stream, [key], [tag], [message], [until], presettled=presettled)
        return record

    return broken
