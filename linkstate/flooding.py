"""The database of link-state advertisements (protocol 3, layer 1). It keeps the newest advertisement of each router,
and forgets an advertisement that its router does not renew.

Every router writes one advertisement, which lists its working links, and repeats it from time to time. The version of
an advertisement is (incarnation, sequence). The database decides which of two advertisements is newer, and which have
to be passed on or answered. It does not know neighbours and sends nothing. It has at most one entry for each router in
the plan.
"""

import math
import zlib
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from math import inf

import msgpack
from attrs import frozen

from linkstate.frames import AgedAdvertisement
from linkstate.plan.plan import Plan

LAST_SEQUENCE = 2**62
"""The highest sequence number to which this router replies with a higher one of its own. Other routers can still decode
numbers a little above this limit."""
Links = tuple[tuple[str, int, int], ...]  # each link has the neighbour, the neighbour's incarnation, and the cost


@frozen
class Advertisement:
    """The working links of one router, as it advertises them."""

    origin: str
    incarnation: int
    sequence: int
    links: Links
    written: float  # a time of this router's clock, computed from the age in the message

    @property
    def version(self) -> tuple[int, int]:
        return self.incarnation, self.sequence


class InstallResult(Enum):
    """The reaction of a router to a received advertisement."""

    NEWER = auto()  # the router keeps the advertisement, and passes it on
    KNOWN = auto()
    OLDER = auto()  # the router has a newer one, and sends that one back
    # The advertisement names this router, which did not write it. So this router writes a newer one.
    DISPUTED = auto()
    # The advertisement is too old, or is from the future, or it is about a router that the mesh does not have.
    REFUSED = auto()


class Database:
    """The newest known advertisement of every router."""

    def __init__(
        self,
        name: str,
        incarnation: int,
        plan: Plan,
        believes: Callable[[int], bool],
        *,
        refresh: float,
        max_age: float,
    ) -> None:
        """`believes`: whether a router may have started at this time of day, in milliseconds (`HybridClock.believes`).
        An incarnation is such a time."""
        assert 0 < refresh < max_age
        self.entries: dict[str, Advertisement] = {}
        # The database sets this flag. The caller resets it when it has computed the paths again.
        self.topology_changed = False
        self.refused = 0
        self._name = name
        self._incarnation = incarnation
        self._plan = plan
        self._believes = believes
        self._refresh = refresh
        self._max_age = max_age
        self._sequence = 0
        # `_deadline` and `_digest` are cached values. A change of the entries sets both to None.
        self._deadline: float | None = None
        self._digest: int | None = None

    def follow(self, plan: Plan) -> None:
        """Follow a changed plan: forget the advertisements of routers that it no longer lists."""
        self._plan = plan
        for origin in [o for o, a in self.entries.items() if o != self._name and not plan.admits(o, a.incarnation)]:
            self.topology_changed = True
            del self.entries[origin]
            self._has_changed()

    @property
    def own(self) -> Advertisement | None:
        return self.entries.get(self._name)

    def originate(self, links: Links, now: float) -> Advertisement:
        """Write a new advertisement of this router."""
        self._sequence += 1
        advertisement = Advertisement(self._name, self._incarnation, self._sequence, links, now)
        self._keep(advertisement)
        return advertisement

    def install(self, entry: AgedAdvertisement, now: float) -> InstallResult:
        """Judge a received advertisement, and keep it if it is newer."""
        if not self._acceptable(entry):
            self.refused += 1
            return InstallResult.REFUSED
        if entry.origin == self._name:
            return self._install_own(entry)
        held = self.entries.get(entry.origin)
        version = entry.incarnation, entry.sequence
        if held is not None and held.version >= version:
            return InstallResult.KNOWN if held.version == version else InstallResult.OLDER
        written = now - entry.age_ms / 1000
        self._keep(Advertisement(entry.origin, entry.incarnation, entry.sequence, entry.links, written))
        return InstallResult.NEWER

    def expire(self, now: float) -> None:
        """Forget advertisements that their routers have not renewed. The caller renews this router's own advertisement
        by `originate`."""
        if now < self.deadline():
            return
        for origin in [o for o, a in self.entries.items() if self._expiry(a) <= now]:
            self.topology_changed = True
            del self.entries[origin]
            self._has_changed()

    @property
    def refresh_at(self) -> float:
        """The time at which this router's own advertisement has to be renewed; infinite if there is none."""
        return self.own.written + self._refresh if self.own else inf

    def deadline(self) -> float:
        if self._deadline is None:
            expiry = min((self._expiry(a) for a in self.entries.values()), default=inf)
            self._deadline = min(expiry, self.refresh_at)
        return self._deadline

    def export(self, origins: Iterable[str], now: float) -> list[AgedAdvertisement]:
        """The advertisements of these routers in the form for neighbours. Ages are rounded up, so that an advertisement
        that only circulates expires in the end."""
        chosen = [self.entries[origin] for origin in sorted(origins)]
        return [
            AgedAdvertisement(a.origin, a.incarnation, a.sequence, math.ceil((now - a.written) * 1000), a.links)
            for a in chosen
        ]

    def versions(self) -> list[tuple[str, int, int]]:
        return sorted((a.origin, a.incarnation, a.sequence) for a in self.entries.values())

    def digest(self) -> int:
        """A digest of the database. Neighbours compare digests, and so notice that a flood did not arrive."""
        if self._digest is None:
            self._digest = zlib.crc32(msgpack.packb(self.versions()))
        return self._digest

    def newer_than(self, versions: Mapping[str, tuple[int, int]]) -> list[str]:
        """The routers whose advertisements are newer here than in a neighbour's summary."""
        return [o for o, a in self.entries.items() if a.version > versions.get(o, (-1, -1))]

    def _acceptable(self, entry: AgedAdvertisement) -> bool:
        names = {entry.origin, *(neighbour for neighbour, _, _ in entry.links)}
        bounded = len(entry.links) < len(self._plan.listed)
        young = entry.age_ms < self._max_age * 1000 and self._believes(entry.incarnation)
        listed = names <= self._plan.listed and self._plan.admits(entry.origin, entry.incarnation)
        return listed and bounded and young

    def _install_own(self, entry: AgedAdvertisement) -> InstallResult:
        """Judge an advertisement of this router that came from a neighbour. It may be of an earlier incarnation, equal
        to the last one sent, or forged."""
        own = self.own
        assert own is not None, "we advertise before anybody can tell us about ourselves"
        version = entry.incarnation, entry.sequence
        if entry.incarnation > self._incarnation or entry.sequence > LAST_SEQUENCE:
            # The advertisement is forged, or comes from another router of this name whose clock is ahead.
            # Other routers could not decode a higher version, so this router cannot replace the advertisement.
            # The advertisement expires, because nobody renews it.
            self.refused += 1
            return InstallResult.REFUSED
        if version > own.version or (version == own.version and entry.links != own.links):
            self._sequence = max(self._sequence, entry.sequence)
            return InstallResult.DISPUTED
        return InstallResult.KNOWN if version == own.version else InstallResult.OLDER

    def _keep(self, advertisement: Advertisement) -> None:
        held = self.entries.get(advertisement.origin)
        if held is None or (held.incarnation, held.links) != (advertisement.incarnation, advertisement.links):
            self.topology_changed = True
        self.entries[advertisement.origin] = advertisement
        self._has_changed()

    def _has_changed(self) -> None:
        self._deadline = self._digest = None

    def _expiry(self, advertisement: Advertisement) -> float:
        return inf if advertisement.origin == self._name else advertisement.written + self._max_age
