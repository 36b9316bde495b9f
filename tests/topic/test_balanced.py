"""Balanced addresses: each delivery is for one of its subscribers (protocol 12)."""

import attrs
import pytest

from tests.topic.bench import LASTING, SETTINGS, Bench, pen_at, reader_at
from tests.topic.clients import NEWS, Reader, key_of
from topic.actions import Deliver
from topic.delivery.outcomes import DeliveryOutcome
from topic.directory.entry import Lifetime
from topic.edge.subscriber import ROOM
from topic.identity import KEY_LENGTH
from topic.settings import BALANCED, CLOSEST

ALL = (b"1", b"2", b"3", b"4")


def work(*names: str) -> Bench:
    return Bench(*names, settings=attrs.evolve(SETTINGS, kinds=((NEWS, BALANCED),)))


def had(*readers: Reader) -> list[bytes]:
    return sorted(message for reader in readers for message in reader.delivered if message is not None)


def accept(bench: Bench, reader: Reader, key: bytes) -> None:
    """What it may have been given with resume=true."""
    core = bench.tick(reader.router)
    core.outcomes(reader.end, [core.records.by_key[key]], DeliveryOutcome.ACCEPTED)
    bench.flow()


def test_local_subscriber_with_credit_comes_first() -> None:
    bench = work("a", "b")
    far, near = reader_at(bench, "b", "far"), reader_at(bench, "a", "near", credit=2)
    pen = pen_at(bench, "a")
    pen.send(*ALL)
    assert near.delivered == [b"1", b"2"] and far.delivered == [b"3", b"4"]
    near.accept(b"1", b"2")
    far.accept(b"3")
    assert pen.outcomes == dict.fromkeys(ALL[:3], DeliveryOutcome.ACCEPTED)
    counted = bench.cores["a"].records
    assert (counted.received, counted.delivered, counted.accepted) == ({BALANCED: 4}, {BALANCED: 2}, {BALANCED: 2})


def near(*names: str, **costs: int) -> Bench:
    """As `work`, at a closest address. `costs`: those of the paths from the first router."""
    bench = Bench(*names, settings=attrs.evolve(SETTINGS, kinds=((NEWS, CLOSEST),)))
    bench.stations[names[0]].contacts.costs |= costs
    return bench


def test_the_nearest_with_room_comes_first_and_shares_only_with_who_is_as_near() -> None:
    bench = near("a", "b", "c", "d", b=5, c=2, d=5)
    far, middle = reader_at(bench, "b", "far", credit=9), reader_at(bench, "c", "middle", credit=2)
    other = reader_at(bench, "d", "other", credit=9)
    pen = pen_at(bench, "a")
    pen.send(b"1")
    assert middle.delivered == [b"1"], "it has the least room, but is nearest"
    pen.send(b"2", b"3", b"4")
    assert middle.delivered == [b"1", b"2"]
    assert set(far.delivered) | set(other.delivered) == {b"3", b"4"} and far.delivered and other.delivered
    own = reader_at(bench, "a", "own")
    pen.send(b"5")
    assert own.delivered == [b"5"]


def test_a_path_that_grows_longer_counts_from_the_next_delivery_on() -> None:
    bench = near("a", "b", "c", b=1, c=2)
    one, other = reader_at(bench, "b", "one"), reader_at(bench, "c", "other")
    pen = pen_at(bench, "a")
    pen.send(b"1")
    bench.stations["a"].contacts.costs["b"] = 3
    pen.send(b"2")
    del bench.stations["a"].contacts.costs["c"]
    pen.send(b"3")
    assert (one.delivered, other.delivered) == ([b"1", b"3"], [b"2"])


def test_farther_subscriber_gets_delivery_that_the_near_one_refuses() -> None:
    bench = near("a", "b", "c", b=1, c=2)
    one, other = reader_at(bench, "b", "one"), reader_at(bench, "c", "other")
    pen = pen_at(bench, "a")
    pen.send(b"1")
    one.answer(DeliveryOutcome.MODIFIED, b"1", final=True)
    assert (one.delivered, other.delivered) == ([b"1"], [b"1"])


def test_delivery_waits_for_the_first_subscriber_with_room() -> None:
    bench = work("a", "b")
    pen = pen_at(bench, "a")
    pen.send(*ALL)
    one, other = reader_at(bench, "a", "one", credit=0), reader_at(bench, "b", "other", credit=0)
    assert not had(one, other)
    other.grant(1)
    assert other.delivered == [b"1"]
    one.grant(5)
    assert one.delivered == [b"2", b"3", b"4"]


def test_room_that_two_homes_were_told_of_is_used_once() -> None:
    bench = work("a", "b", "c")
    reader = reader_at(bench, "c", credit=1)
    one, two = pen_at(bench, "a", name="one"), pen_at(bench, "b", name="two")
    one.send(b"1")
    two.send(b"2")
    assert reader.delivered == [b"1"]
    reader.grant(1)
    assert reader.delivered == [b"1", b"2"]


def test_room_that_is_told_before_an_older_refusal_counts() -> None:
    """Home has yet to join another subscriber, so the router puts the refusal off."""
    bench = work("a", "b")
    reader, pen = reader_at(bench, "b", credit=1), pen_at(bench, "a")
    bench.hold("b", "a")
    reader.grant(0)
    reader_at(bench, "b", "other", credit=0)
    pen.send(b"1")
    reader.grant(1)
    bench.let_go()
    assert reader.delivered == [b"1"]


def test_a_return_before_its_publisher_has_transferred_it_again_counts_once() -> None:
    settings = attrs.evolve(SETTINGS, kinds=((NEWS, BALANCED),), redeliveries=1)
    bench = Bench("a", "b", settings=settings)
    near, far, pen = reader_at(bench, "a", "near"), reader_at(bench, "b", "far"), pen_at(bench, "a")
    pen.send(b"1")
    pen.vanish()
    back = pen_at(bench, "a", pen, unsettled={b"1": 0})
    near.answer(DeliveryOutcome.MODIFIED, b"1", final=True)
    back.send_again(b"1")
    assert far.delivered == [b"1"] and not back.outcomes


def batches(reader: Reader) -> list[int]:
    """How many deliveries it was sent at once."""
    return [len(action.records) for action in reader.mine(Deliver)]


@pytest.mark.parametrize("router", ["a", "b"])
def test_what_home_offers_at_once_is_sent_at_once(router: str) -> None:
    bench = work("a", "b")
    reader = reader_at(bench, router)
    pen_at(bench, "a").send(*ALL)
    assert batches(reader) == [4]


def test_of_offers_beyond_its_room_one_gets_the_first_and_another_the_rest() -> None:
    bench = work("a", "b", "c")
    reader = reader_at(bench, "c", credit=4)
    one, two = pen_at(bench, "a", name="one"), pen_at(bench, "b", name="two")
    one.send(b"1", b"2")
    two.send(b"3", b"4", b"5")
    assert reader.delivered == [b"1", b"2", b"3", b"4"] and batches(reader) == [2, 2]
    other = reader_at(bench, "a", "other")
    assert other.delivered == [b"5"]


def test_who_has_it_by_its_map_is_given_it_though_its_room_is_used() -> None:
    """Its router knew the delivery, as it had refused it for another."""
    bench = work("a", "b", "c")
    full, one, two = reader_at(bench, "c", credit=1), pen_at(bench, "a", name="one"), pen_at(bench, "b", name="two")
    one.send(b"1")
    two.send(b"2")
    assert full.delivered == [b"1"]
    bench.hold("b", "c")
    reader = reader_at(bench, "c", "reader", unsettled={key_of(two, b"2"): 0}, credit=0)
    bench.let_go()
    bench.hold("b", "c")
    reader.grant(1)
    one.send(b"3")
    bench.let_go()
    other = reader_at(bench, "b", "other")
    assert reader.delivered == [b"3"] and not other.delivered
    reader.grant(1)
    assert reader.resumed == [(b"2", 0, False)]


@pytest.mark.parametrize("router", ["a", "b"])
def test_what_its_link_has_no_room_for_waits_at_home(router: str) -> None:
    bench = work("a", "b")
    reader = reader_at(bench, router)
    bench.tick(router).room(reader.end, 2)
    pen_at(bench, "a").send(*ALL)
    assert reader.delivered == [b"1", b"2"]
    bench.tick(router).room(reader.end, ROOM)
    bench.flow()
    assert reader.delivered == list(ALL) and batches(reader) == [2, 2]


def test_what_is_offered_with_what_was_given_back_goes_to_the_same_one() -> None:
    bench = work("a", "b")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b", credit=1)
    pen.send(b"1")
    reader.answer(DeliveryOutcome.RELEASED, b"1")
    pen.send(b"2", b"3")
    reader.grant(3)
    assert reader.redelivered == [1] and reader.delivered == [b"1", b"2", b"3"]


def test_an_offer_waits_for_its_key_and_what_is_offered_later_waits_behind_it() -> None:
    bench = work("a", "b")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b", credit=9)
    pen.send(b"1", tags=[b"x"])
    reader.accept(b"1")
    pen.settle(b"1")
    bench.part("a", "b")
    bench.meet("a", "b")
    bench.flow()
    pen.send(b"2", b"3", tags=[b"x", b"y"])
    pen.send(b"4")
    assert reader.delivered == [b"1"]
    reader.answer_echo()
    assert reader.delivered == list(ALL)


@pytest.mark.parametrize("outcome", [DeliveryOutcome.RELEASED, DeliveryOutcome.MODIFIED])
@pytest.mark.parametrize("router", ["a", "b"])
def test_what_is_given_back_is_offered_until_it_was_often_enough(router: str, outcome: DeliveryOutcome) -> None:
    bench = work("a", "b")
    pen, reader = pen_at(bench, "a"), reader_at(bench, router, credit=9)
    pen.send(b"1")
    for _ in range(SETTINGS.redeliveries):
        reader.answer(outcome, b"1")
        assert not pen.outcomes
    reader.answer(outcome, b"1")
    assert pen.outcomes == {b"1": DeliveryOutcome.REJECTED}
    assert reader.redelivered == list(range(1, SETTINGS.redeliveries + 1))
    pen.settle(b"1")
    reader.answer_echo()
    assert not bench.records()


@pytest.mark.parametrize("final", [True, False])
def test_what_one_gives_back_another_gets(final: bool) -> None:
    bench = work("a", "b")
    pen, one = pen_at(bench, "a"), reader_at(bench, "a", "one", credit=1)
    pen.send(b"1")
    other = reader_at(bench, "b", "other")
    one.answer(DeliveryOutcome.MODIFIED, b"1", final=final)
    assert other.delivered == [b"1"]
    other.accept(b"1")
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}
    pen.settle(b"1")
    assert len(one.settled) == len(other.settled) == 1


@pytest.mark.parametrize("router", ["a", "b"])
def test_what_one_refuses_for_itself_it_is_not_given_again_though_it_has_room(router: str) -> None:
    bench = work("a", "b")
    pen, one = pen_at(bench, "a"), reader_at(bench, router, "one")
    other = reader_at(bench, router, "other", credit=0)
    pen.send(b"1")
    one.answer(DeliveryOutcome.MODIFIED, b"1", final=True)
    assert one.delivered == [b"1"] and not pen.outcomes
    other.grant(1)
    other.accept(b"1")
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}
    pen.settle(b"1")
    assert len(one.settled) == len(other.settled) == 1


def test_what_one_has_refused_for_itself_holds_up_nothing_else_for_it() -> None:
    bench = work("a", "b")
    pen, one = pen_at(bench, "a"), reader_at(bench, "a", "one", credit=1)
    reader_at(bench, "b", "other", credit=0)
    pen.send(b"1", b"2")
    one.answer(DeliveryOutcome.MODIFIED, b"1", final=True)
    one.grant(1)
    assert one.delivered == [b"1", b"2"]


@pytest.mark.parametrize("leaves", [True, False])
def test_what_all_there_are_have_refused_for_themselves_is_rejected(leaves: bool) -> None:
    bench = work("a", "b")
    pen, one, other = pen_at(bench, "a"), reader_at(bench, "a", "one"), reader_at(bench, "b", "other", credit=0)
    pen.send(b"1")
    one.answer(DeliveryOutcome.MODIFIED, b"1", final=True)
    assert not pen.outcomes, "another may have room yet"
    if leaves:
        other.close()
    else:
        other.grant(1)
        other.answer(DeliveryOutcome.MODIFIED, b"1", final=True)
    assert pen.outcomes == {b"1": DeliveryOutcome.REJECTED}
    pen.settle(b"1")
    one.answer_echo()
    other.answer_echo()
    assert not bench.records()


def test_what_many_refuse_for_themselves_is_rejected_when_it_was_offered_often_enough() -> None:
    bench = work("a")
    pen = pen_at(bench, "a")
    reader_at(bench, "a", "idle", credit=0)
    pen.send(b"1")
    for number in range(SETTINGS.redeliveries + 1):
        assert not pen.outcomes
        reader_at(bench, "a", f"reader {number}").answer(DeliveryOutcome.MODIFIED, b"1", final=True)
    assert pen.outcomes == {b"1": DeliveryOutcome.REJECTED}


def test_a_publisher_that_attaches_anew_uses_up_no_redeliveries() -> None:
    bench = work("a", "b")
    pen, one = pen_at(bench, "a"), reader_at(bench, "a", "one", credit=1)
    pen.send(b"1")
    one.answer(DeliveryOutcome.RELEASED, b"1")
    for _ in range(SETTINGS.redeliveries + 2):
        pen = pen_at(bench, "a", pen, unsettled={b"1": 0})
        pen.send_again(b"1")
        assert not pen.outcomes
    one.grant(1)
    one.accept(b"1")
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}


def test_another_home_learns_who_has_refused_a_delivery_for_itself() -> None:
    bench = work("a", "b", "c")
    pen, one, other = pen_at(bench, "a"), reader_at(bench, "b", "one"), reader_at(bench, "b", "other", credit=0)
    pen.send(b"1")
    one.answer(DeliveryOutcome.MODIFIED, b"1", final=True)
    bench.kill("a")
    again = pen_at(bench, "c", pen, unsettled={b"1": 0})
    again.send(b"1")
    assert one.delivered == [b"1"] and not again.outcomes
    other.grant(1)
    assert other.delivered == [b"1"]


def test_what_one_rejects_is_rejected() -> None:
    bench = work("a", "b")
    pen, one, other = pen_at(bench, "a"), reader_at(bench, "b", "one"), reader_at(bench, "b", "other")
    pen.send(b"1")
    holder = one if one.delivered else other
    holder.answer(DeliveryOutcome.REJECTED, b"1")
    assert pen.outcomes == {b"1": DeliveryOutcome.REJECTED} and had(one, other) == [b"1"]


def test_who_moves_goes_on_with_what_it_has_and_nobody_else_gets_it() -> None:
    bench = work("a", "b", "c")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b", credit=1)
    pen.send(b"1")
    other = reader_at(bench, "a", "other")
    moved = reader_at(bench, "c", unsettled={key_of(pen, b"1"): 0})
    pen.answer_echo()
    assert moved.resumed == [(b"1", 0, False)] and not other.delivered
    accept(bench, moved, key_of(pen, b"1"))
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}
    assert reader.delivered == [b"1"]


def test_what_its_publisher_brings_to_another_router_goes_on_where_it_is() -> None:
    bench = work("a", "b", "c")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b", credit=1)
    pen.send(b"1")
    other = reader_at(bench, "c", "other")
    bench.kill("a")
    again = pen_at(bench, "c", pen, unsettled={b"1": 0})
    again.send(b"1")
    assert not other.delivered and not again.outcomes
    reader.accept(b"1")
    assert again.outcomes == {b"1": DeliveryOutcome.ACCEPTED}
    again.send(b"2")
    assert other.delivered == [b"2"]


@pytest.mark.parametrize("holds", [True, False])
def test_who_may_have_had_it_where_both_routers_died_is_awaited(holds: bool) -> None:
    bench = work("a", "b", "c")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b", credit=1)
    pen.send(b"1")
    other = reader_at(bench, "c", "other")
    key = key_of(pen, b"1")
    bench.kill("a")
    bench.kill("b")
    again = pen_at(bench, "c", pen, unsettled={b"1": 0})
    again.send(b"1")
    assert not other.delivered
    back = reader_at(bench, "c", unsettled={key: 0} if holds else {}, seen=reader.end.epoch)
    again.answer_echo()
    assert had(other) == ([] if holds else [b"1"])
    accept(bench, back if holds else other, key)
    assert again.outcomes == {b"1": DeliveryOutcome.ACCEPTED}


@pytest.mark.parametrize("is_plain", [True, False])
def test_what_one_leaves_for_good_another_gets(is_plain: bool) -> None:
    bench = work("a", "b", "c")
    pen = pen_at(bench, "a")
    lifetime = Lifetime() if is_plain else LASTING
    holder = bench.subscriber("b", "holder", lifetime=lifetime, credit=1)
    pen.send(b"1")
    other = reader_at(bench, "c", "other")
    assert holder.delivered == [b"1"]
    if is_plain:
        bench.kill("b")
    else:
        holder.close()
    assert other.delivered == [b"1"]


def test_presettled_deliveries_go_to_who_has_room_or_to_nobody() -> None:
    bench = work("a", "b")
    pen, one, other = (
        pen_at(bench, "a"),
        reader_at(bench, "b", "one", credit=1),
        reader_at(bench, "b", "other", credit=1),
    )
    pen.send(b"1", presettled=True)
    pen.send(b"2", presettled=True)
    assert had(one, other) == [b"1", b"2"]
    pen.send(b"3", presettled=True)
    one.grant(1)
    assert had(one, other) == [b"1", b"2"] and not bench.records()


def test_who_has_it_by_its_map_goes_before_who_has_room() -> None:
    """Home did not know it: it had that behind a partition."""
    bench = work("a", "b")
    pen, other = pen_at(bench, "a"), reader_at(bench, "a", "other", credit=0)
    pen.send(b"1")
    reader = reader_at(bench, "b", credit=0, unsettled={key_of(pen, b"1"): 0})
    other.grant(5)
    assert not other.delivered
    reader.grant(1)
    assert reader.resumed == [(b"1", 0, False)]


def test_a_map_says_nothing_of_a_delivery_that_uses_its_tag_again() -> None:
    bench = work("a", "b")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b", credit=2)
    pen.send(b"1", tags=[b"t"])
    moved = reader_at(bench, "b", unsettled={key_of(pen, b"t"): int(DeliveryOutcome.ACCEPTED)}, credit=0)
    pen.settle(b"1")
    moved.answer_echo()
    assert moved.end.claims == set() and reader.delivered == [b"1"]


def test_nobody_keeps_a_claim_to_what_a_publisher_that_never_came_back_had_sent() -> None:
    bench = work("a")
    reader = reader_at(bench, "a", unsettled={b"p" * KEY_LENGTH: 0})
    assert reader.end.claims == {b"p" * KEY_LENGTH}
    bench.wait(int(SETTINGS.terminus + SETTINGS.boot_wait) + 2)
    assert reader.end.claims == set()


def test_what_one_was_chosen_for_it_is_given_again_whatever_its_map_says() -> None:
    """The attach may be late, and its map from before."""
    bench = work("a", "b", "c")
    pen, reader = pen_at(bench, "a"), reader_at(bench, "b", credit=1)
    pen.send(b"1")
    other = reader_at(bench, "a", "other")
    moved = reader_at(bench, "c", unsettled={})
    pen.answer_echo()
    assert moved.delivered == reader.delivered == [b"1"] and not other.delivered
