"""What the message of a dead letter says of its life."""

from router.amqp.format.codec import Described, Symbol, encode
from router.amqp.format.message import (
    DATA,
    HEADER,
    MESSAGE_ANNOTATIONS,
    annotation_of,
    annotations_of,
    data_message,
    in_envelope,
    modified,
    sections_of,
)
from router.amqp.format.sections import write_message
from router.edge.subscriber_link import error_of
from router.queues.dead_letter import MOST_DEATHS, dead_letter
from topic.delivery.outcomes import MOST_ANNOTATIONS
from topic.properties import DEAD_AT, DEAD_DESCRIPTION, DEAD_ERROR, DEAD_FIRST, DEAD_FROM, DEAD_WHY, DEATHS
from topic.queues.outgoing.outbox import Why

TEXT = data_message(b"1")
NOW_MS = 1_700_000_000_000
ALWAYS = {DEAD_FIRST: "queue/work", DEAD_AT: NOW_MS}


def test_a_dead_letter_says_where_it_is_from_why_and_how_often() -> None:
    first = dead_letter(TEXT, "queue/work", Why.REJECTED, NOW_MS)
    assert first is not None and first.endswith(TEXT)
    assert annotations_of(first) == {**ALWAYS, DEAD_FROM: "queue/work", DEAD_WHY: "rejected", DEATHS: 1}
    second = dead_letter(first, "queue/retry", Why.EXPIRED, NOW_MS)
    assert second is not None
    assert annotations_of(second) == {**ALWAYS, DEAD_FROM: "queue/retry", DEAD_WHY: "expired", DEATHS: 2}


def test_a_rejected_message_says_the_error_of_its_last_consumer() -> None:
    added = error_of("app:broken", "no such customer" + 1000 * "!")
    first = dead_letter(modified(TEXT, 0, added), "queue/work", Why.REJECTED, NOW_MS, added)
    assert first is not None
    said = annotations_of(first)
    assert said[DEAD_ERROR] == "app:broken" and said[DEAD_DESCRIPTION].startswith("no such customer!!")
    assert len(added) < MOST_ANNOTATIONS
    for why, more in ((Why.REJECTED, b""), (Why.EXPIRED, b""), (Why.EXPIRED, added), (Why.REJECTED, b"no annotations")):
        second = dead_letter(first, "queue/work", why, NOW_MS, more)
        assert (
            second is not None
            and annotations_of(second)[DEAD_ERROR] is annotations_of(second)[DEAD_DESCRIPTION] is None
        )
    longest = error_of("c" * 10_000, "\u1234" * 10_000)
    assert len(longest) < MOST_ANNOTATIONS


def test_a_message_is_a_dead_letter_so_often_at_most() -> None:
    message: bytes | None = TEXT
    for _ in range(MOST_DEATHS):
        assert message is not None
        message = dead_letter(message, "queue/work", Why.REDELIVERIES, NOW_MS)
    assert message is not None and annotation_of(message, DEATHS) == MOST_DEATHS
    assert dead_letter(message, "queue/work", Why.REDELIVERIES, NOW_MS) is None


def test_a_dead_letter_has_no_time_to_live_and_keeps_the_rest() -> None:
    message = write_message({"header": {"durable": True, "ttl": 5}, "data": b"1"})
    found = dead_letter(message, "queue/work", Why.EXPIRED, NOW_MS)
    assert found is not None
    sections = dict(sections_of(found))
    assert sections[HEADER] == [True] and sections[DATA] == b"1"


def test_other_annotations_stay_and_a_wrong_number_counts_as_none() -> None:
    said = encode(Described(MESSAGE_ANNOTATIONS, {Symbol("x-opt-mine"): 7, Symbol(DEATHS): "many"}))
    found = dead_letter(said + TEXT, "queue/work", Why.REJECTED, NOW_MS)
    assert found is not None
    assert annotation_of(found, "x-opt-mine") == 7 and annotation_of(found, DEATHS) == 1


def test_what_is_no_message_of_sections_is_published_as_it_is() -> None:
    for message in (b"", b"no message", in_envelope(TEXT, 7)):
        assert dead_letter(message, "queue/work", Why.REJECTED, NOW_MS) == message
