"""A subscriber: an application that takes its time, and now and then does not accept."""

from typing import Any

from tests.simulation.client import Client
from tests.simulation.links import Link, SubscriberLink
from topic.record import Outcome


class SubscriberClient(Client):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.link: SubscriberLink | None = None
        self.first = False
        self.sends_settled = self.random.random() < 0.1
        self.tops_up = self.random.choice(("on delivery", "on acceptance", "on settlement"))
        self.prefetch = self.random.choice((1, 2, 5, 100))
        self.unsettled: dict[int, bytes] = {}
        """Handle -> key of what is not settled."""
        self._limit = 0

    def open(self, router: Any) -> None:
        self.first = self.random.random() < 0.3
        link = self.link = SubscriberLink(router, self, self.lives, self.first, self.sends_settled)
        self.note(self.name, f"attaches at {router.name}")
        self.judge.attaching(self.name)
        link.to_router(link.attach)
        self._limit = 0
        self._grant(self.random.randint(0, self.prefetch))

    def forget(self) -> None:
        self.unsettled.clear()

    def _grant(self, count: int) -> None:
        link = self.link
        if link is not None and count:
            self._limit += count
            link.to_router(link.flow, self._limit)

    # what the router says

    def attached(self, link: Link) -> None:
        if link is self.link:
            assert not self.answered, "an attach is answered once"
            self.answered = True
            self._grant(max(self.prefetch - self._limit, 0))

    def delivered(self, link: Link, handle: int, key: bytes, message: bytes, settled: bool, attempts: int) -> None:
        if link is not self.link:
            return
        assert self.answered, "nothing is delivered before the attach is answered"
        self.judge.seen(self.name, link.router.name, message, key, attempts)
        if self.tops_up == "on delivery" or settled:
            self._grant(1)
        if not settled:
            assert key not in self.unsettled.values(), "a tag is not used again while unsettled"
            self.unsettled[handle] = key
            think = self.random.random() * self.knobs.think
            self.schedule.after(think, self._process, link, handle, message)

    def settled(self, link: Link, handles: list[int]) -> None:
        if link is not self.link:
            return
        for handle in handles:
            if self.unsettled.pop(handle, None) is not None and self.tops_up == "on settlement":
                self._grant(1)

    # what it does

    def _process(self, link: SubscriberLink, handle: int, message: bytes) -> None:
        """The application is done with it; what was settled meanwhile has been processed all the same."""
        if link is not self.link:
            return
        outcome, final = self._verdict()
        if handle in self.unsettled:
            self.note(self.name, f"{outcome.name} {message.decode()}{' for good' if final else ''}")
            self.judge.outcome(self.name, message, outcome, final)
            if self.first:
                del self.unsettled[handle]
            link.to_router(link.outcome, handle, outcome, final, self.first)
        if self.tops_up == "on acceptance" or (self.tops_up == "on settlement" and self.first):
            self._grant(1)

    def _verdict(self) -> tuple[Outcome, bool]:
        if self.calm or self.random.random() >= self.knobs.refusing:
            return Outcome.ACCEPTED, False
        outcome = self.random.choice((Outcome.REJECTED, Outcome.RELEASED, Outcome.MODIFIED))
        return outcome, outcome is Outcome.MODIFIED and self.random.random() < 0.5

    def calm_down(self) -> None:
        self.calm = True
        self.tops_up = "on delivery"
        self._grant(1000)
