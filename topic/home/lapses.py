"""Subscribers that homes wait for no longer, although they may live (protocol 8, Apart).

A subscriber that is out of reach for longer than its timeout *lapses*: no delivery awaits it. If its owner comes back
before a message was accepted without it, it goes on as before. Otherwise its link has ended, and its client is told
which router accepted the message, and how long the subscriber had been out of reach. In `topic.termini.expiry` routers
agree on a lapse. A plain subscriber, without a timeout, needs no agreement: it lapses for each router that has been out
of contact with its owner for longer than the grace.
"""

from itertools import chain, groupby
from typing import Any, Protocol

import attrs

from topic.actions import EXPIRED, Detach, Note
from topic.delivery.record import HomeStream, Record
from topic.delivery.streams import Streams
from topic.directory.entry import LinkEntry, Status
from topic.edge.edge import Edge
from topic.edge.subscriber import LocalSubscriber
from topic.home.audiences import Audiences
from topic.home.decisions import Decisions
from topic.identity import Epoch
from topic.journal import Event


class Endings(Protocol):
    """Ends links: `topic.core`, by `topic.termini.changes`."""

    def end_apart(self, entry: LinkEntry, ending: str) -> None:
        """End the link of a subscriber without which a message was accepted. `ending`: the text for its client."""


class Lapses:
    """The lapsed subscribers as one router knows them. `Directory.lapsed` lists them. `Record.without` lists those that
    a record no longer awaits."""

    def __init__(
        self,
        edge: Edge,
        audiences: Audiences,
        streams: Streams[HomeStream],
        home: Decisions,
        links: Endings,
    ) -> None:
        """`home`: evaluates records that await fewer outcomes than before."""
        self.outlet = edge.outlet
        self.directory = edge.directory
        self._edge = edge
        self._audiences = audiences
        self._streams = streams
        self._home = home
        self._links = links

    def lapse(self, entry: LinkEntry, away_s: float) -> None:
        """The subscriber lapses: all routers in contact have agreed that no delivery awaits it. `away_s`: for how many
        seconds it has been away."""
        assert entry.live
        name, directory = entry.name, self.directory
        directory.lapse(entry, self.outlet.time_us - int(away_s * 1e6))
        local = self._edge.subscribers.get(name)
        if local is not None:
            directory.depart(name)  # homes that forward before they know of the lapse await it here
            self.outlet.send_delta(directory)
            self._audiences.left_without(name, self._edge.leave(local))
        for stream in list(self._streams.at(entry.identity.address)):
            awaited = [record for record in stream.records.values() if name in record.orphans]
            for record in awaited:
                record.await_by_name_no_more([name])
                self._audiences.await_by_name(record, name)
            self._home.decide(stream, awaited)

    def accepted(self, stream: HomeStream, records: list[Record]) -> None:
        """These records are accepted without some subscribers that they had awaited: end the links of these
        subscribers."""
        directory = self.directory
        alike = [without for without, _ in groupby(record.without for record in records)]
        for name in dict.fromkeys(chain.from_iterable(alike)):
            entry, since_us = directory.subscriber(name), directory.lapsed.get(name)
            if entry is None or entry.lifetime.timeout:  # a plain subscriber ends with the first of these records
                theirs = [record for record in records if name in record.without]
                self.outlet.trace_records(Event.APART, stream, theirs, subscriber=name)
            if entry is not None and since_us is not None:
                away_s, timeout = (self.outlet.time_us - since_us) / 1e6, entry.lifetime.timeout
                limit = f"longer than its timeout of {timeout} s" if timeout else "and has no timeout"
                ending = (
                    f"router {self.outlet.router} accepted messages without this subscriber, which was out of reach "
                    f"for {away_s:.1f} s, {limit}"
                )
                if timeout:  # a router that has died may have thousands of plain ones
                    self.outlet.actions.append(Note(f"subscriber {entry.identity} was ended: {ending}"))
                self._links.end_apart(entry, ending)

    @staticmethod
    def is_to_be_told(known: LinkEntry, entry: LinkEntry) -> bool:
        """Whether the attach `entry` continues a link that had ended (`known`) without its client knowing of that."""
        return known.ending != "" and entry.live and entry.resumed and entry.aware < known.epoch.hlc

    def end_late(self, entry: LinkEntry, ending: str) -> LinkEntry:
        """End an attach at another router that continued the link, while this router accepted a message without the
        subscriber."""
        ended = self.directory.mark(entry, Status.EXPIRED, ending).entry
        if self.directory.tells_itself(ended):
            self.outlet.batches.gossip(ended.router, [ended])
        return ended

    def report_ending(self, known: LinkEntry, link: Any, epoch: Epoch) -> LocalSubscriber:
        """Tell a client that attaches again that its link has ended. The client may then begin afresh."""
        subscriber = LocalSubscriber(known.name, known.identity, self._edge.kinds.of(known.identity.address))
        subscriber.begin(link, epoch, None, complete=True)
        self.outlet.actions.append(Detach(link, EXPIRED, known.ending))
        subscriber.suspend()  # the connection may end before the client has read this
        return subscriber

    def ending_known(self, subscriber: LocalSubscriber) -> None:
        """The client knows that its link has ended: tell all other routers that it knows."""
        directory = self.directory
        known = directory.subscriber(subscriber.name)
        if known is None or not known.ending or known.epoch > subscriber.epoch:
            return
        told = attrs.evolve(known, ending="")
        if directory.is_mine(known):
            self.outlet.write_entry(self.directory, told)
        else:
            directory.mark(known, Status.EXPIRED)
            for router in directory.contacts:
                self.outlet.batches.gossip(router, [told])
