"""The stores of the routers in contact, and how a set begins (protocol 13.2).

A set begins when the stores of all its voters have accepted the same life. A store accepts one life for ever. So if
voters lose their disks, even a majority of them, they cannot begin an empty set as long as one other voter remembers
the former set.
"""

from collections.abc import Collection, Iterable, Sequence

import attrs

from topic.raft.configuration import Configuration, Replica
from topic.raft.life import NO_LIFE, SetLife
from topic.raft.messages import Hard


@attrs.frozen(slots=True)
class KnownStore:
    """The store of a router in contact, as the router has announced it."""

    member: Replica
    life: SetLife
    """The life that the store has accepted; `NO_LIFE` if it has accepted none."""
    begun: bool
    ring: tuple[str, ...]
    mapping: bytes
    leaves: bool = False
    """Whether the router is about to stop."""


class KnownStores:
    """The routers in contact, and the store for one set that each of them has announced."""

    def __init__(
        self, me: Replica, routers: Collection[str], ring: Sequence[str], mapping: bytes, copies: Sequence[str] = ()
    ) -> None:
        """`routers`: all routers of the mesh. `ring`: the routers that are to be voters when the set begins. The first
        router of the ring begins the set. `copies`: the routers that then keep an asynchronous copy."""
        self._me = me
        self._routers = routers
        self.ring = tuple(ring)
        self.copies = tuple(copies)
        self.mapping = mapping
        self._stores: dict[str, KnownStore | None] = {}
        """Maps each router in contact to its store; None while the router has not announced its store in this
        contact."""

    def connect(self, router: str) -> None:
        self._stores[router] = None

    def inherit(self, former: "KnownStores") -> None:
        """Take over what the former replica of this router knew about the stores of other routers. Routers in contact
        announce their stores only once, and so would not announce them to this replica, which replaces the former
        one."""
        self._stores.update({router: former._stores.get(router) for router in self._stores})

    def disconnect(self, router: str) -> Replica | None:
        """Handle the end of a contact. Returns the member at that router; None if the router had not announced its
        store."""
        known = self._stores.pop(router, None)
        return known.member if known is not None else None

    def is_replaced(self, known: KnownStore) -> bool:
        """Whether the router has announced another store before this one, in the same contact."""
        former = self._stores.get(known.member.router)
        return former is not None and former.member != known.member

    def learn(self, known: KnownStore) -> bool:
        """Note the store that a router announces. Returns whether the router announces this store for the first time in
        this contact."""
        router = known.member.router
        if router not in self._stores:
            return False
        former, self._stores[router] = self._stores[router], known
        return former is None or former.member != known.member

    @property
    def routers(self) -> Iterable[str]:
        return self._stores.keys()

    def is_heard(self, known: KnownStore) -> bool:
        """Whether the router takes part in the set. It does if its topology maps queue names to sets in the same way as
        this router's."""
        return known.mapping == self.mapping

    def all(self) -> list[KnownStore]:
        """The known stores of all routers in contact that take part in the set."""
        return [known for known in self._stores.values() if known is not None and self.is_heard(known)]

    def get(self, router: str) -> KnownStore | None:
        known = self._stores.get(router)
        return known if known is not None and self.is_heard(known) else None

    def has(self, member: Replica) -> bool:
        """Whether the member is this replica, or is in contact. A member is in contact if its router is in contact and
        still has the member's store."""
        return member == self._me or ((known := self.get(member.router)) is not None and known.member == member)

    def first_voters(self, *, anew: bool) -> Configuration | None:
        """The first configuration with which this router may begin the set now; None if it may not begin it.

        All routers of the mesh have to be in contact, because an absent router may have the set already, or another
        topology. `anew`: whether an operator has asked for the beginning. If so, only the routers of the ring have to
        be in contact, and lives that are not in effect do not count.
        """
        if self._me.router not in self.ring or (not anew and self.ring[0] != self._me.router):
            return None
        needed = {*self.ring} if anew else {*self.ring, *self._routers}
        found = [self.get(router) for router in needed - {self._me.router}]
        others = [known for known in found if known is not None and known.ring == self.ring]
        if len(others) < len(found) or any(known.begun or (known.life and not anew) for known in others):
            return None
        stores = {known.member.router: known.member for known in others} | {self._me.router: self._me}
        return Configuration(tuple(stores[router] for router in self.ring), ring=self.ring, copies=self.copies)

    def why_not_anew(self) -> str:
        """Why an operator cannot make this router begin the set; empty if the operator can."""
        if self._me.router not in self.ring:
            return f"router {self._me.router} is not to be a voter, expected one of {', '.join(self.ring)}"
        for router in self.ring:
            known = self.get(router)
            if router == self._me.router:
                continue
            if known is None:
                return f"router {router} is not in contact, or its topology maps queues to sets otherwise"
            if known.ring != self.ring:
                return f"the voters are {', '.join(self.ring)} here, and {', '.join(known.ring)} at router {router}"
            if known.begun:
                return f"it has begun at router {router}"
        return ""

    def may_accept(self, life: SetLife, configuration: Configuration) -> bool:
        """Whether all voters can still accept this life, for which an operator has asked. They can if they have the
        stores that the proposal names, and none has accepted a later life."""
        is_latest = all(known.life <= life for known in self.all())
        return is_latest and self.first_voters(anew=True) == configuration

    @property
    def latest_life(self) -> SetLife:
        """The latest life that is in effect at any router in contact; `NO_LIFE` if there is none."""
        return max((known.life for known in self.all() if known.begun), default=NO_LIFE)

    def is_in_effect(self, hard: Hard, configuration: Configuration) -> bool:
        """Whether all voters have accepted the life in `hard`, which is on the disk of this store."""
        same = [known for known in self.all() if known.life == hard.life]
        accepted = {self._me, *(known.member for known in same)}
        return any(known.begun for known in same) or accepted.issuperset(configuration.voters)
