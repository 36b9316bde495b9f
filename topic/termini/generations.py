"""The lives of publishers, and what happens to deliveries of earlier attaches (protocol 7).

A generation names a life. An attach that resumes the life takes over the deliveries in doubt of its older attaches, at
any router. A life ends by a fresh attach, a closing detach, or expiry; its deliveries are then abandoned.
`topic.termini.attaches` decides when an attach is answered.
"""

import math
from collections.abc import Iterable
from typing import Final

import attrs

from topic.actions import STOLEN, Detach, Note
from topic.delivery.record import HomeStream, Stream
from topic.delivery.streams import stream_of
from topic.directory.addresses import is_pattern
from topic.directory.entry import Change, Decision, LinkEntry, Role, Status
from topic.edge.bodies import Bodies
from topic.edge.subscriber import LocalSubscriber
from topic.edge.unconfirmed import UNKNOWN
from topic.home.home import Home
from topic.identity import KEY_LENGTH, NAME_LENGTH, NOWHERE, Epoch, LinkIdentity, new_generation
from topic.journal import Event
from topic.settings import Settings
from topic.termini.attaches import Attaches, Claim

FORGOTTEN = (
    "no router remembers this publisher: it waits for a former subscriber only after that subscriber has attached again"
)
UNHEARD_OF = "no reachable router knows its last attach, or the subscribers that have attached since then"

MOST_NOWHERE: Final = 10_000
"""The highest number of publishers at one router that only placeholders name. Each takes about 5 KB. A limit is needed,
because any client can make up names."""


_Place = tuple[str, bool]
"""The key of a stream of a publisher that only placeholders name: an address, and a flag. The address is the one of the
subscriber whose map named the publisher; the publisher itself may have another address. The flag says whether the
publisher is the egress of a queue, closed by a leader."""


@attrs.define(slots=True)
class _Nowhere:
    """A publisher that this router knows only from placeholders."""

    stream: Stream
    since: float = math.inf
    """The time at which the router first checked whether the publisher may still come back, in seconds; infinity
    before."""


class Generations:
    """The publishers that one router knows, including the ones that only placeholders name."""

    def __init__(self, home: Home, attaches: Attaches, settings: Settings) -> None:
        self.outlet = home.outlet
        self.directory = home.directory
        self._home = home
        self._edge = home.edge
        self._attaches = attaches
        self._settings = settings
        self.bodies = Bodies(settings.largest)
        """The pieces of large messages that have come ahead of their Forwards. They are dropped when their publisher's
        attach ends."""
        self._nowhere: dict[bytes, dict[_Place, _Nowhere]] = {}
        """The publishers that only placeholders name, keyed by name and then by `_Place`."""

    def attach(self, stream: HomeStream, claim: Claim, now: float, all_since: float) -> None:
        """Attach a publisher here. Its attach begins at once, or waits until a router in contact knows the publisher
        (7.6, 7.9). `all_since`: since when all routers have been in contact, in seconds."""
        is_late = now >= all_since + self._settings.terminus + self._settings.boot_wait
        known, seen = self.directory.publisher(stream.publisher), claim.seen
        knows_all = self._attaches.knows_all(seen) or self._is_over(stream, known, seen, is_late=is_late)
        if claim.unsettled is None or knows_all:
            self._begin(stream, claim, now, is_late=is_late)
        elif claim.generation is None and (known is None or not known.live):
            self._wait(stream, claim, now, self._settings.boot_wait)
        elif claim.is_in_doubt and seen > (NOWHERE if known is None else known.epoch):
            self._wait(stream, claim, now, self._settings.terminus)
        else:
            self._begin(stream, claim, now, is_late=is_late)

    def _wait(self, stream: HomeStream, claim: Claim, now: float, wait: float) -> None:
        self.outlet.actions.append(Note(f"publisher {stream.identity} waits: {UNHEARD_OF}"))
        self._attaches.unknown(stream, claim, now, wait)

    def begin_unknown(self, now: float) -> None:
        """Begin the attaches of unknown publishers that need not wait any longer."""
        for waiting in self._attaches.ready(now):
            self._begin(waiting.stream, waiting.claim, waiting.since)

    def _begin(self, stream: HomeStream, claim: Claim, now: float, *, is_late: bool = False) -> None:
        """Begin the attach of a publisher here (7.1). The publisher resumes if it has an unsettled map, and a
        generation that it echoes or that the directory knows.

        `is_late`: when the attach came, all routers had been in contact for longer than any terminus lives. False for
        an attach that has waited, because contacts have changed since the attach came.
        """
        assert not stream.begun and not stream.records
        name, epoch = stream.publisher, stream.epoch
        known = self.directory.publisher(name)
        if known is not None and known.epoch > epoch:  # the publisher has attached elsewhere in the meantime
            self._end_link(stream, known.router)
            return
        client_map, seen = claim.unsettled, claim.seen
        begins = client_map is None or self._is_over(stream, known, seen, is_late=is_late)
        life = None if begins else self._life_of(known, claim.generation, seen)
        if life is not None and client_map and known is None:
            self.outlet.actions.append(Note(f"publisher {stream.identity} resumes, but {FORGOTTEN}"))
        stream.name_life(life or new_generation(epoch))
        if life is not None:
            contacts = self.directory.contacts
            versions = {router: (contacts[router], version) for router, version in self.directory.applied.items()}
            self.outlet.batches.applied(contacts, versions)
        lifetime = stream.lifetime
        self.outlet.write_entry(
            self.directory,
            LinkEntry(Role.PUBLISHER, name, stream.identity, epoch, stream.generation, lifetime=lifetime),
        )
        self._attaches.withdraw_unknown(name)
        self._retire(name, stream.address, stream)
        self._home.streams.add(stream)
        stream.begin()
        if life is None:
            self._home.begin_afresh(stream, says_so=client_map is None)
        else:
            assert client_map is not None
            self._home.resume(stream, client_map, complete=claim.complete)
        self._attaches.publisher(stream, now)

    def _is_over(self, stream: HomeStream, known: LinkEntry | None, seen: Epoch, *, is_late: bool) -> bool:
        """Whether the publisher's life is over (7.10). It is over if no router in contact knows the publisher, and one
        of two conditions holds.

        The first condition: the home of the publisher's last attach is this router, or has announced that attach in
        this contact. (A home forgets a life that outlives its connection only after the life has ended.) The second
        condition: that home has been restarted, and the attach `is_late`.
        """
        if known is not None or not stream.lifetime.timeout:
            return False
        outlived = is_late and self._has_died(seen)
        return outlived or self.directory.members.has_told(seen)

    def _has_died(self, home: Epoch) -> bool:
        """Whether this incarnation of a router has surely ended, because a later one is in contact, or is this router.
        A removed router does not count as ended, because it may go on out of reach (11.8)."""
        directory = self.directory
        present = {directory.router: directory.incarnation, **directory.contacts}
        return home.incarnation < present.get(home.router, 0)

    def knows(self, publisher: bytes, generation: bytes | None) -> bool:
        """Whether an attach with a map continues a life that this router knows. Without a generation it continues any
        life of the publisher."""
        known = self.directory.publisher(publisher)
        return known is not None and self._life_of(known, generation, NOWHERE) is not None

    @staticmethod
    def _life_of(known: LinkEntry | None, generation: bytes | None, seen: Epoch) -> bytes | None:
        """The generation that a publisher with a map resumes: the generation that it echoes, or else the generation
        that the directory has.

        None if the publisher has to begin afresh. This is so in three cases: its life has ended; this router has agreed
        that the life expires; or a later life has begun of which the publisher does not know.
        """
        if known is None:
            return generation
        if generation in (None, known.generation):
            return known.generation if known.status is Status.ATTACHED else None
        return None if seen < known.epoch else generation

    def changed(self, change: Change) -> None:
        """Handle a publisher that has a new attach at another router, or has ended."""
        name, entry = change.entry.name, change.entry
        current = self._home.streams.get(name) or self._edge.streams.get(name)
        if change.new is None or not change.new.live or self._has_ended(change):
            self._retire(name, entry.identity.address, None)
        elif current is None or current.epoch != entry.epoch:
            stream = stream_of(entry, self._edge.kinds)
            self._retire(name, stream.address, stream)
            if stream.unconfirmed:
                self._edge.streams.add(stream)
                self._edge.unconfirmed.ask(stream, list(stream.unconfirmed))
        waiting = self._attaches.known(entry) if change.new is not None else None
        if waiting is not None:
            self._begin(waiting.stream, waiting.claim, waiting.since)

    def _has_ended(self, change: Change) -> bool:
        """Whether this router knows that the life in this change has expired. If so, a router that was out of contact
        has resumed the life, and this router reports the expiry to it."""
        old, entry = change.old, change.entry
        if old is None or not old.expired_life or old.generation != entry.generation:
            return False
        self.directory.mark(entry, Status.EXPIRED)
        self.outlet.batches.expired([entry.router], entry, Decision.EXPIRED)
        return True

    def _retire(self, name: bytes, address: str, new: Stream | None) -> None:
        """End the publisher's earlier attaches. If the `new` attach is of the same life, the deliveries in doubt go on
        under it (7.4). Otherwise they are abandoned (7.5)."""
        self.bodies.drop(name)
        mine, other = self._home.streams.get(name), self._edge.streams.get(name)
        if other is not None:
            self._edge.streams.discard(other)
        if mine is not None:
            self._end_link(mine, None if new is None else new.home)
        nowhere = self._take_nowhere(name) if new is not None else []
        streams: list[Stream | None] = [mine, other, *nowhere]
        for stream in filter(None, streams):
            if new is not None and _goes_on(stream, new):
                if isinstance(stream, HomeStream):
                    self._home.supersede(stream, new)
                else:
                    self._edge.unconfirmed.hold(stream)
                self._edge.unconfirmed.move(stream, new, list(stream.unconfirmed.values()))
                continue
            self._keep_placeholders(stream, new)
            followed_by = None if new is None else new.generation
            if isinstance(stream, HomeStream):
                self._home.abandon(stream, followed_by)
            else:
                self._edge.abandon(stream, followed_by)
        self._edge.rehomed(name, address)

    def _keep_placeholders(self, stream: Stream, new: Stream | None) -> None:
        """Keep the placeholders of an abandoned life. They may belong to a life that goes on at routers out of contact,
        because a key does not show its generation.

        If the publisher is an egress, only a leader can have ended its life. So the stream of these placeholders is
        marked as the stream of an egress that a leader has closed.
        """
        placeholders = [record for record in stream.unconfirmed.values() if record.is_placeholder]
        if placeholders and new is None:
            new = self._nowhere_stream(stream.publisher, stream.address, is_closed=stream.kind.is_of_set)
        if new is not None and new.address == stream.address:
            self._edge.unconfirmed.move(stream, new, placeholders)

    def _nowhere_stream(self, publisher: bytes, address: str, *, is_closed: bool = False) -> Stream:
        """The stream for placeholders of a publisher that no router in contact knows. It is used until the publisher
        comes back."""
        at = self._nowhere.setdefault(publisher, {})
        found = at.get((address, is_closed))
        if found is None:
            identity, kind = LinkIdentity("", "", address), self._edge.kinds.of(address)
            found = at[address, is_closed] = _Nowhere(Stream(publisher, identity, NOWHERE, UNKNOWN, kind))
        return found.stream

    def _take_nowhere(self, publisher: bytes) -> list[Stream]:
        return [found.stream for found in self._nowhere.pop(publisher, {}).values()]

    def _end_link(self, stream: HomeStream, router: str | None) -> None:
        self._attaches.withdraw_publisher(stream.publisher)
        if stream.link is not None:
            self.outlet.trace(Event.STOLEN, stream.identity, publisher=stream.publisher, peer=router)
            where = "elsewhere" if router is None else f"at router {router}"
            self.outlet.actions.append(Detach(stream.link, STOLEN, f"the link was attached {where}"))
            stream.leave()

    def has_room_for(self, client_map: Iterable[bytes]) -> bool:
        """Whether this router has room for all publishers that the subscriber's map names and that no router in contact
        knows."""
        names = {key[:NAME_LENGTH] for key in client_map if len(key) == KEY_LENGTH} - self._nowhere.keys()
        unknown = sum(not self._is_known(name) for name in names)
        return len(self._nowhere) + unknown <= MOST_NOWHERE

    def _is_known(self, publisher: bytes) -> bool:
        entry = self.directory.publisher(publisher)
        here = publisher in self._home.streams or publisher in self._edge.streams
        return here or (entry is not None and entry.live)

    def stream_named(self, subscriber: LocalSubscriber, publisher: bytes) -> Stream:
        """The stream for a placeholder of the publisher.

        Even if the directory knows that the publisher's life has ended, the placeholder may be of a later life. This is
        possible even if all routers seem to be in contact, because this router may not have noticed yet that another
        router is cut off.
        """
        stream = self._home.streams.get(publisher) or self._edge.streams.get(publisher)
        if stream is not None:
            return stream
        entry = self.directory.publisher(publisher)
        if entry is not None and entry.live:
            return self._edge.stream(entry)
        return self._nowhere_stream(publisher, subscriber.identity.address)

    def give_up_nowhere(self, now: float, all_since: float) -> None:
        """Settle the placeholders of publishers that will not come back: the longest timeout of a terminus is over.

        The time counts from `all_since`, when all routers came into contact: before, the publisher may have been
        attached at a router out of contact. After `Settings.forget` seconds the time is over in any case. The link of a
        replica set comes back with the set's next leader, however late. So its placeholders stay, unless a leader has
        closed the link.
        """
        longest = self._settings.terminus + self._settings.boot_wait
        for publisher, at in list(self._nowhere.items()):
            for place, found in list(at.items()):
                _, is_closed = place
                found.since = min(found.since, now)
                is_over = now >= max(found.since, all_since) + longest or now >= found.since + self._settings.forget
                may_end = is_closed or not found.stream.kind.is_of_set
                if (is_over and may_end) or not found.stream.unconfirmed:
                    del at[place]
                    self._edge.abandon(found.stream, None)
            if not at:
                del self._nowhere[publisher]


def _goes_on(old: Stream, new: Stream) -> bool:
    """Whether the new attach continues the life of the old stream. If the old stream has only placeholders, its address
    may be a pattern that covers the publisher's address."""
    is_at = old.address == new.address or is_pattern(old.address)
    return is_at and old.generation in (UNKNOWN, new.generation)
