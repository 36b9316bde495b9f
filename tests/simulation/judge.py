"""What protocol 9 promises, checked after every step by somebody who sees the whole mesh.

It trusts no core with a promise: what a subscriber was promised is what its publisher's router knew of it when it got
the message, and `tests.simulation.termini` watches that no router forgets a subscriber without cause. A limit is
recognised by its cause, noted in the trace as "limit: ...":

- when home decided, no router that can have told it knew the subscriber; or that came with a null map, to such
- a slower clock gave an older attach of the client a later epoch, or one from before it began afresh came after that
- a life expired on one side of a partition and went on elsewhere; or longer ago than routers remember
- the machine of a publisher that answers no echo acknowledged on a link that the publisher had left: for that life
- the life of a publisher that echoes nothing was ended by who did not know it, and resumed by who did not hear of that
- a publisher in mode first sent again what was settled for it, and a router still held what it had sent first
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from tests.simulation.knobs import Knobs
from tests.simulation.lives import Lives
from tests.simulation.memory import Memory
from tests.simulation.parties import (
    APART,
    CLOSED,
    DELETED,
    FORGOTTEN,
    GIVEN_UP,
    REJECTED,
    UNKNOWN,
    VOLATILE,
    Message,
    Reader,
    Violation,
)
from tests.simulation.promises import Promises
from tests.simulation.termini import Termini
from tests.simulation.windows import check_windows
from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import Record
from topic.directory.entry import Status
from topic.edge.unconfirmed import FINAL
from topic.identity import NAME_LENGTH, Epoch, delivery_key, link_name

if TYPE_CHECKING:
    from tests.simulation.client import Client
    from tests.simulation.link import Link
    from tests.simulation.publisher import Publisher
    from tests.simulation.publisher_link import PublisherLink
    from tests.simulation.router import Router
    from tests.simulation.schedule import Schedule
    from tests.simulation.subscriber import SubscriberClient
    from tests.simulation.subscriber_link import SubscriberLink

RECENT = 10.0
"""Seconds after which every router in contact knows that a plain subscriber has moved."""


class Judge:
    def __init__(
        self, schedule: "Schedule", routers: "dict[str, Router]", knobs: Knobs, note: Callable[[str, str], None]
    ) -> None:
        self.schedule = schedule
        self.routers = routers
        self.redeliveries = knobs.redeliveries
        self.note = note
        self.messages: dict[bytes, Message] = {}
        self.readers: dict[str, Reader] = {}
        self.subscribers: list[SubscriberClient] = []
        self.termini = Termini(self)
        self.lives = Lives(self)
        self.memory = Memory(self)
        self._by_key: dict[bytes, Message] = {}
        """The last message sent under each key."""
        self.seen_count = 0
        self.accepted_count = 0
        self.promises = Promises(self.readers)
        self.inexact: set[str] = set()
        """Clients that some limit has left without the promise of exactly once, for good."""
        self.untold: dict[str, bool] = {}
        """Subscribers that have ended without their word and do not know of it, and whether they must be told."""

    def check(self, holds: bool, what: str) -> None:
        if not holds:
            raise Violation(what)

    def add_reader(self, client: "SubscriberClient") -> None:
        first = client.first or client.changes_modes
        exact = not (client.plain or first or client.sends_settled)
        address, resumes = client.identity.address, not client.plain
        self.readers[client.name] = Reader(address, exact, resumes, first, client.sends_settled)
        self.subscribers.append(client)

    def share_name(self, client: "Client", twin: "Client") -> None:
        """Both are promised nothing, and what one has said the other may be told (protocol 10)."""
        self.inexact |= {client.name, twin.name}
        if client.name in self.readers:
            reader = self.readers[twin.name] = self.readers[client.name]
            reader.exact, reader.first, reader.at_most_once = False, True, True

    def contact(self, here: "Router", there: str) -> object:
        """What names the contact that both ends have, and in which both have applied the other's section."""
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
        check_windows(self, router)

    # publishers

    def sent(self, publisher: "Publisher", text: bytes, tag: bytes, presettled: bool) -> None:
        name, life = publisher.name, publisher.life
        number = int(text.rstrip(b".s").split(b".")[2])
        key = delivery_key(publisher.identity, self.lives.generations[name, life], tag)
        assert publisher.link is not None
        message = Message(text, name, life, number, presettled, key, publisher.plain, publisher.link)
        self.messages[text] = self._by_key[key] = message

    def is_settled_for(self, text: bytes) -> bool:
        """Whether routers settle it as they tell its outcome: its publisher is in settle mode first, at least now and
        then, and is promised *at least once* (protocol 1)."""
        publisher = self.messages[text].sent_on.client
        return publisher.first or publisher.changes_modes

    def forgotten_everywhere(self, publisher: "Publisher", tag: bytes) -> bool:
        """Another life may have used the same key: a publisher that echoes nothing may be given an older generation."""
        key = delivery_key(publisher.identity, self.lives.generations[publisher.name, publisher.life], tag)
        last = self._by_key.get(key)
        if last is None or (last.published < 0 and last.sent_on is publisher.link):  # or it is on its way still
            return last is None
        routers = [router for router in self.routers.values() if router.alive]
        held = any(key in router.topic.records.by_key or self._is_behind(router) for router in routers)
        return not held and not any(client.has(key) for client in self.subscribers)

    def _is_behind(self, router: "Router") -> bool:
        """It has not noticed that a contact is over: what was forwarded in that may wait to be read."""
        contacts = [(self.routers[name], incarnation) for name, incarnation in router.topic.directory.contacts.items()]
        return not all(
            other.alive and other.incarnation == incarnation and router.name in other.topic.directory.contacts
            for other, incarnation in contacts
        )

    def published(self, key: bytes) -> float:
        """When the last message sent under the key came to its home, first or again."""
        return self._by_key[key].published

    def received(self, link: "PublisherLink", texts: list[bytes]) -> None:
        promised = [name for name, reader in self.readers.items() if self._is_promised(link, name, reader)]
        for text in texts:
            message = self.messages[text]
            self._move(message, link)
            if message.settled_for:  # by an answer that was lost: at least once
                self._sent_anew(text)
            if message.published < 0 and not message.presettled:
                message.promised, message.promised_at = set(promised), self.schedule.now
                self.promises.made += sum(self.readers[name].exact for name in promised)
            message.published = self.schedule.now

    def _move(self, message: Message, link: "PublisherLink") -> None:
        """It may have another home now, or a restarted one: plain subscribers are then those of its contacts."""
        home, plain = link.router, {name: reader for name, reader in self.readers.items() if not reader.resumes}
        if message.home not in ("", home.name):
            message.promised -= plain.keys()
        elif message.home and message.incarnation != home.incarnation:
            known = {name for name, reader in plain.items() if self._is_promised(link, name, reader)}
            message.promised -= plain.keys() - known
        message.home, message.incarnation, message.sent_on = home.name, home.incarnation, link

    def _sent_anew(self, text: bytes) -> None:
        """Under its key there is another delivery now: that the first one was settled says nothing of it."""
        self.messages[text].anew = True
        self.messages[text].over = False
        for reader in self.readers.values():
            reader.had.discard(text)
            reader.on_link.pop(text, None)

    def republished(self, link: "PublisherLink", text: bytes) -> None:
        message = self.messages[text]
        self._move(message, link)
        if message.settled_for:
            self._sent_anew(text)
        message.published = max(message.published, self.schedule.now)

    def _is_promised(self, link: "PublisherLink", name: str, reader: Reader) -> bool:
        if reader.address != link.client.identity.address or reader.at_most_once:
            return False
        if reader.resumes:
            return reader.since is not None and self.termini.knows(link.router, name, reader)
        custodian = reader.link
        if custodian is None or custodian.ended:
            return False
        newest = max((link for link in reader.links if link.attached), key=lambda link: link.number)
        return self._has_joined(link.router, custodian) and self._has_joined(link.router, newest)

    def _has_joined(self, home: "Router", link: "SubscriberLink") -> bool:
        router = link.router
        return not link.ended and (router is home or self.contact(router, home.name) is not None)

    def withheld(self, texts: list[bytes | None]) -> None:
        """Their audience is computed later, when their keys are free."""
        for text in texts:
            if text is not None:
                self.messages[text].published = math.inf

    def settled_early(self, text: bytes) -> None:
        self._given_up(text)

    def _given_up(self, text: bytes) -> None:
        message = self.messages[text]
        for name in sorted(message.promised):
            self.ends(message, name, GIVEN_UP)

    def ends(self, message: Message, name: str, cause: str) -> None:
        """The subscriber need not get the message any more."""
        message.promised.discard(name)
        if self.readers[name].exact and message.text not in self.readers[name].final:
            self.promises.ended.append((message, name, cause))
            self.note("judge", f"{message.text.decode()} need not get to {name}: {cause}")

    def told(self, link: "Link") -> None:
        """A client reads that its terminus has ended without its doing: the next attach is a new one."""
        name = link.client.name
        if name in self.readers:
            self.untold.pop(name, None)
            self.readers[name].since = None
            self.readers[name].told = link.epoch
            self.readers[name].told_at = self.schedule.now

    def settled(self, text: bytes) -> None:
        self.messages[text].over = True

    def life_over(self, texts: Iterable[bytes]) -> None:
        """The publisher has given these up."""
        for text in texts:
            self.messages[text].over = True
            self._given_up(text)

    def informed(self, text: bytes) -> None:
        """The publisher has been told the outcome."""
        self.messages[text].told = True

    def answered(self, link: "PublisherLink", texts: list[bytes], outcome: DeliveryOutcome) -> None:
        """A home answers its publisher."""
        for text in texts:
            self.note(link.router.name, f"answers {text.decode()} {outcome.name}")
            self.accepted_count += outcome is DeliveryOutcome.ACCEPTED
            if link.first:
                self.messages[text].over = self.messages[text].settled_for = True
                if link.client.link is link:
                    assert link.epoch is not None
                    self.messages[text].settled_on.add(link.epoch)
                else:
                    self._sent_anew(text)

    def decided(self, home: "Router", keys: Sequence[bytes], outcome: str) -> None:
        """A home has decided to answer so, by what it knows now: it may know more when the answer goes out."""
        self.termini.watch(home)  # in the same event, it may have let subscribers expire
        for key in keys:
            message = self._by_key[key]
            if message.home != home.name:
                continue  # a zombie home: its link's other end has gone on elsewhere, and will not read the answer
            for name in sorted(message.promised):
                self._check_promise(home, message, name, outcome)

    def _check_promise(self, home: "Router", message: Message, name: str, outcome: str) -> None:
        reader = self.readers[name]
        done = reader.accepted if outcome == "ACCEPTED" else reader.final
        if message.text in done:
            return
        if not reader.resumes:
            if self._moved_out_of_reach(reader, home) or self._is_overtaken(name, reader, home):
                return
        elif home.has_booted and not self.termini.known_around(home, name, reader, but_for=self._ended(home, name)):
            if message.sent_on.client.link is not message.sent_on:
                return  # the publisher has left that link, and will not read the answer
            self.ends(message, name, self._why_unknown(home, message, name))
            return
        elif outcome == "REJECTED" and self._has_lapsed(home, name):
            self.ends(message, name, REJECTED)
            return
        label = message.text.decode()
        raise Violation(f"2 {outcome.lower()} too early: {home.name} answers {label}, {name} is not done with it")

    def _ended(self, home: "Router", name: str) -> Epoch | None:
        """The attach that home knows to have expired. Those around may not have heard of that yet, and what a publisher
        brings from elsewhere may be promised still. That it was right to expire is checked as it happens."""
        entry = home.topic.directory.subscriber(link_name(self._subscriber(name).identity))
        return entry.epoch if entry is not None and entry.status is Status.EXPIRED else None

    def _why_unknown(self, home: "Router", message: Message, name: str) -> str:
        """Why nobody around home knows the subscriber: home knows that it has ended; or all routers that knew it by
        then have died, and it had not asked them to remember it; or a store is not what it was; or who knows it is
        elsewhere."""
        entry = home.topic.directory.subscriber(link_name(self._subscriber(name).identity))
        if entry is not None and not entry.live:
            return CLOSED if entry.status is Status.CLOSED else APART
        reader, durable = self.readers[name], self._subscriber(name).durable
        older = [router for router in self.routers.values() if router.alive and router.booted_at <= message.promised_at]
        if not durable and not any(self.termini.knows(router, name, reader) for router in older):
            return VOLATILE
        deleted = any((router.name, name) in self.memory.deleted for router in self.termini.around(home))
        return DELETED if deleted else UNKNOWN

    def _subscriber(self, name: str) -> "SubscriberClient":
        return next(client for client in self.subscribers if client.name == name)

    def _has_twin(self, name: str) -> bool:
        """Whether another process has gone by its name: what that says counts for both (protocol 10)."""
        client = self._subscriber(name)
        return any(link.client is not client for link in client.opened)

    def _is_overtaken(self, name: str, reader: Reader, home: "Router") -> bool:
        """It was given an epoch before its last one, and home takes the older attach for the later one."""
        newest = max((link for link in reader.links if link.attached), key=lambda link: link.number)
        entry = home.topic.directory.subscriber(newest.subscriber.name)
        return name in self.inexact and (entry is None or entry.epoch != newest.epoch)

    def _moved_out_of_reach(self, reader: Reader, home: "Router") -> bool:
        """It is attached at a router that home was not in contact with then, or has lost since."""
        attached = [link for link in reader.links if link.attached]
        if not attached:
            return True
        newest = max(attached, key=lambda link: link.number)
        there = newest.router
        contact = self.contact(there, home.name)
        return there is not home and (contact is None or newest.contacts.get(home.name) != contact)

    # subscribers

    def attaching(self, name: str) -> None:
        reader = self.readers[name]
        if reader.first_attach < 0:
            reader.first_attach = self.schedule.now
        reader.on_link.clear()

    def attached(self, link: "SubscriberLink") -> None:
        """A router answers the attach: everybody in contact has joined it."""
        name = link.client.name
        reader = self.readers[name]
        if reader.link is None or reader.link.number < link.number:
            reader.link = link
            if reader.since is None and not link.closed:
                reader.since = link.epoch

    def closing(self, link: "Link") -> None:
        """The client closes: what it was promised it renounces."""
        link.closed = True
        reader = self.readers.get(link.client.name)
        if reader is not None and reader.resumes:
            reader.since = None
            self.untold.pop(link.client.name, None)
            self._void(link.client.name, lambda home: True, CLOSED)

    def comes(self, link: "SubscriberLink", unsettled: object) -> None:
        """An attach reaches its router. Without memory, and where nobody around knows it, it is a new subscriber. A
        plain one is gone for homes out of contact with that router."""
        name = link.client.name
        reader = self.readers[name]
        if not reader.resumes:
            self._out_of_contact(name, link.router)
        lost = reader.resumes and reader.since is not None and unsettled is None
        if lost and not self.termini.known_around(link.router, name, reader):
            around = [router.name for router in self.termini.around(link.router)]
            self.untold.pop(name, None)
            self._void(name, lambda home: home in around, FORGOTTEN)
        if name in self.untold and (unsettled is None or link.client.away >= link.client.shortest):
            self.untold[name] = False  # it claims nothing from before, or knows by itself

    def amnesia(self, name: str, unsettled: Iterable[bytes]) -> None:
        """Its application has forgotten these, and may be given them again."""
        reader, texts = self.readers[name], list(unsettled)
        reader.may_repeat.update(texts)
        reader.lost.update(texts)

    def gone(self, link: "SubscriberLink") -> None:
        """A router takes the link for gone, or closed; of a plain subscriber, that is the end of the terminus."""
        name = link.client.name
        reader = self.readers[name]
        if reader.resumes:
            return
        if reader.link is None or link.number >= reader.link.number:
            reader.link = None
            self._void(name, lambda home: True)
        elif reader.link.epoch is None or (link.epoch is not None and link.epoch > reader.link.epoch):
            self._void(name, lambda home: True)  # it was given the later epoch: routers take it for the last attach
        else:  # the end of a zombie; who knows no better takes it for the end of the subscriber
            self._out_of_contact(name, reader.link.router)

    def overtaken(self, link: "SubscriberLink") -> None:
        """An older attach of its client has taken the link: it has come late, or clocks differ. A plain subscriber is
        where that came now, or has closed there since."""
        entry = link.router.topic.directory.subscriber(link.subscriber.name)
        there = self.routers[entry.router] if entry is not None else link.router
        last = there.topic.directory.subscriber(link.subscriber.name)
        if last is None or not last.live:
            self.gone(link)
        elif not self.readers[link.client.name].resumes:
            self._out_of_contact(link.client.name, there)

    def _out_of_contact(self, name: str, router: "Router") -> None:
        """A plain subscriber is at that router now: for homes out of contact with it, it is gone."""
        self._void(name, lambda home: home != router.name and self.contact(router, home) is None)

    def _void(self, name: str, at: Callable[[str], bool], cause: str = "") -> None:
        for message in self.messages.values():
            if name in message.promised and at(message.home):
                self.ends(message, name, cause)

    def _has_lapsed(self, home: "Router", name: str) -> bool:
        return link_name(self._subscriber(name).identity) in home.topic.directory.lapsed

    def lost(self, home: "Router", router: str) -> None:
        """Plain subscribers expire for a router that loses their own, and plain publishers for those of subscribers."""
        now = self.schedule.now
        for name, reader in self.readers.items():
            reader.links = [link for link in reader.links if not link.ended or now - link.ended_at < RECENT]
            if any(link.router.name == router for link in reader.links):
                reader.cut_off.add(home.name)
                if not reader.resumes:
                    self._void(name, lambda at: at == home.name)
            elif any(link.router is home for link in reader.links):
                reader.cut_off.add(router)

    def transferred(self, link: "SubscriberLink", record: Record, attempts: int) -> None:
        assert record.message is not None
        text = record.message
        self.note(link.router.name, f"transfers {text.decode()} to {link}{f' ({attempts})' if attempts else ''}")
        address = self.messages[text].key[:NAME_LENGTH] == record.stream.publisher
        self.check(address and record.stream.address == link.client.identity.address, f"3 address: {text!r} to {link}")

    def resumed(self, link: "SubscriberLink", record: Record, state: int, settled: bool) -> None:
        self.note(link.router.name, f"resumes {record.key[12:17].decode()} at {link}: {state}, {settled}")

    def restated(self, name: str, text: bytes, said: int, state: int) -> None:
        """A router resumes a delivery with a state instead of the payload: what the subscriber says of it, or what it
        said before it lost its memory, or settled it or gave it back and then was given it once more."""
        reader = self.readers[name]
        again = text in reader.lost or state not in FINAL or reader.first
        done = said == state or (again and (text, state) in reader.outcomes) or self._has_twin(name)
        self.check(done, f"1 resume: {name} said {said} of {text.decode()}, and is told {state}")

    def seen(self, name: str, router: str, text: bytes, key: bytes, attempts: int, resumed: bool) -> None:
        """The application is handed a message."""
        reader, message = self.readers[name], self.messages[text]
        self.seen_count += 1
        label = f"{text.decode()} at {name}"
        self.check(message.key == key, f"1 key: {label} has another key")
        old = message.published <= reader.first_attach
        self.check(reader.resumes or not old, f"3 joined: {label} is older than its first attach")
        if message.presettled:
            self.check(text not in reader.ever, f"1 at most once: {label} again, though presettled")
        if self._is_exact(name, message):
            again = text in reader.had and text not in reader.may_repeat
            self.check(not again, f"1 exactly once: {label} again")
            reader.had.add(text)
            reader.may_repeat.discard(text)
        elif not reader.first and not self._is_limited(name, message):
            self._check_on_link(reader, message, label, counted=attempts > 0 or resumed)
        reader.on_link[text] = False
        if not self._is_limited(name, message):
            self._check_order(reader, message, name, router, label)

    def _is_exact(self, name: str, message: Message) -> bool:
        """Both ends resume, in settle mode second, and neither has met a limit."""
        return self.readers[name].exact and not message.plain and not self._is_limited(name, message)

    def _is_limited(self, name: str, message: Message) -> bool:
        spoken_for = self.lives.is_spoken_for(message)
        return spoken_for or message.publisher in self.inexact or name in self.inexact

    def _check_on_link(self, reader: Reader, message: Message, label: str, *, counted: bool) -> None:
        # the edge gave up what its lost home remembers, and gives to who is still known there
        known = reader.resumes or len({link.router.name for link in reader.links}) > 1
        cut_off = message.home in reader.cut_off and known
        if message.text in reader.on_link and not cut_off:
            self.check(reader.on_link[message.text], f"1 exactly once: {label} again on one link")
            self.check(counted, f"1 delivery-count: {label} again, not counted")

    def _check_order(self, reader: Reader, message: Message, name: str, router: str, label: str) -> None:
        if message.text in reader.ever:
            return
        reader.ever.add(message.text)
        life = message.publisher, message.life
        last, before = reader.last.get(life, (0, ""))
        # who moved between the sides of a partition finds there what the other side had given up for it, and what an
        # edge had given up of a plain publisher comes once more, behind what came since
        cut_off = (before != router or message.plain) and message.home in reader.cut_off
        cut_off = cut_off and not self._is_exact(name, message)
        unordered = cut_off or message.anew or reader.at_most_once or life in self.lives.unordered
        self.check(message.number > last or unordered, f"1 order: {label} after number {last}")
        reader.last[life] = max(message.number, last), router

    def forgotten(self, client: "SubscriberClient", text: bytes, how: str) -> None:
        """A subscriber takes a delivery for settled."""
        reader, message = self.readers[client.name], self.messages[text]
        if self._is_exact(client.name, message) and not reader.expired:
            over = message.over or self.lives.is_over(message)
            given_up = not over and client.link is not None and self.termini.may_give_up(client.link.router, message)
            over = over or given_up or self._is_of_first(client, message)
            self.check(over, f"3 forgets early: {text.decode()} at {client.name}, {how}")

    def _is_of_first(self, client: "SubscriberClient", message: Message) -> bool:
        """Whether the subscriber forgets, of what was sent again under its key, the first delivery. Limit: or the
        second, as its router still holds the first, settled, and takes its map for a word on that (protocol 10)."""
        reader, link = self.readers[client.name], client.link
        if not message.anew or message.text not in reader.had:
            return message.anew
        if link is None or link.settled_there.get(message.text) not in message.settled_on:
            return False
        self.note(client.name, f"limit: its router holds {message.text.decode()} as it was sent first, settled")
        reader.had.discard(message.text)
        return True

    def outcome(self, name: str, text: bytes, outcome: DeliveryOutcome, final: bool) -> None:
        self.readers[name].finish(text, outcome, final, self.redeliveries)
