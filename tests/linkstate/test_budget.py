"""How much is let under way to a router: what the line holds, however long that is, and what queues for a moment.

sender ══ rate bytes a second, half a round trip ══▶ receiver      the sender always has more to send
       ◀════════════ acknowledgements ════════════
"""

from collections import deque

import pytest

from linkstate.channel import BUDGET, LEAST, QUEUE_S, Channel
from linkstate.chunks import Chunk
from tests.linkstate.network import DEAD, HELLO, Network, line

PIECE = Chunk(bytes(65_000))


class Line:
    """Between two channels; the one sends whenever it has room."""

    def __init__(self, rate: float, round_trip: float) -> None:
        self.rate, self.round_trip = rate, round_trip
        self.sender, self.receiver = (Channel(HELLO, DEAD, max_payload=1 << 20) for _ in range(2))
        self.now = self.free_at = 0.0
        self.carried = 0
        """Bytes that have arrived."""
        self._there: deque[tuple[float, int]] = deque()
        """When chunks arrive, and their numbers."""
        self._back: deque[tuple[float, int]] = deque()

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self._fill()
            arrives, answered = (wire[0][0] if wire else until for wire in (self._there, self._back))
            self.now = max(self.now, min(arrives, answered, self.receiver.ack_at, until))
            if self._back and answered <= self.now:
                self.sender.receive_ack(self._back.popleft()[1], self.now)
                self.sender.empties()
            elif self._there and arrives <= self.now:
                self.receiver.receive(self._there.popleft()[1], PIECE, self.now)
                self.carried += len(PIECE.content)
            if self.now >= self.receiver.ack_at:
                self._back.append((self.now + self.round_trip / 2, self.receiver.acknowledge()))

    def _fill(self) -> None:
        while not self.sender.full:
            number = self.sender.push(PIECE, self.now)
            self.sender.fills()
            self.free_at = max(self.free_at, self.now) + len(PIECE.content) / self.rate
            self._there.append((self.free_at + self.round_trip / 2, number))

    def used(self, seconds: float) -> float:
        """How much of the line, for so long from now on."""
        before = self.carried
        self.run(seconds)
        return (self.carried - before) / (self.rate * seconds)

    @property
    def queued(self) -> float:
        """For how many seconds what joins now is behind what the line does not hold by itself."""
        return self.sender.under_way / self.rate - self.round_trip


@pytest.mark.parametrize("round_trip", [0.001, 0.05, 0.16, 0.4])
def test_a_line_is_filled_however_long_it_is(round_trip: float) -> None:
    far = Line(20e6, round_trip)
    far.run(10)
    assert far.used(30) > 0.9
    assert far.queued < 2 * QUEUE_S


def test_one_that_has_become_longer_is_measured_anew() -> None:
    far = Line(20e6, 0.002)
    far.run(5)
    far.round_trip = 0.3
    far.run(25)
    assert far.used(30) > 0.9


def test_one_whose_path_is_another_is_measured_anew_while_much_is_under_way() -> None:
    far = Line(20e6, 0.002)
    far.run(4)
    far.round_trip = 0.3
    far.sender.rerouted()
    far.run(5)
    assert far.used(30) > 0.9


def test_one_that_has_become_shorter_is_not_let_queue_for_longer() -> None:
    near = Line(20e6, 0.3)
    near.run(25)
    near.round_trip = 0.002
    near.run(25)
    assert near.queued < 2 * QUEUE_S


@pytest.mark.parametrize("rate", [2e6, 20e6])
def test_one_that_stands_still_now_and_then_is_not_let_queue_for_longer(rate: float) -> None:
    halting = Line(rate, 0.002)
    for _ in range(20):
        halting.run(3)
        halting.free_at = halting.now + 0.5
    halting.run(2)
    assert halting.sender.budget.bytes < 2 * max(LEAST, min(BUDGET, rate * QUEUE_S))


def test_a_question_whose_answer_finds_nothing_missing_says_nothing_of_the_line() -> None:
    """a─b, and b handles nothing for a while."""
    network = Network(line("a", "b"))
    network.connect_all()
    network.run(3 * DEAD)
    network.pause("b", 3 * HELLO)
    for number in range(3):
        network.send("a", ["b"], b"%d" % number)
    network.run(DEAD)
    budget = network.meshes["a"]._contacts._channels["b"].budget
    assert network.all_in_contact() and budget.bytes >= LEAST
