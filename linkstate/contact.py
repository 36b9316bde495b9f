"""The handshake that makes two incarnations agree on when a contact begins and ends (protocol 3.2).

Each end names the contact by a number of its own; the pair of numbers is the contact. Numbers of one
router only grow, across restarts too, since the incarnation is their upper part. A GREET carries (ours,
theirs, established).

    not established ──GREET or data that name our number──▶ established          (MADE)
    established ──lost, dropped, or a GREET with a higher number of theirs──▶ not established, with a new
                                                                              number of ours   (LOST)

An end that lost the contact takes a new number, so whatever the other still sends in the old one matches
nothing, and our new number in a GREET tells it. An end that had not established the contact keeps its
number when it learns a new one of theirs: were both to renew, each would invalidate what the other just
learned, for ever. But when it hears a lower one, that is old, or the higher one was forged, and the other end
will never have it: so it goes back to the lower, with a new number of its own, which nothing old names.

A contact is with the incarnation that link state reports, nothing else is listened to. It is made by who has the same
plan only: both ends say the digest of theirs (protocol 11). This module does not send: it says when a GREET is due.
"""

from enum import Enum
from math import inf

NUMBER_BITS = 22  # of counting below the incarnation: milliseconds up to the year 2100 fit above in 64 bits
LAST = (1 << NUMBER_BITS) - 1  # so many contacts only an evil router makes


class ContactChange(Enum):
    MADE = "made"
    LOST = "lost"


class Contact:
    """Our end of the contact with one router of the mesh."""

    def __init__(self, router: str, our_incarnation: int, greet_interval: float) -> None:
        self.router = router
        self.ours = our_incarnation << NUMBER_BITS | 1
        self.theirs = 0  # the highest number of theirs we know, 0 if none
        self.established = False
        self.incarnation = 0  # of theirs, while there is a path to it, else 0
        self.greet_at = inf
        self._greet_interval = greet_interval

    @property
    def spent(self) -> bool:
        """Our number is the last one. It tells the other end that the former contact is over, and makes none: we name
        none of theirs with it."""
        return self.ours & LAST == LAST

    def reached(self, incarnation: int, now: float) -> None:
        assert incarnation and not self.incarnation and not self.established
        self.incarnation = incarnation
        if self.theirs >> NUMBER_BITS != incarnation:
            self.theirs = 0
        self.greet_at = now

    def lost(self) -> ContactChange | None:
        assert self.incarnation
        self.incarnation = 0
        self.greet_at = inf
        return self._end()

    def drop(self, now: float) -> ContactChange | None:
        """Declare the contact lost although there is a path. The next one begins at once."""
        if self.established:
            self.greet_at = now
        return self._end()

    def receive_greet(
        self, theirs: int, named: int, established: bool, now: float, *, same_plan: bool = True
    ) -> ContactChange | None:
        """`theirs` is the sender's number, `named` what it takes for ours."""
        if not self.incarnation or self.spent:
            return None
        if theirs >> NUMBER_BITS != self.incarnation or (self.established and theirs < self.theirs):
            return None  # of another incarnation, or sent before what we already know
        change, former = None, self.ours
        if theirs > self.theirs:
            self.theirs = theirs
            change = self._end()
        elif theirs < self.theirs:
            self.theirs = theirs
            self._renew()
        if named == self.ours == former and same_plan:  # another that we have now nobody knows
            change = self._establish()
        if same_plan and not (self.established and established):
            self.greet_at = now
        elif not self.established:
            self.greet_at = min(self.greet_at, now + self._greet_interval)  # the flood is under way
        return change

    def receive_data(self, theirs: int, named: int) -> tuple[bool, ContactChange | None]:
        """Whether data with this pair of numbers belongs to the contact; if so, it also establishes it."""
        if not self.incarnation or not self.theirs or theirs != self.theirs or named != self.ours:
            return False, None
        return True, self._establish()

    def greet_sent(self, now: float) -> None:
        self.greet_at = inf if self.established else now + self._greet_interval

    def _establish(self) -> ContactChange | None:
        if self.established:
            return None
        self.established = True
        self.greet_at = inf
        return ContactChange.MADE

    def _end(self) -> ContactChange | None:
        if not self.established:
            return None
        assert not self.spent, "no contact is made in the last number"
        self.established = False
        self._renew()
        return ContactChange.LOST

    def _renew(self) -> None:
        self.ours += 1
        if self.spent:
            self.theirs = 0
