"""When a router that has just started may answer publishers (protocol 8, Boot).

It takes clients at once; whom it has to await it learns from the others' sections. Accepting itself is
`topic.home.home`'s.
"""

import math

from topic.actions import Note
from topic.home.home import Home


class Boot:
    """The start of one router incarnation."""

    def __init__(self, home: Home, deadline: float) -> None:
        """No router is waited for beyond `deadline`."""
        self._home = home
        self._heard: set[str] = set()
        self._deadline = deadline

    @property
    def _unheard(self) -> set[str]:
        return self._home.directory.members.unheard(self._heard)

    @property
    def has_joined(self) -> bool:
        """Whether a router that is new in the mesh may take clients (11): it has been in contact, so others have the
        plan that lists it; all that are have told their sections."""
        directory = self._home.directory
        return self._home.booted and 0 < len(directory.applied) == len(directory.contacts)

    @property
    def waiting_for(self) -> list[str]:
        """Routers whose section has not come in this incarnation; none once publishers are answered."""
        return [] if self._home.booted else sorted(self._unheard)

    def heard(self, router: str) -> None:
        """Take note that the router's section has come."""
        self._heard.add(router)
        self.check(-math.inf)

    def check(self, now: float) -> None:
        """Answer publishers if the sections of all routers are here, or have been waited for long enough."""
        if self._home.booted or (self._unheard and now < self._deadline):
            return
        if self._unheard:
            missed = ", ".join(sorted(self._unheard))
            note = (
                f"boot: continuing without {missed}; publishers do not wait for subscribers that no other router knows"
            )
            self._home.outlet.actions.append(Note(note))
        self._home.booted = True
        self._home.balancing.asked.clear()
        self._home.evaluate_all()

    def deadline(self) -> float:
        """When `check` has to be called; infinity if never."""
        return math.inf if self._home.booted else self._deadline
