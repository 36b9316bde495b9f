"""Checks the promises of protocol 9 after every step, with a view of the whole mesh.

The judge trusts no core about a promise. It records the subscribers that a publisher's router knew when it got a
message: these are promised the message. `tests.simulation.termini` checks that no router forgets a subscriber without
cause. The judge recognises a limit by its cause, and notes it in the trace as "limit: ...":
- when home decided, no router that can have told it knew the subscriber; or the subscriber came with a null map to
  routers that did not know it
- a slower clock gave an older attach of the client a later epoch, or an attach from before the client began afresh came
  later; deliveries of a life that this has ended come twice only if a router resumed the life that did not know the end
- a router answered an older attach before it read the close that followed that attach: both ended the life begun since
- a life expired on one side of a partition and continued on the other; or longer ago than routers remember, or run
- the machine of a publisher that answers no echo acknowledged on a link that the publisher had left: for that life
- a router that did not know the life of a publisher which echoes nothing ended it, and another one that did not know
  the end resumed it
- a publisher in mode first sent again what was settled for it, and a router still held what it had sent first
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from tests.simulation import ttl
from tests.simulation.applications import Applications
from tests.simulation.balanced import PREFIX, Balanced
from tests.simulation.filters import CHANGED, check_refused, is_left_out, is_named
from tests.simulation.knobs import Knobs
from tests.simulation.lives import Lives
from tests.simulation.memory import Memory
from tests.simulation.parties import (
    CLOSED,
    FORGOTTEN,
    GIVEN_UP,
    REJECTED,
    Message,
    Reader,
    Violation,
)
from tests.simulation.plain import PlainSubscribers
from tests.simulation.promises import Promises, why_unknown
from tests.simulation.queue_judge import QueueApplications, Queues
from tests.simulation.termini import Termini
from tests.simulation.wildcards import covers
from tests.simulation.windows import check_windows
from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import HomeStream, State
from topic.directory.entry import Status
from topic.identity import Epoch, is_egress, link_name

if TYPE_CHECKING:
    from tests.simulation.client import Client
    from tests.simulation.link import Link
    from tests.simulation.publisher import Publisher
    from tests.simulation.publisher_link import PublisherLink
    from tests.simulation.router import Router
    from tests.simulation.schedule import Schedule
    from tests.simulation.subscriber import SubscriberClient
    from tests.simulation.subscriber_link import SubscriberLink


class Judge:
    def __init__(
        self, schedule: "Schedule", routers: "dict[str, Router]", knobs: Knobs, note: Callable[[str, str], None]
    ) -> None:
        self.schedule = schedule
        self.routers = routers
        self.redeliveries = knobs.redeliveries
        self.grace = knobs.grace
        self.note = note
        self.messages: dict[bytes, Message] = {}
        self.readers: dict[str, Reader] = {}
        self.subscribers: list[SubscriberClient] = []
        self.termini = Termini(self)
        self.lives = Lives(self)
        self.memory = Memory(self)
        self.plain = PlainSubscribers(self)
        self.applications = Applications(self)
        self.balanced = Balanced(self)
        self.queues = Queues(self)
        self.by_key: dict[bytes, Message] = {}
        """The last message sent under each key."""
        self.seen_count = 0
        self.accepted_count = 0
        self.promises = Promises(self.readers)
        self.inexact: set[str] = set()
        """The clients for which some limit has ended the promise of exactly once for good."""
        self.untold: dict[str, bool] = {}
        """For each subscriber that routers have ended and that does not know it: whether a router must tell it."""

    def check(self, holds: bool, what: str) -> None:
        if not holds:
            raise Violation(what)

    def has_met_limit(self, name: str) -> bool:
        """Whether routers may take an older attach of the client for its latest one, or another process for the
        client."""
        return name in self.inexact or name in self.memory.overtaken

    def add_reader(self, client: "SubscriberClient") -> None:
        first = client.settles or client.changes_modes
        exact = not (client.plain or first or client.sends_settled)
        address, resumes = client.identity.address, not client.plain
        self.readers[client.name] = Reader(address, exact, resumes, first, client.sends_settled)
        self.subscribers.append(client)

    def share_name(self, client: "Client", twin: "Client") -> None:
        """Two clients share one name. They are promised nothing, and each may get answers to the other's messages
        (protocol 10).
        """
        self.inexact |= {client.name, twin.name}
        if client.name in self.readers:
            reader = self.readers[twin.name] = self.readers[client.name]
            reader.exact, reader.first, reader.at_most_once = False, True, True

    def applications_at(self, address: str) -> Applications | QueueApplications:
        """The judge of messages that subscribers of the address get."""
        return self.queues.applications if is_egress(address) else self.applications

    def contact(self, here: "Router", there: str) -> object:
        """The name of the contact that both ends have, and in which both have applied the other's section, or None."""
        other = self.routers[there]
        if not (here.alive and other.alive):
            return None
        mine, theirs = here.topic.directory, other.topic.directory
        joined = mine.contacts.get(there) == other.incarnation and theirs.contacts.get(here.name) == here.incarnation
        if not (joined and there in mine.applied and here.name in theirs.applied):
            return None
        return here.incarnation, other.incarnation, here.contact_numbers[there], other.contact_numbers[here.name]

    def watch(self, router: "Router") -> None:
        self.termini.watch(router)
        self.memory.watch(router)
        self.plain.watch(router)
        self.queues.watch(router)
        check_windows(router)
        self._check_keys(router)

    def _check_keys(self, router: "Router") -> None:
        """No delivery of a plain publisher waits at its home for the key of a settled delivery."""
        records = router.topic.records
        for key, stream in records.busy_keys.items():
            if isinstance(stream, HomeStream) and not stream.needs_tags and key in records.by_key:
                is_over = records.by_key[key].state is State.SETTLED
                self.check(not is_over, f"5 reused tags: {router.name} waits for a settled delivery to be forgotten")

    # publishers

    def sent(self, publisher: "Publisher", text: bytes, tag: bytes, presettled: bool) -> None:
        name, life = publisher.name, publisher.life
        number = int(text.rstrip(b".s").split(b".")[2])
        key = self.lives.key(publisher, tag)
        assert publisher.link is not None
        message = Message(text, name, life, number, presettled, key, publisher.plain, publisher.link)
        self.messages[text] = self.by_key[key] = message
        self.queues.sent(message)

    def is_settled_for(self, text: bytes) -> bool:
        """Whether routers settle the message unknown to its publisher, which is promised *at least once* (protocol 1).
        They do so with the outcome if the publisher is in settle mode first, now and then at least; or with a contact
        if it is plain."""
        publisher = self.messages[text].sent_on.client
        return publisher.first or publisher.changes_modes or publisher.plain

    def is_told_apart(self, publisher: "Publisher", tag: bytes) -> bool:
        """Whether the publisher's home gives a new delivery with this tag a key of its own."""
        link = publisher.link
        if link is None or not link.answered or not link.router.alive or publisher.knobs.ttl:
            return False
        topic = link.router.topic
        if topic.home.streams.get(link.stream.publisher) is not link.stream or link.stream.needs_tags:
            return False
        last = topic.records.by_key.get(self.lives.key(publisher, tag))
        return bool(link.stream.numbered) or (last is not None and last.state is State.SETTLED)

    def forgotten_everywhere(self, publisher: "Publisher", tag: bytes) -> bool:
        """Whether no router and no subscriber knows the key. Another life may have used the same key: a publisher that
        echoes nothing may get an older generation.
        """
        key = self.lives.key(publisher, tag)
        last = self.by_key.get(key)
        if last is None or (last.published < 0 and last.sent_on is publisher.link):  # or it is on its way still
            return last is None
        routers = [router for router in self.routers.values() if router.alive]
        held = any(key in router.topic.records.by_key or self._is_behind(router) for router in routers)
        return not held and not any(client.has(key) for client in self.subscribers)

    def _is_behind(self, router: "Router") -> bool:
        """Whether the router has not noticed the end of a contact: frames of that contact may wait to be read."""
        contacts = [(self.routers[name], incarnation) for name, incarnation in router.topic.directory.contacts.items()]
        return not all(
            other.alive and other.incarnation == incarnation and router.name in other.topic.directory.contacts
            for other, incarnation in contacts
        )

    def received(self, link: "PublisherLink", texts: list[bytes]) -> None:
        promised = [name for name, reader in self.readers.items() if self.is_promised(link, name, reader)]
        for text in texts:
            message = self.messages[text]
            self.plain.move(message, link)
            if message.settled_for and not message.is_older(link):  # an answer was lost that settled it: at least once
                self._sent_anew(text)
            if message.published < 0 and not message.presettled:
                message.promised = {name for name in promised if not is_left_out(self.readers[name], text)}
                message.promised_at = self.schedule.now
                self.queues.bound.received(link.router, message)
                self.promises.made += sum(self.readers[name].exact for name in message.promised)
            message.published = self.schedule.now
            self.balanced.received(message, link.router)

    def _sent_anew(self, text: bytes) -> None:
        """There is another delivery under the key now. The settlement of the first one does not apply to it."""
        message = self.messages[text]
        message.anew = True
        message.over = message.was_given = False
        tables = [router.topic.records.by_key for router in self.routers.values() if router.alive]
        held = [table[message.key] for table in tables if message.key in table]
        message.former = [record for record in held if record.state is State.SETTLED]
        for reader in self.readers.values():
            reader.had.discard(text)
            reader.on_link.pop(text, None)

    def republished(self, link: "PublisherLink", text: bytes) -> None:
        message = self.messages[text]
        self.plain.move(message, link)
        if message.settled_for and not message.is_older(link):
            self._sent_anew(text)
        message.published = max(message.published, self.schedule.now)
        self.balanced.received(message, link.router)

    def is_promised(self, link: "PublisherLink", name: str, reader: Reader) -> bool:
        """Whether the subscriber is promised the messages that come on the link now."""
        address = link.client.identity.address
        if not covers(reader.address, address) or reader.at_most_once or address.startswith(PREFIX):
            return False
        if reader.resumes:
            return reader.since is not None and self.termini.knows(link.router, name, reader)
        return self.plain.has_joined(link.router, reader)

    def withheld(self, texts: list[bytes | None]) -> None:
        """The home withholds these messages. It computes their audience later, when their keys are free, or when
        routers can take more.
        """
        for text in filter(None, texts):
            self.messages[text].published = math.inf

    def released(self, home: "Router", keys: Sequence[bytes]) -> None:
        """The home has computed the audience of these messages, which it may have withheld."""
        self.learn_keys(home, keys)
        for message in filter(None, map(self.by_key.get, keys)):
            message.published = min(message.published, self.schedule.now)

    def learn_keys(self, home: "Router", keys: Sequence[bytes]) -> None:
        """Learn the keys of messages at their home. If the tag of a message had been used before, the home may have
        numbered its key. A set publishes messages with keys of its own."""
        withheld = {one.key: one for stream in home.topic.home.streams.values() for one in stream.withheld}
        known = withheld | home.topic.records.by_key
        for record in [known[key] for key in keys if key in known and not self.queues.owns(key)]:
            message = self.messages.get(record.message or b"")
            if message is not None and self.lives.is_numbered(message, record.key):
                message.key, self.by_key[record.key] = record.key, message

    def given_up(self, text: bytes) -> None:
        message = self.messages[text]
        for name in sorted(message.promised):
            self.ends(message, name, GIVEN_UP)

    def ends(self, message: Message, name: str, cause: str) -> None:
        """The promise of the message to the subscriber ends."""
        message.promised.discard(name)
        if self.readers[name].exact and message.text not in self.readers[name].final:
            self.promises.ended.append((message, name, cause))
            self.note("judge", f"{message.text.decode()} need not get to {name}: {cause}")

    def told(self, link: "Link") -> None:
        """A client reads that a router has ended its terminus. Its next attach makes a new one."""
        name = link.client.name
        if name in self.readers:
            self.untold.pop(name, None)
            self.readers[name].since = None
            self.readers[name].told = link.epoch
            self.readers[name].told_at = self.schedule.now

    def settled(self, text: bytes) -> None:
        self.messages[text].over = True

    def life_over(self, texts: Iterable[bytes]) -> None:
        """The publisher has given up these messages."""
        for text in texts:
            self.messages[text].over = True
            self.given_up(text)

    def informed(self, text: bytes, outcome: DeliveryOutcome) -> None:
        """The publisher has read the outcome."""
        self.messages[text].told = True
        self.queues.told(self.messages[text], outcome)
        ttl.informed(self, self.messages[text])

    def answered(self, link: "PublisherLink", texts: list[bytes], outcome: DeliveryOutcome) -> None:
        """A home answers its publisher."""
        for text in texts:
            self.note(link.router.name, f"answers {text.decode()} {outcome.name}")
            self.accepted_count += outcome is DeliveryOutcome.ACCEPTED
            self.queues.answered(link, self.messages[text], outcome)
            if link.first:
                self.messages[text].over = self.messages[text].settled_for = True
                assert link.epoch is not None
                self.messages[text].settled_on.add(link.epoch)
                if link.client.link is not link:
                    self._sent_anew(text)

    def decided(self, home: "Router", keys: Sequence[bytes], outcome: str) -> None:
        """A home has decided the outcome by its present knowledge. It may know more when the answer goes out."""
        self.termini.watch(home)  # it may have let subscribers expire in this event
        for message in [self.by_key[key] for key in keys if not self.queues.owns(key)]:
            if message.home != home.name:
                continue  # a zombie home: its link's other end has gone on elsewhere, and will not read the answer
            check_refused(self, message, outcome)
            self.balanced.decided(message, outcome, home)
            for name in sorted(message.promised):
                self._check_promise(home, message, name, outcome)

    def _check_promise(self, home: "Router", message: Message, name: str, outcome: str) -> None:
        reader = self.readers[name]
        done = reader.accepted if outcome == "ACCEPTED" else reader.final
        if message.text in done:
            return
        if is_left_out(reader, message.text) and not is_named(reader, message.key):
            return self.ends(message, name, CHANGED)
        if not reader.resumes:
            if self.plain.is_out_of_reach(name, reader, home):
                return self.plain.missed(message, name, home, accepted=outcome == "ACCEPTED")
        elif home.has_booted and not self.termini.known_around(home, name, reader, but_for=self._ended(home, name)):
            if message.sent_on.client.link is not message.sent_on:
                return  # the publisher has left that link, and will not read the answer
            return self.ends(message, name, why_unknown(self, home, message, name))
        elif outcome == "REJECTED" and link_name(self._subscriber(name).identity) in home.topic.directory.lapsed:
            return self.ends(message, name, REJECTED)
        label = message.text.decode()
        raise Violation(f"2 {outcome.lower()} too early: {home.name} answers {label}, {name} is not done with it")

    def _ended(self, home: "Router", name: str) -> Epoch | None:
        """The attach of which the home knows that it has expired. Routers around it may not know that yet, and may
        still promise messages that a publisher brings from elsewhere. `termini` checks each expiry when it happens."""
        entry = home.topic.directory.subscriber(link_name(self._subscriber(name).identity))
        return entry.epoch if entry is not None and entry.status is Status.EXPIRED else None

    def _subscriber(self, name: str) -> "SubscriberClient":
        return next(client for client in self.subscribers if client.name == name)

    def has_twin(self, name: str) -> bool:
        """Whether another process has used the client's name. The statements of both processes count for both (protocol
        10)."""
        client = self._subscriber(name)
        return any(link.client is not client for link in client.opened)

    # subscribers

    def attaching(self, name: str) -> None:
        reader = self.readers[name]
        if reader.first_attach < 0:
            reader.first_attach = self.schedule.now
        reader.on_link.clear()

    def attached(self, link: "SubscriberLink") -> None:
        """A router answers the attach: all routers in contact have joined the subscriber."""
        name = link.client.name
        reader = self.readers[name]
        if reader.link is None or reader.link.number < link.number:
            reader.link = link
            link.answered_at = self.schedule.now
            if reader.since is None and not link.closed:
                reader.since = link.epoch

    def closing(self, link: "Link") -> None:
        """The client closes its link, and gives up the messages that it was promised."""
        link.closed = True
        reader = self.readers.get(link.client.name)
        if reader is not None and reader.resumes:
            reader.since = None
            self.untold.pop(link.client.name, None)
            self.void(link.client.name, lambda home: True, CLOSED)

    def comes(self, link: "SubscriberLink", unsettled: object) -> None:
        """An attach reaches its router. If it has a null map, and no router around knows the subscriber, it makes a new
        subscriber. Homes out of contact with that router lose a plain subscriber."""
        name = link.client.name
        reader = self.readers[name]
        self.plain.comes(link)
        self.balanced.asked(link.named or ())
        lost = reader.resumes and reader.since is not None and unsettled is None
        if lost and not self.termini.known_around(link.router, name, reader):
            around = [router.name for router in self.termini.around(link.router)]
            self.untold.pop(name, None)
            self.void(name, lambda home: home in around, FORGOTTEN)
        if name in self.untold and (unsettled is None or link.client.away >= link.client.shortest):
            self.untold[name] = False  # it claims nothing from before, or knows the end by itself

    def void(self, name: str, at: Callable[[str], bool], cause: str = "") -> None:
        for message in self.messages.values():
            if name in message.promised and at(message.home):
                self.ends(message, name, cause)
