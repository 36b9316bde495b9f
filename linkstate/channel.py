"""The channel of one contact, both directions (protocol 3, layer 2): FIFO, no loss, no duplicate.

Frames are numbered from 1 in each direction. The receiver hands them on in order, keeps early ones and
acknowledges cumulatively: with data that goes the other way, after every ACK_EVERY frames or ACK_BYTES,
or ACK_DELAY after a frame came. The sender keeps what is not acknowledged. When nothing is acknowledged for a while
it does not send again what may only be slow: it asks (PROBE) how far the other side got, and sends what
the answer shows to be missing. A change of path is different: what was under way is likely gone, so it
all goes again at once.

Who owes us something may have sent it: it waits somewhere on the way, behind others' data. So it is asked an empty
chunk, a question: the acknowledgement comes behind all that was sent before it. If nothing came first, nothing was.

What is numbered are chunks (`chunks`). The queue of unacknowledged ones is bounded by the windows of the
publishers whose messages are in them; the early ones by REORDER_LIMIT. A channel knows nothing of routers,
frames or contact numbers and does not send: its owner does, and throws it away with the contact.
"""

from collections import deque
from collections.abc import Iterator
from itertools import count, islice
from math import inf

from linkstate.chunks import Chunk, Joiner

BUDGET = 2 << 20
"""Bytes that may queue on their way to one router, at most."""
QUEUE_S = 0.05
"""For so long what joins them is behind, where the line is too slow for that many."""
LITTLE_S = 0.01
"""What takes no longer than that has nothing before it that counts."""
LEAST = 128 * 1024
"""As many may queue in any case."""
FALL = 0.8
"""A line that carries less than it did is believed that step by step: perhaps only little came for a moment."""
STALE_S = 5.0
"""For so long it is believed how short the round trip once was, or for so many of it:"""
STALE_TRIPS = 20
ACK_EVERY = 16
ACK_BYTES = 256 * 1024
ACK_DELAY = 0.020
REORDER_LIMIT = 1024


class Budget:
    """How many bytes may be under way: those that the line holds by itself, and some that queue. What the line holds is
    its rate by its shortest round trip; both are measured, one chunk at a time. Where little is sent nobody knows what
    the line could carry: that says nothing against what it did. Where nothing queues though there was no room for more,
    it may carry more still. What queues hides that a line has become longer: so what is under way is let arrive now and
    then, and the round trip measured by a chunk with nothing before it. What is behind that does not count, as no two
    chunks travel as one message."""

    __slots__ = (
        "_acknowledged",
        "_filled",
        "_last",
        "_measured_at",
        "_rate",
        "_round_trip",
        "_sample",
        "_sent",
        "_since",
        "_usual",
        "most",
    )

    def __init__(self, most: int) -> None:
        """`most`: bytes that may queue."""
        self.most = most
        self._usual = min(most, LEAST)
        self._sent = 0
        self._acknowledged = 0
        self._rate = 0.0
        self._round_trip = inf
        """The shortest since it was measured anew."""
        self._measured_at = 0.0
        self._sample: tuple[int, float] | None = None
        """A chunk under way: its number, and when it was sent."""
        self._since: tuple[float, int] | None = None
        """When the former one had arrived, or this was sent with nothing before it; and bytes acknowledged by then."""
        self._filled = False
        """There was no room for more since the sample was sent."""
        self._last = 0
        """The chunk that is to arrive before there is room again, 0 if none is."""

    @property
    def bytes(self) -> int:
        return 0 if self._last else self._usual

    def sent(self, number: int, now: float, *, alone: bool, full: bool) -> None:
        """`alone`: nothing else is under way; `full`: there was no room for it."""
        self._sent = number
        if self._sample is None and not self._last:
            self._sample = number, now
            self._filled = full and self._round_trip < inf
            if alone or self._since is None:
                self._since = now, self._acknowledged

    def filled(self) -> None:
        """That says nothing of the rate while the round trip is measured anew: what came before has been let arrive."""
        self._filled = self._round_trip < inf

    def acknowledged(self, number: int, size: int, now: float) -> None:
        """So many bytes, the chunk of that number is the last of them."""
        self._acknowledged += size
        if self._sample is not None and self._sample[0] <= number and self._sample[1] < now:
            self._measure(self._sample[1], now)
            self._sample, self._since = None, (now, self._acknowledged)
        if self._last and self._last <= number:
            self._last, self._since = 0, None

    def _measure(self, sent_at: float, now: float) -> None:
        """The other end waits before it answers, for more or for `ACK_DELAY`: that is no part of a round trip."""
        assert self._since is not None
        since, before = self._since
        rate = (self._acknowledged - before) / (now - since)
        self._rate = max(rate, FALL * self._rate if self._filled else self._rate)
        took = max(0.0, now - sent_at - min(ACK_DELAY, ACK_BYTES / max(self._rate, 1.0)))
        if took < self._round_trip:
            self._round_trip, self._measured_at = took, now
        queued = max(int(self._rate * QUEUE_S), LEAST)
        if self._filled and took < self._round_trip + LITTLE_S:
            queued = max(queued, self._usual)
        self._usual = int(self._rate * self._round_trip) + min(self.most, queued)
        if self._filled and now - self._measured_at > max(STALE_S, STALE_TRIPS * self._round_trip):
            self._last, self._round_trip = self._sent, inf

    @property
    def enough(self) -> int:
        """With so few bytes under way there is room again: for a batch that is worth while."""
        return max(self.bytes // 2, self.bytes - ACK_BYTES)

    def resent(self) -> None:
        """When that is acknowledged, nobody knows which time it was sent. What the line holds it still does."""
        self._sample = self._since = None


class Channel:
    """What is under way between us and one router in the present contact."""

    __slots__ = (
        "_early",
        "_joiner",
        "_max_timeout",
        "_min_timeout",
        "_owed",
        "_owed_bytes",
        "_probed",
        "_question",
        "_received",
        "_sent",
        "_timeout",
        "_unacked",
        "ack_at",
        "budget",
        "doubt",
        "full",
        "probe_at",
        "under_way",
    )

    def __init__(self, min_timeout: float, max_timeout: float, max_payload: int, budget: int = BUDGET) -> None:
        assert 0 < min_timeout <= max_timeout
        self.budget = Budget(budget)
        self.under_way = 0  # bytes that are not acknowledged
        self.full = False
        self.doubt = ""  # why the last question was asked
        self.ack_at = inf  # when an ACK is due that found no data to travel with
        self.probe_at = inf  # when the other side must have acknowledged something
        self._sent = 0
        self._unacked: deque[Chunk] = deque()  # those of the last len() numbers up to _sent
        self._received = 0  # all up to here were handed on
        self._early: dict[int, Chunk] = {}
        self._joiner = Joiner(max_payload)
        self._question = 0  # the number of the question since which nothing came, 0 if none
        self._probed = 0  # the highest number that a PROBE without an answer has named
        self._owed = 0  # frames since our last acknowledgement
        self._owed_bytes = 0  # in them
        self._min_timeout = self._timeout = min_timeout
        self._max_timeout = max_timeout

    @property
    def sent(self) -> int:
        return self._sent

    @property
    def in_flight(self) -> int:
        return len(self._unacked)

    @property
    def is_late(self) -> bool:
        """Whether our question has been acknowledged, and nothing came before that."""
        return 0 < self._question <= self._sent - len(self._unacked)

    def fills(self) -> bool:
        """Whether it has just become full."""
        was_full, self.full = self.full, self.full or self.under_way >= self.budget.bytes
        if self.full and not was_full:
            self.budget.filled()
            return True
        return False

    def empties(self) -> bool:
        """Whether there is room again just now."""
        was_full, self.full = self.full, self.full and self.under_way > self.budget.enough
        return was_full and not self.full

    def ask(self, reason: str, now: float) -> tuple[int, Chunk]:
        """A question, to be sent, and its number."""
        question, self.doubt = Chunk(b""), reason
        self._question = self.push(question, now)
        return self._question, question

    def push(self, chunk: Chunk, now: float) -> int:
        """Take a chunk into the channel; its number is returned."""
        self._sent += 1
        self._unacked.append(chunk)
        self.budget.sent(self._sent, now, alone=len(self._unacked) == 1, full=self.full)
        self.under_way += len(chunk.content)
        if len(self._unacked) == 1:
            self._restart_timeout(now)
        return self._sent

    def receive_ack(self, acknowledged: int, now: float) -> None:
        if acknowledged > self._sent:
            return  # of no channel of ours
        first = self._sent - len(self._unacked)
        if acknowledged <= first:
            return
        size = sum(len(self._unacked.popleft().content) for _ in range(acknowledged - first))
        self.under_way -= size
        self.budget.acknowledged(acknowledged, size, now)
        self._timeout = self._min_timeout
        self._restart_timeout(now)

    def receive(self, number: int, chunk: Chunk, now: float) -> list[bytes]:
        """The payloads that are now complete, in order; a question is none. Raises OversizedError."""
        self._owe(len(chunk.content), now)
        if number <= self._received or number > self._received + REORDER_LIMIT:
            return []
        if chunk.content:
            self._question = 0
        if number > self._received + 1:
            chunk = Chunk(bytes(chunk.content), chunk.more)  # it is kept, and not the body that it came in
        self._early[number] = chunk
        ready = []
        while (following := self._early.pop(self._received + 1, None)) is not None:
            self._received += 1
            payload = self._joiner.join(following)
            if payload:
                ready.append(payload)
        return ready

    def acknowledge(self) -> int:
        """The acknowledgement to put on a frame that is going out now."""
        self._owed = self._owed_bytes = 0
        self.ack_at = inf
        return self._received

    def missing(self, highest: int) -> Iterator[tuple[int, Chunk]]:
        """The other side has answered a PROBE that named `highest`: what it has not acknowledged of the numbers up to
        there. Nothing if we did not ask: an answer is short, and what is sent again may be long."""
        highest, self._probed = min(highest, self._probed), 0
        return self.unacknowledged(highest)

    def unacknowledged(self, highest: int) -> Iterator[tuple[int, Chunk]]:
        """What the other side has not acknowledged of the numbers up to `highest`."""
        first = self._sent - len(self._unacked)
        return zip(count(first + 1), islice(self._unacked, max(0, highest - first)), strict=False)

    def resent(self, chunks: int, now: float) -> None:
        """So many that were not acknowledged, over the same path; none if a PROBE has found nothing missing."""
        if chunks:
            self.budget.resent()
        self._restart_timeout(now)

    def rerouted(self) -> None:
        """The path is another one, of which nothing is known."""
        self.budget = Budget(self.budget.most)

    def probed(self, now: float) -> None:
        self._probed = self._sent
        self._timeout = min(2 * self._timeout, self._max_timeout)
        self._restart_timeout(now)

    def deadline(self) -> float:
        return self.ack_at if self.ack_at < self.probe_at else self.probe_at

    def _owe(self, size: int, now: float) -> None:
        self._owed += 1
        self._owed_bytes += size
        if self._owed >= ACK_EVERY or self._owed_bytes >= ACK_BYTES:
            self.ack_at = now
        elif self._owed == 1:
            self.ack_at = now + ACK_DELAY

    def _restart_timeout(self, now: float) -> None:
        self.probe_at = now + self._timeout if self._unacked else inf
