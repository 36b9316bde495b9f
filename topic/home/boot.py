"""Decides when a router that has just started may answer publishers (protocol 8, Boot).

The router takes clients at once. But it learns only from the sections of other routers which subscribers it has to
await. `topic.home.home` gives the answers.
"""

import math

from topic.actions import Note
from topic.home.home import Home


class Boot:
    """The start of one incarnation of a router."""

    def __init__(self, home: Home, deadline: float) -> None:
        """`deadline`: from this time on the router waits for no further section."""
        self._home = home
        self._heard: set[str] = set()
        self._deadline = deadline

    @property
    def _unheard(self) -> set[str]:
        return self._home.directory.members.unheard(self._heard)

    @property
    def has_joined(self) -> bool:
        """Whether this router, if it is new in the mesh, may take clients (11.6).

        Two conditions: it is in contact with another router, so that the plan which lists this router is known there;
        and all its contacts have sent their sections.
        """
        directory = self._home.directory
        return self._home.booted and 0 < len(directory.applied) == len(directory.contacts)

    @property
    def waiting_for(self) -> list[str]:
        """The routers whose sections this incarnation still waits for; empty once it answers publishers."""
        return [] if self._home.booted else sorted(self._unheard)

    def section_received(self, router: str) -> None:
        """Note that the router has sent its section."""
        self._heard.add(router)
        self.check(-math.inf)

    def check(self, now: float) -> None:
        """Begin to answer publishers if all routers have sent their sections, or if the deadline has passed."""
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
        """When `check` next has work; infinity if never."""
        return math.inf if self._home.booted else self._deadline
