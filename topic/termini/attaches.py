"""Attaches that wait for other routers before they are answered (protocol 6.7, 7.1, 7.6).

A publisher's waits until every router in contact has acknowledged the section version that lists it, a subscriber's
until every router in contact has joined it. Neither waits longer than `join`, nor for a router that is lost. What an
attach changes in directory and records is `topic.core`'s business. A publisher that brings an unsettled map and that no
router in contact knows waits for the others before it even begins.
"""

import json
from collections.abc import Callable
from typing import Any

import attrs

from topic.actions import STOLEN, AnswerPublisher, AnswerSubscriber, Detach
from topic.delivery.record import Stream
from topic.delivery.records import RecordTable
from topic.directory.directory import Directory
from topic.directory.entry import Lifetime, LinkEntry
from topic.edge.resumption import resume
from topic.edge.subscriber import LocalSubscriber
from topic.identity import LinkIdentity
from topic.journal import Event
from topic.outlet import Outlet


@attrs.define(slots=True)
class _Waiting:
    stream: Stream
    version: int
    """Of our section; the first that lists the publisher."""
    deadline: float


@attrs.frozen(slots=True)
class _Unknown:
    stream: Stream
    begin: Callable[[], None]
    deadline: float


class Attaches:
    """The attaches of one router that have no answer yet. `join` is in seconds, `window` in deliveries."""

    def __init__(
        self,
        outlet: Outlet,
        records: RecordTable,
        directory: Directory,
        join: float,
        window: int,
        answered: Callable[[Stream], None],
    ) -> None:
        """`answered` is told of every publisher whose attach was answered."""
        self.outlet = outlet
        self.records = records
        self.directory = directory
        self._join = join
        self._window = window
        self._answered = answered
        self._unknown: dict[bytes, _Unknown] = {}
        self._publishers: dict[bytes, _Waiting] = {}
        self._subscribers: dict[bytes, LocalSubscriber] = {}

    # publishers that nobody in contact knows

    def unknown(self, stream: Stream, begin: Callable[[], None], deadline: float) -> None:
        """It has an unsettled map, but not the generation: somebody must know it. `begin` waits until all routers are
        in contact, but not beyond `deadline` (7.6)."""
        self.withdraw_unknown(stream.publisher)
        self._unknown[stream.publisher] = _Unknown(stream, begin, deadline)

    def begin_unknown(self, now: float) -> None:
        """Those that need not wait any longer: everybody is in contact, or it has been long enough."""
        complete = self.directory.complete
        for name, waiting in list(self._unknown.items()):
            if complete or now >= waiting.deadline:
                del self._unknown[name]
                waiting.begin()

    def known(self, entry: LinkEntry) -> None:
        """A publisher has become known: one that waited for that goes on, unless it is a later attach."""
        waiting = self._unknown.get(entry.name)
        if waiting is not None and entry.epoch > waiting.stream.epoch:
            self.withdraw_unknown(entry.name)
        elif waiting is not None:
            del self._unknown[entry.name]
            waiting.begin()

    def withdraw_unknown(self, name: bytes) -> None:
        """Another attach of the same link has begun."""
        waiting = self._unknown.pop(name, None)
        if waiting is not None:
            self.outlet.actions.append(Detach(waiting.stream.link, STOLEN, "the link was attached again"))

    def gone_unknown(self, stream: Stream) -> bool:
        """The client is gone again: whether it was waiting still."""
        waiting = self._unknown.get(stream.publisher)
        if waiting is None or waiting.stream is not stream:
            return False
        del self._unknown[stream.publisher]
        return True

    # links that the others are told of

    def publisher(self, stream: Stream, now: float) -> None:
        """Its entry has just been written and sent."""
        self._publishers[stream.publisher] = _Waiting(stream, self.directory.version, now + self._join)
        self.answer_publishers()

    def subscriber(self, subscriber: LocalSubscriber, now: float) -> None:
        """Its entry is about to be written: nobody has joined this epoch yet."""
        subscriber.answered = False
        subscriber.unanswered = set(self.directory.contacts)
        subscriber.deadline = now + self._join
        self._subscribers[subscriber.name] = subscriber

    def withdraw_publisher(self, name: bytes) -> None:
        self._publishers.pop(name, None)

    def withdraw_subscriber(self, name: bytes) -> None:
        self._subscribers.pop(name, None)

    def contact(self, router: str, now: float) -> None:
        """One more router to wait for, which has `join` from now on."""
        for subscriber in self._subscribers.values():
            subscriber.unanswered.add(router)
            subscriber.deadline = now + self._join
        for waiting in self._publishers.values():
            waiting.deadline = now + self._join

    def lost(self) -> None:
        """A contact is over and nobody waits for it any more."""
        self.answer_publishers()
        for subscriber in list(self._subscribers.values()):
            self.answer_subscriber(subscriber)

    def answer_publishers(self) -> None:
        """Answer those that all contacts have acknowledged."""
        for name, waiting in list(self._publishers.items()):
            if self.directory.all_contacts_have(waiting.version):
                del self._publishers[name]
                stream = waiting.stream
                stream.answered = True
                columns = {"publisher": name, "generation": stream.generation, "epoch": stream.label}
                self._trace(stream.identity, stream.settles_first, stream.lifetime, **columns)
                answer = AnswerPublisher(stream.link, stream.epoch, stream.generation, self._window, stream.reply)
                self.outlet.actions.append(answer)
                self._answered(stream)

    def answer_subscriber(self, subscriber: LocalSubscriber) -> None:
        """Answer it if all contacts have joined it."""
        if subscriber.unanswered or self._subscribers.get(subscriber.name) is not subscriber:
            return
        subscriber.answered = True
        del self._subscribers[subscriber.name]
        columns = {"subscriber": subscriber.name, "epoch": str(subscriber.epoch)}
        self._trace(subscriber.identity, subscriber.first, subscriber.lifetime, **columns)
        reply = resume(subscriber, self.records.by_key)
        self.outlet.actions.append(AnswerSubscriber(subscriber.link, subscriber.epoch, reply))

    def _trace(self, identity: LinkIdentity, first: bool, lifetime: Lifetime, **columns: Any) -> None:
        role = "publisher" if "publisher" in columns else "subscriber"
        mode = "first" if first else "second"
        detail = {"role": role, **attrs.asdict(identity), "mode": mode, "timeout": lifetime.timeout}
        self.outlet.trace(Event.ATTACHED, address=identity.address, detail=json.dumps(detail), **columns)

    @property
    def waiting(self) -> list[bytes]:
        """Names of the links whose attaches wait."""
        return [*self._publishers, *self._subscribers, *self._unknown]

    def deadline(self) -> list[float]:
        """When `late` may have somebody to name."""
        deadlines = [waiting.deadline for waiting in self._publishers.values()]
        deadlines += [waiting.deadline for waiting in self._unknown.values()]
        return deadlines + [subscriber.deadline for subscriber in self._subscribers.values()]

    def late(self, now: float) -> list[str]:
        """Routers in contact that an attach has waited for longer than `join`."""
        directory = self.directory
        late: set[str] = set()
        for subscriber in self._subscribers.values():
            if now >= subscriber.deadline:
                late |= subscriber.unanswered
        for waiting in self._publishers.values():
            if now >= waiting.deadline:
                late.update(router for router in directory.contacts if directory.acked[router] < waiting.version)
        return sorted(late)
