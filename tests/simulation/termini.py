"""Judges termini that outlive their connections: no router may forget one without cause (protocol 1 and 8, Expiry).

For every router, and every client that asked for a timeout, it records the epoch that the router knows, and when the
client was last attached at a router in contact with that router. A router may forget a terminus for two causes: its
client has closed it, or no router in contact has had the client attached for as long as its timeout. A promise to a
subscriber ends with either.
"""

from math import inf
from typing import TYPE_CHECKING

from tests.simulation.knobs import FORGET
from tests.simulation.parties import APART, AWAY, BEGUN, Message, Reader, View
from topic.directory.entry import Index, LinkEntry, Role, Status
from topic.identity import Epoch, link_name

RECENT = 10.0
"""Seconds after which all routers know that a client has read the end of its terminus."""

if TYPE_CHECKING:
    from tests.simulation.client import Client
    from tests.simulation.judge import Judge
    from tests.simulation.link import Link
    from tests.simulation.publisher_link import PublisherLink
    from tests.simulation.router import Router


class Termini:
    def __init__(self, judge: "Judge") -> None:
        self._judge = judge
        self._clients: list[tuple[Client, Index]] = []
        self._over: dict[str, Epoch] = {}
        """The latest epoch of a client that some router has rightly let expire. The other routers follow that
        router."""
        self._lives_over: dict[bytes, float] = {}
        """Generation of a publisher's life that some router has rightly let expire, under any epoch -> when it last
        did.
        """
        self._knowing: dict[bytes, set[tuple[str, int]]] = {}
        """Keyed by generation: the incarnations that have let the life expire, and all in contact with the first of
        them, which have agreed.
        """
        self._bound: dict[tuple[str, str], tuple[bytes, bool]] = {}
        """Keyed by router and publisher: the life that the router has agreed to let expire, and whether it did so
        rightly. The router stands by that, even after a restart."""
        self.agreed: set[tuple[str, str, Epoch]] = set()
        """(router, client, epoch): attaches that the router has rightly agreed to let expire, or let lapse. The next
        attach may cross the decision."""
        self._views: dict[tuple[str, int], dict[str, View]] = {}

    def add(self, client: "Client", *, publisher: bool) -> None:
        if not client.plain:
            role = Role.PUBLISHER if publisher else Role.SUBSCRIBER
            self._clients.append((client, (role, link_name(client.identity))))

    # what routers know

    def knows(self, router: "Router", name: str, reader: Reader) -> bool:
        """Whether the router knows the present terminus of a subscriber."""
        view = self._views_of(router)[name]
        return view.epoch is not None and reader.since is not None and view.epoch >= reader.since

    def known_around(self, home: "Router", name: str, reader: Reader, *, but_for: Epoch | None = None) -> bool:
        """Whether home, or any router in contact that can have told it, knows the subscriber's terminus. Attaches up to
        `but_for` have ended and do not count."""
        knowing = [router for router in self.around(home) if self.knows(router, name, reader)]
        epochs = [self._views_of(router)[name].epoch for router in knowing if self._told(router, home, name)]
        return any(epoch is not None and (but_for is None or epoch > but_for) for epoch in epochs)

    def _told(self, router: "Router", home: "Router", name: str) -> bool:
        """Whether home has read what the router sent when it learned of the client."""
        view = self._views_of(router)[name]
        if router is home or view.untold:
            return router is home
        assert view.epoch is not None
        owner = self._judge.routers[view.epoch.router]
        if owner is not router and owner in self.around(home):
            return False  # the owner tells home itself
        contact, frames = view.told.get(home.name, (0, 0))
        if contact != router.contact_numbers[home.name]:
            return True  # the router told home when the contact began, if not before
        return home.heard.get(router.name, 0) >= frames

    def around(self, home: "Router") -> "list[Router]":
        others = [home.name, *home.topic.directory.contacts]
        return [self._judge.routers[name] for name in others if self._in_contact(home, name)]

    def _in_contact(self, home: "Router", name: str) -> bool:
        return name == home.name or self._judge.contact(home, name) is not None

    def decides(self, router: "Router", epoch: str) -> None:
        """The router decides to answer the attach of that epoch, which had to wait for others. All routers in contact,
        however short, have to know the attach. For a plain client this is not checked: routers that have lost the
        contact forget it."""
        link = next((link for link in router.links if str(link.epoch) == epoch), None)
        contacts = [(self._judge.routers[name], which) for name, which in router.topic.directory.contacts.items()]
        if link is not None and not link.client.plain:
            self._check_told(link, [other for other, which in contacts if other.alive and other.incarnation == which])

    def answered(self, link: "Link") -> None:
        """The router sends its answer to the attach (protocol 6.7, 7.1)."""
        if link.client.name not in self._judge.readers or not link.client.plain:
            self._check_told(link, self.around(link.router))

    def _check_told(self, link: "Link", routers: "list[Router]") -> None:
        """Check that all these routers deliver to a subscriber from now on, or know a publisher, unless its link was
        closed or a later attach has come."""
        assert link.epoch is not None
        reads = link.client.name in self._judge.readers
        later = any(other.epoch > link.epoch for other in link.client.opened if other.epoch is not None)
        for router in [] if later or link.closed else routers:
            directory, name = router.topic.directory, link_name(link.client.identity)
            entry = directory.subscriber(name) if reads else directory.publisher(name)
            ended = entry is not None and (not reads or entry.expired_life)  # it ended there; its client is told
            known = entry is not None and entry.epoch == link.epoch and (entry.live or ended)
            what = "6 joined" if reads else "7 announced"
            self._judge.check(known, f"{what}: {link} is answered, and unknown at {router.name}")

    def knows_life(self, router: "Router", link: "PublisherLink") -> bool:
        """Whether the router knows the present life of the attach's client."""
        view = self._views_of(router).get(link.client.name, View())
        return view.epoch is not None and view.generation == link.client.generation

    def remembered(self, router: "Router", former: int) -> list[tuple[str, Epoch, Epoch | None]]:
        """Durable clients that the router's former incarnation knew when it was killed: the client, the epoch known
        then, and the epoch known now.
        """
        views = self._views.get((router.name, former), {})
        directory = router.topic.directory
        found: list[tuple[str, Epoch, Epoch | None]] = []
        for client, index in self._clients:
            entry = directory.entry(index)
            epoch = views[client.name].epoch if client.name in views else None
            if client.durable and epoch is not None:
                found.append((client.name, epoch, entry.epoch if entry is not None and entry.live else None))
        return found

    def was_over(self, client: "Client", since: int) -> bool:
        """Whether the client had been away for its timeout, as some router in contact saw it, when one of its attaches
        after that number came."""
        links = [link for link in client.opened if link.number > since]
        away = any(link.away >= client.shortest - self._grain(link.router) for link in links)
        return away or client.name in self._over

    def away(self, link: "Link") -> float:
        """For how long the client has not been seen, by the router around that saw it last. If none has seen it, the
        true time that it was away, if that is as long as any terminus lives; else 0.
        """
        client, routers = link.client, self._judge.routers
        if client.plain:
            return 0.0
        known = [(router, self._views_of(router)[client.name].epoch) for router in self.around(link.router)]
        unseen = [self._unseen(router, client, routers[epoch.router]) for router, epoch in known if epoch is not None]
        itself = client.away if client.away >= link.router.topic.settings.terminus else 0.0
        return max(unseen, default=itself)

    def may_give_up(self, router: "Router", message: Message) -> bool:
        """Whether the router may settle the rest of the deliveries of a publisher that it does not know. It may if no
        router has had the publisher attached for as long as any terminus lives, as far as the router can know (protocol
        6.10)."""
        for client, index in self._clients:
            if client.name == message.publisher:
                entry = router.topic.directory.entry(index)
                away = min(self._unseen(router, client, there) for there in self._judge.routers.values())
                return away >= router.topic.settings.terminus and (entry is None or not entry.live)
        return False

    def has_agreed(self, link: "PublisherLink", generation: bytes) -> bool:
        """Whether, when the attach came, the router had let the life expire, or had agreed to that and it had
        expired."""
        over = self._lives_over.get(generation)
        incarnation = link.router.name, link.router.incarnation
        return over is not None and link.attached_at > over and incarnation in self._knowing[generation]

    def is_bound(self, link: "PublisherLink") -> bool:
        """Whether the router has agreed to let the client's present life expire, even if other routers have not."""
        generation = self._judge.lives.generations.get((link.client.name, link.client.life))
        return generation is not None and self._bound.get((link.router.name, link.client.name)) == (generation, True)

    def is_forgotten(self, link: "PublisherLink", generation: bytes) -> bool:
        """Whether no router can remember that the life had expired when the attach came: that was too long ago, or all
        routers that knew it have died, perhaps before they saw it. If the home of its last attach was around, it knows
        without memory (protocol 7.10)."""
        over = self._lives_over.get(generation)
        if over is None or link.home_was_around:
            return over is None and link.was_outlived and not link.home_was_around
        running = {(router.name, router.incarnation) for router in self._judge.routers.values() if router.alive}
        volatile = not link.client.durable and running.isdisjoint(self._knowing[generation])
        return volatile or link.attached_at > over + link.router.topic.settings.terminus

    # after every step

    def watch(self, router: "Router") -> None:
        views = self._views_of(router)
        directory = router.topic.directory
        router.sections.update(directory.applied)
        lapsed, entry_of = directory.lapsed, directory.entry
        for client, index in self._clients:
            entry, view = entry_of(index), views[client.name]
            if entry is view.entry and not (view.is_new or view.untold or index[1] in lapsed):
                continue
            former = view.look(entry)
            self._watch_consent(router, client, entry)
            self._watch_lapse(router, client, entry)
            if entry is not None and entry.live:
                if view.epoch is None:
                    view.untold = True
                if view.epoch != entry.epoch:
                    view.latest = 0 if former is None else former.epoch.hlc
                    if index[0] is Role.PUBLISHER:
                        known = self._known_around(router, client, entry.epoch)
                        self._judge.lives.begins(router, client, entry, former, known)
                    self._judge.memory.epoch_seen(router, entry.epoch)
                    self._judge.lives.given(client.name, entry.generation, entry.epoch)
                view.epoch, view.generation = entry.epoch, entry.generation
                if view.untold and not router.topic.outlet.batches:
                    self._tell(router, view)
            elif view.epoch is not None:
                same_life = entry is None or entry.generation == view.generation  # otherwise a later life has ended
                self._forgotten(router, client, view, view.epoch, same_life=same_life)
                view.epoch = None

    def _known_around(self, router: "Router", client: "Client", but_for: Epoch) -> int:
        """The clock of the client's latest attach, over or not, that the router knows, or any router, in any
        incarnation, from which it heard in this event."""
        names = router.name, *router.had_contact
        views = [views[client.name] for (name, _), views in self._views.items() if name in names]
        return max(v.latest if v.entry is None or v.entry.epoch == but_for else v.entry.epoch.hlc for v in views)

    def _watch_consent(self, router: "Router", client: "Client", entry: LinkEntry | None) -> None:
        key = router.name, client.name
        if entry is None or entry.status is not Status.BOUND:
            self._bound.pop(key, None)
        elif key not in self._bound or self._bound[key][0] != entry.generation:
            routers = self._judge.routers
            away = max(self._unseen(other, client, routers[entry.router]) for other in self.around(router))
            told = any((other, client.name, entry.epoch) in self.agreed for other in routers)
            self._bound[key] = entry.generation, told or away >= client.shortest - self._grain(router)
            if self._bound[key][1]:
                self.agreed.add((router.name, client.name, entry.epoch))

    def _watch_lapse(self, router: "Router", client: "Client", entry: LinkEntry | None) -> None:
        """The custodian no longer waits for the client. The client may come back there before other homes know that,
        and these may accept without it (protocol 8, Apart)."""
        if entry is None or entry.router != router.name or entry.name not in router.topic.directory.lapsed:
            return
        attach = router.name, client.name, entry.epoch
        if attach not in self.agreed and self._unseen(router, client, router) >= client.shortest - self._grain(router):
            self.agreed.add(attach)

    @staticmethod
    def _tell(router: "Router", view: View) -> None:
        channels = router.mesh._contacts._channels
        view.untold = False
        numbers = router.contact_numbers
        view.told = {name: (numbers.get(name, 0), channel.sent) for name, channel in channels.items()}

    def _views_of(self, router: "Router") -> dict[str, View]:
        incarnation = router.name, router.incarnation
        views = self._views.get(incarnation)
        if views is None:
            names = [client.name for client, _ in self._clients]
            views = self._views[incarnation] = {name: View() for name in names}
        return views

    def _unseen(self, router: "Router", client: "Client", there: "Router") -> float:
        """For how long the client has not been attached there, as far as this router can know."""
        now = self._judge.schedule.now
        since = inf if self._judge.contact(router, there.name) is None else router.made_at[there.name]
        since = 0.0 if there is router else since
        lost_at = router.lost_at.get(there.name, router.booted_at)
        seen = [router.booted_at]
        for link in client.opened:
            if link.router is there and link.attached:
                end = link.ended_at if link.ended else now
                if end >= since:
                    seen.append(end)
                elif link.attached_at <= lost_at:
                    seen.append(min(end, lost_at))
        return now - max(seen)

    def _forgotten(self, router: "Router", client: "Client", view: View, epoch: Epoch, *, same_life: bool) -> None:
        judge = self._judge
        has_expired = view.entry is not None and view.entry.status is Status.EXPIRED
        if _has_closed(client, epoch, has_expired=has_expired):
            return
        custodian = judge.routers[epoch.router]
        away = max(self._unseen(other, client, custodian) for other in self.around(router))
        long = client.shortest - self._grain(router)
        told = view.generation in self._lives_over or (client.name in self._over and self._over[client.name] >= epoch)
        told = told or (epoch.router, client.name, epoch) in self.agreed
        told = told or self._has_moved_on(client, epoch) or self._is_gossip(router, client)
        judge.check(told or away >= long, f"8 expired too early: {client.name} at {router.name}, after {away:.3f} s")
        self._over[client.name] = max(epoch, self._over.get(client.name, epoch))
        if view.generation and same_life:
            in_use = client.away < long and away < FORGET - self._grain(router)
            in_use = in_use and view.generation not in self._lives_over and _is_of_life(client, view.generation)
            judge.check(not in_use, f"8 life in use: {client.name} at {router.name}, away for {client.away:.3f} s")
            self._life_over(router, client, view.generation)
        self._expired(router, client, epoch)

    def _has_moved_on(self, client: "Client", epoch: Epoch) -> bool:
        """Whether some router had rightly ended the subscriber, which had moved out of its contact before; or whether
        its client was told that recently, so not all routers know it yet."""
        reader = self._judge.readers.get(client.name)
        told_now = reader is not None and self._judge.schedule.now - reader.told_at < RECENT
        return client.name in self._over and (told_now or client.name in self._judge.untold)

    def _is_gossip(self, router: "Router", client: "Client") -> bool:
        """Whether another router has ended the subscriber. That end was checked there; the subscriber may have moved
        since.
        """
        entry = router.topic.directory.subscriber(link_name(client.identity))
        is_told_of = client.name in self._judge.readers and entry is not None and entry.ending != ""
        return is_told_of and entry is not None and f"router {router.name} accepted" not in entry.ending

    def _life_over(self, router: "Router", client: "Client", generation: bytes) -> None:
        judge, around = self._judge, self.around(router)
        if generation not in self._knowing:
            self._knowing[generation] = {(other.name, other.incarnation) for other in around}
            for other in around:
                view = self._views_of(other)[client.name]
                resumed = view.epoch is not None and view.epoch[1:] == (other.name, other.incarnation)
                resumed = resumed and view.generation == generation and other is not router
                resumed = resumed and (other.name, client.name, view.epoch) not in self.agreed
                agreed = not resumed or judge.has_met_limit(client.name)  # the later attach has an older epoch
                judge.check(agreed, f"8 consent: {client.name} expires at {router.name}, and is at {other.name}")
        self._knowing[generation].add((router.name, router.incarnation))
        self._lives_over[generation] = judge.schedule.now

    def _expired(self, router: "Router", client: "Client", epoch: Epoch) -> None:
        judge = self._judge
        judge.note(router.name, f"has let {client.name} expire")
        reader = judge.readers.get(client.name)
        cause = AWAY if client.away >= client.shortest - self._grain(router) else APART
        if any(link.afresh and (link.epoch is None or link.epoch > epoch) for link in client.opened):
            cause = BEGUN
        if reader is not None and cause == APART and reader.expired is not None and epoch <= reader.expired:
            cause = AWAY  # its client knows that this life was over before it continued
        if reader is not None and cause == AWAY:
            reader.expired = epoch if reader.expired is None else max(epoch, reader.expired)
        if reader is not None and (reader.told is None or reader.told < epoch):
            must_be_told = cause == APART and reader.exact and client.name not in judge.inexact
            judge.untold[client.name] = must_be_told or judge.untold.get(client.name, False)
        for message in judge.messages.values():
            home = judge.routers.get(message.home)
            elsewhere = home is not None and home.alive and not self._in_contact(router, home.name)
            if message.publisher == client.name:
                message.over = True
            if client.name in message.promised and not elsewhere:
                judge.ends(message, client.name, cause)

    @staticmethod
    def _grain(router: "Router") -> float:
        """The longest time between two steps of a router: the interval of HELLOs, in seconds."""
        return router.knobs.dead / 4 + 0.1


def _has_closed(client: "Client", epoch: Epoch, *, has_expired: bool) -> bool:
    """Whether the client has closed its attach of that epoch, or a later one; the close may never have reached its
    router. A router that reads a close before it has answered the attach may take it for late, and only suspend the
    link (protocol 6.12): then the attach `has_expired` like any other."""
    number = min((link.number for link in client.opened if link.epoch == epoch), default=0)
    closed = [link for link in client.opened if link.closed]
    if has_expired:
        closed = [link for link in closed if link.epoch != epoch or link.answered]
    return any(link.number > number if link.epoch is None else link.epoch >= epoch for link in closed)


def _is_of_life(client: "Client", generation: bytes) -> bool:
    """Whether the publisher uses that generation. It may have begun another life."""
    return client.generation == generation
