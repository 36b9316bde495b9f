"""One channel end: numbers, order, acknowledgements and what is sent again."""

from collections import deque
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkstate.channel import ACK_DELAY, ACK_EVERY, BUDGET, LEAST, REORDER_LIMIT, Channel
from linkstate.chunks import Chunk


def channel() -> Channel:
    return Channel(min_timeout=0.2, max_timeout=1.0, max_payload=1000)


def test_numbers_start_from_one() -> None:
    sender = channel()
    assert [sender.push(Chunk(b"x"), 0.0), sender.push(Chunk(b"y"), 0.0)] == [1, 2]
    assert list(sender.unacknowledged(sender.sent)) == [(1, Chunk(b"x")), (2, Chunk(b"y"))]


@given(st.permutations(range(1, 9)), st.lists(st.integers(1, 8)))
def test_what_comes_in_any_order_and_twice_goes_on_in_order_and_once(order: list[int], again: list[int]) -> None:
    receiver = channel()
    handed_on = []
    for number in [*order[:4], *again, *order]:
        handed_on += receiver.receive(number, Chunk(bytes([number])), 0.0)
    assert handed_on == [bytes([number]) for number in range(1, 9)]


def test_what_is_too_early_is_not_kept() -> None:
    receiver = channel()
    assert receiver.receive(REORDER_LIMIT + 1, Chunk(b"far"), 0.0) == []
    for number in range(1, REORDER_LIMIT + 1):
        assert receiver.receive(number, Chunk(b"x"), 0.0) == [b"x"]


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


def test_what_is_missing_is_sent_again_once_for_each_question() -> None:
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


class Line:
    """It carries so many bytes a second, and every chunk is acknowledged. As much is under way as there is room for."""

    def __init__(self, rate: float) -> None:
        self.sender, self.rate = Channel(min_timeout=0.2, max_timeout=1.0, max_payload=1000), rate
        self.now = self.free = 0.0
        self.round_trip = 0.001
        self.acknowledgements: deque[tuple[float, int]] = deque()

    def push(self, size: int) -> None:
        number = self.sender.push(Chunk(bytes(size)), self.now)
        self.free = max(self.free, self.now) + size / self.rate
        self.acknowledgements.append((self.free + self.round_trip, number))

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            while not self.sender.full:
                self.push(10_000)
                self.sender.fills()
            self.now, number = self.acknowledgements.popleft()
            self.sender.receive_ack(number, self.now)
            self.sender.empties()


@pytest.mark.parametrize(("rate", "queued"), [(2e6, LEAST), (10e6, 500_000), (100e6, BUDGET)])
def test_what_queues_on_a_line_takes_it_some_hundredths_of_a_second(rate: float, queued: int) -> None:
    """As far as others have to wait for it: but for little, and never more than there is a budget for."""
    line = Line(rate)
    line.run(2)
    assert line.sender.budget.bytes == pytest.approx(queued, rel=0.1)


def test_little_that_is_sent_says_nothing_against_what_the_line_has_carried() -> None:
    line = Line(20e6)
    line.run(2)
    known = line.sender.budget.bytes
    line.now, _ = line.acknowledgements[-1]
    line.sender.receive_ack(line.sender.sent, line.now)
    line.sender.empties()
    line.acknowledgements.clear()
    line.push(100)
    line.sender.receive_ack(line.sender.sent, line.now + 0.1)
    assert line.sender.budget.bytes == pytest.approx(known, rel=1e-3)
    line.acknowledgements.clear()
    line.rate = 1e6
    line.run(8)
    assert line.sender.budget.bytes < known / 2, "now it carries less"


def test_a_line_that_has_become_longer_is_measured_with_nothing_before_it() -> None:
    line = Line(20e6)
    line.run(2)
    assert line.sender.budget.bytes == pytest.approx(0.05 * 20e6, rel=0.1)
    line.round_trip = 0.4
    line.run(40)
    assert line.sender.budget.bytes == pytest.approx((0.4 + 0.05) * 20e6, rel=0.2)


def test_what_has_queued_for_long_is_not_taken_for_a_longer_line() -> None:
    line = Line(2e6)
    for _ in range(60):
        line.run(1)
        assert line.sender.budget.bytes < 1.2 * LEAST


def test_what_is_sent_with_or_without_room_does_not_keep_anybody_waiting_while_a_line_is_measured() -> None:
    line = Line(20e6)
    while line.sender.budget.bytes:
        line.run(0.001)
        assert line.now < 20
    first = line.sender.sent
    while line.sender.full:
        line.push(10)
        line.run(0.0001)
        assert line.sender.sent - line.sender.in_flight < first or not line.sender.full
    assert line.sender.in_flight > 0


def test_of_what_was_sent_twice_nobody_knows_which_sending_was_acknowledged() -> None:
    sender = Channel(min_timeout=0.2, max_timeout=1.0, max_payload=1000, budget=1000)
    sender.push(Chunk(bytes(100)), 0.0)
    sender.resent(1, 0.5)
    sender.receive_ack(1, 0.6)
    assert sender.budget.bytes == 1000


def test_what_is_known_of_a_line_is_forgotten_with_the_path_and_not_with_what_is_missing() -> None:
    """Else what queues just then would be taken for what the line holds by itself."""
    line = Line(10e6)
    line.run(2)
    known = line.sender.budget.bytes
    line.sender.probed(line.now)
    line.sender.resent(len(list(line.sender.missing(line.sender.sent))), line.now)
    line.run(0.5)
    assert line.sender.budget.bytes == pytest.approx(known, rel=0.05)
    line.sender.rerouted()
    assert line.sender.budget.bytes == LEAST


def test_a_question_that_is_acknowledged_before_anything_comes_finds_the_other_end_late() -> None:
    asking = channel()
    number, question = asking.ask("it owes", 1.0)
    assert not asking.is_late
    assert asking.receive(1, question, 1.1) == [], "the other end asks as well: that is not to get on"
    asking.receive_ack(number, 1.2)
    assert asking.is_late


def test_what_comes_before_a_question_is_acknowledged_was_under_way() -> None:
    asking = channel()
    number, _ = asking.ask("it owes", 1.0)
    assert asking.receive(1, Chunk(b"answer"), 1.1) == [b"answer"]
    asking.receive_ack(number, 1.2)
    assert not asking.is_late


def test_what_comes_twice_was_not_under_way() -> None:
    asking = channel()
    asking.receive(1, Chunk(b"before"), 1.0)
    number, _ = asking.ask("it owes", 2.0)
    asking.receive(1, Chunk(b"before"), 2.1)
    asking.receive_ack(number, 2.2)
    assert asking.is_late
