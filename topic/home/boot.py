"""When a router that has just started may answer publishers (protocol 8, Boot).

It takes clients at once, but learns the subscribers that it has to await from the sections of other routers.
`topic.home.home` gives the answers.
"""

import math

from topic.actions import Note
from topic.home.home import Home


class Boot:
    """The start of one router incarnation."""

    def __init__(self, home: Home, deadline: float) -> None:
        """`deadline`: the time after which the router waits for no section any more."""
        self._home = home
        self._heard: set[str] = set()
        self._deadline = deadline

    @property
    def _unheard(self) -> set[str]:
        return self._home.directory.members.unheard(self._heard)

    @property
    def has_joined(self) -> bool:
        """Whether a router that is new in the mesh may take clients (11.6): it is in contact with another router, which
        has the plan that lists it, and all its contacts have told their sections."""
        directory = self._home.directory
        return self._home.booted and 0 < len(directory.applied) == len(directory.contacts)

    @property
    def waiting_for(self) -> list[str]:
        """The routers whose section has not come in this incarnation; empty once publishers are answered."""
        return [] if self._home.booted else sorted(self._unheard)

    def section_received(self, router: str) -> None:
        """The router's section has come."""
        self._heard.add(router)
        self.check(-math.inf)

    def check(self, now: float) -> None:
        """Begin to answer publishers if the sections of all routers have come, or if the wait is over."""
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
        self._home.decide_all()

    def deadline(self) -> float:
        """When `check` has to be called; infinity if never."""
        return math.inf if self._home.booted else self._deadline
