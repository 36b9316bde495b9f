"""Judges which messages are promised to which subscriber, and whether the mesh keeps these promises (protocol 1, 9.2
and 9.3).

A message is promised to the subscribers that its publisher's router had joined when the message first arrived there, if
a router has ever answered an attach of them. A promise ends only in three ways: the client was away while its time ran
out; some routers were apart while it ran out, and the client is told before all is at rest; or no router in contact
with home knew the subscriber when the publisher read the outcome (protocol 10, Limits). A link ends at a router only in
one of the first two cases, and the life of a publisher only in the first case.
"""

from collections.abc import Mapping

from tests.exhaustive.clients import Did, Frame, Message, Phase, Publisher, Violation, check
from tests.exhaustive.memo import Clients
from tests.exhaustive.router import container, identity_of
from tests.exhaustive.scope import Scope
from tests.exhaustive.subscriber import Subscriber
from tests.exhaustive.world import APART, AWAY, ENDED, GONE, UNTOLD, UP, Draft, is_apart
from topic.identity import link_name


class Promises:
    """The judge of one scope."""

    def __init__(self, scope: Scope, clients: Clients) -> None:
        self._names = tuple(scope.routers)
        self._messages = scope.messages
        self._balanced = scope.balanced
        self._subscribers = range(len(scope.publishers), len(scope.publishers + scope.subscribers))
        self._publishers = range(len(scope.publishers))
        self._indexes = {container(index): index for index in self._subscribers}
        self._links = {link_name(identity_of(index)): index for index in (*self._publishers, *self._subscribers)}
        self._joining = [self._names.index(name) for name in scope.joins]
        self._clients = clients

    def joined(self, draft: Draft, router: int, name: str) -> None:
        """Messages published at this router from now on are promised to this subscriber."""
        self._promise(draft, router, self._indexes[name])

    def answered(self, draft: Draft, router: int, index: int, contacts: Mapping[str, int]) -> None:
        """A router answers a client's attach. All routers in contact have joined a subscriber by then (6.7)."""
        draft.terms[index] &= ~GONE
        if index in self._subscribers:
            self._promise(draft, router, index)
            for other, incarnation in contacts.items():
                place = self._names.index(other)
                if draft.lives[place] == incarnation:
                    self._promise(draft, place, index)

    def admitted(self, draft: Draft, router: int) -> None:
        """A router that joins takes clients from now on. It has to know each subscriber that another router has joined.
        After a restart it need not know them, because its knowledge may be lost."""
        if draft.lives[router] > 1:
            return
        for known in draft.knows:
            draft.knows[router] |= known

    def processed(self, draft: Draft) -> None:
        """Check that a message of a balanced address is processed by one subscriber only. No terminus can end here, as
        no time passes.
        """
        processed = [message for subscriber in self._readers(draft) for message in subscriber.processed]
        twice = {message for message in processed if processed.count(message) > 1}
        check(not twice, "1 one of many", f"{twice} are processed by more than one subscriber")

    def _readers(self, draft: Draft) -> list[Subscriber]:
        clients = [self._clients.states.values[draft.clients[index]] for index in self._subscribers]
        return [client for client in clients if isinstance(client, Subscriber)]

    def _promise(self, draft: Draft, router: int, index: int) -> None:
        if self._balanced:
            return
        if self._clients.states.values[draft.clients[index]].resumes and not draft.terms[index] & GONE:
            draft.knows[router] |= 1 << index

    def sent(self, draft: Draft, router: int, frame: Frame) -> None:
        """A frame arrives at the router where its publisher has last attached."""
        if frame[0] == "transfer":
            publisher, number = frame[2]
            place = self._place((publisher, number))
            if draft.promised[place] < 0:
                draft.promised[place] = draft.knows[router]

    def _place(self, message: Message) -> int:
        publisher, number = message
        return publisher * self._messages + number

    def check(self, draft: Draft, router: int, index: int, did: Did) -> None:
        """Check what a client has learned from this router."""
        for number in did.told:
            self._check_told(draft, router, (index, number))
        for number in did.refused:
            self._check_refused(draft, (index, number))
        for message in did.forgot:
            self._check_forgotten(draft, message)
        for message in did.missed if not self._balanced else ():
            excused = bool(draft.missed[self._place(message)] >> index & 1) or self._is_given_up(draft, message)
            check(excused, "1 nothing lost", f"{message} is settled, subscriber {index} has not processed it")
        if did.renewed:
            self._end(draft, index, "is told a new generation: what it has in doubt stays so")
            draft.terms[index] &= ~ENDED
        elif did.resumed:
            check(not draft.terms[index] & ENDED, "same generation", f"publisher {index} resumes a life that has ended")

    # time

    def expire(self, draft: Draft) -> None:
        """Time runs out for clients that are away, and perhaps for clients that some routers cannot see."""
        apart = APART * is_apart(draft.pairs, draft.lives)
        for index, number in enumerate(draft.clients):
            away = not self._clients.states.values[number].is_connected
            draft.terms[index] = draft.terms[index] & ~(AWAY | APART | GONE) | (AWAY | GONE if away else apart)
            if away and index in self._subscribers:
                self._release(draft, index)

    def expired(self, draft: Draft, router: int, name: bytes, rank: int, apart: bool) -> None:
        """A link has ended at this router. `apart`: whether it ended because a message was accepted without it. An end
        of an earlier life is ignored, as its client knows it."""
        index = self._links[name]
        if rank >= self._clients.states.values[draft.clients[index]].born:
            self._end(draft, index, f"has ended at router {self._names[router]}", apart=apart)
            draft.terms[index] |= ENDED * (index in self._publishers)

    def told(self, draft: Draft, index: int) -> None:
        """A router detaches the client's latest link, which has expired."""
        self._end(draft, index, "is told that it has expired", apart=index in self._subscribers)
        draft.terms[index] &= ~UNTOLD
        if index in self._subscribers:
            self._release(draft, index)

    def _end(self, draft: Draft, index: int, what: str, apart: bool = False) -> None:
        may = bool(draft.terms[index] & (AWAY | APART if apart else AWAY))
        check(may, "2 thrown out", f"client {index} {what}, it was not away for its timeout")

    def _release(self, draft: Draft, index: int) -> None:
        """The messages sent so far are no longer promised to this subscriber."""
        for place, promised in enumerate(draft.promised):
            if promised >= 0:
                draft.promised[place] &= ~(1 << index)
                draft.missed[place] |= 1 << index
        for router in range(len(draft.knows)):
            draft.knows[router] &= ~(1 << index)

    def _is_given_up(self, draft: Draft, message: Message) -> bool:
        """Whether the publisher's life is over without an outcome of the message."""
        publisher = self._publisher(draft, message)
        ended = bool(draft.terms[message[0]] & ENDED)
        return publisher.phases[message[1]] is Phase.LOST or (ended and publisher.phases[message[1]] is Phase.IN_DOUBT)

    # outcomes

    def _check_told(self, draft: Draft, home: int, message: Message) -> None:
        """Invariant 2: when the publisher reads `accepted`, all subscribers to which the message was promised have
        processed it."""
        place = self._place(message)
        if self._balanced:
            had = any(message in subscriber.processed for subscriber in self._readers(draft))
            check(had, "2 accepted too early", f"router {self._names[home]} accepts {message}, and nobody has it")
            return
        for index in self._subscribers:
            subscriber = self._clients.states.values[draft.clients[index]]
            assert isinstance(subscriber, Subscriber)
            if draft.promised[place] >> index & 1 and message not in subscriber.processed:
                told = f"router {self._names[home]} accepts {message}, subscriber {index} has not processed it"
                if self._is_known(draft, home, index) or self._was_known(draft, home, index):
                    check(bool(draft.terms[index] & APART), "2 accepted too early", told)
                    draft.terms[index] |= UNTOLD
                draft.missed[place] |= 1 << index
                draft.limits += 1
        draft.promised[place] = 0

    def _was_known(self, draft: Draft, home: int, subscriber: int) -> bool:
        """Whether the home has joined the mesh in this life, and the mesh knew the subscriber."""
        return home in self._joining and bool(draft.knows[home] >> subscriber & 1)

    def _is_known(self, draft: Draft, home: int, subscriber: int) -> bool:
        """Whether the home knows the subscriber (which may be attaching there just now), or a router in contact knows
        it as attached.
        """
        name = container(subscriber)
        facts = draft.live_facts(home)
        if name in facts.subscribers | facts.attaching:
            return True
        for router, life in enumerate(draft.lives):
            if life > 0 and self._names[router] in facts.applied and draft.status(home, router) == UP:
                others = draft.live_facts(router)
                if name in others.subscribers - others.attaching:
                    return True
        return False

    def _check_refused(self, draft: Draft, message: Message) -> None:
        """A publisher reads that a subscriber has refused its message."""
        refused = any(message in subscriber.refused for subscriber in self._readers(draft))
        check(refused, "2 refused by nobody", f"{message} is rejected though nobody has refused it")
        draft.promised[self._place(message)] = 0

    def _publisher(self, draft: Draft, message: Message) -> Publisher:
        publisher = self._clients.states.values[draft.clients[message[0]]]
        assert isinstance(publisher, Publisher)
        return publisher

    def _check_forgotten(self, draft: Draft, message: Message) -> None:
        """Invariant 3: a subscriber forgets a key only after the publisher has settled the delivery, or the publisher's
        life has ended."""
        phase = self._publisher(draft, message).phases[message[1]]
        ended = bool(draft.terms[message[0]] & ENDED)
        if phase not in (Phase.STATED, Phase.SETTLED, Phase.LOST) and not ended:
            raise Violation("3 forgotten too early", f"{message} is settled, its publisher has it {phase.name}")
