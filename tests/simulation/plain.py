"""Judges plain subscribers: subscribers without a timeout, whose terminus ends with their link.

They are promised the messages that come while the terminus lasts (protocol 1). A home that loses their router waits for
them for a grace, unless that router has ended (protocol 8, Lost router). If a home behind a cut has accepted a message
without such a subscriber, its link is detached with an error (protocol 8, Apart). If the link has broken meanwhile,
that suffices.
"""

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import attrs

from tests.simulation.parties import Message, Reader
from topic.identity import link_name

if TYPE_CHECKING:
    from tests.simulation.judge import Judge
    from tests.simulation.publisher_link import PublisherLink
    from tests.simulation.router import Router
    from tests.simulation.subscriber_link import SubscriberLink

_name_of = lru_cache(link_name)
"""The name of an identity. Cached, as it is needed after each step."""
RECENT = 10.0
"""Seconds after which every router in contact knows that a plain subscriber has moved."""


@attrs.frozen
class Missed:
    """A message that the subscriber of a link has missed although the link was in use all the time."""

    text: bytes
    link: "SubscriberLink"
    home: "Router"
    incarnation: int
    """The incarnation of the home that accepted it."""


class PlainSubscribers:
    def __init__(self, judge: "Judge") -> None:
        self._judge = judge
        self._missed: list[Missed] = []
        self._apart: dict[tuple[str, int, str], float] = {}
        """Keyed by home, its incarnation and a router: since when the home has been without that router's section."""

    def watch(self, home: "Router") -> None:
        """Note the subscribers that the home has joined by their links: it may lose their routers from now on. Also
        note the links that it considers ended, or older than a link that has ended: their clients must be told."""
        for name, reader in self._judge.readers.items():
            link = reader.link
            if reader.resumes or link is None:
                continue
            if self._is_reached(home, link):
                link.joined_by.add((home.name, home.incarnation))
                self._apart.pop((home.name, home.incarnation, link.router.name), None)
            self._watch_lapse(home, link)
            if _has_missed(home, link) or self._has_been_outdone(home, link):
                for message in self._judge.messages.values():
                    if name in message.promised and message.home == home.name:
                        self.missed(message, name, home, accepted=True)

    def _watch_lapse(self, home: "Router", link: "SubscriberLink") -> None:
        """Check that the home has waited for long enough before it stops waiting for the subscriber of a link that it
        had joined.
        """
        at = home.name, home.incarnation
        if at not in link.joined_by or at in link.lapsed_at or link.ended:
            return
        if _name_of(link.client.identity) in home.topic.directory.lapsed:
            link.lapsed_at.add(at)
            known = home.topic.directory.subscriber(link.subscriber.name)
            if known is not None and link.epoch is not None and known.epoch > link.epoch:
                return  # it has lapsed by a later attach
            apart_s = self._judge.schedule.now - self._apart.get((*at, link.router.name), math.inf)
            waited = apart_s >= self._judge.grace - 1e-6 or not self._may_come_back(home, link)
            self._judge.check(waited, f"8 grace: {home.name} waits for {link} for {apart_s:.3f} s")

    def _may_come_back(self, home: "Router", link: "SubscriberLink") -> bool:
        """Whether the router of the link still runs in the same incarnation, and is in the plan."""
        there, epoch = link.router, link.epoch
        is_there = there.alive and epoch is not None and epoch.incarnation == there.incarnation
        return is_there and there.name in home.mesh.plan.listed

    def _is_waited_for(self, home: "Router", link: "SubscriberLink") -> bool:
        self._watch_lapse(home, link)  # perhaps the home stopped waiting in this very event
        at = home.name, home.incarnation
        has_joined = at in link.joined_by and at not in link.lapsed_at
        return has_joined and not link.ended and self._may_come_back(home, link)

    # the promises to them

    def has_joined(self, home: "Router", reader: Reader) -> bool:
        """Whether the home has joined the subscriber by its last link whose attach was answered, and by its newest
        link. If both are one link, it is enough that the home has ever joined it by this link."""
        custodian = reader.link
        if custodian is None or custodian.ended:
            return False
        newest = _newest(reader)
        if newest is custodian and (home.name, home.incarnation) in custodian.joined_by:
            return True
        return newest is not None and self._is_reached(home, custodian) and self._is_reached(home, newest)

    def _is_reached(self, home: "Router", link: "SubscriberLink") -> bool:
        router = link.router
        return not link.ended and (router is home or self._judge.contact(router, home.name) is not None)

    def move(self, message: Message, link: "PublisherLink") -> None:
        """The message may have another home now, or a restarted one: then only the plain subscribers of the home's
        contacts count. A message that a zombie reads late has its home already: the order of the client's links shows
        this, as an attach may get a lower epoch than an earlier one."""
        if message.home and link.number < message.sent_on.number:
            return
        home, plain = link.router, {name: reader for name, reader in self._judge.readers.items() if not reader.resumes}
        if message.home not in ("", home.name):
            message.promised -= plain.keys()
        elif message.home and message.incarnation != home.incarnation:
            known = {name for name, reader in plain.items() if self._judge.is_promised(link, name, reader)}
            message.promised -= plain.keys() - known
        message.home, message.incarnation, message.sent_on = home.name, home.incarnation, link

    def is_out_of_reach(self, name: str, reader: Reader, home: "Router") -> bool:
        """Whether the home cannot know the subscriber's latest attach. The subscriber is at a router with which the
        home was not in contact at the attach, or has lost contact since. Or the attach got a lower epoch than an
        earlier one, which the home takes for the later one. Or the home knows that a message was accepted without the
        subscriber, and does not know yet that the subscriber has attached elsewhere since, where it is told."""
        newest = _newest(reader)
        if newest is None:
            return True
        there = newest.router
        contact = self._judge.contact(there, home.name)
        is_apart = there is not home and (contact is None or newest.contacts.get(home.name) != contact)
        if is_apart and not self._is_waited_for(home, newest):
            return True
        entry = home.topic.directory.subscriber(newest.subscriber.name)
        is_older = name in self._judge.inexact and (entry is None or entry.epoch != newest.epoch)
        return is_older or any(_has_missed(home, link) for link in reader.recent)

    def _has_been_outdone(self, home: "Router", link: "SubscriberLink") -> bool:
        """Whether the home had joined this link, and considers it older than a link that has ended. The ended link's
        attach came late, before this one, and got a later epoch. Routers may have forgotten the ended link."""
        if link.client.name not in self._judge.inexact or (home.name, home.incarnation) not in link.joined_by:
            return False
        entry = home.topic.directory.subscriber(link.subscriber.name)
        return entry is None or (not entry.live and link.epoch is not None and entry.epoch > link.epoch)

    def missed(self, message: Message, name: str, home: "Router", *, accepted: bool) -> None:
        """The home no longer waits for this subscriber, which is out of its reach. If the home accepts a message
        without it, and had joined it by the link that it still has, the subscriber must be told."""
        message.promised.discard(name)
        reader = self._judge.readers[name]
        link = reader.link
        if accepted and link is not None and link is _newest(reader) and message.promised_at >= link.answered_at:
            self._judge.note("judge", f"{name} has to be told that {home.name} accepts {message.text.decode()} without")
            self._missed.append(Missed(message.text, link, home, home.incarnation))

    def untold(self) -> list[str]:
        """Links whose subscriber has missed a message without being told. Limit: a home that died may not have
        told it."""
        silently = [missed for missed in self._missed if missed.link.client.link is missed.link]
        told_of = [missed for missed in silently if missed.home.incarnation == missed.incarnation and missed.home.alive]
        return [f"{missed.link} of {missed.text.decode()}" for missed in told_of]

    # the ends of their termini

    def comes(self, link: "SubscriberLink") -> None:
        """An attach reaches its router. If the router has lost another one, it has ended that router's plain
        publishers, and considers their deliveries in the subscriber's map over."""
        name, router = link.client.name, link.router
        lost = {other for home, life, other in self._apart if (home, life) == (router.name, router.incarnation)}
        self._judge.readers[name].cut_off |= lost - router.topic.directory.applied.keys()
        if not self._judge.readers[name].resumes:
            self.attaches(name, router)

    def attaches(self, name: str, router: "Router") -> None:
        """A plain subscriber is at that router now. Homes out of contact with it, or with the subscriber's former
        router, have lost the subscriber."""
        former = self._judge.readers[name].link
        there = [router] if former is None else [router, former.router]
        self._judge.void(name, lambda home: any(self._is_apart(at, home) for at in there))

    def _is_apart(self, router: "Router", home: str) -> bool:
        return home != router.name and self._judge.contact(router, home) is None

    def gone(self, link: "SubscriberLink") -> None:
        """A router considers the link gone or closed. That ends the terminus of a plain subscriber."""
        name = link.client.name
        reader = self._judge.readers[name]
        if reader.resumes:
            return
        if reader.link is None or link.number >= reader.link.number:
            reader.link = None
            self._judge.void(name, lambda home: True)
        elif reader.link.epoch is None or (link.epoch is not None and link.epoch > reader.link.epoch):
            self._judge.void(name, lambda home: True)  # it has the later epoch: routers take it for the last attach
        else:  # the end of a zombie: routers that do not know the later attach take it for the end of the subscriber
            self.attaches(name, reader.link.router)

    def overtaken(self, link: "SubscriberLink") -> None:
        """An older attach of its client has taken the link, as it came late or clocks differ. A plain subscriber is now
        where that attach came, or has closed its link there since."""
        entry = link.router.topic.directory.subscriber(link.subscriber.name)
        there = self._judge.routers[entry.router] if entry is not None else link.router
        last = there.topic.directory.subscriber(link.subscriber.name)
        if last is None or not last.live:
            self.gone(link)
        elif not self._judge.readers[link.client.name].resumes:
            self.attaches(link.client.name, there)

    def lost(self, home: "Router", router: str) -> None:
        """A home loses a router. Plain subscribers that have left that router, or come to it, are gone for homes that
        lose it before they learn of the move. So are plain publishers for the routers of subscribers."""
        now = self._judge.schedule.now
        self._apart.setdefault((home.name, home.incarnation, router), now)
        for name, reader in self._judge.readers.items():
            reader.recent = [link for link in reader.recent if not link.ended or now - link.ended_at < RECENT]
            if any(link.router.name == router for link in reader.recent):
                reader.cut_off.add(home.name)
                newest = _newest(reader)
                incarnation = home.name, home.incarnation
                is_known = newest is not None and newest.router.name == router and incarnation in newest.joined_by
                if not reader.resumes and not is_known:
                    self._judge.void(name, lambda at: at == home.name)
            elif any(link.router is home for link in reader.recent):
                reader.cut_off.add(router)


def _newest(reader: Reader) -> "SubscriberLink | None":
    """The subscriber's last link whose attach has reached its router."""
    return max((link for link in reader.recent if link.attached), key=lambda link: link.number, default=None)


def _has_missed(home: "Router", link: "SubscriberLink") -> bool:
    """Whether the home has accepted a message without the subscriber of the link, or knows that another home has."""
    entry = home.topic.directory.subscriber(_name_of(link.client.identity))
    return entry is not None and entry.epoch == link.epoch and entry.ending != ""
