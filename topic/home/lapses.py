"""Subscribers for which homes no longer wait, although they may be alive (protocol 8, Apart).

A subscriber *lapses* if it is out of reach for longer than its timeout. From then on no delivery awaits it. If its
owner comes back before a message is accepted without the subscriber, the subscriber goes on as before. Otherwise its
link ends, and its client is told which router accepted the message, and how long the subscriber had been out of reach.

The routers agree on a lapse in `topic.termini.expiry`. A plain subscriber (one without a timeout) needs no agreement:
it lapses for each router that has been out of contact with its owner for longer than the grace.
"""

from itertools import chain, groupby
from typing import Any, Protocol

import attrs

from topic.actions import Detach, Note, condition_of
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
    """Ends links of subscribers. `topic.core` implements it by means of `topic.termini.changes`."""

    def end_apart(self, entry: LinkEntry, ending: str) -> None:
        """End the link of a subscriber without which the home has accepted a message. `ending`: the text for its
        client."""


class Lapses:
    """Handles lapsed subscribers at one router. `Directory.lapsed` lists them all; `Record.without` has the lapsed
    subscribers that a record no longer awaits."""

    def __init__(
        self,
        edge: Edge,
        audiences: Audiences,
        streams: Streams[HomeStream],
        home: Decisions,
        links: Endings,
    ) -> None:
        """`home` answers the publisher of a record when the record waits for nobody any more."""
        self.outlet = edge.outlet
        self.directory = edge.directory
        self._edge = edge
        self._audiences = audiences
        self._streams = streams
        self._home = home
        self._links = links

    def lapse(self, entry: LinkEntry, away_s: float) -> None:
        """Let the subscriber lapse, as all routers in contact have agreed: no delivery awaits it any more. `away_s`:
        the seconds for which it has been away."""
        assert entry.live
        name, directory = entry.name, self.directory
        directory.lapse(entry, self.outlet.time_us - int(away_s * 1e6))
        local = self._edge.subscribers.get(name)
        if local is not None:
            directory.depart(name)  # another home may not know of the lapse yet, and still awaits the subscriber here
            self.outlet.send_delta(directory)
            self._audiences.left_without(name, self._edge.leave(local))
        for stream in list(self._streams.at(entry.identity.address)):
            awaited = [record for record in stream.records.values() if name in record.orphans]
            for record in awaited:
                record.await_by_name_no_more([name])
                self._audiences.await_by_name(record, name)
            self._home.decide(stream, awaited)

    def accepted(self, stream: HomeStream, records: list[Record]) -> None:
        """End the links of lapsed subscribers that the home had awaited for these records, which it now accepts without
        them."""
        directory = self.directory
        alike = [without for without, _ in groupby(record.without for record in records)]
        for name in dict.fromkeys(chain.from_iterable(alike)):
            entry, since_us = directory.subscriber(name), directory.lapsed.get(name)
            # The first of these records suffices to end a plain subscriber.
            if entry is None or entry.lifetime.timeout:
                theirs = [record for record in records if name in record.without]
                self.outlet.trace_records(Event.APART, stream, theirs, subscriber=name)
            if entry is not None and since_us is not None:
                away_s, timeout = (self.outlet.time_us - since_us) / 1e6, entry.lifetime.timeout
                limit = f"longer than its timeout of {timeout} s" if timeout else "and has no timeout"
                ending = (
                    f"router {self.outlet.router} accepted messages without this subscriber, which was out of reach "
                    f"for {away_s:.1f} s, {limit}"
                )
                # The log gets no line for plain subscribers, because a router that dies may have had thousands of them.
                if timeout:
                    self.outlet.actions.append(Note(f"subscriber {entry.identity} was ended: {ending}"))
                self._links.end_apart(entry, ending)

    @staticmethod
    def is_to_be_told(known: LinkEntry, entry: LinkEntry) -> bool:
        """Whether the client of the attach `entry` has to learn that its link had ended (`known`). It has to if it
        attached as if the link still existed, without having been told."""
        return known.ending != "" and entry.live and entry.resumed and entry.aware < known.epoch.hlc

    def end_late(self, entry: LinkEntry, ending: str) -> LinkEntry:
        """End an attach at another router that continued the link while this router accepted a message without the
        subscriber."""
        ended = self.directory.mark(entry, Status.EXPIRED, ending).entry
        if self.directory.tells_itself(ended):
            self.outlet.batches.gossip(ended.router, [ended])
        return ended

    def report_ending(self, known: LinkEntry, link: Any, epoch: Epoch) -> LocalSubscriber:
        """Tell a client that attaches again that its link has ended. The client may then begin afresh."""
        subscriber = LocalSubscriber(known.name, known.identity, self._edge.kinds.of(known.identity.address))
        subscriber.begin(link, epoch, None, complete=True)
        self.outlet.actions.append(Detach(link, condition_of(known.ending), known.ending))
        subscriber.suspend()  # a client counts as told only after its answer, as the connection may close first
        return subscriber

    def ending_known(self, subscriber: LocalSubscriber) -> None:
        """The client knows that its link has ended. Tell all other routers."""
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
