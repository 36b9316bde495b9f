"""One channel end: numbers, order, acknowledgements and what is sent again."""

from math import inf
from sys import getrefcount

from hypothesis import given
from hypothesis import strategies as st

from linkstate.channel import ACK_DELAY, ACK_EVERY, REORDER_LIMIT, Channel
from linkstate.chunks import Chunk


def channel() -> Channel:
    return Channel(min_timeout=0.2, max_timeout=1.0, max_payload=1000)


def test_numbers_start_from_one() -> None:
    sender = channel()
    assert [sender.push(Chunk(b"x"), 0.0), sender.push(Chunk(b"y"), 0.0)] == [1, 2]
    assert list(sender.unacknowledged(sender.sent)) == [(1, Chunk(b"x")), (2, Chunk(b"y"))]


@given(st.permutations(range(1, 9)), st.lists(st.integers(1, 8)))
def test_channel_hands_chunks_on_in_order_and_once(order: list[int], again: list[int]) -> None:
    receiver = channel()
    handed_on = []
    for number in [*order[:4], *again, *order]:
        handed_on += receiver.receive(number, Chunk(bytes([number])), 0.0)
    assert handed_on == [bytes([number]) for number in range(1, 9)]


def test_channel_drops_chunks_that_are_too_early() -> None:
    receiver = channel()
    assert receiver.receive(REORDER_LIMIT + 1, Chunk(b"far"), 0.0) == []
    for number in range(1, REORDER_LIMIT + 1):
        assert receiver.receive(number, Chunk(b"x"), 0.0) == [b"x"]


def test_channel_keeps_an_early_chunk_without_its_body() -> None:
    receiver = channel()
    body = bytes(100_000)
    references = getrefcount(body)
    for number in range(2, REORDER_LIMIT + 1):
        receiver.receive(number, Chunk(memoryview(body)[:1]), 0.0)
    assert getrefcount(body) == references
    assert receiver.receive(1, Chunk(b"first"), 0.0) == [b"first"] + (REORDER_LIMIT - 1) * [b"\0"]


def test_one_acknowledgement_covers_many_frames() -> None:
    receiver = channel()
    for number in range(1, ACK_EVERY):
        receiver.receive(number, Chunk(b""), 0.0)
        assert receiver.ack_at == ACK_DELAY
    receiver.receive(ACK_EVERY, Chunk(b""), 0.01)
    assert receiver.ack_at == 0.01
    assert receiver.acknowledge() == ACK_EVERY
    assert receiver.ack_at == inf


def test_a_duplicate_is_acknowledged_again() -> None:
    receiver = channel()
    receiver.receive(1, Chunk(b""), 0.0)
    receiver.acknowledge()
    assert receiver.receive(1, Chunk(b""), 1.0) == []
    assert receiver.ack_at == 1.0 + ACK_DELAY


def test_acknowledged_payloads_are_let_go() -> None:
    sender = channel()
    for payload in (b"1", b"2", b"3"):
        sender.push(Chunk(payload), 0.0)
    sender.receive_ack(2, 0.1)
    assert list(sender.unacknowledged(3)) == [(3, Chunk(b"3"))]
    sender.receive_ack(1, 0.1)
    assert sender.in_flight == 1
    sender.receive_ack(3, 0.1)
    assert (sender.in_flight, sender.deadline()) == (0, inf)


def test_an_acknowledgement_of_what_was_never_sent_is_ignored() -> None:
    sender = channel()
    sender.push(Chunk(b"1"), 0.0)
    sender.receive_ack(2, 0.1)
    assert sender.in_flight == 1


def test_without_progress_the_other_side_is_asked_ever_more_rarely() -> None:
    sender = channel()
    sender.push(Chunk(b"1"), 0.0)
    asked = []
    for _ in range(5):
        asked.append(round(sender.probe_at, 3))
        sender.probed(sender.probe_at)
    assert asked == [0.2, 0.6, 1.4, 2.4, 3.4]


def test_channel_sends_missing_chunks_again_once_for_each_probe() -> None:
    sender = channel()
    sender.push(Chunk(b"1"), 0.0)
    assert list(sender.missing(1)) == [], "nobody was asked"
    sender.probed(0.2)
    assert list(sender.missing(1)) == [(1, Chunk(b"1"))]
    assert list(sender.missing(1)) == []


def test_progress_makes_it_patient_for_the_first_timeout_again() -> None:
    sender = channel()
    sender.push(Chunk(b"1"), 0.0)
    sender.push(Chunk(b"2"), 0.0)
    sender.probed(0.2)
    sender.receive_ack(1, 0.5)
    assert sender.probe_at == 0.7


def test_only_what_was_sent_before_the_question_is_sent_again() -> None:
    sender = channel()
    for payload in (b"1", b"2", b"3"):
        sender.push(Chunk(payload), 0.0)
    sender.receive_ack(1, 0.1)
    assert list(sender.unacknowledged(2)) == [(2, Chunk(b"2"))]


def test_neither_more_to_send_nor_an_acknowledgement_that_is_no_news_puts_a_probe_off() -> None:
    sender = channel()
    sender.push(Chunk(b"1"), 0.0)
    sender.push(Chunk(b"2"), 0.05)
    sender.receive_ack(1, 0.1)
    for happens in (lambda: sender.push(Chunk(b"3"), 0.2), lambda: sender.receive_ack(1, 0.2)):
        happens()
        assert sender.probe_at == 0.1 + 0.2


def test_of_what_was_sent_twice_nobody_knows_which_sending_was_acknowledged() -> None:
    sender = Channel(min_timeout=0.2, max_timeout=1.0, max_payload=1000, budget=1000)
    sender.push(Chunk(bytes(100)), 0.0)
    sender.resent(1, 0.5)
    sender.receive_ack(1, 0.6)
    assert sender.budget.bytes == 1000


def test_a_question_that_is_acknowledged_before_anything_comes_finds_the_other_end_late() -> None:
    asking = channel()
    number, question = asking.ask("it owes", 1.0)
    assert not asking.is_late
    assert asking.receive(1, question, 1.1) == [], "the other end asks as well: that is not to get on"
    asking.receive_ack(number, 1.2)
    assert asking.is_late


def test_chunk_before_the_acknowledged_question_was_under_way() -> None:
    asking = channel()
    number, _ = asking.ask("it owes", 1.0)
    assert asking.receive(1, Chunk(b"answer"), 1.1) == [b"answer"]
    asking.receive_ack(number, 1.2)
    assert not asking.is_late


def test_repeated_chunk_was_not_under_way() -> None:
    asking = channel()
    asking.receive(1, Chunk(b"before"), 1.0)
    number, _ = asking.ask("it owes", 2.0)
    asking.receive(1, Chunk(b"before"), 2.1)
    asking.receive_ack(number, 2.2)
    assert asking.is_late
