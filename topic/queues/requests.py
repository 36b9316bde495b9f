"""The unanswered requests of one router to one set (protocol 13).

Each request is at the present leader, or waits for a leader. If the leader is lost, resigns or is busy, the same
request goes to the next leader. So the set may decide an operation twice (`topic.queues.operations`). If no leader
answers in time, this module answers. Some requests, such as a `Commit`, *last*: they wait for a leader without end,
because only a leader knows the answer.
"""

import math
from collections.abc import Iterable
from typing import Final

import attrs

from topic.queues.operations import Refused, RefusedFor, Reply
from topic.queues.wire import Leads
from topic.raft.life import NO_LIFE, SetLife

BATCH: Final = 64 * 1024
"""The approximate number of bytes of operations in one message."""
AGAIN_S: Final = 0.1
"""The seconds after which a router asks a busy leader again."""


@attrs.frozen(slots=True)
class _Request:
    data: bytes
    """The operation that is requested, encoded."""
    until: float
    """When the router gives the request up; infinite for a request that lasts (see the module)."""


@attrs.frozen(order=True, slots=True)
class _Leader:
    life: SetLife
    term: int
    router: str


class Requests:
    """All unanswered requests of this router to one set."""

    def __init__(self, name: str, tried: float) -> None:
        """`name`: the name of the set. `tried`: the seconds after which a request is given up."""
        self._set = name
        self._tried = tried
        self._open: dict[int, _Request] = {}
        """The requests by their numbers, in the order in which they were made."""
        self._unsent: dict[int, None] = {}
        """The numbers of the requests that the present leader does not have, in the order in which the requests were
        made."""
        self._leaders: dict[str, _Leader] = {}
        """The routers that have said, in the present contact, that they lead."""
        self._again_at = -math.inf
        """The time until which the router does not ask the busy leader again."""
        self._why_busy = ""

    def __len__(self) -> int:
        return len(self._open)

    @property
    def leader(self) -> str:
        """The router that leads; empty if this router knows none. A deposed leader may not know that it is deposed, so
        the claim with the latest life and term counts."""
        return max(self._leaders.values()).router if self._leaders else ""

    @property
    def led_in(self) -> tuple[SetLife, int]:
        """The life and the term in which `leader` leads; `NO_LIFE` and 0 if there is none."""
        return max(((one.life, one.term) for one in self._leaders.values()), default=(NO_LIFE, 0))

    def add(self, number: int, data: bytes, now: float, *, lasts: bool = False) -> None:
        self._open[number] = _Request(data, math.inf if lasts else now + self._tried)
        self._unsent[number] = None

    # The methods from here on are about leaders.

    def learn(self, router: str, told: Leads) -> None:
        """A router announces that it leads, or that it no longer leads."""
        former = self.leader
        if told.leads:
            self._leaders[router] = _Leader(told.life, told.term, router)
        else:
            self._leaders.pop(router, None)
        if router in (former, self.leader):
            self._send_anew()

    def contact_lost(self, router: str) -> None:
        """The contact with a router has ended. Its requests go to the next router that claims to lead."""
        self._leaders.pop(router, None)

    def _send_anew(self) -> None:
        """Send all requests again, because there is a new leader or a new term, and requests at the former leader may
        be lost."""
        self._unsent = dict.fromkeys(self._open)
        self._again_at, self._why_busy = -math.inf, ""

    def next_batch(self, now: float) -> list[tuple[int, bytes]]:
        """Take the operations, with their numbers, that have to go to the leader now; empty if there are none."""
        batch: list[tuple[int, bytes]] = []
        size = 0
        if self._leaders and now >= self._again_at:
            while self._unsent and size < BATCH:
                number = next(iter(self._unsent))
                del self._unsent[number]
                batch.append((number, self._open[number].data))
                size += len(batch[-1][1])
        return batch

    # The methods from here on are about answers.

    def answer(self, router: str, answers: Iterable[tuple[int, Reply]], now: float) -> list[tuple[int, Reply]]:
        """Take answers from a router. Returns the answers that count; answers from a former leader do not count."""
        counting: list[tuple[int, Reply]] = []
        for number, answer in answers:
            if router != self.leader or number not in self._open or number in self._unsent:
                continue
            if isinstance(answer, Refused) and answer.reason is RefusedFor.BUSY:
                self._unsent[number] = None
                self._again_at, self._why_busy = now + AGAIN_S, answer.why
            else:
                del self._open[number]
                counting.append((number, answer))
        return counting

    def give_up(self, now: float) -> list[tuple[int, Reply]]:
        """Give up the requests whose time is over. Returns an answer to each."""
        over = [number for number, request in self._open.items() if request.until <= now]
        for number in over:
            del self._open[number]
            self._unsent.pop(number, None)
        return [(number, Refused(RefusedFor.NO_ANSWER, self._why())) for number in over]

    def _why(self) -> str:
        busy = f": {self._why_busy}" if self._why_busy else ""
        return f"no majority of set {self._set} answered for {self._tried:g} s{busy}"

    @property
    def deadline(self) -> float:
        """When `give_up` or `next_batch` is due."""
        until = (request.until for request in self._open.values())
        again_at = self._again_at if self._unsent and self._leaders and self._again_at > -math.inf else math.inf
        return min(again_at, next((one for one in until if one < math.inf), math.inf))
