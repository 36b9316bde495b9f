"""Attaches that wait for other routers before they are answered (protocol 6.7, 7.1, 7.6).

The attach of a publisher waits until every router in contact has acknowledged the section version that lists it. The
attach of a subscriber waits until every router in contact has joined it. An attach does not wait for a lost router. It
waits at most `join` seconds for a router that has acknowledged everything and makes no progress.

A publisher with an unsettled map may be unknown: no router in contact knows its life, or its last attach. Then its
attach first waits for other routers, and begins only after that.

`topic.core` and `topic.termini.generations` make the changes of an attach in directory and records.
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
    """The first version of this router's section that lists the publisher."""


@attrs.frozen(slots=True)
class Claim:
    """The statement of a publisher's attach about the publisher's life (7.2)."""

    generation: bytes | None
    """The generation that the publisher echoes; None if it echoes none."""
    unsettled: Mapping[bytes, int] | None
    """The publisher's map, which has the state of each delivery-tag; None for a null map, which begins a new life."""
    complete: bool
    seen: Epoch
    """The epoch of the publisher's last attach, as the publisher echoes it; `NOWHERE` if it echoes none."""
    clock: int = 0
    """The clock of this attach, if the leader of a set makes it (14.2). If it is 0, the router takes its own clock."""

    @property
    def is_in_doubt(self) -> bool:
        """Whether a delivery of the publisher may be in doubt."""
        if self.unsettled is None:
            return False
        return not self.complete or any(state not in TERMINAL for state in self.unsettled.values())


@attrs.frozen(slots=True)
class UnknownAttach:
    """An attach of a publisher of which no router in contact knows the life, or the last attach."""

    stream: HomeStream
    claim: Claim
    since: float
    deadline: float


class Attaches:
    """The unanswered attaches of one router. `join`: in seconds, see `Settings.join`."""

    def __init__(
        self,
        outlet: Outlet,
        records: RecordTable,
        directory: Directory,
        join: float,
        liveness: Liveness,
    ) -> None:
        """`liveness` sends a publisher the questions that wait for it, when its attach is answered."""
        self.outlet = outlet
        self.records = records
        self.directory = directory
        self._join = join
        self._liveness = liveness
        self._unknown: dict[bytes, UnknownAttach] = {}
        self._until: dict[bytes, tuple[Epoch, float]] = {}
        """Maps each publisher to the epoch that its attach echoes, and to the latest time until which attaches with
        this epoch wait. The publisher may give up an attach before that time and attach again; the time then stays."""
        self._publishers: dict[bytes, _Waiting] = {}
        """The publishers whose attaches wait, in the order of their attaches, and so also in the order of their section
        versions."""
        self._subscribers: dict[bytes, LocalSubscriber] = {}
        self._later: dict[bytes, LinkEntry] = {}
        """Maps a waiting subscriber to a later attach at another router. That router has not announced the attach
        itself so far; other routers have."""
        self._deadlines: Deadlines[_Waiting | LocalSubscriber] = Deadlines()

    # The methods from here on are about publishers that no router in contact knows.

    def knows_all(self, seen: Epoch) -> bool:
        """Whether no other router can know more about a publisher that echoes the epoch `seen`.

        All routers have to be in contact, and the home of the attach `seen` has to have announced this attach. If that
        home has not announced it, perhaps only this router is still in contact with that home, and other routers know
        more (7.9). If that home has been restarted since, or has left the mesh, it will not announce the attach any
        more, so its announcement is not needed.
        """
        directory = self.directory
        is_over = seen.incarnation < directory.contacts.get(seen.router, math.inf)
        return directory.complete and (is_over or directory.members.has_told(seen))

    def unknown(self, stream: HomeStream, claim: Claim, now: float, wait: float) -> None:
        """Let the attach of a publisher wait. The publisher attached with a map, and no router in contact knows its
        generation, or its last attach.

        The attach waits until a router knows it, or until all routers have told what they know. It waits at most `wait`
        seconds, counted from the publisher's first attach with this echoed epoch (7.6, 7.9).
        """
        name = stream.publisher
        self.withdraw_unknown(name)
        self._unknown[name] = UnknownAttach(stream, claim, now, self._wait_for(name, claim.seen, now, wait))
        self.directory.members.untold[name] = stream.epoch.hlc

    def _wait_for(self, name: bytes, seen: Epoch, now: float, wait: float) -> float:
        """The latest time until which the attach waits. If the publisher stays away for `wait` seconds after that time,
        its next attach gets a new time."""
        former, until = self._until.pop(name, (seen, now + wait))
        if former != seen or until + wait < now:
            until = now + wait
        while self._until and self._until[oldest := next(iter(self._until))][1] + wait < now:
            del self._until[oldest]
        self._until[name] = seen, until
        return until

    def ready(self, now: float) -> Iterator[UnknownAttach]:
        """Remove and yield the attaches that need not wait any longer. An attach need not wait if it has waited long
        enough, or if no other router can know more (`knows_all`)."""
        for name, waiting in list(self._unknown.items()):
            if self.knows_all(waiting.claim.seen) or now >= waiting.deadline:
                yield self._release(name, waiting)

    def known(self, entry: LinkEntry) -> UnknownAttach | None:
        """Handle a new entry of a publisher in the directory.

        Returns the attach that waited for it, if the entry is not older than the attach that the publisher echoed. If
        the entry is later than the waiting attach, the waiting attach is over.
        """
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
        """End the waiting attach of this link, because another attach of the link has begun."""
        waiting = self._take_unknown(name)
        if waiting is not None:
            self.outlet.actions.append(Detach(waiting.stream.link, STOLEN, "the link was attached again"))

    def gone_unknown(self, stream: HomeStream) -> bool:
        """Handle a client that has gone. Returns whether its attach was still waiting here."""
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

    # The methods from here on are about attaches that other routers have to acknowledge or join.

    def publisher(self, stream: HomeStream, now: float) -> None:
        """Let the attach of a publisher, whose entry was just written and sent, wait until all contacts have
        acknowledged it."""
        assert stream.begun and not stream.answered and stream.publisher not in self._publishers
        waiting = self._publishers[stream.publisher] = _Waiting(stream, self.directory.version)
        self._deadlines.set(waiting, now + self._join)
        self.answer_publishers()

    def subscriber(self, subscriber: LocalSubscriber, now: float) -> None:
        """Let the attach of a subscriber, whose entry is about to be written, wait until all contacts have joined
        it."""
        assert not subscriber.answered and subscriber.link is not None
        subscriber.answered = False
        subscriber.unanswered = set(self.directory.contacts)
        # This attach is later than an attach in `_later`, which was later only than the former attach here.
        self._later.pop(subscriber.name, None)
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
        """Handle an entry of the directory. The entry may show that a subscriber whose attach waits here has attached
        again, at another router.

        Routers that know the later attach no longer join this one. So this attach waits only for the other router: the
        subscriber moves there when that router announces the later attach itself.
        """
        waiting = self._subscribers.get(entry.name) if entry.role is Role.SUBSCRIBER else None
        if waiting is not None and entry.live and waiting.epoch < entry.epoch:
            self._later[entry.name] = entry

    def contact(self, router: str, now: float) -> None:
        """Handle a new contact: waiting attaches also wait for this router, for `join` seconds from now on."""
        for subscriber in self._subscribers.values():
            subscriber.unanswered.add(router)
            self._deadlines.set(subscriber, now + self._join)
        for waiting in self._publishers.values():
            self._deadlines.set(waiting, now + self._join)

    def contact_lost(self) -> None:
        """Handle a lost contact: no attach waits for that router any more."""
        self.answer_publishers()
        for subscriber in list(self._subscribers.values()):
            self.answer_subscriber(subscriber)

    def answer_publishers(self) -> None:
        """Answer the publishers whose attaches all contacts have acknowledged."""
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
        """Write into the delivery log that the link is attached here. `again`: an earlier segment of the log already
        has this entry."""
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
        """The names of the links whose attaches are not answered yet."""
        return [*self._publishers, *self._subscribers, *self._unknown]

    def may_be_late(self, end: HomeStream | LocalSubscriber) -> bool:
        """Whether the attach may be late (6.12): before this router read the attach, the client may have closed its
        connection and attached elsewhere."""
        return end.overtook and end.lifetime.timeout > 0 and not end.answered

    def deadline(self) -> float:
        """The next time at which `awaited_long` or `ready` may return something; infinity if never."""
        unknown = min((waiting.deadline for waiting in self._unknown.values()), default=math.inf)
        return min(unknown, self._deadlines.earliest())

    @property
    def awaited(self) -> set[str]:
        """The routers in contact for whose acknowledgement or join an attach waits."""
        waiting: list[_Waiting | LocalSubscriber] = [*self._subscribers.values(), *self._publishers.values()]
        return {router for attach in waiting for router in self._awaited(attach)}

    def awaited_long(self, now: float) -> list[str]:
        """The routers in contact for which an attach has waited `join` seconds. A router is named again after another
        `join` seconds."""
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
    """Whether the log entry of this attach has "afresh" (`topic.journal`). For a subscriber this must be called before
    the attach is answered."""
    return end.afresh if isinstance(end, HomeStream) else end.client_map is None
