"""Attaches that wait for other routers before they are answered (protocol 6.7, 7.1, 7.6).

A publisher's attach waits until every router in contact has acknowledged the section version that lists it, a
subscriber's until every router in contact has joined it. Neither waits for a router that is lost, nor longer than
`join` for one that has acknowledged all and gets on with nothing. A publisher with an unsettled map, of which no router
in contact knows the life, or the last attach, waits for the others before it even begins. What an attach changes in
directory and records is decided in `topic.core` and `topic.termini.generations`.
"""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from topic.actions import STOLEN, AnswerPublisher, AnswerSubscriber, Detach
from topic.delivery.outcomes import TERMINAL
from topic.delivery.record import HomeStream
from topic.delivery.records import RecordTable
from topic.directory.directory import Directory
from topic.directory.entry import LinkEntry, Role
from topic.edge.resumption import resume
from topic.edge.subscriber import LocalSubscriber
from topic.home.liveness import Liveness
from topic.identity import Epoch
from topic.journal import Event
from topic.outlet import Outlet
from topic.termini.deadlines import Deadlines


@attrs.frozen(slots=True, eq=False)
class _Waiting:
    stream: HomeStream
    version: int
    """The first version of our section that lists the publisher."""


@attrs.frozen(slots=True)
class Claim:
    """What a link says of its life as it attaches (7.2)."""

    generation: bytes | None
    """That it had before, if it says so."""
    unsettled: Mapping[bytes, int] | None
    """Its map, tag to state; None for a null one, which begins afresh."""
    complete: bool
    seen: Epoch
    """Of its last attach, as far as it says."""
    clock: int = 0
    """The clock of this attach, if the leader of a set makes it (14.2). 0: the router takes its own clock."""

    @property
    def is_in_doubt(self) -> bool:
        """Whether it may have no outcome of something."""
        if self.unsettled is None:
            return False
        return not self.complete or any(state not in TERMINAL for state in self.unsettled.values())


@attrs.frozen(slots=True)
class UnknownAttach:
    """An attach of a publisher whose life, or last attach, no router in contact knows."""

    stream: HomeStream
    claim: Claim
    since: float
    deadline: float


class Attaches:
    """The attaches of one router that have no answer yet. `join` is in seconds."""

    def __init__(
        self,
        outlet: Outlet,
        records: RecordTable,
        directory: Directory,
        join: float,
        liveness: Liveness,
    ) -> None:
        """`liveness` asks a publisher whose attach was answered what waits for that."""
        self.outlet = outlet
        self.records = records
        self.directory = directory
        self._join = join
        self._liveness = liveness
        self._unknown: dict[bytes, UnknownAttach] = {}
        self._until: dict[bytes, tuple[Epoch, float]] = {}
        """By publisher: the last attach that it knows of, and until when those that follow it wait at most. It may give
        each up, and come again, sooner than that."""
        self._publishers: dict[bytes, _Waiting] = {}
        """In the order of their attaches, and so of their versions."""
        self._subscribers: dict[bytes, LocalSubscriber] = {}
        self._later: dict[bytes, LinkEntry] = {}
        """Of subscribers that wait: a later attach that others tell of, and its router has not."""
        self._deadlines: Deadlines[_Waiting | LocalSubscriber] = Deadlines()

    # publishers that nobody in contact knows

    def knows_all(self, seen: Epoch) -> bool:
        """Whether all routers are in contact, and have told of all up to that attach: if its home has not told of it,
        the contact is one that only we have still, and others may know more, too (7.9). A former incarnation, and who
        is no member, will tell nothing."""
        directory = self.directory
        is_over = seen.incarnation < directory.contacts.get(seen.router, math.inf)
        return directory.complete and (is_over or directory.members.has_told(seen))

    def unknown(self, stream: HomeStream, claim: Claim, now: float, wait: float) -> None:
        """A publisher attached with a map, but no router in contact knows its generation, or the attach that it has
        seen last. It waits until one does or all routers have told what they know, but no more than `wait` seconds from
        when the publisher first came so (7.6, 7.9)."""
        name = stream.publisher
        self.withdraw_unknown(name)
        self._unknown[name] = UnknownAttach(stream, claim, now, self._wait_for(name, claim.seen, now, wait))
        self.directory.members.untold[name] = stream.epoch.hlc

    def _wait_for(self, name: bytes, seen: Epoch, now: float, wait: float) -> float:
        """Until when. Who has not been here for another `wait` after that comes anew."""
        former, until = self._until.pop(name, (seen, now + wait))
        if former != seen or until + wait < now:
            until = now + wait
        while self._until and self._until[oldest := next(iter(self._until))][1] + wait < now:
            del self._until[oldest]
        self._until[name] = seen, until
        return until

    def ready(self, now: float) -> Iterator[UnknownAttach]:
        """The attaches that need wait no longer: all routers have told, or it has been long enough."""
        for name, waiting in list(self._unknown.items()):
            if self.knows_all(waiting.claim.seen) or now >= waiting.deadline:
                yield self._release(name, waiting)

    def known(self, entry: LinkEntry) -> UnknownAttach | None:
        """A publisher has become known. Returns its attach if that waited for this: unless the known one is later, or
        older than what it waits for."""
        waiting = self._unknown.get(entry.name)
        if waiting is not None and entry.epoch > waiting.stream.epoch:
            self.withdraw_unknown(entry.name)
        elif waiting is not None and entry.epoch >= waiting.claim.seen:
            return self._release(entry.name, waiting)
        return None

    def _release(self, name: bytes, waiting: UnknownAttach) -> UnknownAttach:
        self._take_unknown(name)
        self._until.pop(name, None)
        return waiting

    def withdraw_unknown(self, name: bytes) -> None:
        """Another attach of the same link has begun: this one is over."""
        waiting = self._take_unknown(name)
        if waiting is not None:
            self.outlet.actions.append(Detach(waiting.stream.link, STOLEN, "the link was attached again"))

    def gone_unknown(self, stream: HomeStream) -> bool:
        """The client is gone. Returns whether its attach was still waiting."""
        waiting = self._unknown.get(stream.publisher)
        if waiting is None or waiting.stream is not stream:
            return False
        self._take_unknown(stream.publisher)
        return True

    def _take_unknown(self, name: bytes) -> UnknownAttach | None:
        waiting = self._unknown.pop(name, None)
        if waiting is not None:
            del self.directory.members.untold[name]
        return waiting

    # links that the others are told of

    def publisher(self, stream: HomeStream, now: float) -> None:
        """The publisher's entry has just been written and sent: answer it when the contacts have acknowledged that."""
        assert stream.begun and not stream.answered and stream.publisher not in self._publishers
        waiting = self._publishers[stream.publisher] = _Waiting(stream, self.directory.version)
        self._deadlines.set(waiting, now + self._join)
        self.answer_publishers()

    def subscriber(self, subscriber: LocalSubscriber, now: float) -> None:
        """The subscriber's entry is about to be written, and nobody has joined this epoch yet."""
        assert not subscriber.answered and subscriber.link is not None
        subscriber.answered = False
        subscriber.unanswered = set(self.directory.contacts)
        self._later.pop(subscriber.name, None)  # it was later than the attach that this one follows
        self._subscribers[subscriber.name] = subscriber
        self._deadlines.set(subscriber, now + self._join)

    def withdraw_publisher(self, name: bytes) -> None:
        waiting = self._publishers.pop(name, None)
        if waiting is not None:
            self._deadlines.discard(waiting)

    def withdraw_subscriber(self, name: bytes) -> None:
        subscriber = self._subscribers.pop(name, None)
        self._later.pop(name, None)
        if subscriber is not None:
            self._deadlines.discard(subscriber)

    def overtaken(self, entry: LinkEntry) -> None:
        """A contact tells of this attach. If it is of a subscriber, and later than one that waits here, who knows of it
        does not join that one any more: only the later one's router can be asked why it has not said so."""
        waiting = self._subscribers.get(entry.name) if entry.role is Role.SUBSCRIBER else None
        if waiting is not None and entry.live and waiting.epoch < entry.epoch:
            self._later[entry.name] = entry

    def contact(self, router: str, now: float) -> None:
        """There is one more router to wait for, for `join` from now on."""
        for subscriber in self._subscribers.values():
            subscriber.unanswered.add(router)
            self._deadlines.set(subscriber, now + self._join)
        for waiting in self._publishers.values():
            self._deadlines.set(waiting, now + self._join)

    def lost(self) -> None:
        """A contact is over: nobody waits for that router any more."""
        self.answer_publishers()
        for subscriber in list(self._subscribers.values()):
            self.answer_subscriber(subscriber)

    def answer_publishers(self) -> None:
        """Answer the publishers that all contacts have acknowledged."""
        while self._publishers:
            waiting = next(iter(self._publishers.values()))
            if not self.directory.members.have(self.directory.contacts, waiting.version):
                return
            stream = waiting.stream
            self.withdraw_publisher(stream.publisher)
            stream.attached()
            self.trace(stream)
            answer = AnswerPublisher(stream.link, stream.epoch, stream.generation, stream.window.due(), stream.reply)
            self.outlet.actions.append(answer)
            self._liveness.ask(stream)

    def answer_subscriber(self, subscriber: LocalSubscriber) -> None:
        """Answer the subscriber if all contacts have joined it."""
        if subscriber.unanswered or self._subscribers.get(subscriber.name) is not subscriber:
            return
        subscriber.answered = True
        self.withdraw_subscriber(subscriber.name)
        self.trace(subscriber)
        reply = resume(subscriber, self.records.by_key)
        self.outlet.actions.append(AnswerSubscriber(subscriber.link, subscriber.epoch, reply))

    def trace(self, end: HomeStream | LocalSubscriber, *, again: bool = False) -> None:
        """Log that it is attached here; `again`, if the log has said so before."""
        columns: dict[str, Any]
        more = {"again": True} if again else {"afresh": True} if _begins_afresh(end) else {}
        if isinstance(end, HomeStream):
            role, columns = "publisher", {"publisher": end.publisher, "generation": end.generation}
        else:
            role, columns = "subscriber", {"subscriber": end.name}
        more |= {"unordered": True} if end.unordered else {}
        mode = "first" if end.settles_first else "second"
        detail = {"role": role, **end.identity.shown(), "mode": mode, "timeout": end.lifetime.timeout, **more}
        columns |= {"address": end.identity.address, "epoch": str(end.epoch), "detail": json.dumps(detail)}
        self.outlet.trace(Event.ATTACHED, None if again else end.identity, **columns)

    @property
    def waiting(self) -> list[bytes]:
        """Names of the links whose attaches wait."""
        return [*self._publishers, *self._subscribers, *self._unknown]

    def may_be_late(self, end: HomeStream | LocalSubscriber) -> bool:
        """Whether the attach, and the close that is read before it was answered, may come from a connection that the
        client gave up before it began elsewhere (6.12)."""
        return end.overtook and end.lifetime.timeout > 0 and not end.answered

    def deadline(self) -> float:
        """When `awaited_long` may have a router to name, or `ready` an attach to begin; infinity if never."""
        unknown = min((waiting.deadline for waiting in self._unknown.values()), default=math.inf)
        return min(unknown, self._deadlines.earliest())

    @property
    def awaited(self) -> set[str]:
        """Routers in contact that attaches wait for."""
        waiting: list[_Waiting | LocalSubscriber] = [*self._subscribers.values(), *self._publishers.values()]
        return {router for attach in waiting for router in self._awaited(attach)}

    def awaited_long(self, now: float) -> list[str]:
        """Routers in contact that an attach has waited for as long as `join`, or as long since it was last due."""
        routers: set[str] = set()
        for waiting in self._deadlines.due(now):
            routers |= self._awaited(waiting)
            self._deadlines.set(waiting, now + self._join)
        return sorted(routers)

    def _awaited(self, waiting: _Waiting | LocalSubscriber) -> set[str]:
        directory = self.directory
        if isinstance(waiting, _Waiting):
            return {router for router in directory.contacts if directory.members.acked[router] < waiting.version}
        later = self._later.get(waiting.name)
        return {later.router} if later is not None and directory.tells_itself(later) else waiting.unanswered


def _begins_afresh(end: HomeStream | LocalSubscriber) -> bool:
    """Whether the log is to say so of its attach (`topic.journal`); of a subscriber that is not answered yet."""
    return end.afresh if isinstance(end, HomeStream) else end.client_map is None
