"""The judge of queues in a simulated mesh (protocol 14). `tests.topic.queues.judge` has the rules. This module decides
which clients are in doubt, and checks the conditions that hold in the end.

A plain client is in doubt if it has lost its link, if its router was out of contact with another one since it attached,
or if the leader of its set was killed. A client that resumes is in doubt if its terminus may be over: it was away for
its timeout, or some router could not see it. Limits of the ends (protocol 10) are limits here, too.
"""

from collections import Counter
from collections.abc import Iterable
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from tests.failures import died, unmarked
from tests.simulation.queue_annotations import Annotations
from tests.simulation.queue_bindings import BoundQueues
from tests.simulation.transaction_judge import Deals
from tests.simulation.ttl import left_ms
from tests.topic.queues import judge as rules
from topic.delivery.outcomes import GIVEN_BACK, DeliveryOutcome
from topic.delivery.record import Record
from topic.edge.unconfirmed import FINAL
from topic.identity import INSIDE, NAME_LENGTH, dead_letter_address, egress_of, is_egress, link_name, queue_of
from topic.queues.bound.bindings import BINDING, DEAD_LETTERS
from topic.queues.leader.letters import letters_to
from topic.queues.operations import Operation, Purge, Retry
from topic.queues.outgoing.outbox import Sending, Why
from topic.queues.positions import POSITION_LENGTH, position_key
from topic.queues.proposals import Enqueue, Proposal, Transact
from topic.queues.state import DECLARED, SetState
from topic.queues.transactions.decided import TRANSACTIONS
from topic.raft.life import NO_LIFE, SetLife

if TYPE_CHECKING:
    from tests.simulation.client import Client
    from tests.simulation.judge import Judge
    from tests.simulation.parties import Message
    from tests.simulation.publisher_link import PublisherLink
    from tests.simulation.queues import QueueWorld
    from tests.simulation.router import Router
    from tests.simulation.sets import SetWorld
    from tests.simulation.subscriber import SubscriberClient
    from tests.simulation.subscriber_link import SubscriberLink

from tests.simulation.queue_logs import QueueLogs

EXPIRED_MS = 5000
"""Milliseconds within which an expired message leaves its queue when nothing fails."""
LOOK_S = 0.1
"""Seconds between looks at clients, while no contact is made or lost."""


class Doubts:
    """The judge's own knowledge about a client of a queue."""

    def __init__(self, judge: "Judge", client: "Client") -> None:
        self._judge = judge
        self.client = client
        self.name = client.name
        address = client.identity.address
        self.set, self.queue = queue_of(address) if address.startswith(INSIDE) else ("", "")
        """Both are empty for a publisher to a topic."""
        self._grain_s = client.knobs.dead / 4 + 2 * LOOK_S
        """The interval of HELLOs and of looks: no more time passes between two steps of a router."""
        self._seen_at = 0.0
        """When all routers last saw the client, in seconds."""
        self._may_be_over = False
        self._doubted: object = None
        """The client's last link that is in doubt."""

    @property
    def is_in_doubt(self) -> bool:
        if self._judge.has_met_limit(self.name):
            return True
        if self.client.plain:
            return self.client.link is None or self._doubted is self.client.link
        return self._may_be_over

    def watch(self, *, is_seen: bool) -> None:
        """`is_seen`: the client's router is in contact with all routers that run."""
        link, now = self.client.link, self._judge.schedule.now
        if self.client.plain:
            if link is not None and not is_seen:
                self.doubt()
        elif link is not None and is_seen and link.answered and not link.ended:
            self._seen_at = now
        elif now - self._seen_at >= self.client.shortest - self._grain_s:
            self._may_be_over = True

    def doubt(self) -> None:
        """From now on some router may consider the client gone."""
        self._doubted = self.client.link


class Consumer(Doubts):
    client: "SubscriberClient"

    def __init__(self, judge: "Judge", client: "SubscriberClient") -> None:
        super().__init__(judge, client)
        self.settles: list[bytes] = []
        """The deliveries that it has settled itself on this link. Its router may not have read that."""
        self.refused: dict[bytes, tuple[object, object]] = {}
        """Message that it refuses for good -> the link on which it said so, and the leader at that time."""
        self._last: tuple[object, tuple[SetLife, int]] = None, (NO_LIFE, 0)
        """Its link, and the last place of a message that came on this link for the first time."""
        self._came_on: dict[bytes, object] = {}
        """Keyed by message: the link on which it came first."""

    def has(self, text: bytes) -> bool:
        client, dealing = self.client, self.client.dealing
        keys = [key for key, one in client.texts.items() if one == text and client.unsettled.get(key) not in GIVEN_BACK]
        return any(dealing is None or not dealing.gives_back(key) for key in keys)

    def tells_of(self, text: bytes) -> bool:
        """Whether its outcome of the message now goes to its router in a disposition with the reason, not in a map."""
        return any(self.client.texts.get(key) == text for key in self.client.handles.values())

    def comes_later(self, link: object, text: bytes, place: tuple[SetLife, int]) -> bool:
        """A message at this place comes. Returns whether all messages that came on the link for the first time were
        before it. A plain consumer is promised *at least once* the messages of an earlier link: they may come again at
        any time."""
        if self._came_on.setdefault(text, link) is not link and self.client.plain:
            return True
        is_later = link is not self._last[0] or place > self._last[1]
        self._last = link, place
        return is_later

    def went_since(self, at: float, link: object) -> bool:
        """Whether another link of this consumer has ended at its router since that time."""
        return any(one is not link and one.ended and one.ended_at >= at for one in self.client.opened)

    @property
    def in_doubt(self) -> list[bytes]:
        return [*self.client.texts.values(), *self.settles]


class Queues:
    """The part of the judge for queues. Without clients of queues it checks nothing."""

    def __init__(self, judge: "Judge") -> None:
        self._judge = judge
        self.logs = QueueLogs(self.check_of_set, self, self._left_ms)
        self.rules: dict[str, rules.Judge] = {}
        """Keyed by queue. Two queues that are bound to a topic have a copy of a message each."""
        self.consumers: dict[str, Consumer] = {}
        self.publishers: dict[str, Doubts] = {}
        self.applications = QueueApplications(judge, self)
        self.bound = BoundQueues(judge, self)
        self.annotations = Annotations(self)
        self.deals = Deals(self)
        self._world: QueueWorld
        self._ends: set[bytes] = set()
        """The names of the sets' publishing links."""
        self._said: dict[tuple[str, bytes], set[DeliveryOutcome]] = {}
        """Keyed by queue and message: the final outcomes of consumers."""
        self._reserved_at: dict[tuple[str, bytes], float] = {}
        """Keyed by queue and message: when it was last reserved."""
        self._deaths: Counter[tuple[str, bytes]] = Counter()
        """Keyed by queue and message: how often other queues have given it to this queue, as a dead letter or by a
        retry.
        """
        self._reused: set[bytes] = set()
        """Messages whose tag was used again while the set had an older delivery of it, or was about to have it."""
        self._latest: dict[bytes, bytes] = {}
        """Key of a delivery to a set -> the last message that was sent with it."""
        self._apart: set[frozenset[str]] = set()
        """Pairs of routers that had no contact when the judge last looked at one of them."""
        self._looked = 0.0

    def begin(self, world: "QueueWorld") -> None:
        self._world = self.bound.world = world
        for queue in world.names:
            self.rules[queue] = rules.Judge(self._check, self._note, partial(self._consumers_of, queue))
            set_ = world.set_of(queue)
            self._ends.add(link_name(egress_of(set_, queue)))
            letters = [letters_to(other, dead_letter_address(set_, queue)) for other in world.sets]
            self._ends.update(map(link_name, letters))

    def add(self, client: "Client", *, publisher: bool) -> None:
        address = client.identity.address
        if is_egress(address):
            self.consumers[client.name] = Consumer(self._judge, client)  # type: ignore[arg-type]
        elif publisher:
            self.publishers[client.name] = Doubts(self._judge, client)

    def _consumers_of(self, queue: str) -> "list[Consumer]":
        return [one for one in self.consumers.values() if one.queue == queue]

    def rules_of(self, consumer: str) -> rules.Judge:
        """The rules of the consumer's queue."""
        return self.rules[self.consumers[consumer].queue]

    @property
    def messages(self) -> list[rules.Message]:
        """The messages of all queues."""
        return [one for of_queue in self.rules.values() for one in of_queue.messages.values()]

    def _check(self, holds: bool, what: str) -> None:
        self._judge.check(holds, f"14 queue: {what}")

    def check_of_set(self, name: str, holds: bool, what: str) -> None:
        self._judge.check(holds or self.is_lost(name), what)

    def _left_ms(self, text: bytes, wall_ms: float) -> float:
        message = self._judge.messages.get(text)
        return left_ms(message, wall_ms) if message is not None else inf

    def _note(self, what: str) -> None:
        self._judge.note("judge", what)

    def owns(self, key: bytes) -> bool:
        """Whether the key is of a delivery that a set has published, to the consumers of a queue or to another
        queue."""
        return key[:NAME_LENGTH] in self._ends

    # clients in doubt

    def watch(self, router: "Router") -> None:
        """Check after each step of a router."""
        if not (self.consumers or self.publishers):
            return
        self.bound.watch(router)
        self.deals.watch(router)
        judge, name = self._judge, router.name
        others = [other for other in judge.routers if other != name]
        apart = {frozenset((name, other)) for other in others if judge.contact(router, other) is None}
        former = {pair for pair in self._apart if name in pair}
        if apart != former:
            self._look()
            self._apart = (self._apart - former) | apart
            self._look()
        elif judge.schedule.now >= self._looked + LOOK_S:
            self._look()

    def _look(self) -> None:
        self._looked = self._judge.schedule.now
        seen = {name: self._sees_all(router) for name, router in self._judge.routers.items()}
        for one in self._all:
            link = one.client.link
            self._watch(one, is_seen=link is not None and seen[link.router.name])

    @property
    def _all(self) -> "list[Doubts]":
        return [*self.consumers.values(), *self.publishers.values()]

    def _sees_all(self, router: "Router") -> bool:
        if not router.alive:
            return False
        others = [other for other in self._judge.routers.values() if other.alive and other is not router]
        return all(frozenset((router.name, other.name)) not in self._apart for other in others)

    def _watch(self, one: Doubts, *, is_seen: bool) -> None:
        was_in_doubt = one.is_in_doubt
        one.watch(is_seen=is_seen)
        if isinstance(one, Consumer) and one.is_in_doubt and not was_in_doubt:
            self._note(f"{one.name} is in doubt")
            self.rules[one.queue].loosen(one.in_doubt)

    def killed(self, router: "Router") -> None:
        """A router is about to be killed."""
        leaders = router.node._leaders
        led = leaders.led if leaders is not None else {}
        for one in self._all:
            link = one.client.link
            is_led = one.set in led or (bool(led) and not one.set)
            if one.client.plain and link is not None and (is_led or link.router is router):
                one.doubt()
                if isinstance(one, Consumer):
                    self.rules[one.queue].loosen(one.in_doubt)

    def left(self, name: str) -> None:
        """A consumer no longer has a link. The end of the link may have lost the settlements that it sent itself."""
        consumer = self.consumers[name]
        self.rules[consumer.queue].loosen(consumer.settles)
        consumer.settles.clear()

    # publishers

    def sent(self, message: "Message") -> None:
        publisher = self.publishers.get(message.publisher)
        if publisher is not None and publisher.queue:
            self._may_have(publisher.queue, message)
            self._latest[message.key] = message.text
            if message.key in self.logs.state(publisher.set).messages.unsettled.get(b"", ()):
                self._reused.add(message.text)

    def _may_have(self, queue: str, message: "Message") -> None:
        """The queue may have the message from now on."""
        is_lost = self.is_lost(self._world.set_of(queue))
        self.rules[queue].sent(message.text, rules.Message(may_be_gone=is_lost, is_loose=is_lost))

    def told(self, message: "Message", outcome: DeliveryOutcome) -> None:
        publisher = self.publishers.get(message.publisher)
        if publisher is not None and publisher.queue:
            one = self.rules[publisher.queue].messages[message.text]
            one.is_refused |= message.expired
            self.rules[publisher.queue].told(message.text, outcome)
        elif publisher is not None and outcome is DeliveryOutcome.ACCEPTED:
            for of_queue in self.rules.values():
                if message.text in of_queue.messages and of_queue.messages[message.text].enqueued:
                    of_queue.told(message.text, outcome)

    def has_refused(self, text: bytes) -> bool:
        """Whether a queue refused the message for lack of room."""
        return any(text in of_queue.messages and of_queue.messages[text].is_refused for of_queue in self.rules.values())

    def answered(self, link: "PublisherLink", message: "Message", outcome: DeliveryOutcome) -> None:
        """A home answers the publisher."""
        publisher = self.publishers.get(message.publisher)
        if publisher is None or outcome is not DeliveryOutcome.ACCEPTED:
            return
        if not publisher.queue and link.client.link is link:  # otherwise its publisher will not read the answer
            self.bound.accepted(link.router, message)
        if not publisher.queue or self.is_lost(publisher.set):
            return
        one = self.rules[publisher.queue].messages[message.text]
        is_there = one.enqueued > 0
        if not is_there and message.text in self._reused:  # protocol 14.3, Limit
            self._note(f"limit: an older answer counts for {message.text.decode()}, whose tag was used again")
            one.may_be_gone = is_there = True
        self._check(is_there, f"{message.text.decode()} is accepted, and was never in the queue")

    def said(self, queue: str, text: bytes, outcome: DeliveryOutcome) -> None:
        """A consumer has sent a final outcome of a message."""
        self._said.setdefault((queue, text), set()).add(outcome)

    def came_back(self, link: "SubscriberLink", text: bytes, failed: bool) -> None:
        """A client has given a message back, and its router settles that delivery. If an earlier link of the client has
        ended with the same delivery, the delivery counts as failed, whatever the client says now (protocol 14.6)."""
        consumer = self.consumers.get(link.client.name)
        if consumer is None:
            return
        reserved_at = self._reserved_at.get((consumer.queue, text), 0.0)
        if failed or not consumer.went_since(reserved_at, link):
            self.rules[consumer.queue].came_back(text, failed)

    def reserved(self, queue: str, text: bytes) -> None:
        self._reserved_at[queue, text] = self._judge.schedule.now

    def gives_back(self, link: "SubscriberLink", text: bytes, annotations: bytes) -> None:
        """The router of a client reads that the client gives a message back with these annotations."""
        if link.client.name in self.consumers:
            self.annotations.gives_back(link, self.consumers[link.client.name].queue, text, annotations)

    # what the sets' logs say

    def is_unwanted(self, queue: str, text: bytes, consumer: bytes) -> bool:
        ones = [one for one in self._consumers_of(queue) if link_name(one.client.identity) == consumer]
        return any(text in one.refused for one in ones)

    def freed(self, set_: str, queue: str, text: bytes, consumer: bytes, annotations: bytes) -> None:
        self.annotations.freed(set_, queue, text, consumer, annotations)

    def enqueued(self, set_: str, queue: str, text: bytes, asked: Enqueue, annotations: bytes) -> None:
        if asked.binding == DEAD_LETTERS:
            self._dead_letter_comes(set_, queue, text, annotations)
            return
        message = self._judge.messages.get(text)
        may_repeat = self.is_lost(set_) or (message is not None and self._may_repeat(message))
        if message is not None and asked.binding:
            may_repeat |= self.bound.comes(set_, queue, message, asked)
        elif message is not None:
            publisher = self.publishers[message.publisher]
            self._check(publisher.queue == queue, f"{text.decode()}, which is for {publisher.queue}, is in {queue}")
        if message is not None:
            self._comes(queue, message)
            message.was_given = True  # so no home may end it because its time is over
        self.rules[queue].enqueued(text, may_repeat=may_repeat)
        self.annotations.enqueued(set_, queue, text, annotations, ())

    def _comes(self, queue: str, message: "Message") -> None:
        if (latest := self._latest.get(message.key, message.text)) != message.text:
            self._reused.add(latest)
        if message.text not in self.rules[queue].messages:
            self._may_have(queue, message)

    def transacted(self, set_: str, asked: Transact, parts: list[tuple[str, bytes, bytes]]) -> None:
        self.deals.decided(set_, asked, parts)

    def set_of(self, queue: str) -> str:
        """The set that has the queue."""
        return self._world.set_of(queue)

    def refused(self, set_: str, queue: str, text: bytes, asked: Enqueue) -> None:
        self._comes(queue, self._judge.messages[text])
        self.rules[queue].messages[text].is_refused = True

    def has_older_answer(self, text: bytes) -> bool:
        return text in self._reused

    def processed(self, set_: str, queue: str, text: bytes) -> None:
        if not self.is_lost(set_):
            self.rules[queue].taken(text)

    # dead letters

    def died(self, set_: str, queue: str, text: bytes, sending: Sending) -> None:
        """A dead letter becomes a message of another queue. It is to be processed once there, and not in this queue
        unless a consumer has rejected it."""
        address, why = sending.address, sending.why
        message, label = self.rules[queue].messages[text], f"{text.decode()} of {queue} is a dead letter: {why.value}"
        self._note(f"{label}, for {address}")
        if not (message.is_loose or message.may_be_gone):
            said = self._said.get((queue, text), set())
            is_right = (said == {DeliveryOutcome.REJECTED}) if why is Why.REJECTED else not message.processed
            self._check(is_right, f"{label}, and consumers have said {sorted(said)}")
        message.is_dead = True
        if (child := _sent_as(text, sending)) is None:  # it was a dead letter too often, and stays in the outbox
            return
        may_come_again, may_be_gone = self._may_come_again(queue, text), message.may_be_gone or self.is_lost(set_)
        known = self.rules[address].messages.setdefault(child, rules.Message(is_told=True))
        known.may_be_gone |= may_be_gone or self.is_lost(self._world.set_of(address))
        self._deaths[address, child] += 1
        known.is_loose |= may_come_again or self._deaths[address, child] > 1

    def _may_come_again(self, queue: str, text: bytes) -> bool:
        """Whether the message may be a dead letter more than once."""
        message = self.rules[queue].messages[text]
        return message.enqueued > 1 or self.is_lost(self._world.set_of(queue))

    def _dead_letter_comes(self, set_: str, queue: str, text: bytes, annotations: bytes) -> None:
        """A dead letter comes to a queue. Only its text tells from which queue it is: it has died there, or an operator
        has retried it.
        """
        others = [(name, of_queue) for name, of_queue in self.rules.items() if name != queue]
        texts = rules.former(text), text
        former = [(name, one) for name, of_queue in others for one in texts if one in of_queue.messages]
        known = self.rules[queue].messages.get(text)
        may_repeat = self.is_lost(set_) or any(self._may_come_again(*one) for one in former)
        may_repeat |= known is not None and known.enqueued < self._deaths[queue, text]  # two queues had a copy each
        self.rules[queue].enqueued(text, may_repeat=may_repeat)
        self.annotations.enqueued(set_, queue, text, annotations, former)

    def may_go_back(self, queue: str, text: bytes) -> list[str]:
        """The queues from which the message, a dead letter, may have come here, and to which no operator has sent it
        back.
        """
        others = {name: of_queue.messages for name, of_queue in self.rules.items() if name != queue}
        parent = rules.former(text)
        return [name for name, there in others.items() if parent in there and text not in there]

    def posted(self, set_: str, queue: str, text: bytes, sending: Sending, *, taken: bool) -> None:
        child = _sent_as(text, sending)
        if child is None:
            self.check_of_set(set_, not taken, f"14.11 deaths: {text.decode()} was a dead letter too often")
            return
        message = self.rules[sending.address].messages[child]
        if taken:
            is_there = message.enqueued > 0 or message.may_be_gone
            self.check_of_set(set_, is_there, f"14.11 posted: {child.decode()} was never in {sending.address}")
        else:
            message.may_be_gone = True

    def removed(self, set_: str, queue: str, text: bytes, asked: Operation | Proposal) -> None:
        if isinstance(asked, Operation):
            is_asked = any(one.operation == asked for one in self._sets.requests)
            self._check(is_asked, f"nobody has asked for {asked}")
        self._note(f"{text.decode()} leaves {queue} by {type(asked).__name__}")
        self.rules[queue].left(text)

    def counted(self, asked: Purge | Retry, count: int) -> None:
        """An operator reads how many messages an operation has taken."""
        name = self._world.set_of(asked.name)
        counts = self.logs.counts.get(asked, [])
        self.check_of_set(name, count in counts, f"14.8 count: {asked} is told to have taken {count}, not {counts}")

    def _may_repeat(self, message: "Message") -> bool:
        """Whether the message's publisher is promised only *at least once*."""
        publisher = self.publishers[message.publisher]
        is_limited = publisher.is_in_doubt or self._judge.lives.is_spoken_for(message)
        return is_limited or message.anew or self._judge.is_settled_for(message.text)

    # losses

    def is_lost(self, name: str) -> bool:
        """Whether the set may have lost decided entries."""
        return name in self._sets.is_lost or name in self._sets.may_have_lost

    @property
    def _sets(self) -> "SetWorld":
        sets = next(iter(self._judge.routers.values())).sets
        assert sets is not None
        return sets

    def led_in(self, name: str) -> object:
        """The latest life and term in which a router leads the set."""
        return max((term for set_, *term in self._sets.leaders if set_ == name), default=None)

    def lost(self, name: str) -> None:
        """A set may have lost some of its entries."""
        for queue, of_queue in self.rules.items():
            for message in of_queue.messages.values() if self._world.set_of(queue) == name else ():
                message.may_be_gone = message.is_loose = True

    # in the end

    def waits(self) -> set[str]:
        """Clients whose set may never have a leader again."""
        if not self.publishers:
            return set()
        waiting = {one.name for one in self._all if one.set in self._sets.is_lost}
        if any(len(self.logs.state(name).bindings) for name in self._sets.is_lost):
            waiting |= {client.name for client in self._world.of_topics}
        return waiting

    def stranded(self) -> set[str]:
        """Queues that no longer have a consumer."""
        served = {one.queue for one in self.consumers.values() if not one.client.gone}
        return self.rules.keys() - served

    def unrest(self) -> str:
        """The first condition of the end that does not hold yet; empty if all hold."""
        stranded = self.stranded()
        for queue, of_queue in self.rules.items():
            for text in map(str.encode, of_queue.missing):
                if queue not in stranded:
                    return f"14 liveness: {text.decode()} was accepted, and nobody has processed it"
                is_there = self.logs.has(queue, text) or self._is_sent(text)
                self._check(is_there, f"{text.decode()} was accepted, and is gone")
        for name in sorted({self._world.set_of(queue) for queue in self.rules}):
            if name not in self._sets.is_lost and (left := self._left(name, stranded)):
                return left
        return self.deals.unrest(self._judge.routers, self.waits())

    def _is_sent(self, text: bytes) -> bool:
        """Whether the message is a dead letter in the outbox of a set."""
        return any(self.logs.is_sent(queue, one) for queue in self.rules for one in (rules.former(text), text))

    def _left(self, name: str, stranded: set[str]) -> str:
        """A message or row that a set still has although it should not; empty if there is none."""
        book = self.logs.book(name)
        messages = book.state.messages
        over = [at for at, over_ms in book.expires.items() if at not in book.reserved and over_ms < self._earliest_ms]
        if over:
            return f"14.9 liveness: the time of {over[:5]} is over, and they are in set {name}"
        if any(messages.of(queue.id) for queue in book.state if queue.name in stranded):
            return ""
        stuck = {position_key(at) for at in book.state.messages.outbox.letters if self._is_stuck(book.state, at)}
        rows = [key for key, _ in book.state.rows if key[:1] not in (DECLARED, BINDING, TRANSACTIONS)]
        rows = [key for key in rows if key[1:][:POSITION_LENGTH] not in stuck]
        return f"14 left: set {name} has rows {rows[:5]}" if rows else ""

    def _is_stuck(self, state: SetState, position: int) -> bool:
        """Whether a message stays in the outbox for good."""
        sending, text = state.messages.outbox.letters[position].sending, state.messages.sent[position]
        assert text is not None
        return _sent_as(text, sending) is None or self._world.set_of(sending.address) in self._sets.is_lost

    @property
    def _earliest_ms(self) -> float:
        """A time that was over some seconds ago by all clocks, in milliseconds."""
        return min(router.wall_us() for router in self._judge.routers.values()) / 1000 - EXPIRED_MS


def _sent_as(text: bytes, sending: Sending) -> bytes | None:
    """The message that its address gets. None if it was a dead letter too often."""
    return text if sending.why is Why.RETRIED else died(text)


class QueueApplications:
    """The messages that applications of consumers get and forget. Replaces `tests.simulation.applications`."""

    def __init__(self, judge: "Judge", queues: Queues) -> None:
        self._judge = judge
        self._queues = queues

    def amnesia(self, name: str, unsettled: Iterable[bytes]) -> None:
        """The consumer's application has forgotten these messages. Other consumers may get them."""
        self._queues.rules_of(name).loosen(unsettled)

    def left(self, name: str) -> None:
        self._queues.left(name)

    def settles(self, name: str, text: bytes) -> None:
        """The consumer settles the delivery itself."""
        self._queues.consumers[name].settles.append(text)

    def transferred(self, link: "SubscriberLink", record: Record, attempts: int) -> None:
        assert record.message is not None
        text, failures = unmarked(record.message)
        self._judge.note(link.router.name, f"transfers {text.decode()} to {link}{f' ({attempts})' if attempts else ''}")
        self._check_reserved(link, text, record)
        consumer, logs = self._queues.consumers[link.client.name], self._queues.logs
        if link.client.link is link:  # a client that has left the link reads nothing of it
            self._queues.rules[consumer.queue].transferred(text, failures, logs.times_back(consumer.queue, text))
        place = logs.place(consumer.queue, text)
        in_order = place is None or attempts > 0 or consumer.comes_later(link, text, place)
        self._judge.check(in_order, f"14 order: {text.decode()} comes to {link} after what is behind it in the queue")
        if link.sends_settled:
            message = self._queues.rules[consumer.queue].messages[text]
            message.may_be_gone = message.is_loose = True

    def resumed(self, link: "SubscriberLink", record: Record, state: int, settled: bool) -> None:
        self._judge.note(link.router.name, f"resumes {record.key[12:17].decode()} at {link}: {state}, {settled}")
        if not (state or settled):
            assert record.message is not None
            self._check_reserved(link, unmarked(record.message)[0], record)

    def _check_reserved(self, link: "SubscriberLink", text: bytes, record: Record) -> None:
        assert record.message is not None
        name = link_name(link.client.identity)
        consumer = self._queues.consumers[link.client.name]
        address = record.stream.identity == egress_of(consumer.set, consumer.queue)
        self._judge.check(address, f"14 address: {text.decode()} to {link}")
        message = self._queues.rules[consumer.queue].messages[text]
        is_reserved = self._queues.logs.was_reserved(consumer.queue, text, name) or message.may_be_gone
        self._judge.check(is_reserved, f"14 reserved: {text.decode()} goes to {link}, for which it was never reserved")
        self._queues.annotations.transferred(consumer.set, link, consumer.queue, text, record.message)

    def restated(self, name: str, text: bytes, said: int, state: int) -> None:
        """A router resumes a delivery with a state instead of the payload. The state has to be what the consumer says
        now.
        """
        consumer = self._queues.consumers[name]
        is_loose = self._queues.rules[consumer.queue].messages[text].is_loose
        done = said == state or consumer.is_in_doubt or is_loose
        self._judge.check(done, f"14 resume: {name} said {said} of {text.decode()}, and is told {state}")

    def seen(self, name: str, router: str, text: bytes, key: bytes, attempts: int, resumed: bool) -> None:
        """The application gets a message."""
        self._judge.seen_count += 1
        consumer = self._queues.consumers[name]
        of_queue = self._queues.rules[consumer.queue]
        now = consumer.client.link, self._queues.led_in(consumer.set)
        is_unwanted = consumer.refused.get(text) == now and not consumer.is_in_doubt
        label = f"{text.decode()} comes to {name}, which has refused it for itself"
        self._judge.check(not is_unwanted, f"14.6 refused: {label}")
        of_queue.handed(consumer, text)
        if consumer.client.sends_settled:
            of_queue.processed(consumer, text)

    def is_settled_for(self, text: bytes) -> bool:
        """Whether routers may settle the message without its publisher's knowledge. A queue does not."""
        return False

    def forgotten(self, client: "SubscriberClient", text: bytes, said: int, how: str) -> None:
        """A consumer considers a delivery settled."""
        consumer = self._queues.consumers[client.name]
        of_queue = self._queues.rules[consumer.queue]
        message = of_queue.messages[text]
        if said in FINAL and not client.settles:
            of_queue.settled(consumer, text)
        if said in GIVEN_BACK or consumer.is_in_doubt or message.is_loose or message.may_be_gone:
            return
        is_taken = not self._queues.logs.has(consumer.queue, text)
        self._judge.check(is_taken, f"14 settled early: {text.decode()} at {client.name}, {how}, is in the queue")

    def outcome(self, name: str, text: bytes, outcome: DeliveryOutcome, final: bool) -> None:
        consumer = self._queues.consumers[name]
        if final and consumer.tells_of(text):
            consumer.refused[text] = consumer.client.link, self._queues.led_in(consumer.set)
        if outcome in FINAL:
            self._queues.said(consumer.queue, text, outcome)
            self._queues.rules[consumer.queue].processed(consumer, text)
