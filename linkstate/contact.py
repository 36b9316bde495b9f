"""The handshake that makes two incarnations agree on when a contact begins and ends (protocol 3.2).

Each end names the contact by a number of its own; the pair of numbers is the contact. The numbers of one router only
grow, across restarts too, since the incarnation is their upper part. A GREET carries (ours, theirs, established).

    not established ──GREET or data that name our number──▶ established          (MADE)
    established ──lost, dropped, or a GREET with a higher number of theirs──▶ not established, with a new
                                                                              number of ours   (LOST)

An end that lost the contact takes a new number. Frames that the other end still sends with the old number then match no
contact, and a GREET with the new number shows the other end the loss. An end that had not established the contact keeps
its number when it learns a new number of the other end. If both ends took new numbers, each would invalidate the number
that the other end has just learned, again and again. When an end receives a lower number than it knows, either the
lower one is old, or the higher one was forged and the other end will never reach it. So this end returns to the lower
number, and takes a new number of its own, which no old frame names.

A contact is with the incarnation that link state reports; GREETs of other incarnations are ignored. Only ends with the
same plan make a contact: each GREET has the digest of the sender's plan (protocol 11). This module sends nothing: it
says when a GREET is due.
"""

from enum import Enum
from math import inf

# The number of lower bits that count contacts. Above them, 42 bits have room for incarnations up to the year 2100.
NUMBER_BITS = 22
LAST = (1 << NUMBER_BITS) - 1  # the highest count; only a malicious router makes so many contacts


class ContactChange(Enum):
    MADE = "made"
    LOST = "lost"


class Contact:
    """This router's end of the contact with one other router of the mesh."""

    def __init__(self, router: str, our_incarnation: int, greet_interval: float) -> None:
        self.router = router
        self.ours = our_incarnation << NUMBER_BITS | 1
        self.theirs = 0  # the highest number of the other end that this end knows; 0 if none
        self.established = False
        # The incarnation of the router at the other end. 0 while there is no path to it.
        self.incarnation = 0
        self.greet_at = inf
        self._greet_interval = greet_interval

    @property
    def spent(self) -> bool:
        """Whether this end's number is LAST, so that no further contact can be made.

        A GREET with this number still shows the other end that the former contact is over. The GREET cannot establish a
        contact, because this end sends it without the number of the other end.
        """
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
        """Declare the contact lost although there is a path. A new contact begins at once."""
        if self.established:
            self.greet_at = now
        return self._end()

    def receive_greet(
        self, theirs: int, named: int, established: bool, now: float, *, same_plan: bool = True
    ) -> ContactChange | None:
        """Take a GREET. Returns the change of the contact, if there is one.

        `theirs`: the sender's number. `named`: the number of this end, as the sender knows it. `established`: whether
        the sender has established the contact.
        """
        if not self.incarnation or self.spent:
            return None
        if theirs >> NUMBER_BITS != self.incarnation or (self.established and theirs < self.theirs):
            return None  # the GREET is from another incarnation, or older than the known number
        change, former = None, self.ours
        if theirs > self.theirs:
            self.theirs = theirs
            change = self._end()
        elif theirs < self.theirs:
            self.theirs = theirs
            self._renew()
        # This end may have taken a new number just now, which the sender of the GREET cannot know.
        # If `named` is equal to the new number, this is chance or forgery.
        if named == self.ours == former and same_plan:
            change = self._establish()
        if same_plan and not (self.established and established):
            self.greet_at = now
        elif not self.established:
            # GREET again later: the newer plan is under way to one of the two routers.
            self.greet_at = min(self.greet_at, now + self._greet_interval)
        return change

    def receive_data(self, theirs: int, named: int) -> tuple[bool, ContactChange | None]:
        """Whether data with this pair of numbers belongs to the contact. If it does, it also establishes the
        contact.
        """
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
