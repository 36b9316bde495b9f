"""Clients of a soak that are tasks of its own process."""

import time

import trio

from failover.chaos.load import Pace, publish, subscribe
from failover.client import MemoryStore, Outcome
from tests.soak.accounts import Attachment, Published, Received
from tests.soak.place import Place


class TaskPublisher:
    def __init__(self, place: Place, rate: float) -> None:
        self.attached: list[Attachment] = []
        self.account = Published(place.name, attached=self.attached)
        self._place = place
        self._rate = rate
        self._finish = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Until it is told to finish and all outcomes are known."""
        async with self._place.publisher(None, self.attached.append) as publisher:
            task_status.started()
            await publish(publisher, self._place.name, self, Pace(self._rate), self._finish)

    def finish(self) -> None:
        self._finish.set()

    def flows(self, since: float) -> bool:
        """Whether something was accepted after this time."""
        return bool(self.account.accepted) and self.account.accepted[-1][1] > since

    def sent(self, number: int) -> None:
        assert number == len(self.account.sent_at)
        self.account.sent_at.append(time.monotonic())

    def told(self, number: int, outcome: Outcome) -> None:
        if outcome is Outcome.ACCEPTED:
            self.account.accepted.append((number, time.monotonic()))
        else:
            self.account.otherwise[number] = outcome


class TaskSubscriber:
    """May be away for a while, as if its process had been stopped and started again."""

    def __init__(self, place: Place) -> None:
        self.attached: list[Attachment] = []
        self.account = Received(place.name, attached=self.attached)
        self._place = place
        self._store = MemoryStore()
        self._stay = trio.CancelScope()
        self._wanted = trio.Event()
        self._wanted.set()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Until cancelled."""
        while True:
            await self._wanted.wait()
            with trio.CancelScope() as self._stay:
                async with self._place.subscriber(self._store, self.attached.append) as subscriber:
                    if len(self.attached) == 1:
                        task_status.started()
                    await subscribe(subscriber, self)

    def leave(self) -> None:
        self._wanted = trio.Event()
        self._stay.cancel()

    def come_back(self) -> None:
        self._wanted.set()

    def received(self, publisher: str, number: int) -> None:
        self.account.numbers.setdefault(publisher, []).append(number)
