"""A publisher as a plain AMQP client is one: it does not resume, a new attach starts afresh."""

from typing import Any

from tests.simulation.client import Client
from tests.simulation.links import Link, PublisherLink, Sent
from topic.record import Outcome


class Publisher(Client):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.link: PublisherLink | None = None
        self.first = False
        self.keeps_generation = self.random.random() < 0.3
        self.left = self.knobs.messages
        self.credit = 0
        self.unsettled: dict[int, bytes] = {}
        """Handle -> tag of what is not settled."""
        self.waiting: dict[int, bytes] = {}
        """Handle -> message of what has no outcome, on this attach."""
        self._handle = 0
        self._tags = [b"t%d" % i for i in range(self.knobs.window + self.knobs.tags)]

    def open(self, router: Any) -> None:
        self.first = self.random.random() < 0.3
        link = self.link = PublisherLink(router, self, self.lives, self.first)
        generation = None
        if self.keeps_generation:
            generation = self.name.encode().ljust(8, b".")
        self.note(self.name, f"attaches at {router.name}")
        link.to_router(link.attach, generation)

    def forget(self) -> None:
        self.credit = 0
        self.unsettled.clear()
        self.waiting.clear()

    # what the router says

    def attached(self, link: Link, credit: int, generation: bytes) -> None:
        if link is self.link:
            assert not self.answered, "an attach is answered once"
            assert len(generation) == 8
            self.answered = True
            self.credited(link, credit)
            self.later(self.publish)

    def credited(self, link: Link, count: int) -> None:
        if link is self.link:
            assert self.answered, "no credit before the attach is answered"
            self.credit += count
            self.judge.check(
                self.credit + len(self.unsettled) <= self.knobs.window, "5 credit: no more than the window is unsettled"
            )
            if self.credit == count:
                self.later(self.publish)

    def outcome(self, link: Link, handles: list[int], outcome: Outcome) -> None:
        if link is not self.link:
            return
        for handle in handles:
            if handle in self.unsettled:
                assert handle in self.waiting, "one outcome for each delivery"
                del self.waiting[handle]
                if self.first:
                    del self.unsettled[handle]
                else:
                    self.schedule.after(self.random.random() * self.knobs.client_delay, self._settle, link, handle)

    # what it does

    def publish(self) -> None:
        """Some of what credit allows."""
        link = self.link
        if link is None or not self.answered or not self.left or not self.credit:
            return
        free = [tag for tag in self._tags if tag not in self.unsettled.values()]
        count = min(self.credit, self.left, len(free), self.random.choice((1, 1, 2, 5)))
        if count:
            self._send(link, free, count)
        self.later(self.publish)

    def _send(self, link: PublisherLink, free: list[bytes], count: int) -> None:
        sent: list[Sent] = []
        for tag in self.random.sample(free, count) if self.random.random() < 0.5 else free[:count]:
            self._handle += 1
            settled = self.random.random() < self.knobs.presettled
            message = b"%s.%d.%d%s" % (self.name.encode(), self.lives, self._handle, b"s" if settled else b"")
            if not settled:
                self.unsettled[self._handle] = tag
                self.waiting[self._handle] = message
            sent.append((self._handle, tag, message, settled))
            self.note(self.name, f"sends {message.decode()} as {tag.decode()}")
            if not settled and not self.calm and self.random.random() < self.knobs.early:
                self.schedule.after(self.random.random() * self.knobs.patience, self._settle, link, self._handle)
        self.credit -= count
        self.left -= count
        self.judge.sent([(message, tag, settled) for _, tag, message, settled in sent])
        link.to_router(link.transfers, sent)

    def _settle(self, link: PublisherLink, handle: int) -> None:
        if link is self.link and handle in self.unsettled:
            del self.unsettled[handle]
            if handle in self.waiting:
                self.note(self.name, f"settles {self.waiting[handle].decode()} before an outcome")
                self.judge.settled_early(self.waiting.pop(handle))
            link.to_router(link.settle, [handle])
