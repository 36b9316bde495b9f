"""How long homes wait for the plain subscribers of a router out of contact (protocol 8, Lost router).

A plain subscriber has no timeout: it ends with its router. This router cannot see whether the other router has ended.
So for `grace` seconds homes await the other router itself.

The wait ends early in each of these cases:

- the host of the other router refuses the connection of a neighbour, and the neighbour reports this;
- the other router comes back in another incarnation;
- a contact announces a plain subscriber at a later incarnation of the other router;
- the plan no longer lists the other router.
"""

import json
import math

import attrs

from linkstate.plan.plan import Plan
from topic.actions import Note
from topic.directory.entry import LinkEntry, Owner, Role
from topic.home.home import Home
from topic.journal import Event


@attrs.frozen(slots=True)
class _Absence:
    incarnation: int
    since_us: int
    """The time at which the contact was lost, in microseconds of the wall clock."""
    until: float | None
    """The time at which the wait ends, in seconds; None until the next timer, which starts the wait."""


class Grace:
    """The absent routers for whose plain subscribers homes still wait."""

    def __init__(self, home: Home, grace: float) -> None:
        """`grace`: the seconds for which homes wait; 0: they do not wait."""
        self.outlet = home.outlet
        self.directory = home.directory
        self._audiences = home.audiences
        self._grace = grace
        self._absent: dict[str, _Absence] = {}
        self._ended: dict[str, int] = {}
        """Maps each router to its last incarnation that has ended, as far as this router knows."""

    def deadline(self) -> float:
        """The time at which the next wait ends. A router in contact that has not sent its section yet does not count,
        because the section is about to come."""
        if not self._absent:
            return math.inf
        away = self._absent.keys() - self.directory.contacts.keys()
        untils = [self._absent[router].until for router in away]
        return min((-math.inf if until is None else until for until in untils), default=math.inf)

    def handle_timer(self, now: float) -> None:
        for router, absence in list(self._absent.items()):
            if absence.until is None:
                self._absent[router] = attrs.evolve(absence, until=now + self._grace)
            elif absence.until <= now and router not in self.directory.contacts:
                self._give_up(router, f"was out of contact for {self._grace:g} s")

    def wait_for(self, entry: LinkEntry) -> None:
        """Handle the news of a plain subscriber at a router out of contact. The router may never have been in contact.

        The wait for that router begins now, unless it has begun already. If homes wait for an earlier incarnation of
        the router than the subscriber's, that wait ends. If a later incarnation of the router is known, the subscriber
        lapses at once.
        """
        router, incarnation = entry.owner
        absence = self._absent.get(router)
        if absence is not None and absence.incarnation < incarnation:
            self.ended((router, absence.incarnation))
        later = max(self.directory.contacts.get(router, 0), absence.incarnation if absence is not None else 0)
        if not self._grace or self._ended.get(router, 0) >= incarnation or later > incarnation:
            self.directory.lapse(entry, self.outlet.time_us)
        elif router not in self._absent:
            self._absent[router] = _Absence(incarnation, self.outlet.time_us, None)
            self._audiences.count_on(router)

    def contact_lost(self, router: str, incarnation: int, now: float) -> None:
        """Begin the wait for a router whose contact is lost. If homes still wait for this router, because it has not
        sent its section in this contact, that wait goes on."""
        waits = self._grace > 0 and self._ended.get(router, 0) < incarnation
        self.outlet.trace(Event.LOST, peer=router, detail=json.dumps({"grace": self._grace}) if waits else None)
        if not waits:
            self._absent.pop(router, None)
            self.directory.give_up((router, incarnation), self.outlet.time_us)
        else:
            self._absent.setdefault(router, _Absence(incarnation, self.outlet.time_us, now + self._grace))

    def contact(self, router: str, incarnation: int) -> None:
        """Begin a contact. If the router is in another incarnation now, all plain links of its former incarnation have
        ended, and homes no longer wait for them."""
        absence = self._absent.get(router)
        if absence is not None and absence.incarnation != incarnation:
            self._forget_absence(router)
        if self._ended.get(router, 0) < incarnation:
            self._ended.pop(router, None)

    def returned(self, router: str, section: list[LinkEntry]) -> bool:
        """Handle the section of a router that has come back, before the section is applied. Returns whether homes
        waited for this router. If so, the deliveries that awaited the router itself now await its plain subscribers
        that still exist, perhaps under a later attach."""
        if self._absent.pop(router, None) is None:
            return False
        live = {entry.name for entry in section if entry.role is Role.SUBSCRIBER and entry.live}
        self._audiences.returned(router, [entry for entry in self.directory.counted_on(router) if entry.name in live])
        return True

    def follow(self, plan: Plan) -> None:
        """Follow a changed plan: stop waiting for routers that it no longer lists."""
        for router in [router for router in self._absent if router not in plan.listed]:
            self._forget_absence(router)
        self._ended = {router: last for router, last in self._ended.items() if router in plan.listed}

    def _forget_absence(self, router: str) -> None:
        """Stop waiting for the router, because the directory has none of its plain links any more."""
        self._end_wait(router)
        self._audiences.give_up(router)

    def _end_wait(self, router: str) -> _Absence:
        absence = self._absent.pop(router)
        self.outlet.trace(Event.GIVEN_UP, peer=router, detail=json.dumps({"incarnation": absence.incarnation}))
        return absence

    def waits_for(self, router: str) -> bool:
        """Whether homes wait for plain subscribers of this router, which is out of contact."""
        absence = self._absent.get(router)
        if absence is None or router in self.directory.contacts:
            return False
        return self.directory.has_plain((router, absence.incarnation))

    def refused(self, router: str) -> None:
        """Handle a neighbour out of contact whose host refuses connections: its process is gone. Tell all contacts."""
        if self.waits_for(router):
            owner = router, self._absent[router].incarnation
            for contact in self.directory.contacts:
                self.outlet.batches.gone(contact, owner)
            self.ended(owner)

    def ended(self, owner: Owner) -> None:
        """The process of this incarnation of a router is gone. The contact with it may be lost already, or not."""
        router, incarnation = owner
        if self._ended.get(router, 0) >= incarnation:
            return
        self._ended[router] = incarnation
        absence = self._absent.get(router)
        if absence is not None and absence.incarnation <= incarnation:
            self._give_up(router, "has ended")

    def _give_up(self, router: str, why: str) -> None:
        absence = self._end_wait(router)
        self.directory.give_up((router, absence.incarnation), absence.since_us)
        count = self._audiences.give_up(router)
        if count:
            text = f"router {router} {why}: {count} deliveries no longer wait for its subscribers without a timeout"
            self.outlet.actions.append(Note(text))
