"""Breakages of the directory, termini, clocks and channels (protocol 2, 3, 8)."""

from collections.abc import Mapping
from typing import Any

from linkstate.chunks import Joiner
from linkstate.clock import HybridClock
from linkstate.contact import Contact, ContactChange
from linkstate.contacts import Contacts
from linkstate.mesh import Mesh
from linkstate.mesh_actions import CHANNEL, Loss
from linkstate.outbox import Outbox
from tests.linkstate import test_chunks
from tests.mutants.mutant import EXPIRING, KILLS, MOVING, PARTITIONS, RESUMING, Method, mutant
from tests.topic import test_apart_plain, test_expiry, test_gossip, test_joining, test_moving, test_together
from topic.directory.directory import Directory
from topic.directory.entries import LinkEntries
from topic.directory.entry import Change, Decision, Index, LinkEntry
from topic.directory.gossip import Gossip
from topic.directory.members import Members
from topic.edge.edge import Edge
from topic.identity import Epoch
from topic.outlet import Outlet
from topic.peers import Peers
from topic.termini.attaches import Attaches
from topic.termini.expiry import Expiry, _Poll
from topic.wire.outgoing import Outgoing

AT_ONCE = RESUMING | {"faults": ("kill all", "kill all", "kill"), "restart": 0.9, "durable": 1.0, "restless": 0.1}
SLOW = EXPIRING | {"timeouts": (1,), "delay": 1.0, "dead": 2.0, "faults": ("flap",) * 8}
LATE = SLOW | {"restless": 2.0, "pranks": ("sleep",), "faults": ()}
NARROW: dict[str, Any] = {"rate": 2e3, "chunk": 200, "faults": ()}
SKEWED = {"skew": 4.0, "silent": 0.5}  # an echoed epoch moves clocks by less than 10 s


@mutant(Directory, "section", (Outgoing, "gossip"), by="2", **MOVING | {"store_loss": 1.0, "faults": ("kill",) * 10})
def no_gossip(section: Method, _: Method) -> tuple[Method, Method]:
    """3.3: routers tell each other about links of routers out of contact."""

    def broken(directory: Directory) -> tuple[list[LinkEntry], list[LinkEntry]]:
        own, _ = section(directory)
        return own, []

    def silent(outgoing: Outgoing, router: str, entries: list[LinkEntry]) -> None:
        """Send no gossip when a publisher resumes, either."""

    return broken, silent


@mutant(Directory, "contact_lost", by="8", **KILLS)
def orphans_expire_at_once(lost: Method) -> Method:
    """3.3, 8: the links of a lost router become orphans, and end only after their timeout."""

    def broken(directory: Directory, router: str) -> list[Change]:
        theirs = [entry for entry in directory.entries() if entry.router == router and entry.live]
        changes: list[Change] = lost(directory, router)
        left = [entry for entry in theirs if directory.entry((entry.role, entry.name)) is entry]
        for entry in left:
            directory._remove((entry.role, entry.name))
        return changes + [Change(entry, None) for entry in left]

    return broken


@mutant(Expiry, "_propose", by="468", **SLOW)
def expiry_without_consent(_: Method) -> Method:
    """8 Expiry: a terminus ends only if all routers in contact agree."""

    def broken(expiry: Expiry, entry: LinkEntry, decision: Decision) -> None:
        poll = expiry._polls[entry.role, entry.name] = _Poll(entry.epoch, decision, set())
        expiry._decide(entry, poll)

    return broken


@mutant(Expiry, "_agrees", by="8", **SLOW)
def consent_unseen(_: Method) -> Method:
    """8 Expiry: a router that knows a later attach votes no."""

    def broken(expiry: Expiry, router: str, entry: LinkEntry, decision: Decision) -> bool:
        return True

    return broken


@mutant(Expiry, "proposed", by="138", **LATE)
def yes_does_not_bind(_: Method) -> Method:
    """8 Expiry: a router that has voted yes is bound: a client that comes back there begins afresh."""

    def broken(expiry: Expiry, router: str, index: Index, epoch: Epoch, decision: Decision) -> None:
        entry = expiry.directory.entry(index)
        yes = entry is None or not entry.live or (entry.epoch <= epoch and expiry._agrees(router, entry, decision))
        expiry.outlet.batches.vote(router, index, epoch, decision, yes=yes)

    return broken


@mutant(
    LinkEntry, "expired_life", by="138", scenario=test_expiry.test_an_expired_life_is_remembered_by_others_than_its_home
)
def expired_lives_forgotten(_: Method) -> Any:
    """3.3: an expired life of a publisher is remembered, or it would come back as if nothing had happened."""
    return property(lambda entry: False)


@mutant(Directory, "_put", by="23", **AT_ONCE)
def others_not_stored(put: Method) -> Method:
    """3.3: durable links are written to the store of every router that learns of them."""

    def broken(directory: Directory, entry: LinkEntry) -> Any:
        saved = list(directory.unsaved)
        old = put(directory, entry)
        if not directory.is_mine(entry):
            directory.unsaved[:] = saved
        return old

    return broken


@mutant(HybridClock, "__init__", by="123", **AT_ONCE | SKEWED)
def clock_reservation_ignored(init: Method) -> Method:
    """2: a router's clock never starts below what its store reserved."""

    def broken(clock: HybridClock, floor: int = 0) -> None:
        init(clock)

    return broken


@mutant(HybridClock, "merge", by="128", **MOVING | SKEWED)
def clocks_not_merged(_: Method) -> Method:
    """2: clocks are merged with every frame and echoed epoch: a later attach has the higher epoch, mesh-wide."""

    def broken(clock: HybridClock, remote: int, trust_ms: int = 0) -> None:
        """The clock stays as it is."""

    return broken


@mutant(Outlet, "new_epoch", by="128", scenario=test_moving.test_what_a_client_echoes_its_attach_is_above)
def echoes_not_heeded(new_epoch: Method) -> Method:
    """2: an attach gets a higher epoch than the epoch that its client echoes, whatever the clocks say."""

    def broken(outlet: Outlet, latest: int, echoed: int = 0) -> Any:
        return new_epoch(outlet, latest)

    return broken


@mutant(Outlet, "new_epoch", by="128", scenario=test_moving.test_what_a_client_echoes_moves_the_clock_by_little)
def echoes_taken_for_clocks(new_epoch: Method) -> Method:
    """2: an echoed epoch moves a router's clock by seconds at most, because clients are not trusted."""

    def broken(outlet: Outlet, latest: int, echoed: int = 0) -> Any:
        outlet.clock.merge(echoed)
        return new_epoch(outlet, latest, echoed)

    return broken


@mutant(Contact, "_end", by="45", **PARTITIONS)
def contact_outlived(end: Method) -> Method:
    """3.2: a contact that one side has lost is over for the other side, too."""

    def broken(contact: Contact) -> Any:
        number = contact.ours
        change = end(contact)
        contact.ours = number
        return change

    return broken


@mutant(
    Peers,
    "_is_taken_from",
    by="4",
    scenario=test_moving.test_a_late_attach_of_a_plain_subscriber_takes_the_link_also_if_its_router_dies_at_once,
)
def taken_unseen(_: Method) -> Method:
    """3.3: the former router of a plain subscriber learns that the subscriber has attached elsewhere."""

    def broken(peers: Peers, old: LinkEntry, entry: LinkEntry) -> bool:
        return False

    return broken


@mutant(Peers, "_pass_on", by="2", scenario=test_moving.test_where_a_publisher_went_is_passed_on_by_where_it_was)
def nothing_passed_on(_: Method) -> Method:
    """3.3: routers pass on changes of subscribers, because their contacts may not have contacts with each other yet."""

    def broken(peers: Peers, router: str, changes: list[Change], *, learned: bool) -> None:
        """Send nothing."""

    return broken


@mutant(
    Directory,
    "apply_gossip",
    by="4",
    scenario=test_gossip.test_a_publisher_is_nowhere_for_a_router_that_has_forgotten_its_end,
)
def moved_here_and_forgotten(apply_gossip: Method) -> Method:
    """3.3: if a router sends gossip about a publisher of this router, the publisher has left that router."""

    def broken(directory: Directory, router: str, told: list[LinkEntry]) -> Any:
        return apply_gossip(directory, router, [entry for entry in told if not directory.is_mine(entry)])

    return broken


@mutant(Peers, "_undoes", by="4", scenario=test_gossip.test_a_home_is_told_of_a_later_attach_at_a_router_that_died)
def router_corrects_only_endings(_: Method) -> Method:
    """3.3: a router that knows a link by a lower epoch learns of a later attach at a router that died."""

    def broken(peers: Peers, ours: LinkEntry, told: LinkEntry, by: str) -> bool:
        return not ours.live and ours.epoch >= told.epoch

    return broken


@mutant(
    Attaches, "overtaken", by="7", scenario=test_joining.test_who_has_passed_on_a_later_attach_is_not_taken_for_late
)
def overtaken_still_awaited(_: Method) -> Method:
    """6.7: a router that announces a later attach need not join the earlier one, and is not late."""

    def broken(attaches: Attaches, entry: LinkEntry) -> None:
        """Wait for it all the same."""

    return broken


@mutant(
    Edge,
    "attached_elsewhere",
    by="1",
    scenario=test_joining.test_who_has_attached_elsewhere_is_given_nothing_newer_where_it_was,
)
def home_forwards_for_earlier_attach(_: Method) -> Method:
    """6.2: a router that announces a later attach forwards nothing for the earlier one."""

    def broken(edge: Edge, home: str, entry: LinkEntry) -> None:
        """The subscriber gets every delivery."""

    return broken


@mutant(
    Peers,
    "_is_taken_from",
    by="1",
    scenario=test_joining.test_who_has_begun_afresh_out_of_contact_with_where_it_was_is_given_nothing_newer_there,
)
def former_routers_not_told(taken_from: Method) -> Method:
    """3.3, Passing on: the former router of any subscriber learns that it has moved."""

    def broken(peers: Peers, old: LinkEntry, entry: LinkEntry) -> bool:
        return not entry.lifetime.timeout and bool(taken_from(peers, old, entry))

    return broken


TAKEN_AWAY = test_apart_plain.test_one_whose_link_another_has_taken_out_of_its_sight_is_told_though_that_has_died


@mutant(Directory, "contact", by="2", scenario=TAKEN_AWAY)
def endings_die_with_their_routers(contact: Method) -> Method:
    """8, Apart: a home that accepted without a plain subscriber remembers this: an older attach may be in use."""

    def broken(directory: Directory, router: str, incarnation: int) -> list[Change]:
        theirs = [entry for entry in directory.entries() if entry.router == router and not entry.lifetime.timeout]
        for entry in theirs:
            if entry.owner[1] < incarnation and not entry.live:
                directory.forget(entry)
        changes: list[Change] = contact(directory, router, incarnation)
        return changes

    return broken


LATE_CLOSE = test_moving.test_a_close_that_may_be_late_with_its_attach_ends_nothing


@mutant(Attaches, "may_be_late", by="2", scenario=LATE_CLOSE)
def late_close_ends(_: Method) -> Method:
    """6.12: a close that may be late with its attach ends nothing that the client has begun since."""

    def broken(attaches: Attaches, end: Any) -> bool:
        return False

    return broken


TAKEN_OVER = test_moving.test_a_publisher_that_moves_finds_all_subscribers_that_its_former_home_has_known
FORMER = test_gossip.test_news_of_the_former_owner_does_not_bring_an_ended_link_back
UNTOLD = test_moving.test_what_its_owner_cannot_tell_any_more_is_believed_of_others


@mutant(Gossip, "lacking", by="2", scenario=TAKEN_OVER)
def lacking_not_told(_: Method) -> Method:
    """3.3: the new home of a publisher learns of the subscribers that the former home knew."""

    def broken(gossip: Gossip, router: str, applied: Mapping[str, tuple[int, int]]) -> list[LinkEntry]:
        return []

    return broken


@mutant(Directory, "believe_rumours", by="2", scenario=UNTOLD)
def rumours_forgotten(_: Method) -> Method:
    """3.3: rumours about a contact's links count when the contact is lost."""

    def broken(directory: Directory, router: str) -> list[Change]:
        return []

    return broken


@mutant(Members, "has_told", by="5", scenario=test_gossip.test_nothing_is_a_rumour_that_its_owner_has_spoken_of_before)
def announced_news_becomes_rumour(_: Method) -> Method:
    """3.3: news of a link is no rumour if the link's owner has sent it, even the news of its ending."""

    def broken(members: Members, attach: Epoch) -> bool:
        return False

    return broken


@mutant(Contacts, "_apply", by="1", scenario=test_chunks.test_a_chunk_of_an_old_contact_is_not_joined_to_a_new_one)
def chunks_outlive_their_contact(apply: Method) -> Method:
    """3.2: when a contact ends, both ends forget the data under way, even parts of a payload."""
    former: dict[str, Joiner] = {}

    def broken(contacts: Contacts, contact: Contact, change: ContactChange | None) -> None:
        if change is ContactChange.LOST:
            former[contact.router] = contacts._channels[contact.router]._joiner
        apply(contacts, contact, change)
        if change is ContactChange.MADE and contact.router in former:
            contacts._channels[contact.router]._joiner = former[contact.router]

    return broken


@mutant(Mesh, "bytes_received", by="7", **NARROW | {"held": 4000, "dead": 1.0})
def only_whole_bodies_are_life(_: Method) -> Method:
    """3.1: any bytes count as life, even of a body that is still under way."""

    def broken(mesh: Mesh, neighbour: str, now: float) -> None:
        """A part of a body counts for nothing."""

    return broken


@mutant(
    Contacts, "doubt", by="7", scenario=test_chunks.test_router_is_not_late_if_its_answer_waits_behind_other_payloads
)
def queued_answer_counts_as_late(_: Method) -> Method:
    """6.7: a router whose answer waits on its way is not late."""

    def broken(contacts: Contacts, router: str, reason: str, now: float) -> None:
        contacts.drop(router, now, Loss.LATE, reason)

    return broken


@mutant(
    Directory,
    "apply_section",
    by="7",
    scenario=test_joining.test_who_has_heard_of_an_attach_before_its_routers_older_section_joins_it_all_the_same,
)
def a_section_speaks_for_later_attaches(apply_section: Method) -> Method:
    """3.3: a router's section does not announce an attach that the router itself has not announced."""

    def broken(directory: Directory, router: str, version: int, latest: int, own: Any, gossip: Any) -> Any:
        announced = set(directory._announced)
        changes = apply_section(directory, router, version, latest, own, gossip)
        listed = {entry.index for entry in own}
        directory._announced -= {index for index in directory._announced - announced if index in listed}
        return changes

    return broken


@mutant(Outbox, "take", by="7", scenario=test_chunks.test_link_state_goes_before_data_and_data_in_order)
def link_state_waits_behind_data(take: Method) -> Method:
    """3.2: link state goes to a neighbour before data."""

    def broken(outbox: Outbox, room: int) -> Any:
        waiting = outbox._linkstate
        if outbox._channel:
            outbox._linkstate = []
        taken = take(outbox, room)
        outbox._linkstate = waiting if taken and taken[0] == CHANNEL else outbox._linkstate
        return taken

    return broken


@mutant(
    LinkEntries,
    "past",
    by="5",
    scenario=test_gossip.test_news_under_way_does_not_bring_an_ended_link_back,
)
def endings_forgotten(_: Method) -> Method:
    """3.3: an ending is remembered until all routers know it, because older messages may be under way."""

    return lambda *_: None


@mutant(Directory, "_merge", by="5", scenario=FORMER)
def endings_of_others_do_not_hold(merge: Method) -> Method:
    """3.3: so it does at another owner, because messages of the link's former owner may be under way."""

    def broken(directory: Directory, entries: list[LinkEntry]) -> Any:
        for entry in filter(directory.tells_itself, entries):
            directory._entries._past.pop(entry.index, None)
        return merge(directory, entries)

    return broken


@mutant(LinkEntry, "session", by="2", scenario=test_together.test_none_expires_while_one_has_a_client_and_then_all_do)
def expired_one_by_one(_: Method) -> Method:
    """8: an MQTT session ends as a whole."""
    return property(lambda entry: None)  # type: ignore[return-value]
