"""A tag that is used again, and who resumes meanwhile: what waits behind an older delivery (protocol 5, 6.1, 7.4)."""

import attrs
import pytest

from tests.topic.bench import LASTING, SETTINGS, Bench, pen_at, reader_at
from tests.topic.clients import Pen, Reader, key_of
from topic.actions import AnswerDeliveries, Echo
from topic.delivery.outcomes import DeliveryOutcome
from topic.wire.segments import Segment, decode


def test_delivery_resumed_behind_a_withheld_one_is_resumed_elsewhere() -> None:
    bench = Bench("a", "b")
    reader, pen = reader_at(bench, "a"), pen_at(bench, "a")
    pen.send(b"1", b"2")
    reader.accept(b"2")
    pen.settle(b"2")  # but the reader does not say that it knows
    again = pen_at(bench, "a", pen, unsettled={b"2": 0, b"1": 0})
    again.send(b"2 again", tags=[b"2"])
    again.send_again(b"1")
    moved = pen_at(bench, "b", pen, unsettled={b"2": 0, b"1": 0})
    moved.send(b"2 again", tags=[b"2"])
    moved.send(b"1")
    reader.answer_echo()
    reader.accept(b"1", b"2 again")
    assert moved.outcomes == {b"1": DeliveryOutcome.ACCEPTED, b"2": DeliveryOutcome.ACCEPTED}
    assert reader.delivered == [b"1", b"2", b"2 again"]


def test_a_client_that_uses_one_tag_for_all_does_not_wait_for_settlements_that_wait() -> None:
    """No time passes here."""
    bench = Bench("a", "b", settings=attrs.evolve(SETTINGS, settle_delay=0.025))
    reader, pen = bench.subscriber("b", "s"), bench.publisher("a", "p")
    bodies = [b"1", b"2", b"3"]
    for body in bodies:
        pen.send(body, tags=[b"x"])
        reader.accept(body)
        pen.settle(body)
    assert reader.delivered == bodies


def test_a_transfer_is_no_evidence_that_an_older_delivery_of_its_key_is_settled() -> None:
    """It may be late, and the delivery the same: sent elsewhere meanwhile, and accepted there."""
    bench = Bench("a")
    pen = pen_at(bench, "a", lively=False)
    reader = reader_at(bench, "a", unsettled={key_of(pen, b"1"): DeliveryOutcome.ACCEPTED})
    pen.send(b"1")
    assert (reader.settled, reader.delivered, pen.outcomes) == ([], [], {})
    pen.answer_echo()  # so it is another one, and the older is settled
    assert len(reader.settled) == 1
    pen.answer_echo()  # so it is not late
    reader.answer_echo()
    assert reader.delivered == [b"1"]


def test_a_key_that_is_free_in_the_middle_of_an_event_waits_for_its_end() -> None:
    """One section frees it, lets a publisher begin that nobody knew, and tells of one more subscriber."""
    bench = Bench("a", "b", "c")
    known = reader_at(bench, "a", "known")
    bench.part("a", "b")
    bench.publisher("b", "u", lifetime=LASTING)
    late, pen = reader_at(bench, "c", "late"), pen_at(bench, "a")
    pen.send(b"1", tags=[b"x"])
    known.accept(b"1")
    late.accept(b"1")
    pen.settle(b"1")
    late.answer_echo()
    pen.send(b"2", tags=[b"x"])
    bench.kill("c")
    there = [reader_at(bench, "b", name, unsettled={}) for name in ("known", "late")]
    bench.publisher("a", "u", lifetime=LASTING, unsettled={b"z": 0})
    bench.meet("a", "b")
    bench.flow()
    assert [reader.delivered for reader in there] == [[b"2"], [b"2"]]


def test_key_settled_before_an_attach_may_be_in_doubt_again() -> None:
    """Router b is a zombie's home. The tag was used again elsewhere, and accepted by who comes to b with its map."""
    bench = Bench("a", "b", "c")
    reader, pen = reader_at(bench, "c"), pen_at(bench, "a")
    pen.send(b"1", tags=[b"x"])
    reader.accept(b"1")
    pen.settle(b"1")  # but the reader does not say that it knows
    there = pen_at(bench, "b", pen, unsettled={}, lively=False)
    assert there.stream.settled_before == {key_of(pen, b"x")}
    reader.answer_echo()
    bench.part("a", "b")
    bench.part("b", "c")
    again = pen_at(bench, "a", pen, unsettled={})
    again.send(b"2", tags=[b"x"])
    reader.accept(b"2")
    moved = reader_at(bench, "b", unsettled={key_of(pen, b"x"): DeliveryOutcome.ACCEPTED})
    assert moved.settled == []
    bench.meet("a", "b")
    bench.meet("b", "c")
    bench.flow()
    assert again.outcomes == {b"x": DeliveryOutcome.ACCEPTED}
    again.settle(b"2")
    assert len(moved.settled) == 1 and moved.delivered == []


@pytest.mark.parametrize("router", ["a", "b"])
def test_a_plain_publisher_may_use_one_tag_for_all_before_a_subscriber_that_answers_nothing(router: str) -> None:
    bench = Bench("a", "b")
    reader, pen = reader_at(bench, router), bench.publisher("a")
    bodies = [b"%d" % number for number in range(5)]
    for body in bodies:
        pen.send(body, tags=[b"x"])
        reader.accept(body)
        assert len(pen.mine(AnswerDeliveries)) == int(body) + 1
        pen.settle(body)
    assert reader.delivered == bodies
    keys = [record.key for record, _ in reader.handed]
    assert len(set(keys)) == 5 and keys[0] == key_of(pen, b"x")


def test_publisher_that_reuses_a_tag_gets_numbered_keys() -> None:
    """Home has forgotten the last x with the contact, but b has not, because its reader answers nothing."""
    bench = Bench("a", "b")
    reader, pen = reader_at(bench, "b"), bench.publisher("a")
    for body in (b"0", b"1", b"2"):
        pen.send(body, tags=[b"x"])
        reader.accept(body)
        pen.settle(body)
    bench.part("a", "b")
    bench.meet("a", "b")
    bench.flow()
    pen.send(b"3", b"4", tags=[b"x", b"y"])
    assert reader.delivered == [b"0", b"1", b"2", b"3", b"4"]


def test_a_large_message_under_a_used_tag_goes_ahead_under_its_own_key() -> None:
    bench = Bench("a", "b", settings=attrs.evolve(SETTINGS, piece=10))
    reader, pen = reader_at(bench, "b"), bench.publisher("a")
    bodies = [b"%d" % number * 100 for number in range(3)]
    for body in bodies:
        pen.send(body, tags=[b"x"])
        reader.accept(body)
        pen.settle(body)
    assert reader.delivered == bodies


def test_keys_of_a_life_that_goes_on_are_of_its_tags() -> None:
    """It has gone on with its life elsewhere, so it might do so again."""
    bench = Bench("a", "b")
    reader, pen = reader_at(bench, "a"), bench.publisher("a")
    pen.send(b"1", tags=[b"x"])
    moved = bench.publisher("b", generation=pen.stream.generation, unsettled={b"x": 0})
    moved.send(b"1", tags=[b"x"])
    reader.accept(b"1")
    moved.settle(b"1")
    moved.send(b"2", tags=[b"x"])
    assert reader.delivered == [b"1"]
    reader.answer_echo()
    assert reader.delivered == [b"1", b"2"]


def put_off_at_b() -> tuple[Bench, Pen, Reader, Reader]:
    """Of x and y, used again, nothing goes on at b: the contact was lost, and one reader there has not said that it
    knows of the older x. Home has forgotten it."""
    bench = Bench("a", "b")
    pen, slow, quick = pen_at(bench, "a"), reader_at(bench, "b", "slow"), reader_at(bench, "b", "quick")
    pen.send(b"1", tags=[b"x"])
    slow.accept(b"1")
    quick.accept(b"1")
    pen.settle(b"1")
    quick.answer_echo()
    bench.part("a", "b")
    bench.meet("a", "b")
    bench.flow()
    pen.send(b"2", b"3", tags=[b"x", b"y"])
    assert (slow.delivered, quick.delivered) == ([b"1"], [b"1"])
    return bench, pen, slow, quick


def test_a_map_may_name_what_was_forwarded_and_waits_behind_an_older_delivery() -> None:
    bench, pen, slow, _ = put_off_at_b()
    again = reader_at(bench, "b", "quick", unsettled={key_of(pen, b"y"): DeliveryOutcome.ACCEPTED})
    slow.answer_echo()
    slow.accept(b"2", b"3")
    again.accept(b"2")
    assert pen.outcomes == {b"x": DeliveryOutcome.ACCEPTED, b"y": DeliveryOutcome.ACCEPTED}
    assert (again.delivered, again.resumed) == ([b"2"], [(None, DeliveryOutcome.ACCEPTED, False)])


@pytest.mark.parametrize("outcome", [0, DeliveryOutcome.ACCEPTED])
def test_withheld_record_named_by_a_map_ends_with_its_publisher(outcome: int) -> None:
    bench, pen, slow, _ = put_off_at_b()
    again = reader_at(bench, "b", "quick", unsettled={key_of(pen, b"y"): outcome})
    pen.close()
    for reader in (slow, again) * 2:
        if reader.mine(Echo):
            reader.answer_echo()
    bench.time(400)
    assert bench.records() == {} and slow.delivered == [b"1"]


def test_a_map_may_name_what_is_withheld_at_its_home() -> None:
    bench = Bench("a")
    pen, slow = pen_at(bench, "a"), reader_at(bench, "a", "slow")
    pen.send(b"1", tags=[b"x"])
    slow.accept(b"1")
    pen.settle(b"1")
    pen.send(b"2", b"3", tags=[b"x", b"y"])
    reader = reader_at(bench, "a", unsettled={key_of(pen, b"y"): DeliveryOutcome.ACCEPTED})
    slow.answer_echo()
    slow.accept(b"2", b"3")
    reader.accept(b"2")
    assert pen.outcomes == {b"x": DeliveryOutcome.ACCEPTED, b"y": DeliveryOutcome.ACCEPTED}
    assert (reader.delivered, reader.resumed) == ([b"2"], [(None, DeliveryOutcome.ACCEPTED, False)])


@pytest.mark.parametrize("second", ["a", "b", "c"])
def test_question_about_a_transfer_that_waits_for_evidence_waits_too(second: str) -> None:
    """Both have had the older delivery of that key, wherever that was; neither its outcome nor the new one is lost."""
    bench = Bench("a", "b", "c")
    pen = pen_at(bench, "a", lively=False)
    map_of_both = {key_of(pen, b"1"): DeliveryOutcome.ACCEPTED}
    one = reader_at(bench, "b", "one", unsettled=map_of_both)
    pen.send(b"1")
    two = reader_at(bench, second, "two", unsettled=map_of_both)
    pen.answer_echo()
    pen.answer_echo()
    for reader in (one, two):
        if reader.mine(Echo):
            reader.answer_echo()
    assert (one.delivered, two.delivered, pen.outcomes) == ([b"1"], [b"1"], {})


def test_later_records_wait_behind_a_record_that_waits_for_its_key() -> None:
    _, pen, slow, quick = put_off_at_b()
    pen.send(b"4")
    pen.send(b"presettled", presettled=True)
    assert (slow.delivered, quick.delivered) == ([b"1"], [b"1"])
    slow.answer_echo()
    assert slow.delivered == quick.delivered == [b"1", b"2", b"3", b"4"], "what is presettled is missed"


@pytest.mark.parametrize("router", ["a", "b"])
def test_abandoned_record_that_waits_for_its_key_goes_to_nobody(router: str) -> None:
    bench = Bench("a", "b")
    pen, slow = pen_at(bench, "a"), reader_at(bench, router, "slow")
    pen.send(b"1", tags=[b"x"])
    slow.accept(b"1")
    pen.settle(b"1")
    bench.part("a", "b")
    bench.meet("a", "b")
    bench.flow()
    pen.send(b"2", b"3", tags=[b"x", b"y"])
    assert slow.delivered == [b"1"]
    pen.settle(b"2")
    assert slow.delivered == [b"1", b"3"]
    slow.answer_echo()
    assert slow.delivered == [b"1", b"3"]


@pytest.mark.parametrize("is_named", [True, False])
def test_record_that_waited_for_its_key_comes_again_after_loss_of_its_home(is_named: bool) -> None:
    bench, pen, slow, quick = put_off_at_b()
    named = {key_of(pen, b"y")} if is_named else set()
    again = reader_at(bench, "b", "third", unsettled=dict.fromkeys(named, DeliveryOutcome.ACCEPTED))
    bench.part("a", "b")
    stream = bench.cores["b"].edge.streams[pen.stream.publisher]
    assert not stream.records.keys() - {0} and not stream.withheld_at_edge and stream.unconfirmed.keys() == named
    bench.meet("a", "b")
    bench.flow()
    slow.answer_echo()
    assert slow.delivered == quick.delivered == [b"1", b"2", b"3"]
    for reader in (slow, quick):
        reader.accept(b"2", b"3")
    again.accept(*filter(None, again.delivered))
    assert pen.outcomes == {b"x": DeliveryOutcome.ACCEPTED, b"y": DeliveryOutcome.ACCEPTED}


def test_record_waits_on_for_its_key_when_another_publisher_moves() -> None:
    bench = Bench("a", "b")
    slow = reader_at(bench, "a", "slow")
    pens = [pen_at(bench, "a", name=name) for name in "pq"]
    for pen in pens:
        pen.send(pen.name.encode(), tags=[b"x"])
    slow.accept(b"p", b"q")
    for pen in pens:
        pen.settle(pen.name.encode())
    for pen in [pen_at(bench, "a", pen, name=pen.name, unsettled={}) for pen in pens]:
        pen.send(b"again " + pen.name.encode(), tags=[b"x"])
    pen_at(bench, "b", pens[0], unsettled={b"x": 0})
    slow.answer_echo()
    slow.answer_echo()
    assert slow.delivered == [b"p", b"q", b"again q"]


@pytest.mark.parametrize("named", [b"x", b"y", b"z"])
def test_home_answers_question_about_withheld_record_when_it_is_settled(named: bytes) -> None:
    """z was never sent: that is settled, whatever waits."""
    bench = Bench("a", "b")
    pen, slow = pen_at(bench, "a"), reader_at(bench, "a", "slow")
    pen.send(b"0", b"1", tags=[b"w", b"x"])
    slow.accept(b"0", b"1")
    pen.settle(b"0", b"1")
    pen.send(b"2", b"3", tags=[b"w", b"y"])
    reader = reader_at(bench, "b", unsettled={key_of(pen, named): DeliveryOutcome.ACCEPTED})
    assert [is_settled for _, _, is_settled in reader.resumed] == [named != b"y"]


def test_a_settlement_that_comes_after_a_later_attach_is_of_the_older_delivery() -> None:
    """What a hands over to b is for an attach that another has followed there."""
    bench = Bench("a", "b", "c")
    reader, pen = reader_at(bench, "c"), pen_at(bench, "a")
    pen.send(b"old", tags=[b"t"])
    reader.accept(b"old")
    for other in ("b", "c"):
        bench.hold("a", other)
    pen.settle(b"old")
    pen.vanish()
    for _ in range(2):
        again = pen_at(bench, "b", pen, unsettled={b"t": 0}, seen=pen.stream.epoch)
    bench.let_go()
    assert again.map is not None
    again.send(b"new", tags=[b"t"])
    reader.answer_echo()
    assert reader.delivered == [b"old", b"new"]


def test_a_former_home_tells_the_next_one_what_others_have_not_heard_to_be_settled() -> None:
    bench = Bench("a", "b", "c")
    reader, pen = reader_at(bench, "c"), pen_at(bench, "a")
    pen.send(b"old", tags=[b"t"])
    reader.accept(b"old")
    bench.hold("a", "c")
    pen.settle(b"old")
    pen.vanish()
    again = pen_at(bench, "b", pen, unsettled={b"t": 0}, seen=pen.stream.epoch)
    again.send(b"new", tags=[b"t"])
    reader.answer_echo()
    assert reader.delivered == [b"old", b"new"]
    bench.let_go()
    reader.accept(b"new")
    assert again.outcomes == {b"t": DeliveryOutcome.ACCEPTED}


def test_home_hands_over_settled_keys_in_the_order_of_the_keys() -> None:
    """b has it from a, and its attach is not answered when the publisher goes on to c."""
    bench = Bench("a", "b", "c", "d")
    reader, pen = reader_at(bench, "c"), pen_at(bench, "a")
    messages = [b"%d" % number for number in range(10)]
    pen.send(*messages)
    reader.accept(*messages)
    bench.hold("a", "c")
    bench.hold("d", "b")
    pen.settle(*messages)
    pen.vanish()
    pen_at(bench, "b", pen, unsettled={}, seen=pen.stream.epoch)
    bench.hold("b", "c")
    pen_at(bench, "c", pen, unsettled={}, seen=pen.stream.epoch)
    said = [segment for payload in bench._wires["b", "c"] for segment in decode(payload)]
    (handed_over,) = [keys for kind, *_, keys in said if kind == Segment.RESOLVED]
    assert handed_over == b"".join(sorted(key_of(pen, message) for message in messages))


def admitted_past_what_waits(*, is_plain: bool) -> tuple[Bench, Pen, Reader]:
    """Home forwards 2 and 3 as a backlog, behind 4, and admits the reader. At b, 2 waits for its key: the reader has
    not answered 2 as it was before the cut, when its plain publisher had ended for b; or has not said that it knows
    that the older delivery of this tag is settled."""
    bench = Bench("a", "b")
    pen = bench.publisher("a", lively=False) if is_plain else pen_at(bench, "a", lively=False)
    reader = reader_at(bench, "b")
    if is_plain:
        pen.send(b"2")
    else:
        pen.send(b"1", tags=[b"2"])
        reader.accept(b"1")
        pen.settle(b"1")
        bench.part("a", "b")
        bench.meet("a", "b")
        bench.flow()
    bench.hold("a", "b")
    pen.send(*([] if is_plain else [b"2"]), b"3")
    bench.part("a", "b")
    bench.let_go()
    bench.meet("a", "b")
    bench.flow()
    pen.send(b"4")
    pen.answer_echo()
    return bench, pen, reader


def let_go_on(reader: Reader, *, is_plain: bool) -> None:
    """The reader frees the key of 2."""
    if is_plain:
        reader.accept(b"2")
    reader.answer_echo()


@pytest.mark.parametrize("is_plain", [True, False])
def test_admitted_subscriber_gets_nothing_before_a_withheld_record(*, is_plain: bool) -> None:
    _, pen, reader = admitted_past_what_waits(is_plain=is_plain)
    before = [b"2"] if is_plain else [b"1"]
    assert reader.delivered == before
    pen.send(b"5")
    let_go_on(reader, is_plain=is_plain)
    assert reader.delivered == [*before, b"2", b"3", b"4", b"5"]
    assert not reader.end.gated
    reader.accept(b"3", b"4", b"5")
    assert pen.outcomes.keys() - {b"2"} == {b"3", b"4", b"5"}


def test_records_past_a_later_gate_do_not_overtake_a_withheld_record() -> None:
    """Home gates the reader by 5 instead, a delivery of others."""
    bench, pen, reader = admitted_past_what_waits(is_plain=False)
    name, edge = pen.stream.publisher, bench.cores["b"].edge
    edge.joined("a", reader.end, {name: 4})
    bench.flow()
    assert reader.delivered == [b"1"]
    let_go_on(reader, is_plain=False)
    assert reader.delivered == [b"1", b"2", b"3", b"4"] and list(reader.end.gated) == [name]
    pen.send(b"5")
    assert reader.delivered == [b"1", b"2", b"3", b"4"]
    edge.admit(reader.end, name, "a")
    bench.flow()
    assert reader.delivered == [b"1", b"2", b"3", b"4", b"5"]


def test_records_behind_a_withheld_one_of_a_plain_publisher_come_again_in_order() -> None:
    bench, pen, reader = admitted_past_what_waits(is_plain=True)
    bench.part("a", "b")
    assert reader.delivered == [b"2"]
    bench.meet("a", "b")
    bench.flow()
    pen.answer_echo()
    let_go_on(reader, is_plain=True)
    assert reader.delivered == [b"2", b"2", b"3", b"4"]


def test_record_withheld_before_its_backlog_comes_after_it() -> None:
    """3 waits for the key of 1 as it comes, and 2 behind 3, although it is older."""
    bench = Bench("a", "b")
    pen, reader = pen_at(bench, "a", lively=False), reader_at(bench, "b")
    pen.send(b"1", tags=[b"x"])
    reader.accept(b"1")
    pen.settle(b"1")
    bench.hold("a", "b")
    pen.send(b"2")
    bench.part("a", "b")
    bench.let_go()
    bench.meet("a", "b")
    bench.flow()
    pen.send(b"3", tags=[b"x"])
    pen.answer_echo()
    assert reader.delivered == [b"1"]
    reader.answer_echo()
    assert reader.delivered == [b"1", b"2", b"3"]


@pytest.mark.parametrize("router", ["a", "b"])
def test_a_subscriber_that_settles_with_its_acceptance_holds_up_no_tag(router: str) -> None:
    """It answers no echo, and is given one delivery at a time."""
    bench = Bench("a", "b")
    reader, pen = reader_at(bench, router, credit=1), pen_at(bench, "a")
    for body in (b"1", b"2", b"3"):
        pen.send(body, tags=[b"x"])
        reader.accept(body, settled=True)
        reader.grant(1)
        pen.settle(body)
    assert reader.delivered == [b"1", b"2", b"3"]
    assert bench.records() == {}


def test_a_subscriber_that_settles_what_it_has_accepted_holds_up_no_tag() -> None:
    bench = Bench("a", "b")
    reader, pen = reader_at(bench, "b"), pen_at(bench, "a")
    pen.send(b"1", tags=[b"x"])
    reader.accept(b"1")
    reader.accept(b"1", settled=True)
    pen.settle(b"1")
    assert bench.records() == {} and reader.end.accepted == 1


@pytest.mark.parametrize("is_settled", [True, False])
def test_a_plain_publisher_goes_on_after_a_cut_if_its_subscriber_settles(*, is_settled: bool) -> None:
    """The publisher's life ends at b with the contact, while its delivery is in doubt. Its home forwards the delivery
    again, under the same key. The reader answers no echo."""
    bench = Bench("a", "b")
    reader, pen = reader_at(bench, "b"), bench.publisher("a")
    pen.send(b"1")
    bench.part("a", "b")
    reader.accept(b"1", settled=is_settled)
    bench.meet("a", "b")
    bench.flow()
    assert reader.delivered == ([b"1", b"1"] if is_settled else [b"1"])
    if is_settled:
        reader.accept(b"1", settled=True)
        pen.send(b"2")
        assert reader.delivered == [b"1", b"1", b"2"] and pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}


def test_a_delivery_that_is_given_back_settled_and_comes_again_needs_a_receipt() -> None:
    """The publisher gives up the delivery, which the reader has for the second time."""
    bench = Bench("a")
    reader, pen = reader_at(bench, "a"), pen_at(bench, "a")
    pen.send(b"1")
    reader.answer(DeliveryOutcome.RELEASED, b"1", settled=True)
    assert reader.redelivered == [1]
    pen.settle(b"1")
    assert bench.records() == {"a": 1}
    reader.answer_echo()
    assert bench.records() == {}


def settled_by_reader_that_comes_back(named: tuple[bytes, ...]) -> Bench:
    """The reader has settled 1 itself, and attaches again with a map of `named`. Then the publisher settles 1."""
    bench = Bench("a")
    reader, pen = reader_at(bench, "a"), pen_at(bench, "a")
    pen.send(b"1")
    reader.accept(b"1", settled=True)
    reader_at(bench, "a", unsettled={key_of(pen, tag): 0 for tag in named})
    pen.settle(b"1")
    return bench


def test_a_settlement_of_the_client_outlives_its_link() -> None:
    assert settled_by_reader_that_comes_back(()).records() == {}


def test_a_settlement_of_the_client_counts_until_a_map_names_the_delivery() -> None:
    """A map may name it, because another router may have given it to the reader again."""
    assert settled_by_reader_that_comes_back((b"1",)).records() == {"a": 1}
