"""Plain subscribers: those without a timeout, whose terminus ends with their link, or with the contact with its router.

They are promised what comes while both last (protocol 1).
"""

from typing import TYPE_CHECKING

from tests.simulation.parties import Message, Reader

if TYPE_CHECKING:
    from tests.simulation.judge import Judge
    from tests.simulation.publisher_link import PublisherLink
    from tests.simulation.router import Router
    from tests.simulation.subscriber_link import SubscriberLink

RECENT = 10.0
"""Seconds after which every router in contact knows that a plain subscriber has moved."""


class PlainSubscribers:
    def __init__(self, judge: "Judge") -> None:
        self._judge = judge

    # what they are promised

    def has_joined(self, home: "Router", reader: Reader) -> bool:
        """Whether home has it as a subscriber: with its last link whose attach was answered, and with its last link."""
        custodian = reader.link
        if custodian is None or custodian.ended:
            return False
        newest = max((link for link in reader.links if link.attached), key=lambda link: link.number)
        return self._is_reached(home, custodian) and self._is_reached(home, newest)

    def _is_reached(self, home: "Router", link: "SubscriberLink") -> bool:
        router = link.router
        return not link.ended and (router is home or self._judge.contact(router, home.name) is not None)

    def move(self, message: Message, link: "PublisherLink") -> None:
        """It may have another home now, or a restarted one: plain subscribers are then those of its contacts."""
        home, plain = link.router, {name: reader for name, reader in self._judge.readers.items() if not reader.resumes}
        if message.home not in ("", home.name):
            message.promised -= plain.keys()
        elif message.home and message.incarnation != home.incarnation:
            known = {name for name, reader in plain.items() if self._judge.is_promised(link, name, reader)}
            message.promised -= plain.keys() - known
        message.home, message.incarnation, message.sent_on = home.name, home.incarnation, link

    def is_out_of_reach(self, name: str, reader: Reader, home: "Router") -> bool:
        """It is attached at a router that home was not in contact with then, or has lost since. Or it was given an
        epoch before its last one, and home takes the older attach for the later one."""
        attached = [link for link in reader.links if link.attached]
        if not attached:
            return True
        newest = max(attached, key=lambda link: link.number)
        there = newest.router
        contact = self._judge.contact(there, home.name)
        if there is not home and (contact is None or newest.contacts.get(home.name) != contact):
            return True
        entry = home.topic.directory.subscriber(newest.subscriber.name)
        return name in self._judge.inexact and (entry is None or entry.epoch != newest.epoch)

    # how they end

    def attaches(self, name: str, router: "Router") -> None:
        """A plain subscriber is at that router now: for homes out of contact with it, it is gone."""
        self._judge.void(name, lambda home: home != router.name and self._judge.contact(router, home) is None)

    def gone(self, link: "SubscriberLink") -> None:
        """A router takes the link for gone, or closed; of a plain subscriber, that is the end of the terminus."""
        name = link.client.name
        reader = self._judge.readers[name]
        if reader.resumes:
            return
        if reader.link is None or link.number >= reader.link.number:
            reader.link = None
            self._judge.void(name, lambda home: True)
        elif reader.link.epoch is None or (link.epoch is not None and link.epoch > reader.link.epoch):
            self._judge.void(name, lambda home: True)  # of the later epoch: routers take it for the last attach
        else:  # the end of a zombie; who knows no better takes it for the end of the subscriber
            self.attaches(name, reader.link.router)

    def overtaken(self, link: "SubscriberLink") -> None:
        """An older attach of its client has taken the link: it has come late, or clocks differ. A plain subscriber is
        where that came now, or has closed there since."""
        entry = link.router.topic.directory.subscriber(link.subscriber.name)
        there = self._judge.routers[entry.router] if entry is not None else link.router
        last = there.topic.directory.subscriber(link.subscriber.name)
        if last is None or not last.live:
            self.gone(link)
        elif not self._judge.readers[link.client.name].resumes:
            self.attaches(link.client.name, there)

    def lost(self, home: "Router", router: str) -> None:
        """Plain subscribers expire for a router that loses their own, and plain publishers for those of subscribers."""
        now = self._judge.schedule.now
        for name, reader in self._judge.readers.items():
            reader.links = [link for link in reader.links if not link.ended or now - link.ended_at < RECENT]
            if any(link.router.name == router for link in reader.links):
                reader.cut_off.add(home.name)
                if not reader.resumes:
                    self._judge.void(name, lambda at: at == home.name)
            elif any(link.router is home for link in reader.links):
                reader.cut_off.add(router)
