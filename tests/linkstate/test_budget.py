"""How much is let under way to a router: what the line holds, however long that is, and what queues for a moment.

sender ══ rate bytes a second, half a round trip ══▶ receiver      the sender always has more to send
       ◀════════════ acknowledgements ════════════
"""

from collections import deque

import pytest

from linkstate.channel import BUDGET, LEAST, QUEUE_S, Channel
from linkstate.chunks import Chunk
from linkstate.outbox import Outbox
from router.neighbours import JOINED_BYTES
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
        self._there: deque[tuple[float, int, Chunk]] = deque()
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
                _, number, chunk = self._there.popleft()
                self.receiver.receive(number, chunk, self.now)
                self.carried += len(chunk.content)
            if self.now >= self.receiver.ack_at:
                self._back.append((self.now + self.round_trip / 2, self.receiver.acknowledge()))

    def _fill(self) -> None:
        """What leaves at once makes few transfers between routers: none is read before all of it is there."""
        outbox = Outbox()
        numbers = []
        while not self.sender.full:
            numbers.append(self._push(PIECE))
            outbox.put("channel", bytes(PIECE.content))
        while (taken := outbox.take(JOINED_BYTES)) is not None:
            self._transfer([(numbers.pop(0), PIECE) for _ in taken[1]])

    def send(self, chunk: Chunk) -> None:
        """Whether there is room or not."""
        self._transfer([(self._push(chunk), chunk)])

    def _push(self, chunk: Chunk) -> int:
        number = self.sender.push(chunk, self.now)
        self.sender.fills()
        return number

    def _transfer(self, chunks: list[tuple[int, Chunk]]) -> None:
        self.free_at = max(self.free_at, self.now) + sum(len(chunk.content) for _, chunk in chunks) / self.rate
        self._there += [(self.free_at + self.round_trip / 2, number, chunk) for number, chunk in chunks]

    def used(self, seconds: float) -> float:
        """How much of the line, for so long from now on."""
        before = self.carried
        self.run(seconds)
        return (self.carried - before) / (self.rate * seconds)

    def is_measured_anew(self) -> bool:
        return not self.sender.budget.bytes

    @property
    def queued(self) -> float:
        """For how many seconds what joins now is behind what the line does not hold by itself."""
        return self.sender.under_way / self.rate - self.round_trip


@pytest.mark.parametrize(
    ("rate", "round_trip"), [(20e6, 0.001), (20e6, 0.05), (20e6, 0.16), (20e6, 0.4), (50e6, 0.1), (100e6, 0.05)]
)
def test_a_line_is_filled_however_long_it_is(rate: float, round_trip: float) -> None:
    far = Line(rate, round_trip)
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


@pytest.mark.parametrize(("rate", "queued"), [(2e6, LEAST), (10e6, 500_000), (100e6, BUDGET)])
def test_queue_takes_the_line_some_hundredths_of_a_second(rate: float, queued: int) -> None:
    """As far as others have to wait for it: but for little, and never more than there is a budget for. From the first
    measure on: what is sent with a chunk does not travel with it."""
    near = Line(rate, 0.001)
    near.run(2)
    itself = rate * (near.round_trip + len(PIECE.content) / rate)
    assert queued <= near.sender.budget.bytes < 1.1 * queued + itself


def test_little_that_is_sent_says_nothing_against_what_the_line_has_carried() -> None:
    near = Line(20e6, 0.001)
    near.run(2)
    near.sender.receive_ack(near.sender.sent, near.now)
    near.sender.empties()
    known = near.sender.budget.bytes
    near.sender.push(Chunk(bytes(100)), near.now)
    near.sender.receive_ack(near.sender.sent, near.now + 0.1)
    assert near.sender.budget.bytes == pytest.approx(known, rel=0.05)


def test_one_that_carries_less_than_it_did_is_believed() -> None:
    near = Line(20e6, 0.001)
    near.run(2)
    known = near.sender.budget.bytes
    near.rate = 1e6
    near.run(8)
    assert near.sender.budget.bytes < known / 2


def test_chunks_sent_without_room_delay_nobody_during_a_measurement() -> None:
    near = Line(20e6, 0.001)
    while not near.is_measured_anew():
        near.run(0.001)
        assert near.now < 20
    before = near.sender.sent
    while near.is_measured_anew():
        near.send(Chunk(bytes(10)))
        near.run(0.001)
        assert near.sender.sent < before + 1000
    assert near.sender.in_flight > 0


def test_budget_forgets_the_line_with_the_path_and_not_with_missing_chunks() -> None:
    """Else what queues just then would be taken for what the line holds by itself."""
    near = Line(10e6, 0.001)
    near.run(2)
    known = near.sender.budget.bytes
    near.sender.probed(near.now)
    near.sender.resent(len(list(near.sender.missing(near.sender.sent))), near.now)
    near.run(0.5)
    assert near.sender.budget.bytes == pytest.approx(known, rel=0.2)
    near.sender.rerouted()
    assert near.sender.budget.bytes == LEAST


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
