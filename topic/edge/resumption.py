"""The beginning of a subscriber's new link: the router's map, and the deliveries to resume (protocol 6.8).

The client's unsettled map lists the deliveries that it has from older links, at any router. When the router answers the
attach, its records have the present state of these deliveries. From both follow the router's map and the transfers with
resume=true, which `topic.edge.delivery` makes.
"""

from collections import deque
from collections.abc import Mapping

from topic.delivery.record import AWAITING_HOME, OPEN, Record, State
from topic.edge.subscriber import LocalSubscriber
from topic.edge.unconfirmed import FINAL


def resume(subscriber: LocalSubscriber, records: Mapping[bytes, Record]) -> dict[bytes, int] | None:
    """Return the router's map, by delivery key, in answer to the client's map; None if the client's map was null. The
    router's map has each delivery of the client's map that is not settled.

        the client's map                      this router
        names it, with a final outcome there  resumes it at once with that state and no payload, and settles it when the
        or here                               publisher settles. The outcome in the client's map has precedence
        names it without outcome              resumes it with its payload when home has forwarded it for this subscriber
        names it, and it is settled           leaves it out, so the client settles it. The same holds for an abandoned
                                              delivery without an outcome, and for one of another address
        lacks it                              transfers it as new, even if it was transferred before
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
            agreed = 0 if known in OPEN and state not in FINAL else state or int(known)
            subscriber.resuming[record] = agreed
            if agreed:
                stated.append(record)
    subscriber.ready.extendleft(reversed(stated))
    return {record.key: state for record, state in subscriber.resuming.items()}


def _has_part(subscriber: LocalSubscriber, record: Record) -> bool:
    """Whether the subscriber can still get the record, or learn how it ends. No router forwards an abandoned record
    again, so such a record must already name the subscriber."""
    return not record.stream.abandoned or subscriber in record.locals
