"""What routers agree on about links without a client, word by word (protocol 8, Expiry and Apart): votes that are late,
or about something else; and what is said of links that have ended already."""

from collections.abc import Iterator

import attrs
import pytest

from tests.topic.bench import FORGETFUL, Bench, pen_at, reader_at
from tests.topic.clients import Pen, Reader
from topic.actions import EXPIRED, Detach, Note
from topic.blocks import LogEntry, read_blocks
from topic.core import Topic
from topic.delivery.outcomes import DeliveryOutcome
from topic.directory.entry import Change, Decision, Index, LinkEntry, Role, Status
from topic.journal import Event
from topic.termini.changes import OUT_OF_CONTACT
from topic.wire.segments import Segment


def entry_of(core: Topic, client: Pen | Reader) -> LinkEntry:
    if isinstance(client, Pen):
        entry = core.directory.publisher(client.stream.publisher)
    else:
        entry = core.directory.subscriber(client.end.name)
    assert entry is not None
    return entry


def logged(bench: Bench, router: str, event: Event) -> Iterator[LogEntry]:
    blocks, _ = read_blocks(bench.take_log(router))
    return (entry for block in blocks for entry in block.entries() if entry.event is event)


def asked(bench: Bench, client: Pen | Reader) -> tuple[Index, LinkEntry]:
    """a has suspended it for its time, and asked b and c, whose answers are on their way."""
    if isinstance(client, Pen):
        bench.tick("a").suspend_publisher(client.stream, client, bench.now)
    else:
        bench.tick("a").suspend_subscriber(client.end, client, bench.now)
    for other in ("b", "c"):
        bench.hold(other, "a")
    bench.wait(62)
    entry = entry_of(bench.cores["a"], client)
    assert entry.live and bench.under_way("b", "a") and bench.under_way("c", "a")
    return (entry.role, entry.name), entry


@pytest.mark.parametrize("yes", [True, False])
def test_an_answer_about_another_attach_or_another_question_does_not_count(yes: bool) -> None:
    bench = Bench("a", "b", "c")
    reader = reader_at(bench, "a")
    index, entry = asked(bench, reader)
    expiry, another = bench.cores["a"].expiry, entry.epoch._replace(hlc=1)
    for other in ("b", "c"):
        expiry.vote(other, index, another, Decision.EXPIRED, yes)
        expiry.vote(other, index, entry.epoch, Decision.LAPSED, yes)
    assert entry_of(bench.cores["a"], reader).live
    bench.let_go()
    assert bench.ended("a") == [entry.name.decode()]


@pytest.mark.parametrize("role", Role)
def test_what_ends_while_the_others_are_asked_ends_once(role: Role) -> None:
    bench = Bench("a", "b", "c")
    index, entry = asked(bench, pen_at(bench, "a") if role is Role.PUBLISHER else reader_at(bench, "a"))
    for _ in range(2):
        bench.cores["a"].expiry.decided("b", index, entry.epoch, Decision.EXPIRED)
    before = len([said for said in bench.said if said[2] is Segment.EXPIRED])
    bench.let_go()
    bench.part("a", "b")
    assert len([said for said in bench.said if said[2] is Segment.EXPIRED]) == before
    assert len(list(logged(bench, "a", Event.EXPIRED))) == 1


def test_who_has_agreed_is_told_that_nothing_is_decided_when_contacts_change() -> None:
    bench = Bench("a", "b", "c")
    asked(bench, reader_at(bench, "a"))
    bench.said.clear()
    bench.part("a", "b")
    assert ("a", "c", Segment.EXPIRED) in bench.said


def test_the_store_has_a_reserve_of_the_clock_whenever_something_leaves() -> None:
    bench = Bench("a")
    for _ in range(3):
        bench.wall_us += 10_000_000
        bench.collect("a")
        assert bench.stations["a"].store.reserved > bench.cores["a"].outlet.clock.read()


def test_a_router_on_its_own_forgets_who_does_not_come_back() -> None:
    bench = Bench("a")
    reader = reader_at(bench, "a")
    bench.tick("a").suspend_subscriber(reader.end, reader, bench.now)
    bench.wait(62)
    assert not list(bench.cores["a"].directory.entries())


def test_who_is_in_contact_lapses_by_its_owners_word_only() -> None:
    bench = Bench("a", "b", "c")
    entry = entry_of(bench.cores["b"], reader_at(bench, "c"))
    for router, lapses in (("a", False), ("c", True)):
        bench.cores["b"].expiry.decided(router, (entry.role, entry.name), entry.epoch, Decision.LAPSED)
        assert (entry.name in bench.cores["b"].directory.lapsed) is lapses


def test_a_publisher_whose_life_ended_out_of_its_sight_is_told_so() -> None:
    bench = Bench("a", "b", "c", settings=FORGETFUL)
    pen = pen_at(bench, "c")
    for other in ("a", "b"):
        bench.part("c", other)
    bench.wait(130, "a", "b")
    for other in ("a", "b"):
        bench.meet("c", other)
    bench.flow()
    assert [(end.condition, end.description) for end in pen.mine(Detach)] == [(EXPIRED, OUT_OF_CONTACT)]
    assert not [action for action in bench.actions["c"] if isinstance(action, Note) and "ended" in action.text]


def test_a_life_that_was_resumed_where_nobody_knew_that_it_had_ended_ends() -> None:
    bench = Bench("a", "b", "c", settings=FORGETFUL)
    pen = pen_at(bench, "b")
    bench.kill("b")
    bench.part("a", "c")
    bench.wait(130, "a")
    again = pen_at(bench, "c", pen, unsettled={})
    assert again.stream.generation == pen.stream.generation
    bench.meet("a", "c")
    bench.flow()
    assert [end.condition for end in again.mine(Detach)] == [EXPIRED]


def test_who_knows_of_one_ending_has_not_heard_of_the_next() -> None:
    bench = Bench("a", "b")
    bench.kill("b")  # so what has ended is remembered
    core, first = bench.cores["a"], reader_at(bench, "a")
    core.changes.end_apart(entry_of(core, first), "first")
    core.ending_known(first.end)
    version = core.directory.version
    core.ending_known(first.end)
    assert core.directory.version == version, "that is no news"
    second = reader_at(bench, "a", told=True)
    core.changes.end_apart(entry_of(core, second), "second")
    core.ending_known(first.end)
    assert entry_of(core, second).ending == "second"


def test_what_is_refused_is_accepted_without_nobody() -> None:
    bench = Bench("a", "b")
    pen, here, apart = pen_at(bench, "a"), reader_at(bench, "a", "here"), reader_at(bench, "b", "apart")
    pen.send(b"1")
    bench.part("a", "b")
    bench.wait(64, "a")
    here.answer(DeliveryOutcome.REJECTED, b"1")
    assert pen.outcomes == {b"1": DeliveryOutcome.REJECTED}
    assert entry_of(bench.cores["a"], apart).live


def test_what_only_a_map_names_is_given_up_in_the_end_though_a_router_is_missing() -> None:
    bench = Bench("a", "b", settings=FORGETFUL)
    bench.kill("b")
    reader = reader_at(bench, "a", unsettled={b"k" * 32: DeliveryOutcome.ACCEPTED})
    bench.wait(118)
    assert not reader.settled
    bench.wait(4)
    assert len(reader.settled) == 1


def test_each_is_apart_from_what_was_accepted_without_it() -> None:
    bench = Bench("a", "b")
    pen, here, one = pen_at(bench, "a"), reader_at(bench, "a", "here"), reader_at(bench, "b", "one")
    pen.send(b"1")
    newer = reader_at(bench, "b", "newer")
    pen.send(b"2")
    bench.part("a", "b")
    bench.wait(64, "a")
    here.accept(b"1", b"2")
    apart = {entry.subscriber: len(entry.keys) for entry in logged(bench, "a", Event.APART)}
    assert apart == {one.end.name.decode(): 2, newer.end.name.decode(): 1}


def test_a_client_is_here_by_its_own_attach() -> None:
    bench = Bench("a")
    core = bench.cores["a"]
    entry = entry_of(core, reader_at(bench, "a"))
    later = attrs.evolve(entry, epoch=entry.epoch._replace(hlc=entry.epoch.hlc + 1))
    assert core.changes.is_here(entry) and not core.changes.is_here(later)


def test_news_of_the_attach_that_is_known_changes_no_stream() -> None:
    bench = Bench("a", "b")
    reader_at(bench, "b")
    pen = pen_at(bench, "a")
    pen.send(b"1")
    core, entry = bench.cores["b"], entry_of(bench.cores["b"], pen)
    stream = core.edge.streams[entry.name]
    core.changes.follow([Change(entry, entry)])
    assert core.edge.streams[entry.name] is stream


def test_who_has_agreed_with_two_is_free_when_both_say_that_nothing_comes_of_it() -> None:
    """Else its client resumes a life that the other ends."""
    bench = Bench("a", "b", "c")
    pen = pen_at(bench, "a")
    index, entry = asked(bench, pen)
    expiry = bench.cores["a"].expiry
    for other in ("b", "c"):
        expiry.proposed(other, index, entry.epoch, Decision.EXPIRED)
    for other, status in (("b", Status.BOUND), ("c", Status.ATTACHED)):
        expiry.decided(other, index, entry.epoch, Decision.NOTHING)
        assert entry_of(bench.cores["a"], pen).status is status
