"""The channel of one contact, in both directions (protocol 3, layer 2). It keeps order, loses nothing and delivers
nothing twice.

Frames are numbered from 1 in each direction. The receiver hands them on in order, and keeps frames that arrive too
early. It acknowledges all frames up to a number: with data that goes the other way, after every ACK_EVERY frames or
ACK_BYTES bytes, or ACK_DELAY after a frame came.

The sender keeps each frame until it is acknowledged. If no acknowledgement comes for a while, the frames may only be
slow, so the sender does not send them again. Instead it asks how far the other side has got (PROBE), and sends the
frames that, by the answer, are missing. If the path changes, the frames under way are probably lost, so the sender
sends all of them again at once.

Sometimes a router has to know whether another one, which owes it an answer, has sent anything. The answer may be under
way behind data of other routers. So the router sends an empty chunk, the *question*. The acknowledgement of the
question arrives after everything that the other router had sent before. If no chunk with content arrives before this
acknowledgement, the other router had sent no answer.

Each frame carries one chunk of a payload (`chunks`). The windows of the publishers limit the queue of unacknowledged
chunks, and REORDER_LIMIT limits the early ones. A channel knows nothing of routers, frames or contact numbers, and
sends nothing itself. Its owner sends the chunks, and drops the channel when the contact ends.
"""

from collections import deque
from collections.abc import Iterator
from itertools import count, islice
from math import inf

from linkstate.chunks import Chunk, Joiner

BUDGET = 2 << 20
"""The highest number of bytes that may queue on the way to one router."""
QUEUE_S = 0.05
"""The limit of the queue on a slow line, as a time. If a line carries fewer than `BUDGET` bytes in this many seconds,
only as many bytes may queue as it carries in this time."""
LITTLE_S = 0.01
"""If a round trip exceeds the shortest round trip by at most this many seconds, the budget assumes that nothing has
queued on the line."""
LEAST = 128 * 1024
"""The limit of the queue on a very slow line, in bytes. No line has a lower limit."""
FALL = 0.8
"""One measurement lowers the estimated rate to no less than this part of the former estimate, because the sender may
have had little to send for a moment."""
STALE_S = 5.0
"""The shortest round trip is measured again after this many seconds, or after STALE_TRIPS round trips if that is
longer."""
STALE_TRIPS = 20
ACK_EVERY = 16
ACK_BYTES = 256 * 1024
ACK_DELAY = 0.020
REORDER_LIMIT = 1024


class Budget:
    """The limit of the bytes under way on a line: the bytes that the line itself holds, and some that queue.

    The line holds its rate times its shortest round trip. The budget measures both, one chunk at a time. While the
    sender sends little, a measurement shows less than the line can carry, so it does not lower the rate. If the sender
    has used up the budget and nothing has queued, the line may carry more, so the budget grows.

    If the line becomes longer, each round trip takes longer, as if chunks queued. So now and then the budget is 0 until
    everything under way has arrived. The next chunk then meets no queue, and measures the round trip again. Later
    chunks do not slow it down, because two chunks never travel as one message.
    """

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
        """`most`: the highest number of bytes that may queue."""
        self.most = most
        self._usual = min(most, LEAST)
        self._sent = 0
        self._acknowledged = 0
        self._rate = 0.0
        self._round_trip = inf
        """The shortest round trip since it was last measured anew, in seconds; infinite before the first sample."""
        self._measured_at = 0.0
        self._sample: tuple[int, float] | None = None
        """The *sample*, which is the chunk under way whose round trip is measured: the chunk's number, and the time
        when it was sent."""
        self._since: tuple[float, int] | None = None
        """When the present measurement began, and how many bytes were acknowledged by then. A measurement begins when
        the sample of the former one is acknowledged, or when its own sample is sent while nothing is under way."""
        self._filled = False
        """Whether the budget has been used up since the sample was sent."""
        self._last = 0
        """The number of the last chunk that has to arrive before the round trip is measured again. 0 if the budget does
        not wait for this."""

    @property
    def bytes(self) -> int:
        return 0 if self._last else self._usual

    def sent(self, number: int, now: float, *, alone: bool, full: bool) -> None:
        """A chunk was sent. `alone`: nothing else is under way. `full`: the budget was already used up."""
        self._sent = number
        if self._sample is None and not self._last:
            self._sample = number, now
            self._filled = full and self._round_trip < inf
            if alone or self._since is None:
                self._since = now, self._acknowledged

    def filled(self) -> None:
        """Remember that the budget is used up, so that the next measurement may let it grow. While no round
        trip is known, the budget does not count as used up."""
        self._filled = self._round_trip < inf

    def acknowledged(self, number: int, size: int, now: float) -> None:
        """Chunks with `size` bytes together were acknowledged. The last one of these chunks is `number`."""
        self._acknowledged += size
        if self._sample is not None and self._sample[0] <= number and self._sample[1] < now:
            self._measure(self._sample[1], now)
            self._sample, self._since = None, (now, self._acknowledged)
        if self._last and self._last <= number:
            self._last, self._since = 0, None

    def _measure(self, sent_at: float, now: float) -> None:
        """Measure the rate and the round trip by the sample, a chunk that was sent at `sent_at`. The other end
        acknowledges when it has `ACK_BYTES`, or after `ACK_DELAY`. The method subtracts the shorter one of these two
        times from the round trip."""
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
        """A full channel has room again when at most this many bytes are under way. This is so far
        below the budget that the channel then has room for a batch."""
        return max(self.bytes // 2, self.bytes - ACK_BYTES)

    def resent(self) -> None:
        """Drop the sample, because its acknowledgement no longer shows which copy of the chunk arrived. The budget
        stays."""
        self._sample = self._since = None


class Channel:
    """The chunks under way between this router and another router in their present contact."""

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
        self.under_way = 0  # the bytes that are not acknowledged yet
        self.full = False
        self.doubt = ""  # the reason why the last question was asked
        # The time when an acknowledgement has to be sent even if no data goes the other way.
        self.ack_at = inf
        # The time when this router sends a PROBE, unless the other side has acknowledged something by then.
        self.probe_at = inf
        self._sent = 0
        # The chunks that are not acknowledged. The last one has number `_sent`.
        self._unacked: deque[Chunk] = deque()
        self._received = 0  # the number up to which this side has handed on all received chunks
        self._early: dict[int, Chunk] = {}
        self._joiner = Joiner(max_payload)
        # The number of the last question; 0 if data have come since then.
        self._question = 0
        self._probed = 0  # the number that the last PROBE has named; 0 if no PROBE is unanswered
        self._owed = 0  # the frames received since the last acknowledgement was sent
        self._owed_bytes = 0  # the bytes of the frames counted by `_owed`
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
        """Whether the other side has acknowledged the question, and no data came before the acknowledgement."""
        return 0 < self._question <= self._sent - len(self._unacked)

    def fills(self) -> bool:
        """Check whether the channel is full. Returns True if it has just become full."""
        was_full, self.full = self.full, self.full or self.under_way >= self.budget.bytes
        if self.full and not was_full:
            self.budget.filled()
            return True
        return False

    def empties(self) -> bool:
        """Check whether the channel has room. Returns True if it was full and now has room again."""
        was_full, self.full = self.full, self.full and self.under_way > self.budget.enough
        return was_full and not self.full

    def ask(self, reason: str, now: float) -> tuple[int, Chunk]:
        """Put a question into the channel. Returns its number and its chunk, which the caller sends."""
        question, self.doubt = Chunk(b""), reason
        self._question = self.push(question, now)
        return self._question, question

    def push(self, chunk: Chunk, now: float) -> int:
        """Put a chunk into the channel. Returns its number."""
        self._sent += 1
        self._unacked.append(chunk)
        self.budget.sent(self._sent, now, alone=len(self._unacked) == 1, full=self.full)
        self.under_way += len(chunk.content)
        if len(self._unacked) == 1:
            self._restart_timeout(now)
        return self._sent

    def receive_ack(self, acknowledged: int, now: float) -> None:
        if acknowledged > self._sent:
            return  # the acknowledged number is not of this channel
        first = self._sent - len(self._unacked)
        if acknowledged <= first:
            return
        size = sum(len(self._unacked.popleft().content) for _ in range(acknowledged - first))
        self.under_way -= size
        self.budget.acknowledged(acknowledged, size, now)
        self._timeout = self._min_timeout
        self._restart_timeout(now)

    def receive(self, number: int, chunk: Chunk, now: float) -> list[bytes]:
        """Take a received chunk. Returns the payloads that are now complete, in order. A question completes none.
        Raises OversizedError if a payload is too large."""
        self._owe(len(chunk.content), now)
        if number <= self._received or number > self._received + REORDER_LIMIT:
            return []
        if chunk.content:
            self._question = 0
        if number > self._received + 1:
            # copy the chunk, so that the whole body does not stay in memory
            chunk = Chunk(bytes(chunk.content), chunk.more)
        self._early[number] = chunk
        ready = []
        while (following := self._early.pop(self._received + 1, None)) is not None:
            self._received += 1
            payload = self._joiner.join(following)
            if payload:
                ready.append(payload)
        return ready

    def acknowledge(self) -> int:
        """Returns the number up to which all chunks have come. The caller puts this number on its next frame."""
        self._owed = self._owed_bytes = 0
        self.ack_at = inf
        return self._received

    def missing(self, highest: int) -> Iterator[tuple[int, Chunk]]:
        """The chunks up to number `highest` that the other side lacks, according to its answer to a PROBE that named
        `highest`. If this side has sent no such PROBE, the result is empty, because a short forged answer must not make
        this side send long chunks."""
        highest, self._probed = min(highest, self._probed), 0
        return self.unacknowledged(highest)

    def unacknowledged(self, highest: int) -> Iterator[tuple[int, Chunk]]:
        """The chunks up to number `highest` that the other side has not acknowledged, each with its number."""
        first = self._sent - len(self._unacked)
        return zip(count(first + 1), islice(self._unacked, max(0, highest - first)), strict=False)

    def resent(self, chunks: int, now: float) -> None:
        """Begin a new wait for an acknowledgement. `chunks`: how many chunks this side has just sent again over the
        same path; 0 if the answer to a PROBE has shown that the other side lacks none."""
        if chunks:
            self.budget.resent()
        self._restart_timeout(now)

    def rerouted(self) -> None:
        """Begin a new budget, because nothing is known about the new path."""
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
