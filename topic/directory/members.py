"""The routers that a directory waits for, how far each has told of its attaches, and which version of our section it
has acknowledged (protocol 3.3 and 11).

Only this module defines "all routers": the routers that the plan lists, and all other contacts. A router that is
leaving counts until it has left, because it may be the only one that knows where a client was.
"""

from collections.abc import Collection, Mapping

from linkstate.clock import HybridClock
from topic.errors import BreachError
from topic.identity import Epoch


class Members:
    """All other routers, and how far each router, this one included, has told of the attaches at it."""

    def __init__(self, router: str, incarnation: int, routers: Collection[str], clock: HybridClock) -> None:
        """`routers` are the routers that the plan lists; this router may be among them."""
        self.router = router
        self.incarnation = incarnation
        self._clock = clock
        self.others = tuple(sorted(set(routers) - {router}))
        self.acked: dict[str, int] = dict.fromkeys(self.others, 0)
        """Version of our section that each router has acknowledged; -1 until its first acknowledgement in this
        contact."""
        self._told: dict[str, Epoch] = {router: Epoch(0, router, incarnation)}
        """Epoch up to which each contact has told of the attaches at it, in their order; for this router, the latest
        one written."""
        self.untold: dict[bytes, int] = {}
        """Clocks of the attaches here that this router does not announce yet (7.9), by publisher."""

    @property
    def told_up_to(self) -> int:
        """The clock up to which the others know the attaches here, once they have the messages that are sent now."""
        return min([self._told[self.router].hlc, *(clock - 1 for clock in self.untold.values())])

    def follow(self, routers: Collection[str], contacts: Collection[str]) -> None:
        """The plan lists other routers now. A new router has acknowledged nothing."""
        self.others = tuple(sorted(set(routers) - {self.router}))
        self.acked = {router: self.acked.get(router, 0) for router in sorted({*self.others, *contacts})}

    def contact(self, router: str) -> None:
        self.acked[router] = -1

    def contact_lost(self, router: str) -> None:
        """The contact is lost: forget the epoch up to which the router has told of its attaches. If the plan does not
        list the router any more, forget its acknowledgements, too."""
        self._told.pop(router, None)
        if router not in self.others:
            del self.acked[router]

    def write(self, attach: Epoch) -> None:
        """Note an attach at this router. An epoch above the clock follows one that no router believes
        (`Outlet.new_epoch`), and does not imply that the attaches below it were announced."""
        if attach.hlc <= self._clock.read():
            self._told[self.router] = max(attach, self._told[self.router])

    def tells(self, told: Epoch) -> None:
        """A contact has told of all attaches at it up to this epoch."""
        self._told[told.router] = max(told, self._told.get(told.router, told))

    def has_told(self, attach: Epoch) -> bool:
        """Whether the attach is of a present incarnation, here or at a contact, that has told of its attaches up to
        this one."""
        told = self._told.get(attach.router)
        return told is not None and told[1:] == attach[1:] and told >= attach

    def acknowledge(self, router: str, version: int, ours: int) -> None:
        """A contact has applied our section up to `version` of `ours`."""
        if not 0 <= version <= ours:
            raise BreachError(f"router {router} acknowledged version {version}, but the latest is {ours}")
        self.acked[router] = max(self.acked[router], version)

    def have(self, routers: Collection[str], version: int) -> bool:
        """Whether all these routers have acknowledged that version of our section."""
        return all(self.acked[router] >= version for router in routers)

    def unheard(self, heard: set[str]) -> set[str]:
        """The other routers of the plan that are not in `heard`."""
        return {router for router in self.others if router not in heard}

    def least(self, version: int) -> int:
        """The version of our section that all routers have acknowledged; `version` if there are no others."""
        return min(self.acked.values(), default=version)

    def are_all_in(self, told: Mapping[str, int], contacts: Collection[str]) -> bool:
        """Whether all routers are in contact and have sent their sections. `told` has the contacts that have."""
        return len(told) == len(contacts) and all(router in told for router in self.others)
