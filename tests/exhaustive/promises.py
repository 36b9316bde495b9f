"""What is promised to whom, and whether it is kept (protocol 1, 9.2 and 9.3).

A message is promised to the subscribers that its publisher's router had joined when it arrived there first, if ever an
attach of theirs was answered. One is excused: a subscriber that no router in contact with home knew when the publisher
was told (protocol 10, Limits).
"""

from collections.abc import Mapping

from tests.exhaustive.clients import Did, Frame, Message, Phase, Publisher, Subscriber, Violation, check
from tests.exhaustive.memo import Clients, Routers
from tests.exhaustive.router import container
from tests.exhaustive.scope import Scope
from tests.exhaustive.world import UP, Draft


class Promises:
    """The judge of one scope."""

    def __init__(self, scope: Scope, routers: Routers, clients: Clients) -> None:
        self.limits = 0
        """Acceptances that a subscriber was missed in and excused."""
        self._names = tuple(scope.routers)
        self._messages = scope.messages
        self._subscribers = range(len(scope.publishers), len(scope.publishers + scope.subscribers))
        self._indexes = {container(index): index for index in self._subscribers}
        self._routers = routers
        self._clients = clients

    def joined(self, draft: Draft, router: int, name: str) -> None:
        """What is published at this router from now on is for this subscriber."""
        self._promise(draft, router, self._indexes[name])

    def answered(self, draft: Draft, router: int, index: int, contacts: Mapping[str, int]) -> None:
        """A client's attach: a subscriber all routers in contact have joined (6.7)."""
        if index in self._subscribers:
            self._promise(draft, router, index)
            for other, incarnation in contacts.items():
                place = self._names.index(other)
                if draft.lives[place] == incarnation:
                    self._promise(draft, place, index)

    def _promise(self, draft: Draft, router: int, index: int) -> None:
        if self._clients.states.values[draft.clients[index]].resumes:
            draft.knows[router] |= 1 << index

    def sent(self, draft: Draft, router: int, frame: Frame) -> None:
        """A frame arrives where its publisher has last attached."""
        if frame[0] == "transfer":
            publisher, number = frame[2]
            place = self._place((publisher, number))
            if draft.promised[place] < 0:
                draft.promised[place] = draft.knows[router]

    def _place(self, message: Message) -> int:
        publisher, number = message
        return publisher * self._messages + number

    def check(self, draft: Draft, router: int, index: int, did: Did) -> None:
        """What a client has learned from this router."""
        for number in did.told:
            self._check_told(draft, router, (index, number))
        for message in did.forgot:
            self._check_forgotten(draft, message)
        for message in did.missed:
            excused = bool(draft.missed[self._place(message)] >> index & 1)
            check(excused, "1 nothing lost", f"{message} is settled, subscriber {index} has not processed it")

    def _check_told(self, draft: Draft, home: int, message: Message) -> None:
        """2: at the instant the publisher sees `accepted`, everyone it was promised to has processed the message."""
        place = self._place(message)
        for index in self._subscribers:
            subscriber = self._clients.states.values[draft.clients[index]]
            assert isinstance(subscriber, Subscriber)
            if draft.promised[place] >> index & 1 and message not in subscriber.processed:
                told = f"router {self._names[home]} accepts {message}, subscriber {index} has not processed it"
                check(not self._is_known(draft, home, index), "2 accepted too early", told)
                draft.missed[place] |= 1 << index
                self.limits += 1
        draft.promised[place] = 0

    def _is_known(self, draft: Draft, home: int, subscriber: int) -> bool:
        """By home, where it may be attaching, or by a router in contact where it is not."""
        name = container(subscriber)
        facts = self._routers.live_facts(draft.routers[home])
        if name in facts.subscribers | facts.attaching:
            return True
        for router, life in enumerate(draft.lives):
            if life > 0 and self._names[router] in facts.applied and draft.status(home, router) == UP:
                others = self._routers.live_facts(draft.routers[router])
                if name in others.subscribers - others.attaching:
                    return True
        return False

    def _check_forgotten(self, draft: Draft, message: Message) -> None:
        """3: a subscriber forgets a key only after its publisher settled it."""
        publisher = self._clients.states.values[draft.clients[message[0]]]
        assert isinstance(publisher, Publisher)
        phase = publisher.phases[message[1]]
        if phase not in (Phase.STATED, Phase.SETTLED):
            raise Violation("3 forgotten too early", f"{message} is settled, its publisher has it {phase.name}")
