"""Breakages of the plan: how it merges, how routers follow it, and for which routers they wait (protocol 11)."""

from collections.abc import Collection
from typing import Any

from linkstate.contact import Contact
from linkstate.plan.plan import Plan
from tests.linkstate import test_plan, test_replanning
from tests.mutants.mutant import RESUMING, Method, mutant
from tests.topic import test_members, test_unheard_of
from topic.directory.directory import Directory
from topic.directory.entry import LinkEntry
from topic.directory.members import Members
from topic.home.boot import Boot
from topic.termini.expiry import Expiry

CHANGES = RESUMING | {"reserve": 1, "links": 30, "changes": ("leave", "join", "leave"), "never_started": False}


@mutant(
    Plan,
    "merge",
    by="1",
    scenario=test_plan.test_removal_on_one_side_of_a_partition_wins_over_a_later_change_on_the_other,
)
def later_change_wins_over_removal(merge: Method) -> Method:
    """11.1: a removed router stays removed, whatever the versions."""

    def broken(plan: Plan, other: Plan) -> Plan:
        newer = max(plan, other, key=lambda one: max(router.version for router in one.routers.values()))
        return Plan({**merge(plan, other).routers, **newer.routers}, merge(plan, other).links)

    return broken


@mutant(Plan, "admits", by="1", scenario=test_replanning.test_router_removed_out_of_reach_is_refused)
def zombie_admitted(_: Method) -> Method:
    """11.1: of a router that joins again only later incarnations belong to the mesh."""

    def broken(plan: Plan, router: str, incarnation: int) -> bool:
        return router in plan.listed

    return broken


@mutant(Contact, "receive_greet", by="1", scenario=test_replanning.test_sections_are_exchanged_only_under_the_same_plan)
def contacts_under_any_plan(receive_greet: Method) -> Method:
    """11.4: two routers make a contact only if they have the same plan."""

    def broken(contact: Contact, *arguments: Any, same_plan: bool) -> object:
        return receive_greet(contact, *arguments, same_plan=True)

    return broken


@mutant(Members, "follow", by="145", **CHANGES)
def first_plan_for_ever(_: Method) -> Method:
    """11.5: the routers of the mesh are those in the present plan."""

    def broken(members: Members, routers: Collection[str], contacts: Collection[str]) -> None:
        """The routers of the topology file stay."""

    return broken


@mutant(Directory, "follow", by="7", scenario=test_unheard_of.test_resuming_publisher_waits_for_a_leaving_router)
def leaving_is_gone(follow: Method) -> Method:
    """11.5: others wait for a leaving router until it has left."""

    def broken(directory: Directory, plan: Plan) -> object:
        changes = follow(directory, plan)
        directory.members.follow(plan.members, directory.contacts)
        return changes

    return broken


@mutant(Boot, "has_joined", by="1", scenario=test_members.test_who_has_booted_alone_has_not_joined)
def joined_alone(_: Method) -> Method:
    """11.6: a new router takes clients when it is in contact, and has the sections of all contacts."""
    return property(lambda boot: boot._home.booted)  # type: ignore[return-value]  # in place of one


@mutant(
    Expiry,
    "_end",
    by="2",
    scenario=test_members.test_a_subscriber_whose_router_was_removed_unseen_is_told_what_it_missed,
)
def subscriber_of_removed_router_not_told(_: Method) -> Method:
    """11.7: a subscriber whose router was removed unseen is told when it comes."""

    def broken(expiry: Expiry, entry: LinkEntry) -> None:
        expiry._links.end(entry, "")

    return broken
