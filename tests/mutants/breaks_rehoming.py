"""Breakages of a publisher's return, here or elsewhere, and of its end (protocol 7 and 8)."""

from collections.abc import Collection, Mapping
from typing import Any

from tests.mutants.mutant import KILLS, MOVING, PARTITIONS, Method, mutant
from tests.topic import test_directory as directory
from tests.topic import test_expiry as expiry
from tests.topic import test_gossip as gossip
from tests.topic import test_hostile_routers as hostile
from tests.topic import test_resuming as resuming
from tests.topic import test_unheard_of as unheard_of
from topic.delivery.record import AWAITING_HOME, QUEUED, HomeStream, Record
from topic.directory.directory import Directory
from topic.directory.entry import Change, LinkEntry
from topic.directory.members import Members
from topic.edge.edge import Edge
from topic.edge.subscriber import LocalSubscriber
from topic.edge.unconfirmed import Unconfirmed
from topic.home.home import Home
from topic.home.resolution import Resolution
from topic.identity import Epoch
from topic.peers import Peers
from topic.termini import generations
from topic.termini.attaches import Attaches, Claim
from topic.termini.generations import Generations
from topic.wire.outgoing import Outgoing

UNHEARD = {
    "delay": 0.5, "client_delay": 0.001, "patience": 0.05, "think": 0.5, "pranks": ("close", "elsewhere"), "links": 0,
    "faults": ("partition",) * 3, "silent": 0.5, "messages": 25,
}  # fmt: skip
"""Publishers begin afresh, and subscribers bring the deliveries that they had to routers that do not know this."""
STRAGGLING = {"client_delay": 0.1, "delay": 0.1, "faults": ("slow",) * 6, "pranks": ("elsewhere",)}


@mutant(Edge, "contact_lost", by="3", **KILLS)
def lost_home_abandoned(lost: Method) -> Method:
    """8 Lost router: deliveries of a lost home are held until its publishers resume."""

    def broken(edge: Edge, home: str) -> None:
        for stream in [stream for stream in edge.streams.values() if stream.home == home]:
            edge.abandon(stream, None)
        lost(edge, home)

    return broken


@mutant(Peers, "_unfenced", by="12", **MOVING | STRAGGLING)
def no_fence(unfenced: Method) -> Method:
    """5 Fence: a Forward under an older epoch is dropped, and the sender is told."""

    def broken(peers: Peers, router: str, publisher: bytes, epoch: Epoch) -> LinkEntry | None:
        entry = peers.directory.publisher(publisher)
        if entry is not None and entry.live and not peers.directory.is_mine(entry):
            return entry
        known: LinkEntry | None = unfenced(peers, router, publisher, epoch)
        return known

    return broken


@mutant(Generations, "changed", by="45", **MOVING)
def home_does_not_step_down(changed: Method) -> Method:
    """5 Fence: a home that sees a higher epoch stops being home."""

    def broken(generations: Generations, change: Change) -> None:
        if change.new is None or change.entry.name not in generations._home.streams:
            changed(generations, change)

    return broken


@mutant(Members, "have", by="7", **MOVING | {"delay": 0.2})
def publisher_answered_unannounced(_: Method) -> Method:
    """7.1: a publisher's attach is answered when all routers in contact have acknowledged it."""

    def broken(members: Members, routers: Collection[str], version: int) -> bool:
        return True

    return broken


@mutant(Unconfirmed, "ask", by="45", **MOVING)
def nothing_asked(_: Method) -> Method:
    """7.4: a router with records of an older epoch asks the new home about them."""

    def broken(unconfirmed: Unconfirmed, stream: HomeStream, keys: list[bytes]) -> None:
        """Send no Resolve."""

    return broken


@mutant(Resolution, "_is_doubted", by="3", **PARTITIONS)
def doubted_called_settled(_: Method) -> Method:
    """7.4: a delivery in the publisher's map is in doubt, even if home does not have it yet."""

    def broken(resolving: Resolution, stream: HomeStream, key: bytes) -> bool:
        record = resolving.records.by_key.get(key)
        return record is not None and record.stream is stream and record.n >= 0

    return broken


@mutant(Resolution, "tell_askers", by="45", **MOVING | {"early": 0.3})
def askers_not_told(_: Method) -> Method:
    """7.4: a router that asked about a delivery in doubt is told when it is settled."""

    def broken(resolving: Resolution, stream: HomeStream, records: list[Record]) -> None:
        """Tell no router."""

    return broken


@mutant(Home, "resume", by="45", **MOVING)
def lacking_kept_in_doubt(resume: Method) -> Method:
    """7.2: a delivery that a complete map lacks is settled."""

    def broken(home: Home, stream: HomeStream, said: Mapping[bytes, int], *, complete: bool) -> None:
        resume(home, stream, said, complete=False)

    return broken


@mutant(Generations, "_life_of", by="3", **KILLS | {"store_loss": 1.0})
def echoed_generation_ignored(_: Method) -> Method:
    """2: the echoed generation names the client's life, whatever routers remember."""

    def broken(known: LinkEntry | None, *echoed: object) -> bytes | None:
        return None if known is None else known.generation

    return staticmethod(broken)


@mutant(generations, "new_generation", by="23", **MOVING | {"durable": 0.0, "tags": 0, "window": 3})
def generations_repeated(_: Method) -> Method:
    """2: the generation distinguishes the lives of a publisher."""

    def broken(epoch: Epoch) -> bytes:
        return b"the same"

    return broken


@mutant(Edge, "abandon", by="45", **MOVING | {"durable": 0.0})
def nothing_abandoned(_: Method) -> Method:
    """7.5: deliveries of an abandoned life at edges are delivered and settled without the publisher."""

    def broken(edge: Edge, stream: HomeStream, followed_by: bytes | None) -> None:
        edge.streams.discard(stream)

    return broken


@mutant(Edge, "abandon_unconfirmed", by="14", **KILLS | {"durable": 0.0, "timeouts": (2, 5)})
def abandoned_unconfirmed_delivered(_: Method) -> Method:
    """7.5: unconfirmed deliveries of an abandoned life go to no subscriber: it may have had them elsewhere."""

    def broken(edge: Edge, stream: HomeStream) -> None:
        for record in [*stream.unconfirmed.values(), *stream.records.values()]:
            held = [s for s, state in record.locals.items() if state == AWAITING_HOME and record.message is not None]
            for subscriber in held:
                record.locals[subscriber] = QUEUED
                edge.delivery.offer(subscriber, stream, [record])

    return broken


@mutant(Outgoing, "gossip", by="2", scenario=gossip.test_new_home_learns_subscribers_that_the_former_home_knows)
def resumed_without_gossip(_: Method) -> Method:
    """3.3: a home that resumes learns of orphans before its attach is answered."""

    def broken(outgoing: Outgoing, router: str, entries: list[LinkEntry]) -> None:
        """Send nothing."""

    return broken


@mutant(Generations, "_keep_placeholders", by="3", **MOVING | UNHEARD)
def placeholders_abandoned(_: Method) -> Method:
    """7.5: placeholders outlive the life that ended: a key does not show its generation."""

    def broken(generations: Generations, stream: HomeStream, new: HomeStream | None) -> None:
        """The placeholders end with the life."""

    return broken


LATE = resuming.test_a_late_attach_whose_life_nobody_knows_settles_nothing_before_its_publisher_shows_that_it_is_there


@mutant(Home, "begin_afresh", by="3", scenario=LATE)
def begun_afresh_unproven(begin_afresh: Method) -> Method:
    """7.6: if no router knows a publisher's life, deliveries in maps are settled only after a sign of its life."""

    def broken(home: Home, stream: HomeStream, *, says_so: bool) -> None:
        begin_afresh(home, stream, says_so=True)

    return broken


@mutant(
    Generations,
    "_life_of",
    by="7",
    scenario=unheard_of.test_a_life_ended_by_an_attach_of_the_same_clock_that_its_publisher_has_not_seen,
)
def clocks_compared_alone(life_of: Method) -> Any:
    """2: if two attaches have epochs of the same clock, their routers' names decide which is later."""

    def broken(known: LinkEntry | None, generation: bytes | None, seen: Epoch) -> object:
        tied = known is not None and known.epoch.hlc == seen.hlc
        return life_of(known, generation, known.epoch if known is not None and tied else seen)

    return staticmethod(broken)


@mutant(Attaches, "unknown", by="7", **PARTITIONS)
def resumed_unheard_of(unknown: Method) -> Method:
    """7.9: if no router in contact knows a publisher's last attach, its next one waits until a router announces it."""

    def broken(attaches: Attaches, stream: HomeStream, claim: Claim, now: float, wait: float) -> None:
        unknown(attaches, stream, claim, now, 0.0)

    return broken


@mutant(Attaches, "_wait_for", by="2", scenario=unheard_of.test_publisher_that_attaches_again_does_not_wait_anew)
def waits_anew(_: Method) -> Method:
    """7.9: a client that gives up a waiting attach, and comes again, does not begin the wait anew."""

    def broken(attaches: Attaches, name: bytes, seen: object, now: float, wait: float) -> float:
        return now + wait

    return broken


@mutant(
    Generations,
    "_is_over",
    by="3",
    scenario=expiry.test_a_life_that_its_own_home_has_forgotten_is_over_however_late_its_publisher_comes,
)
def resumed_though_forgotten(_: Method) -> Method:
    """7.10: a life is over if the home of its last attach is in contact and has forgotten it."""

    def broken(*_: object, is_late: bool) -> bool:
        return False

    return broken


@mutant(
    Generations,
    "_is_over",
    by="3",
    scenario=expiry.test_who_comes_when_all_that_knew_it_have_died_is_too_late_once_no_terminus_lives_that_long,
)
def resumed_though_outlived(is_over: Method) -> Method:
    """7.10: a life whose home has died is over once all routers were in contact for longer than any terminus lives."""

    def broken(*attach: object, is_late: bool) -> bool:
        return bool(is_over(*attach, is_late=False))

    return broken


@mutant(
    Members,
    "write",
    by="7",
    scenario=hostile.test_an_attach_above_one_by_a_clock_far_ahead_says_nothing_of_those_that_others_have_not_heard_of,
)
def all_told_by_a_clock_far_ahead(_: Method) -> Method:
    """7.9: an attach with a clock far ahead does not show that the attaches below it were announced."""

    def broken(members: Members, attach: Epoch) -> None:
        members._told[members.router] = max(attach, members._told[members.router])

    return broken


@mutant(
    Members,
    "told_up_to",
    by="7",
    scenario=unheard_of.test_an_attach_that_has_waited_is_told_later_than_those_that_came_after_it,
)
def waiting_attach_counts_as_announced(_: Method) -> Any:
    """7.9: attaches are announced in order, except attaches that wait."""
    return property(lambda members: members._told[members.router].hlc)


@mutant(
    Members,
    "has_told",
    by="7",
    scenario=unheard_of.test_a_contact_that_only_we_have_still_has_told_nothing_of_an_attach_since,
)
def a_contact_knows_all(_: Method) -> Method:
    """7.9: other routers may know an attach that the home of a publisher's last attach has not announced yet."""

    def broken(members: Members, attach: Epoch) -> bool:
        return True

    return broken


@mutant(
    Generations,
    "_is_over",
    by="3",
    scenario=unheard_of.test_a_contact_that_only_we_have_still_has_told_nothing_of_a_life_since,
)
def a_contact_knows_all_lives(is_over: Method) -> Method:
    """7.10: before a home forgets a publisher, it has announced the publisher's last attach."""

    def broken(
        generations: Generations, stream: HomeStream, known: LinkEntry | None, seen: Epoch, *, is_late: bool
    ) -> bool:
        is_around = generations.directory.tells(seen[1:])
        return bool(is_over(generations, stream, known, seen, is_late=is_late)) or (known is None and is_around)

    return broken


@mutant(Record, "void_outcome", by="1", scenario=resuming.test_what_was_given_back_here_and_had_again_elsewhere)
def given_back_for_ever(_: Method) -> Method:
    """6.8: if a map names a delivery without outcome, its subscriber got it again after giving it back here."""

    def broken(record: Record, subscriber: LocalSubscriber) -> None:
        """The delivery stays given back."""

    return broken


@mutant(
    Directory,
    "contact_lost",
    by="2",
    scenario=directory.test_what_was_announced_is_told_to_others_when_its_owner_is_lost,
)
def announced_for_ever(original: Method) -> Method:
    """3.3: when an owner is lost, other routers are told of the links that it had announced."""

    def broken(here: Directory, router: str, now_us: int) -> list[Change]:
        announced = set(here._announced)
        changes: list[Change] = original(here, router, now_us)
        here._announced |= announced
        return changes

    return broken
