"""Joining subscribers and attaching publishers (protocol 6.1 to 6.7, 7.1): when attaches are answered, and gates."""

import math

from linkstate.mesh_actions import ContactLost
from tests.topic.bench import SETTINGS, Bench, pen_at, reader_at
from topic.actions import AnswerPublisher, AnswerSubscriber, Detach, Note
from topic.delivery.outcomes import DeliveryOutcome
from topic.directory.entry import Lifetime
from topic.wire.segments import Segment


def test_an_attach_is_answered_when_all_routers_in_contact_have_joined_the_subscriber() -> None:
    bench = Bench("a", "b", "c")
    bench.hold("c", "a")
    reader = bench.subscriber("a")
    assert not reader.answered
    bench.let_go()
    assert reader.answered


def test_credit_given_before_the_answer_delivers_nothing() -> None:
    bench = Bench("a", "b")
    bench.hold("b", "a")
    reader, pen = bench.subscriber("a", credit=5), bench.publisher("b")
    pen.send(b"1")
    assert reader.delivered == []


def test_from_the_answer_on_everything_published_anywhere_is_delivered() -> None:
    bench = Bench("a", "b", "c")
    reader = bench.subscriber("c")
    assert reader.answered
    bench.publisher("a", "p").send(b"1")
    bench.publisher("b", "q").send(b"2")
    assert reader.delivered == [b"1", b"2"]


def test_a_router_that_does_not_join_in_time_is_dropped_and_the_attach_answered() -> None:
    bench = Bench("a", "b", "c")
    bench.hold("c", "a")
    reader = bench.subscriber("a")
    bench.time(SETTINGS.join)
    [drop] = [action for action in bench.actions["a"] if isinstance(action, ContactLost)]
    assert drop.router == "c"
    bench.part("a", "c")
    assert reader.answered


def test_who_has_heard_of_an_attach_before_its_routers_older_section_joins_it_all_the_same() -> None:
    """c passes on to b what a is still to tell: a's section is of before"""
    bench = Bench("a", "b", "c", meet=False)
    bench.meet("a", "c")
    bench.meet("b", "c")
    reader_at(bench, "a")
    bench.hold("a", "b")
    bench.meet("a", "b")
    bench.flow()
    reader = reader_at(bench, "a")
    bench.let_go()
    assert reader.answered


def test_who_has_passed_on_a_later_attach_is_not_taken_for_late() -> None:
    overtake(resumed=True)


def test_who_knows_of_a_later_attach_says_so_and_is_not_taken_for_late() -> None:
    overtake(resumed=False)


def overtake(*, resumed: bool) -> None:
    """c joins the earlier attach no more. It is over as soon as a says so."""
    bench = Bench("a", "b", "c")
    bench.hold("b", "c")
    if not resumed:
        bench.hold("b", "a")
    reader = reader_at(bench, "b")
    bench.hold("a", "b")
    again = reader_at(bench, "a", unsettled={} if resumed else None)
    bench.step("b", "c")
    bench.flow()
    bench.time(SETTINGS.join)
    late = [lost.router for lost in bench.actions["b"] if isinstance(lost, ContactLost)]
    assert late == ["a"], "and that is held up here"
    bench.let_go()
    assert again.answered and [detach.condition for detach in reader.mine(Detach)] == ["amqp:link:stolen"]


def test_a_later_attach_of_the_publisher_of_that_name_says_nothing_of_who_is_late() -> None:
    """A client may name its two links alike."""
    bench = Bench("a", "b", "c")
    pen = pen_at(bench, "c", name="s")
    bench.hold("b", "c")
    reader_at(bench, "b", "s")
    pen_at(bench, "a", pen, name="s", unsettled={})
    bench.time(SETTINGS.join)
    assert [late.router for late in bench.actions["b"] if isinstance(late, ContactLost)] == ["c"]


def test_a_publisher_is_answered_when_all_routers_in_contact_know_of_it() -> None:
    bench = Bench("a", "b", "c")
    bench.hold("b", "a")
    pen = bench.publisher("a")
    assert pen.mine(AnswerPublisher) == []
    bench.let_go()
    [answer] = pen.mine(AnswerPublisher)
    assert (answer.credit, len(answer.generation)) == (SETTINGS.window, 8)


def test_a_publisher_that_leaves_before_the_answer_is_not_answered() -> None:
    bench = Bench("a", "b")
    bench.hold("b", "a")
    pen = bench.publisher("a")
    pen.close()
    bench.let_go()
    assert [a for a in bench.actions["a"] if isinstance(a, AnswerPublisher)] == []


def test_a_new_subscriber_is_kept_from_later_messages_while_older_ones_are_unsettled() -> None:
    bench = Bench("a", "b")
    older, pen = bench.subscriber("a", "older"), bench.publisher("a", lively=False, lifetime=Lifetime(60))
    pen.send(b"1")
    newer = bench.subscriber("b", "newer")
    assert newer.answered
    pen.send(b"2")
    assert newer.delivered == []
    older.accept(b"1")
    assert newer.delivered == [], "accepted is not yet settled"
    pen.settle(b"1")
    assert newer.delivered == [b"2"]


def test_what_a_publisher_knows_to_be_accepted_gates_no_longer() -> None:
    """It may settle in batches. Should it resume, its map states the outcome: it is never transferred again."""
    bench = Bench("a", "b")
    older, pen = bench.subscriber("a", "older"), bench.publisher("a", lively=False, lifetime=Lifetime(60))
    pen.send(b"1", b"2")
    older.accept(b"1")
    newer = bench.subscriber("b", "newer")
    pen.answer_echo()  # asked as the newer one joined: it knows of 1, but not of 2
    pen.send(b"3")
    older.accept(b"2", b"3")
    assert newer.delivered == []
    pen.answer_echo()
    assert newer.delivered == [b"3"]
    newer.accept(b"3")
    assert pen.outcomes == dict.fromkeys((b"1", b"2", b"3"), DeliveryOutcome.ACCEPTED)


def test_an_answer_to_an_echo_that_was_asked_before_the_outcome_opens_no_gate() -> None:
    bench = Bench("a", "b")
    older, pen = bench.subscriber("a", "older"), bench.publisher("a", lively=False, lifetime=Lifetime(60))
    pen.send(b"1", b"2")
    older.accept(b"1")
    newer = bench.subscriber("b", "newer")  # asks
    pen.send(b"3")
    older.accept(b"2")
    pen.answer_echo()  # and is asked again
    assert newer.delivered == []
    pen.answer_echo()
    assert newer.delivered == [b"3"]


def test_that_a_machine_acknowledges_does_not_tell_that_its_publisher_knows() -> None:
    bench = Bench("a", "b")
    older, pen = bench.subscriber("a", "older"), bench.publisher("a", lively=False, lifetime=Lifetime(60))
    pen.send(b"1")
    older.accept(b"1")
    newer = bench.subscriber("b", "newer")
    pen.acknowledge()
    pen.send(b"2")
    assert newer.delivered == []
    pen.settle(b"1")
    assert newer.delivered == [b"2"]


def test_what_a_publisher_that_does_not_resume_was_told_gates_no_longer() -> None:
    bench = Bench("a", "b")
    older, pen = bench.subscriber("a", "older"), bench.publisher("a", lively=False)
    pen.send(b"1", b"2")
    older.accept(b"1")
    newer = bench.subscriber("b", "newer")
    pen.send(b"3")
    assert newer.delivered == [], "2 is in doubt"
    older.accept(b"2")
    assert newer.delivered == [b"3"]


def test_a_subscriber_that_moves_is_not_given_what_gated_it_until_its_publisher_knew() -> None:
    bench = Bench("a", "b", "c")
    older, pen = bench.subscriber("a", "older"), bench.publisher("a", lifetime=Lifetime(60))
    pen.send(b"1")
    older.accept(b"1")
    bench.subscriber("b", "newer", lifetime=Lifetime(60))
    pen.send(b"2")
    moved = bench.subscriber("c", "newer", lifetime=Lifetime(60), unsettled={})
    said, life = {b"1": int(DeliveryOutcome.ACCEPTED), b"2": 0}, pen.stream.generation
    again = bench.publisher("b", lifetime=Lifetime(60), generation=life, unsettled=said)
    again.send(b"2")
    older.accept(b"2")
    assert (b"1" in moved.delivered, moved.delivered.count(b"2")) == (False, 1)


def test_a_gate_keeps_from_its_own_publisher_only() -> None:
    bench = Bench("a")
    bench.subscriber("a", "older")
    bench.publisher("a", "p").send(b"1")
    newer = bench.subscriber("a", "newer")
    bench.publisher("a", "q").send(b"2")
    assert newer.delivered == [b"2"]


def test_a_closing_subscriber_is_awaited_no_longer() -> None:
    bench = Bench("a", "b")
    near, far, pen = bench.subscriber("a", "near"), bench.subscriber("b", "far"), bench.publisher("a")
    pen.send(b"1")
    near.accept(b"1")
    far.close()
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}


def test_a_booting_router_withholds_acceptances_until_it_has_heard_all() -> None:
    bench = Bench("a", "b", "c", meet=False)
    pen = bench.publisher("a")
    pen.send(b"1")
    assert (pen.outcomes, bench.cores["a"].boot.waiting_for) == ({}, ["b", "c"])
    bench.meet("a", "b")
    bench.flow()
    assert (pen.outcomes, bench.cores["a"].boot.waiting_for) == ({}, ["c"])
    bench.meet("a", "c")
    bench.flow()
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}


def test_a_router_that_stays_away_is_waited_for_so_long_and_no_longer() -> None:
    bench = Bench("a", "b", meet=False)
    pen = bench.publisher("a")
    pen.send(b"1")
    assert bench.cores["a"].boot.deadline() == SETTINGS.boot_wait
    bench.time(SETTINGS.boot_wait - 0.1)
    assert pen.outcomes == {}
    bench.time(0.2)
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}
    assert [note.text for note in bench.actions["a"] if isinstance(note, Note)] == [
        "boot: continuing without b; publishers do not wait for subscribers that no other router knows"
    ]
    assert bench.cores["a"].boot.deadline() == math.inf


def test_a_publisher_that_nobody_knew_goes_on_when_it_becomes_known() -> None:
    bench = Bench("a", "b", "c", meet=False)
    former = pen_at(bench, "b")
    pen = pen_at(bench, "a", unsettled={})
    assert not pen.mine(AnswerPublisher)
    bench.meet("a", "b")
    bench.flow()
    assert pen.mine(AnswerPublisher) and pen.stream.generation == former.stream.generation


def test_joined_for_a_life_that_ended_is_not_taken_for_the_next_one() -> None:
    """Nor its gate: the deliveries that would wait behind it are not the new life's, and both wait for ever."""
    bench = Bench("a", "b")
    other, pen = bench.subscriber("b", "other"), bench.publisher("a")
    pen.send(b"1")
    bench.hold("a", "b")
    first = bench.subscriber("b", "s")
    first.close()
    other.accept(b"1")
    pen.settle(b"1")
    pen.send(b"2")
    second = bench.subscriber("b", "s")
    assert second.mine(AnswerSubscriber) == []
    bench.let_go()
    assert second.answered
    other.accept(b"2")
    assert pen.outcomes[b"2"] is DeliveryOutcome.ACCEPTED
    pen.settle(b"2")
    pen.send(b"3")
    second.grant(10)
    assert second.delivered == [b"3"]


def test_what_was_forwarded_for_an_attach_that_is_over_is_not_for_the_next_one() -> None:
    bench = Bench("a", "b", "c")
    pen, old = bench.publisher("a"), bench.subscriber("b", "s")
    pen.send(b"1")
    bench.hold("b", "a")
    bench.hold("a", "c")
    over = bench.subscriber("c", "s", credit=0)
    bench.hold("c", "a")
    over.close()
    new = bench.subscriber("c", "s")
    for here, there in (("a", "c"), ("b", "a"), ("a", "c")):  # b tells that it has left without having accepted
        while bench.under_way(here, there):
            bench.step(here, there)
    bench.let_go()
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}
    pen.settle(b"1")
    pen.send(b"2")
    new.grant(10)
    assert (old.delivered, new.delivered) == ([b"1"], [b"2"])


def test_outcomes_wait_until_a_subscriber_that_moved_here_is_joined() -> None:
    """Else home, which has just learned that it moved, takes them for those of the backlog."""
    bench = Bench("a", "b", "c")
    there, pen = bench.subscriber("b", "there"), bench.publisher("a")
    bench.subscriber("c", "mover", credit=0)
    pen.send(b"1")
    bench.hold("a", "b")
    moved = bench.subscriber("b", "mover")
    there.accept(b"1")
    assert pen.outcomes == {}
    bench.let_go()
    assert pen.outcomes == {}, "the mover has not had it"
    moved.grant(5)
    moved.accept(b"1")
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}


def test_an_attach_is_later_than_one_by_a_clock_too_far_ahead_to_be_believed() -> None:
    bench = Bench("a", "b")
    bench.cores["a"].advance(1_700_100_000_000_000)
    bench.subscriber("a")
    later = bench.subscriber("b")
    assert bench.cores["b"].outlet.clock.refused
    assert later.answered
    assert [type(action) for action in bench.actions["a"]].count(Detach) == 1
    assert Segment.JOINED in [kind for _, _, kind in bench.said]


def test_a_map_names_what_waits_for_the_key_of_an_abandoned_delivery() -> None:
    bench = Bench("a", "b")
    pen = bench.publisher("a")
    first = bench.subscriber("b", lifetime=Lifetime(60))
    pen.send(b"1")
    bench.part("a", "b")
    bench.meet("a", "b")
    bench.flow()  # 1 comes again, and waits until the subscriber has answered the abandoned one
    [key] = [record.key for record in pen.sent.values()]
    again = bench.subscriber("b", lifetime=Lifetime(60), unsettled={key: 0})
    assert (first.delivered, again.resumed) == ([b"1"], [(b"1", 0, False)])


def test_who_has_attached_elsewhere_is_given_nothing_newer_where_it_was() -> None:
    """Home b has forwarded the first message to c only, and the second also to a, for another subscriber there. The
    subscriber may still read from a: c has read its attach late."""
    bench = Bench("a", "b", "c")
    reader, pen = reader_at(bench, "a"), pen_at(bench, "b")
    bench.hold("c", "a")
    again = reader_at(bench, "c", unsettled={})
    pen.send(b"1")
    reader_at(bench, "a", "other")
    pen.send(b"2")
    assert reader.delivered == []
    bench.let_go()
    again.grant(100)
    assert again.delivered == [b"1", b"2"]


def test_who_has_begun_afresh_out_of_contact_with_where_it_was_is_given_nothing_newer_there() -> None:
    bench = Bench("a", "b", "c", meet=False)
    bench.meet("a", "b")
    bench.meet("b", "c")
    bench.flow()
    reader, pen = reader_at(bench, "a"), pen_at(bench, "b")
    again = reader_at(bench, "c")
    pen.send(b"1")
    reader_at(bench, "a", "other")
    pen.send(b"2")
    assert (reader.delivered, again.delivered) == ([], [b"1", b"2"])
