"""Follows the lives of publishers: which lives are over, and which publishers a router may tell that theirs is
(protocol 2, 7, 8)."""

from typing import TYPE_CHECKING

from tests.simulation.parties import Message
from topic.directory.entry import LinkEntry
from topic.identity import NAME_LENGTH, NOWHERE, Epoch, KeyMaker, link_name

if TYPE_CHECKING:
    from tests.simulation.client import Client
    from tests.simulation.judge import Judge
    from tests.simulation.publisher import Publisher
    from tests.simulation.publisher_link import PublisherLink
    from tests.simulation.router import Router

MOST_NUMBERED = 500
"""No publisher of a run transfers so many deliveries in one life."""


class Lives:
    def __init__(self, judge: "Judge") -> None:
        self._judge = judge
        self.generations: dict[tuple[str, int], bytes] = {}
        """(publisher, life) -> the generation in the router's answer."""
        self.unordered: set[tuple[str, int]] = set()
        """(publisher, life) in which the publisher has transferred its deliveries again in another order."""
        self._numbered: dict[tuple[str, int], set[bytes]] = {}
        """(publisher, life) -> the keys that its homes may give to deliveries in place of keys made from tags."""
        self._given: dict[str, dict[bytes, tuple[Epoch, Epoch]]] = {}
        """Keyed by publisher: the generations that routers have given it, and the first and last attach of each."""
        self._resumed_unheard: set[tuple[str, int]] = set()
        """(publisher, life) that a router has resumed without knowing another life, or an end, since."""
        self._closed_late: set[tuple[str, int]] = set()
        """(publisher, life) that a late close of an earlier life's attach has ended."""
        self.spoken_for: set[tuple[str, int]] = set()
        """(publisher, life) whose machine has acknowledged on a link that the publisher had left (protocol 10)."""

    def key(self, publisher: "Publisher", tag: bytes) -> bytes:
        """The key of a delivery in the publisher's present life."""
        maker = KeyMaker(link_name(publisher.identity), self.generations[publisher.name, publisher.life])
        return maker.key(tag)

    def is_numbered(self, message: Message, key: bytes) -> bool:
        """Whether the home of a plain publisher may have given the message this key, in place of the key that is made
        from its tag (protocol 5, Reused tags). The life is the one in which the publisher has sent the message."""
        if not message.plain or key[:NAME_LENGTH] != message.key[:NAME_LENGTH]:
            return False
        life = message.publisher, message.life
        if life not in self._numbered:
            maker = KeyMaker(link_name(message.sent_on.client.identity), self.generations[life])
            self._numbered[life] = {maker.numbered(number) for number in range(1, MOST_NUMBERED)}
        return key in self._numbered[life]

    def given(self, publisher: str, generation: bytes, epoch: Epoch) -> None:
        """Some router has this generation and epoch in its directory. The publisher may never learn them."""
        generations = self._given.setdefault(publisher, {})
        first, last = generations.get(generation, (epoch, epoch))
        generations[generation] = min(first, epoch), max(last, epoch)

    def begins(
        self, router: "Router", publisher: "Client", entry: LinkEntry, former: LinkEntry | None, known: int
    ) -> None:
        """A router has the publisher in its directory. `known`: the clock of the latest attach that a router around
        knows. If the life continues here with something in doubt, a router around knew its last attach; or none has
        named it since the publisher first came with this life, for as long as any terminus lives (protocol 7.9)."""
        is_here = entry.owner == (router.name, router.incarnation)
        if not is_here or entry.generation not in self.generations.values():
            return
        link = next(link for link in publisher.opened if link.epoch == entry.epoch)
        if not self._has_heard(link.echoed_epoch, entry, former):
            self._resumed_unheard.add((publisher.name, link.life))
        here = entry.epoch[1:]
        tries = [other for other in publisher.opened if other.epoch is not None and other.epoch[1:] == here]
        came = min(other.attached_at for other in tries if other.echoed_epoch == link.echoed_epoch)
        waited = self._judge.schedule.now >= came + router.topic.settings.terminus
        knows = known >= link.echoed_epoch.hlc or waited or self._hears_all(router) or not link.in_doubt
        self._judge.check(knows, f"7 unknown: {link} resumes an attach that no router around knows")

    @staticmethod
    def _has_heard(seen: Epoch, resumed: LinkEntry, former: LinkEntry | None) -> bool:
        """Whether the resuming router knew of another life, or of the end of this one, later than the attach that the
        publisher echoes."""
        if former is None or former.epoch <= seen:
            return False
        return former.generation != resumed.generation or not former.live

    def _hears_all(self, router: "Router") -> bool:
        """Whether all routers are in contact with the router, and know that."""
        directory = router.topic.directory
        return directory.complete and all(self._judge.contact(router, other) for other in directory.contacts)

    def is_around(self, router: "Router", home: Epoch) -> bool:
        """Whether the router of the given attach still runs in the same incarnation, and is this router or in contact
        with it.
        """
        if home == NOWHERE:
            return False
        there = self._judge.routers[home.router]
        is_it = there.alive and there.incarnation == home.incarnation
        return is_it and (there is router or self._judge.contact(router, there.name) is not None)

    def is_outlived(self, link: "PublisherLink") -> bool:
        """Whether the client had been away for its timeout when the attach came, and no router around knew its life, as
        all that knew it have died (protocol 10)."""
        termini = self._judge.termini
        knows = any(termini.knows_life(router, link) for router in termini.around(link.router))
        return not knows and link.client.away >= link.client.shortest

    def begun(self, publisher: "Publisher", generation: bytes) -> None:
        """A router answers a null map. The life has begun, and its keys must not belong to another life."""
        older = [self.generations.get((publisher.name, life)) for life in range(1, publisher.life)]
        again = generation in older
        self._judge.check(not again, f"2 generation: {publisher.name} begins afresh, and is given an older life's")

    def goes_on(self, publisher: "Publisher") -> None:
        """A publisher resumes its life. The life may have expired longer ago than routers remember."""
        assert publisher.link is not None and publisher.generation is not None
        termini, link = self._judge.termini, publisher.link
        if termini.is_forgotten(link, publisher.generation):
            self._limit(publisher, "routers have forgotten that this life expired")
        elif publisher.silent and self._is_replaced(publisher.name, publisher.generation):
            self._limit(publisher, "its router does not know that this life was given up for another")
        else:
            again = termini.has_agreed(link, publisher.generation) and not self._judge.has_met_limit(publisher.name)
            self._judge.check(not again, f"8 consent: {link} resumes a life that its router had agreed to let expire")

    def renewed(self, publisher: "Publisher") -> None:
        """A publisher that resumed got another generation: its terminus was over, or it echoed nothing and its router
        did not know its life."""
        link, termini = publisher.link, self._judge.termini
        assert link is not None
        legit = publisher.silent and not link.life_known
        legit = legit or self._judge.has_met_limit(publisher.name) or _was_overtaken(publisher)
        legit = legit or termini.was_over(publisher, publisher.confirmed)
        legit = legit or link.life_bound or self._was_told_as_it_waited(link)
        self._judge.check(legit, f"3 generation: {publisher.name} resumes and is given another one")
        self._judge.life_over(publisher.texts.values())

    def _was_told_as_it_waited(self, link: "PublisherLink") -> bool:
        """Whether some router has agreed to let the echoed attach expire, and the publisher's router did not know
        that."""
        agreed, name = self._judge.termini.agreed, link.client.name
        return not link.life_known and any(
            (router, name, link.echoed_epoch) in agreed for router in self._judge.routers
        )

    def closes(self, link: "PublisherLink") -> None:
        """A router reads a close. Limit: if the publisher echoes no generation, and the router has answered that attach
        before, the close ends the life that the publisher has begun since it sent the attach (protocol 10). If the
        router has not answered the attach, the close ends nothing (protocol 6.12)."""
        name, stream = link.client.name, link.stream
        if not link.answered or stream.link is not link:
            return
        for life in range(link.life + 1, link.client.life + 1):
            if self.generations.get((name, life)) == stream.generation:
                self._judge.note(name, f"limit: {link}, read late, closes its life {life}")
                self._closed_late.add((name, life))

    def lied(self, link: "PublisherLink") -> None:
        """The machine of a publisher that has gone elsewhere acknowledges on its old link. So the publisher's former
        home considers it present.
        """
        if (link.client.name, link.life) not in self.spoken_for:
            self._judge.note(link.client.name, f"limit: it has left {link}, and its machine speaks for it")
            self.spoken_for.add((link.client.name, link.life))

    def is_spoken_for(self, message: Message) -> bool:
        """Whether a machine spoke for the publisher in the message's life, or in an earlier one whose connection may
        still be open.
        """
        return any(name == message.publisher and life <= message.life for name, life in self.spoken_for)

    def is_over(self, message: Message) -> bool:
        """Whether some router has given a later attach of the publisher another life, or a late close has ended this
        life. The publisher may never learn that."""
        life = message.publisher, message.life
        return life in self._closed_late or self._is_replaced(message.publisher, self.generations[life])

    def is_doubtful(self, message: Message) -> bool:
        """Limit: an older attach of the publisher, read late or with a higher epoch, has ended that life, and the life
        continued at a router that did not know the end (protocol 10)."""
        resumed = (message.publisher, message.life) in self._resumed_unheard
        return resumed and message.publisher in self._judge.memory.overtaken and self.is_over(message)

    def _is_replaced(self, publisher: str, own: bytes) -> bool:
        given = self._given[publisher]
        begun, _ = given[own]
        return any(last > begun for generation, (_, last) in given.items() if generation != own)

    def _limit(self, publisher: "Publisher", cause: str) -> None:
        self._judge.note(publisher.name, f"limit: {cause}")
        self._judge.inexact.add(publisher.name)


def _was_overtaken(publisher: "Publisher") -> bool:
    """Whether an older attach has a higher epoch than a later one: a faster clock gave it, or a router that had been
    paused gave it after the later one. Routers that know the older attach take the later one for the zombie."""
    epochs = [link.epoch for link in publisher.opened if link.epoch is not None]
    return epochs != sorted(epochs)
