"""The routers for which a directory waits (protocol 3.3 and 11). It knows for each router how far the router has
announced its attaches, and which version of this router's section it has acknowledged.

Only this module defines "all routers": the routers in the plan, and all other contacts. A router that is leaving counts
until it has left, because it may be the only one that knows where a client was.
"""

from collections.abc import Collection, Mapping

from linkstate.clock import HybridClock
from topic.errors import BreachError
from topic.identity import Epoch


class Members:
    """All other routers, and the epoch up to which each router, including this one, has announced its attaches."""

    def __init__(self, router: str, incarnation: int, routers: Collection[str], clock: HybridClock) -> None:
        """`routers`: the routers in the plan; this router may be among them."""
        self.router = router
        self.incarnation = incarnation
        self._clock = clock
        self.others = tuple(sorted(set(routers) - {router}))
        self.acked: dict[str, int] = dict.fromkeys(self.others, 0)
        """The version of this router's section that each router has acknowledged; -1 from the beginning of a contact
        until the first acknowledgement in it."""
        self._told: dict[str, Epoch] = {router: Epoch(0, router, incarnation)}
        """Maps each contact to the epoch up to which the contact has announced its attaches. A router announces its
        attaches in the order of their epochs. The entry of this router itself has the epoch of the latest attach in its
        section."""
        self.untold: dict[bytes, int] = {}
        """Maps publishers to the clocks of their attaches here that this router does not announce yet (7.9)."""

    @property
    def told_up_to(self) -> int:
        """The clock up to which the other routers know the attaches here, once they have received what this router has
        sent."""
        return min([self._told[self.router].hlc, *(clock - 1 for clock in self.untold.values())])

    def follow(self, routers: Collection[str], contacts: Collection[str]) -> None:
        """Follow a new plan, which lists these routers. A router that is new in it has acknowledged nothing yet."""
        self.others = tuple(sorted(set(routers) - {self.router}))
        self.acked = {router: self.acked.get(router, 0) for router in sorted({*self.others, *contacts})}

    def contact(self, router: str) -> None:
        self.acked[router] = -1

    def contact_lost(self, router: str) -> None:
        """Forget how far the lost contact has announced its attaches. If the plan does not list the router, forget its
        acknowledgements, too."""
        self._told.pop(router, None)
        if router not in self.others:
            del self.acked[router]

    def write(self, attach: Epoch) -> None:
        """Record an attach at this router: the router has now announced all attaches up to this one.

        An attach whose epoch is ahead of this router's clock does not count, because this router has not announced all
        attaches below this epoch. An attach gets such a high epoch if it follows an epoch that no router believes
        (`Outlet.new_epoch`).
        """
        if attach.hlc <= self._clock.read():
            self._told[self.router] = max(attach, self._told[self.router])

    def tells(self, told: Epoch) -> None:
        """A contact has announced all its attaches up to this epoch."""
        self._told[told.router] = max(told, self._told.get(told.router, told))

    def has_told(self, attach: Epoch) -> bool:
        """Whether the router of the attach has announced its attaches up to this one. False if the attach is of another
        incarnation of that router, or the router is no contact."""
        told = self._told.get(attach.router)
        return told is not None and told[1:] == attach[1:] and told >= attach

    def acknowledge(self, router: str, version: int, ours: int) -> None:
        """A contact has applied this router's section up to `version`. `ours`: the latest version. Raises BreachError
        if `version` is above it."""
        if not 0 <= version <= ours:
            raise BreachError(f"router {router} acknowledged version {version}, but the latest is {ours}")
        self.acked[router] = max(self.acked[router], version)

    def have(self, routers: Collection[str], version: int) -> bool:
        """Whether all these routers have acknowledged this version of this router's section."""
        return all(self.acked[router] >= version for router in routers)

    def unheard(self, heard: set[str]) -> set[str]:
        """The other routers in the plan that are not in `heard`."""
        return {router for router in self.others if router not in heard}

    def least(self, version: int) -> int:
        """The version of this router's section that all other routers have acknowledged; `version` if there are
        none."""
        return min(self.acked.values(), default=version)

    def are_all_in(self, told: Mapping[str, int], contacts: Collection[str]) -> bool:
        """Whether all routers are in contact and have sent their sections. `told`: the contacts that have sent
        theirs."""
        return len(told) == len(contacts) and all(router in told for router in self.others)
