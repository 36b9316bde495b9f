"""What a subscriber's new link begins with (protocol 6.8).

The client's unsettled map says what it has of deliveries that were transferred on its older links, wherever those were.
By the time its attach is answered, the records here say what became of them. Both together give our map, and what is
transferred with resume=true. The transfers themselves are `topic.edge.delivery`'s business.
"""

from collections import deque
from collections.abc import Mapping

from topic.delivery.record import AWAITING_HOME, OPEN, Record, State
from topic.edge.subscriber import LocalSubscriber
from topic.edge.unconfirmed import FINAL


def resume(subscriber: LocalSubscriber, records: Mapping[bytes, Record]) -> dict[bytes, int] | None:
    """Our map, by key, in answer to the client's (None to a null one): which of its deliveries are not settled.

    an outcome is final                   resumed at once with that state and no payload; settled when the publisher
                                          settles. The client's word goes before ours
    the map names it without outcome      resumed with its payload when home has forwarded it for this subscriber
    the map names it, and it is settled   left out: the client settles it. So is an abandoned delivery without an
                                          outcome, and what is no delivery of the link's address
    the map lacks it                      an ordinary transfer, also if it was transferred before
    """
    client_map, subscriber.client_map = subscriber.client_map, None
    subscriber.resuming.clear()
    if client_map is None:
        return None
    stated: deque[Record] = deque()
    for key, state in client_map.items():
        record = records.get(key)
        if record is not None and record.state is not State.SETTLED and _has_part(subscriber, record):
            known = record.locals.get(subscriber, AWAITING_HOME)
            agreed = state if state in FINAL else 0 if known in OPEN else int(known)
            subscriber.resuming[record] = agreed
            if agreed:
                stated.append(record)
    subscriber.ready.extendleft(reversed(stated))
    return {record.key: state for record, state in subscriber.resuming.items()}


def _has_part(subscriber: LocalSubscriber, record: Record) -> bool:
    """Whether the subscriber is owed anything of the record. Nobody forwards an abandoned record again, so the
    subscriber must be named in it."""
    return not record.stream.abandoned or subscriber in record.locals
