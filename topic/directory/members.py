"""The routers that a directory waits for, what each has told, and acknowledged of our section (protocol 3.3 and 11).

This is the one home of "all routers": they are the routers that the plan lists, and all others in contact. A router
that is leaving counts until it has left, because it may be the only one that knows where a client was.
"""

from collections.abc import Collection, Mapping

from linkstate.clock import HybridClock
from topic.errors import BreachError
from topic.identity import Epoch


class Members:
    """All routers but this one, and how far each has told of the attaches at it, as this one does."""

    def __init__(self, router: str, incarnation: int, routers: Collection[str], clock: HybridClock) -> None:
        """`routers` are those that the plan lists, this router perhaps among them."""
        self.router = router
        self.incarnation = incarnation
        self._clock = clock
        self.others = tuple(sorted(set(routers) - {router}))
        self.acked: dict[str, int] = dict.fromkeys(self.others, 0)
        """Version of our section that each has acknowledged; -1 until it has in this contact."""
        self._told: dict[str, Epoch] = {router: Epoch(0, router, incarnation)}
        """How far each contact has told of the attaches at it, in their order; here, the latest that was written."""
        self.untold: dict[bytes, int] = {}
        """The clocks of attaches here that wait before this router tells anybody of them (7.9), by publisher."""

    @property
    def told_up_to(self) -> int:
        """The clock up to which the others are told of the attaches here, with what is said to them now."""
        return min([self._told[self.router].hlc, *(clock - 1 for clock in self.untold.values())])

    def follow(self, routers: Collection[str], contacts: Collection[str]) -> None:
        """The plan lists other routers now. A new one has acknowledged nothing."""
        self.others = tuple(sorted(set(routers) - {self.router}))
        self.acked = {router: self.acked.get(router, 0) for router in sorted({*self.others, *contacts})}

    def contact(self, router: str) -> None:
        self.acked[router] = -1

    def lost(self, router: str) -> None:
        """Forget what the router has told. If the plan no longer lists it, nobody waits for it either."""
        self._told.pop(router, None)
        if router not in self.others:
            del self.acked[router]

    def write(self, attach: Epoch) -> None:
        """It is of this router. What is above the clock follows an attach under one that nobody believes
        (`Outlet.new_epoch`), and says nothing of those below."""
        if attach.hlc <= self._clock.read():
            self._told[self.router] = max(attach, self._told[self.router])

    def tells(self, told: Epoch) -> None:
        """A contact has told of all attaches at it up to there."""
        self._told[told.router] = max(told, self._told.get(told.router, told))

    def has_told(self, attach: Epoch) -> bool:
        """Whether the attach is of a present incarnation, here or at a contact that has told of it since that began."""
        told = self._told.get(attach.router)
        return told is not None and told[1:] == attach[1:] and told >= attach

    def acknowledge(self, router: str, version: int, ours: int) -> None:
        """A contact has applied our section up to `version` of `ours`."""
        if not 0 <= version <= ours:
            raise BreachError(f"router {router} acknowledged version {version}, but the latest is {ours}")
        self.acked[router] = max(self.acked[router], version)

    def have(self, routers: Collection[str], version: int) -> bool:
        """Whether these have all acknowledged that version of our section."""
        return all(self.acked[router] >= version for router in routers)

    def unheard(self, heard: set[str]) -> set[str]:
        """Other routers of the plan that are not among these."""
        return {router for router in self.others if router not in heard}

    def least(self, version: int) -> int:
        """What all have acknowledged of our section, which has this version."""
        return min(self.acked.values(), default=version)

    def are_all_in(self, told: Mapping[str, int], contacts: Collection[str]) -> bool:
        """Whether all are in contact and have told their sections: those of the contacts that `told` has."""
        return len(told) == len(contacts) and all(router in told for router in self.others)
