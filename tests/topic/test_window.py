"""What a publisher may transfer before it has to settle (protocol 5, Credit)."""

from hypothesis import given
from hypothesis import strategies as st

from tests.topic.bench import Bench, pen_at
from topic.actions import AnswerPublisher
from topic.delivery.window import CreditWindow
from topic.settings import Settings

BYTES = 1000


def test_a_first_message_is_taken_for_the_largest() -> None:
    window = CreditWindow(10, BYTES, 300)
    assert window.due() == 3


def test_credit_is_what_the_bytes_left_have_room_for() -> None:
    window = CreditWindow(10, BYTES, BYTES)
    assert window.due() == 1
    window.take([200])
    assert window.due() == 4
    window.take([200, 200])
    assert (window.due(), window.held, window.credit) == (0, 600, 2)
    window.give_back([200])
    assert window.due() == 1


def test_small_messages_are_bounded_by_their_number() -> None:
    window = CreditWindow(10, BYTES, 1)
    assert window.due() == 10
    window.take([1] * 10)
    assert window.due() == 0
    window.give_back([1] * 4)
    assert window.due() == 4


def test_a_message_above_the_window_passes_alone() -> None:
    window = CreditWindow(10, BYTES, 5 * BYTES)
    for _ in range(3):
        assert window.due() == 1
        window.take([3 * BYTES])
        assert window.due() == 0
        window.give_back([3 * BYTES])


def test_a_large_message_is_expected_less_and_less() -> None:
    window = CreditWindow(100, BYTES, 1)
    window.due()
    window.take([BYTES])
    window.give_back([BYTES])
    batches = 0
    while window.credit < 100:
        window.take([1])
        window.give_back([1])
        window.due()
        batches += 1
    assert batches < 30


def test_what_is_transferred_without_credit_counts_all_the_same() -> None:
    window = CreditWindow(10, BYTES, BYTES)
    window.due()
    window.take([100] * 5)
    assert (window.due(), window.credit, window.unsettled, window.reserve) == (9, 5, 5, 0)


@given(st.lists(st.booleans(), max_size=50), st.integers(1, 3 * BYTES), st.integers(1, 20))
def test_of_messages_of_one_size_no_more_is_held_than_the_window_or_one(
    settles: list[bool], size: int, deliveries: int
) -> None:
    window = CreditWindow(deliveries, BYTES, 3 * BYTES)
    window.due()
    for settle in settles:
        if window.credit:
            window.take([size])
        if window.unsettled and (settle or not window.credit):
            window.give_back([size])
        window.due()
        assert window.held == size * window.unsettled <= max(BYTES, size)
        assert window.credit + window.unsettled <= deliveries
        assert window.credit or window.unsettled, "else it waits for what will never come"


def test_a_publisher_is_granted_credit_by_the_bytes_that_it_has_unsettled() -> None:
    bench = Bench("a", "b", settings=Settings(window=10, window_bytes=100, max_message=100))
    reader, pen = bench.subscriber("b"), bench.publisher("a")
    (answer,) = pen.mine(AnswerPublisher)
    assert answer.credit == 1
    first, second = b"1".ljust(30), b"2".ljust(30)
    pen.send(first)
    assert pen.credit == 2, "the others of its size that there is room for"
    pen.send(second)
    assert pen.credit == 2
    reader.accept(first)
    assert pen.credit == 2, "what is accepted is still unsettled"
    pen.settle(first)
    assert pen.credit == 3


def test_what_a_publisher_transfers_again_waits_for_no_room_that_it_fills_itself() -> None:
    bench = Bench("a", "b", settings=Settings(window=10, window_bytes=60, max_message=60))
    bench.subscriber("b")
    pen = pen_at(bench, "a")
    messages = [b"%d".ljust(31) % n for n in range(2)]
    pen.send(*messages)
    pen = pen_at(bench, "a", pen, unsettled=dict.fromkeys(messages, 0))
    (answer,) = pen.mine(AnswerPublisher)
    assert answer.credit == 1
    pen.send_again(messages[0])
    assert pen.credit == 1
    pen.send_again(messages[1])
    assert (pen.stream.window.held, pen.credit) == (60, 1)
