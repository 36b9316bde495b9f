"""Breakages of the end of links for which no client came back (protocol 8, Expiry and Apart).

Most take longer than a simulated run to matter: scenarios of the core catch them.
"""

from typing import Any

from tests.mutants.mutant import RESUMING, Method, mutant
from tests.router.mqtt import test_certainty, test_sessions
from tests.topic import test_apart, test_apart_plain, test_consent, test_expiry, test_together
from tests.topic import test_apart_attacks as attacks
from topic.delivery.record import HomeStream, Record
from topic.directory.directory import Directory
from topic.directory.entry import Change, Decision, Index, LinkEntry, Role, Status
from topic.edge.edge import Edge
from topic.edge.reports import Reports
from topic.home.lapses import Lapses
from topic.identity import Epoch
from topic.termini.changes import Changes
from topic.termini.expiry import Expiry

FLAPPING = RESUMING | {"plain": 1.0, "restless": 0.0, "faults": ("flap", "one-sided", "cut", "cut")}


@mutant(Directory, "contact_lost", by="2", **FLAPPING)
def plain_subscribers_end_with_a_contact(lost: Method) -> Method:
    """8 Apart: a plain subscriber of a lost router lapses, and its client is told of messages accepted without it."""

    def broken(directory: Directory, router: str) -> list[Change]:
        ended: list[Change] = lost(directory, router)
        return ended + directory._end(directory._plain(router, Role.SUBSCRIBER))

    return broken


@mutant(Directory, "contact", by="8", scenario=test_apart_plain.test_those_of_a_router_that_starts_again_are_forgotten)
def plain_subscribers_outlive_their_router(_: Method) -> Method:
    """8 Apart: a plain subscriber has ended when its router has started again."""

    def broken(directory: Directory, router: str, incarnation: int) -> list[Change]:
        directory.contacts[router], directory.members.acked[router] = incarnation, -1
        directory._audiences.clear()
        return []

    return broken


@mutant(Expiry, "contacts_changed", by="8", scenario=test_expiry.test_who_comes_into_contact_while_others_are_asked)
def polls_survive_contacts(_: Method) -> Method:
    """8 Expiry: after a change of contacts the proposal is made again."""

    def broken(expiry: Expiry) -> None:
        """The routers that were asked are enough."""

    return broken


@mutant(Expiry, "begin_anew", by="8", scenario=test_expiry.test_the_time_of_a_link_begins_anew_with_each_contact)
def time_of_links_not_begun_anew(_: Method) -> Method:
    """8 Expiry: the time of a lost router's links starts when that router is lost for the last time."""

    def broken(expiry: Expiry, router: str) -> None:
        """The time continues."""

    return broken


@mutant(Expiry, "_due", by="8", scenario=test_expiry.test_a_publishers_life_does_not_end_while_a_router_is_missing)
def expires_out_of_contact(due: Method) -> Method:
    """8 Expiry: a publisher's life ends only after all routers were in contact for its timeout."""

    def broken(expiry: Expiry, entry: LinkEntry, lonely: object) -> object:
        since, expiry.all_since = expiry.all_since, 0.0
        try:
            return due(expiry, entry, lonely)
        finally:
            expiry.all_since = since

    return broken


@mutant(
    Expiry,
    "decided",
    by="8",
    scenario=test_consent.test_who_has_agreed_with_two_is_free_when_both_say_that_nothing_comes_of_it,
)
def freed_by_anybody(decided: Method) -> Method:
    """8 Expiry: a router that has agreed is free when all proposals to which it agreed are withdrawn."""

    def broken(expiry: Expiry, router: str, index: Index, epoch: Epoch, decision: Decision) -> None:
        expiry._bound_to.clear()
        decided(expiry, router, index, epoch, decision)

    return broken


@mutant(
    Changes,
    "ended_elsewhere",
    by="8",
    scenario=attacks.test_the_owner_of_a_link_hears_that_its_client_was_told_of_its_end_where_it_has_no_contact,
)
def told_again_by_the_owner(ended_elsewhere: Method) -> Method:
    """8 Apart: the owner of a link learns from other routers that its client has read the end."""

    def broken(changes: Changes, entry: LinkEntry) -> None:
        if entry.ending:
            ended_elsewhere(changes, entry)

    return broken


@mutant(Expiry, "_free", by="8", scenario=test_expiry.test_the_word_of_its_owner_frees_who_had_agreed)
def bound_for_ever(_: Method) -> Method:
    """8 Expiry: if the owner of the link votes no, all routers that had agreed are free."""

    def broken(expiry: Expiry, entry: LinkEntry) -> None:
        """A router stays bound by its yes."""

    return broken


@mutant(
    Directory, "take_back", by="2", scenario=test_apart.test_subscriber_apart_for_long_goes_on_if_nothing_was_accepted
)
def lapsed_for_good(_: Method) -> Method:
    """8 Apart: a lapse ends when the subscriber's owner says that the subscriber is alive."""

    def broken(directory: Directory, entry: LinkEntry) -> bool:
        return False

    return broken


@mutant(Lapses, "accepted", by="2", scenario=test_apart.test_router_tells_subscriber_of_a_message_accepted_without_it)
def link_outlives_missed_message(_: Method) -> Method:
    """8 Apart: a message accepted without a subscriber ends its link."""

    def broken(apart: Lapses, stream: HomeStream, records: list[Record]) -> None:
        """The subscriber never knows."""

    return broken


@mutant(
    Changes,
    "ended_elsewhere",
    by="2",
    scenario=test_apart.test_router_tells_subscriber_of_a_message_accepted_without_it,
)
def expired_elsewhere_ignored(_: Method) -> Method:
    """8 Apart: if other routers have ended a link, the link's own router tells the client."""

    def broken(changes: Changes, entry: LinkEntry) -> None:
        """The link stays."""

    return broken


CROSSED = attacks.test_what_crosses_the_news_of_a_lapse_still_lacks_who_has_lapsed_when_it_is_forwarded_again


@mutant(Edge, "_lapsed_without", by="2", scenario=CROSSED)
def lapsed_and_named_once(_: Method) -> Method:
    """5 Edge: when a delivery is forwarded again, its Outcome still names a subscriber that lapsed without it."""

    def broken(edge: Edge, record: Record, moved: tuple[bytes, ...]) -> tuple[bytes, ...]:
        return ()

    return broken


@mutant(
    Reports,
    "_is_back",
    by="2",
    scenario=attacks.test_who_has_lapsed_is_not_back_as_a_home_that_has_not_heard_of_that_joins_it_once_more,
)
def back_though_lapsed(_: Method) -> Method:
    """8 Apart: a Joined that crosses a lapse does not count for deliveries from before the lapse."""

    def broken(reports: Reports, name: bytes, home: str) -> bool:
        return name in reports._subscribers and home in reports._subscribers[name].joined

    return broken


@mutant(
    LinkEntry,
    "expired_life",
    by="8",
    scenario=test_together.test_that_one_has_expired_is_remembered_while_earlier_ones_are_there,
)
def expired_subscriptions_forgotten(_: Method) -> Any:
    """8 Expiry: the expiry of a session's link is remembered."""
    return property(lambda entry: entry.status is Status.EXPIRED and (entry.role is Role.PUBLISHER or entry.ending))


@mutant(
    Changes,
    "leave_behind",
    by="8",
    scenario=test_sessions.test_a_session_that_goes_on_is_not_over_for_what_its_client_has_left_elsewhere,
)
def expired_links_of_live_session_stay(_: Method) -> Method:
    """8 Expiry: if a session continues, its links that expired elsewhere are left behind."""
    return lambda *_: None


@mutant(
    Expiry,
    "_is_followed",
    by="8",
    scenario=test_sessions.test_a_session_of_which_the_latest_link_has_expired_is_over_though_an_earlier_one_lasts,
)
def an_earlier_link_of_a_session_may_expire_first(_: Method) -> Method:
    """8 Expiry: of a session's links the one that was attached last expires first."""
    return lambda *_: False


@mutant(
    Expiry,
    "_shows_session_end",
    by="8",
    scenario=test_certainty.test_who_has_missed_something_is_told_so_for_as_long_as_anything_is_left_of_its_session,
)
def missed_message_forgotten_before_its_session(_: Method) -> Method:
    """8 Expiry: a missed message is remembered while any link of the session is left."""
    return staticmethod(lambda entry, first: first < entry.epoch)
