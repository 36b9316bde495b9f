"""What protocol 9 promises, checked after every step by somebody who sees the whole mesh.

It trusts no core: who is promised what follows from who was in contact with whom and whose attach was answered.
A promise is void once the subscriber's link is closed or noticed to be gone, or once the publisher's router loses
a router that the subscriber is, or just was, attached to: every terminus has timeout 0 here.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from tests.simulation.network import Network
from topic.record import Outcome, Record

if TYPE_CHECKING:
    from tests.simulation.links import PublisherLink, SubscriberLink

RECENT = 10.0
"""Seconds after which every router in contact knows that a subscriber has moved."""


class Violation(AssertionError):
    """An invariant does not hold; the text begins with its number in protocol 9 and its name."""


@attrs.define(eq=False)
class Message:
    publisher: str
    life: int
    number: int
    presettled: bool
    tag: bytes
    key: bytes = b""
    home: str = ""
    published: float = -1.0
    """When its publisher's router got it."""
    promised: set[str] = attrs.Factory(set)
    outcome: Outcome | None = None


@attrs.define(eq=False)
class Reader:
    """A subscriber as the judge knows it."""

    address: str
    at_most_once: bool
    """It takes everything settled: what is under way when its link breaks it never sees, or out of order later."""
    first_attach: float = -1.0
    link: "SubscriberLink | None" = None
    """The last link whose attach was answered, unless it was closed."""
    links: "list[SubscriberLink]" = attrs.Factory(list)
    on_link: dict[bytes, bool] = attrs.Factory(dict)
    """Seen on the link in use -> whether it was given back since."""
    ever: set[bytes] = attrs.Factory(set)
    accepted: set[bytes] = attrs.Factory(set)
    final: set[bytes] = attrs.Factory(set)
    released: dict[bytes, int] = attrs.Factory(dict)
    last: dict[tuple[str, int], tuple[int, str]] = attrs.Factory(dict)
    """Highest number seen of each life of a publisher, and the router it came from."""
    expired: set[str] = attrs.Factory(set)
    """Routers that lost one it was attached to."""


class Judge:
    def __init__(self, network: Network, redeliveries: int, note: Callable[[str, str], None]) -> None:
        self.network = network
        self.redeliveries = redeliveries
        self.note = note
        self.messages: dict[bytes, Message] = {}
        self.readers: dict[str, Reader] = {}
        self.seen_count = 0
        self.accepted_count = 0
        self.promises = 0

    def check(self, holds: bool, what: str) -> None:
        if not holds:
            raise Violation(what)

    # publishers

    def sent(self, messages: list[tuple[bytes, bytes, bool]]) -> None:
        for text, tag, presettled in messages:
            publisher, life, number = text.decode().rstrip("s").split(".")
            self.messages[text] = Message(publisher, int(life), int(number), presettled, tag)

    def published(self, link: "PublisherLink", texts: list[bytes]) -> None:
        now = self.network.schedule.now
        promised = self._promised_now(link)
        for text in texts:
            message = self.messages[text]
            assert message.published < 0, "transferred once"
            message.published = now
            message.home = link.router.name
            if not message.presettled:
                message.promised = set(promised)
                self.promises += len(promised)

    def _promised_now(self, link: "PublisherLink") -> list[str]:
        home = link.router.name
        promised: list[str] = []
        for name, reader in self.readers.items():
            custodian = reader.link
            elsewhere = reader.address != link.client.identity.address
            if custodian is None or custodian.ended or custodian.sends_settled or elsewhere:
                continue
            newest = max((link for link in reader.links if link.attached), key=lambda link: link.number)
            if self._knows(home, custodian) and self._knows(home, newest):
                promised.append(name)
        return promised

    def _knows(self, home: str, link: "SubscriberLink") -> bool:
        router = link.router.name
        return not link.ended and (router == home or self.network.joinable(router, home))

    def withheld(self, texts: list[bytes | None]) -> None:
        """Their audience is computed later, when their keys are free."""
        for text in texts:
            if text is not None:
                self.messages[text].published = math.inf

    def settled_early(self, text: bytes) -> None:
        self.messages[text].promised.clear()

    def answered(self, link: "PublisherLink", handles: list[int], outcome: Outcome) -> None:
        for handle in handles:
            text = b"%s.%d.%d" % (link.client.name.encode(), link.number, handle)
            message = self.messages[text]
            self.note(link.router.name, f"answers {text.decode()} {outcome.name}")
            self.check(message.outcome is None, "5 one outcome: a delivery is answered once")
            message.outcome = outcome
            self.accepted_count += outcome is Outcome.ACCEPTED
            for name in sorted(message.promised):
                reader = self.readers[name]
                if self._moved_out_of_reach(reader, link.router.name):
                    continue
                answer = f"{link.router.name} answered {text.decode()} {outcome.name}, {name}"
                if outcome is Outcome.ACCEPTED:
                    self.check(text in reader.accepted, f"2 accepted too early: {answer} has not accepted it")
                else:
                    self.check(text in reader.final, f"2 rejected too early: {answer} has no final outcome")

    def _moved_out_of_reach(self, reader: Reader, home: str) -> bool:
        """It is attached at a router that home was not in contact with then, or has lost since."""
        attached = [link for link in reader.links if link.attached]
        if not attached:
            return True
        newest = max(attached, key=lambda link: link.number)
        there = newest.router.name
        contact = self.network.contact(there, home)
        return there != home and (contact is None or newest.contacts.get(home) is not contact)

    # subscribers

    def attaching(self, name: str) -> None:
        reader = self.readers[name]
        if reader.first_attach < 0:
            reader.first_attach = self.network.schedule.now
        reader.on_link.clear()

    def attached(self, link: "SubscriberLink") -> None:
        reader = self.readers[link.client.name]
        if reader.link is None or reader.link.number < link.number:
            reader.link = link

    def closed(self, link: "SubscriberLink") -> None:
        reader = self.readers[link.client.name]
        name = link.client.name
        if reader.link is None or link.number >= reader.link.number:
            reader.link = None
            self._void(name, lambda home: True)
        else:  # the end of a zombie; who knows no better takes it for the end of the subscriber
            router = reader.link.router.name
            self._void(name, lambda home: home != router and not self.network.joinable(router, home))

    def _void(self, name: str, at: Callable[[str], bool]) -> None:
        for message in self.messages.values():
            if name in message.promised and at(message.home):
                message.promised.discard(name)

    def transferred(self, link: "SubscriberLink", record: Record, attempts: int) -> None:
        assert record.message is not None
        text = record.message
        self.note(link.router.name, f"transfers {text.decode()} to {link}{f' ({attempts})' if attempts else ''}")
        stream, subscriber = record.stream, link.subscriber
        joined = stream.abandoned or stream.home in subscriber.joined
        self.check(joined, f"3 joined: {text.decode()} goes to {link}, not joined at {stream.home}")
        self.check(stream.address == subscriber.identity.address, f"3 address: {text.decode()} goes to {link}")

    def seen(self, name: str, router: str, text: bytes, key: bytes, attempts: int) -> None:
        """The application is handed a message."""
        reader, message = self.readers[name], self.messages[text]
        self.seen_count += 1
        label = f"{text.decode()} at {name}"
        self.check(not message.key or message.key == key, f"1 key: {label} has two keys")
        message.key = key
        self.check(message.published > reader.first_attach, f"3 joined: {label} is older than its first attach")
        if message.presettled:
            self.check(text not in reader.ever, f"1 at most once: {label} again, though presettled")
        # the edge gave up what its lost home remembers, and gives to who is known there from another link
        cut_off = message.home in reader.expired and len({link.router.name for link in reader.links}) > 1
        if text in reader.on_link and not cut_off:
            self.check(reader.on_link[text], f"1 exactly once: {label} again on one link")
            self.check(attempts > 0, f"1 delivery-count: {label} again, not counted")
        reader.on_link[text] = False
        if text not in reader.ever:
            reader.ever.add(text)
            life = message.publisher, message.life
            last, before = reader.last.get(life, (0, ""))
            # who moved between the sides of a partition finds there what the other side had given up for it
            moved = before != router and message.home in reader.expired
            self.check(message.number > last or moved or reader.at_most_once, f"1 order: {label} after number {last}")
            reader.last[life] = message.number, router

    def outcome(self, name: str, text: bytes, outcome: Outcome, final: bool) -> None:
        reader = self.readers[name]
        if outcome is Outcome.ACCEPTED:
            reader.accepted.add(text)
        if outcome in (Outcome.RELEASED, Outcome.MODIFIED) and not final:
            reader.on_link[text] = True
            reader.released[text] = times = reader.released.get(text, 0) + 1
            final = times > self.redeliveries
        else:
            final = True
        if final:
            reader.final.add(text)

    # routers

    def lost(self, home: str, router: str) -> None:
        now = self.network.schedule.now
        for name, reader in self.readers.items():
            reader.links = [link for link in reader.links if not link.ended or now - link.ended_at < RECENT]
            if any(link.router.name == router for link in reader.links):
                reader.expired.add(home)
                self._void(name, lambda at: at == home)
