"""Breakages of the grace for plain subscribers of a router out of contact (protocol 8, Lost router)."""

import attrs

from tests.mutants.mutant import RESUMING, Method, mutant
from tests.topic import test_grace
from topic.directory.directory import Directory
from topic.directory.entry import AddressAudience, LinkEntry, Owner
from topic.home.audiences import Audiences
from topic.termini.grace import Grace

APART = RESUMING | {"plain": 1.0, "restless": 0.0, "grace": 5.0, "faults": ("flap", "one-sided", "cut", "cut")}


@mutant(Grace, "contact_lost", by="8", **APART)
def plain_subscribers_lapse_with_the_contact(_: Method) -> Method:
    """8 Lost router: homes wait for plain subscribers of a router that may still run."""

    def broken(grace: Grace, router: str, incarnation: int, now: float) -> None:
        grace.directory.give_up((router, incarnation), grace.outlet.time_us)

    return broken


@mutant(Directory, "_compute_audience", by="2", **APART)
def audience_omits_routers_out_of_contact(audience: Method) -> Method:
    """8 Lost router: messages published while a router is out of contact wait for its plain subscribers, too."""

    def broken(directory: Directory, address: str) -> AddressAudience:
        computed: AddressAudience = audience(directory, address)
        return attrs.evolve(computed, counted_on=())

    return broken


@mutant(
    Audiences,
    "returned",
    by="2",
    scenario=test_grace.test_a_delivery_waits_for_the_plain_subscribers_of_a_router_that_was_lost,
)
def returned_router_gets_no_backlog(_: Method) -> Method:
    """8 Lost router: when the router is back, waiting messages are the backlog of its plain subscribers."""

    def broken(audiences: Audiences, router: str, subscribers: list[LinkEntry]) -> None:
        for stream in audiences._streams.values():
            for record in stream.records.values():
                record.awaited.discard(router)

    return broken


@mutant(
    Grace,
    "wait_for",
    by="5",
    scenario=test_grace.test_a_delivery_waits_for_a_plain_subscriber_at_a_router_never_met,
)
def routers_never_met_are_waited_for_without_end(_: Method) -> Method:
    """8 Grace: the wait for a router begins with the first news of a plain subscriber there."""

    def broken(grace: Grace, entry: LinkEntry) -> None:
        """No timer and no contact ends the wait."""

    return broken


@mutant(Grace, "ended", by="5", scenario=test_grace.test_a_router_whose_process_is_gone_is_not_waited_for)
def gone_processes_are_waited_for(_: Method) -> Method:
    """8 Lost router: no home waits for a router whose process refuses connections."""

    def broken(grace: Grace, owner: Owner) -> None:
        """The grace runs its full time."""

    return broken


@mutant(
    Audiences,
    "plain_subscriber_ended",
    by="5",
    scenario=test_grace.test_a_subscriber_that_attaches_elsewhere_is_given_there_what_has_waited,
)
def routers_without_subscribers_are_waited_for(_: Method) -> Method:
    """8 Lost router: homes wait for a router only while a plain subscriber of the address may be there."""

    def broken(audiences: Audiences, router: str, address: str) -> None:
        """The grace runs its full time."""

    return broken


@mutant(
    Audiences,
    "learn_of",
    by="1",
    scenario=test_grace.test_what_is_not_its_own_gates_a_plain_subscriber_at_a_router_never_met,
)
def not_gated_out_of_contact(_: Method) -> Method:
    """8 Grace: deliveries in doubt gate a new plain subscriber whose router is out of contact."""

    def broken(audiences: Audiences, subscriber: LinkEntry) -> None:
        """Nothing gates it, as if it were known."""

    return broken
