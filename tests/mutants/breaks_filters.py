"""Breakages of filters at the edge (protocol 5, Filters)."""

from tests.mutants.mutant import MOVING, RESUMING, Method, mutant
from topic.delivery.outcomes import add_refusals
from topic.delivery.record import AWAITING_HOME, HomeStream, Record
from topic.edge import delivery
from topic.edge.delivery import EdgeDelivery
from topic.edge.filters import NoLocal
from topic.edge.subscriber import LocalSubscriber
from topic.identity import LinkIdentity

FILTERING = RESUMING | {"filters": 0.01, "refusing": 0.0}
CHANGING = MOVING | {"filters": 1.0, "think": 0.5}


@mutant(EdgeDelivery, "_passed", by="2", **FILTERING)
def passed_counts_as_refused(_: Method) -> Method:
    """5 Filters: a delivery that one filter leaves out is accepted when the other subscribers have accepted."""

    def broken(edge: EdgeDelivery, subscriber: LocalSubscriber, stream: HomeStream, records: list[Record]) -> None:
        for record in records:
            record.refusals = add_refusals(record.refusals, (1, 0, 0, 0))

    return broken


@mutant(EdgeDelivery, "_passed", by="45", **FILTERING)
def unmatched_left_open(_: Method) -> Method:
    """5 Filters: no home waits for a subscriber that does not want the delivery."""

    def broken(edge: EdgeDelivery, subscriber: LocalSubscriber, stream: HomeStream, records: list[Record]) -> None:
        for record in records:
            record.name(subscriber, AWAITING_HOME)

    return broken


@mutant(NoLocal, "is_own", by="6", **FILTERING | {"shared": True})
def hears_itself(_: Method) -> Method:
    """5 Filters: a subscriber that asks for no-local gets nothing of its own container."""

    def broken(asked: NoLocal, publisher: LinkIdentity) -> bool:
        return False

    return broken


@mutant(LocalSubscriber, "may_pass", by="2", **CHANGING)
def named_by_its_map_and_left_out(_: Method) -> Method:
    """5 Filters: a subscriber gets the deliveries in its map, whatever its filter says."""

    def broken(subscriber: LocalSubscriber, record: Record) -> bool:
        return subscriber.wants is not None

    return broken


@mutant(EdgeDelivery, "name_in", by="6", **CHANGING)
def backlog_unfiltered(_: Method) -> Method:
    """5 Filters: a backlog is filtered, too."""

    def broken(
        edge: EdgeDelivery, record: Record, subscribers: list[LocalSubscriber], state: int
    ) -> list[LocalSubscriber]:
        return delivery.name_fresh(record, subscribers, state)

    return broken
