"""Resuming a subscriber at the router that it was attached to (protocol 6.6, 6.7).

Its unsettled map says what it has of the deliveries that were transferred on its older links; the records here say what
became of them. Both together give what is transferred on the new link, and how.
"""

from collections.abc import Mapping

from topic.record import QUEUED, SENT, WITHHELD, Outcome, Record, State
from topic.subscriber import Subscriber

FINAL = (Outcome.ACCEPTED, Outcome.REJECTED)
"""Outcomes in a map that end the matter; what a client has released it is given again."""


def resume(
    subscriber: Subscriber, records: list[Record], said: Mapping[bytes, int] | None
) -> list[tuple[Record, Outcome]]:
    """Queue what the subscriber gets of `records` on its new link: first what was transferred before, then what waited.
    Returns the outcomes that its map states and we did not know. `said` is None for a null map."""
    waiting = [record for record in subscriber.ready if record.locals.get(subscriber) == QUEUED]
    transferred = [r for r in records if r.locals.get(subscriber, QUEUED) not in (QUEUED, WITHHELD)]
    subscriber.ready.clear()
    subscriber.resuming.clear()
    stated: list[tuple[Record, Outcome]] = []
    for record in [*transferred, *waiting]:
        if record.state is not State.SETTLED:
            outcome = _resume_one(subscriber, record, None if said is None else said.get(record.key))
            if outcome is not None:
                stated.append((record, outcome))
    return stated


def _resume_one(subscriber: Subscriber, record: Record, said: int | None) -> Outcome | None:
    """`said` is the state in the subscriber's map, None if the map lacks the delivery.

    final, here or there    resume=true with the state and no payload; settled when the publisher settles
    named without outcome   resume=true with the payload
    lacking, no outcome     an ordinary transfer: it never arrived
    lacking, final here     nothing: the subscriber has settled it by itself
    """
    known = record.locals[subscriber] not in (QUEUED, SENT)
    if said in FINAL:
        subscriber.resuming[record] = said
        subscriber.ready.append(record)
        if not known:
            record.locals[subscriber] = SENT
            return Outcome(said)
    elif not known:
        record.locals[subscriber] = QUEUED
        subscriber.ready.append(record)
        if said is not None:
            subscriber.resuming[record] = 0
    return None
