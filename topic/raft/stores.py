"""What the routers in contact have said of their stores, and what that allows (protocol 13.2).

A set begins when the stores of all its voters have accepted the same life. A store accepts one for ever, so a majority
of voters that lost their disks cannot begin an empty set while another voter remembers the former one.
"""

from collections.abc import Iterable, Sequence

import attrs

from topic.raft.configuration import Configuration, Replica
from topic.raft.messages import Hard


@attrs.frozen(slots=True)
class KnownStore:
    """A router in contact."""

    member: Replica
    life: int
    """The life that its store has accepted; 0: none."""
    begun: bool
    mapping: bytes


class KnownStores:
    """The routers in contact that take part in one set, by name."""

    def __init__(self, me: Replica, ring: Sequence[str], mapping: bytes) -> None:
        """`ring`: the routers that are to be voters, by the topology. The first of them begins the set."""
        self._me = me
        self.ring = tuple(ring)
        self.mapping = mapping
        self._stores: dict[str, KnownStore | None] = {}
        """None: the contact has begun, and the router has said nothing yet."""

    def connect(self, router: str) -> None:
        self._stores[router] = None

    def disconnect(self, router: str) -> Replica | None:
        """The contact has ended. Returns the member that was there."""
        known = self._stores.pop(router, None)
        return known.member if known is not None else None

    def learn(self, known: KnownStore) -> bool:
        """Take a router's word. Returns whether this is its first word with that store in this contact."""
        router = known.member.router
        if router not in self._stores:
            return False
        former, self._stores[router] = self._stores[router], known
        return former is None or former.member != known.member

    @property
    def routers(self) -> Iterable[str]:
        return self._stores.keys()

    def all(self) -> list[KnownStore]:
        """The stores of routers whose topology maps names as this one does. The others get no message of the set."""
        return [known for known in self._stores.values() if known is not None and known.mapping == self.mapping]

    def get(self, router: str) -> KnownStore | None:
        known = self._stores.get(router)
        return known if known is not None and known.mapping == self.mapping else None

    def has(self, member: Replica) -> bool:
        """Whether the member's router is in contact, with that store."""
        return member == self._me or ((known := self.get(member.router)) is not None and known.member == member)

    def in_ring(self) -> list[KnownStore] | None:
        """The other routers of the ring; None unless all of them are in contact."""
        found = [self.get(router) for router in self.ring if router != self._me.router]
        known = [known for known in found if known is not None]
        return known if len(known) == len(found) else None

    def first_voters(self, *, anew: bool) -> Configuration | None:
        """The voters of a set that may begin now by this router's word; None if it may not. `anew`: an operator asks,
        and lives that are not in effect do not count."""
        others = self.in_ring()
        if others is None or self._me.router not in self.ring or (not anew and self.ring[0] != self._me.router):
            return None
        if any(known.begun or (known.life and not anew) for known in others):
            return None
        stores = {known.member.router: known.member for known in others} | {self._me.router: self._me}
        return Configuration(tuple(stores[router] for router in self.ring))

    def is_in_effect(self, hard: Hard, configuration: Configuration) -> bool:
        """Whether all voters have accepted the life in `hard`, which this store has on its disk."""
        same = [known for known in self.all() if known.life == hard.life]
        accepted = {self._me, *(known.member for known in same)}
        return any(known.begun for known in same) or accepted.issuperset(configuration.voters)
