"""Subscribers of patterns: in the audience of every address that theirs covers (protocol 2, Address)."""

import pytest

from tests.topic.bench import Bench, pen_at, reader_at
from tests.topic.clients import Reader, key_of
from topic.delivery.outcomes import DeliveryOutcome
from topic.directory.addresses import is_misplaced, is_pattern, meets

ACCEPTED = DeliveryOutcome.ACCEPTED
FR, DE = "topic/eu.fr", "topic/eu.de"


def accept_resumed(bench: Bench, reader: Reader, key: bytes) -> None:
    core = bench.tick(reader.router)
    core.outcomes(reader.end, [core.records.by_key[key]], ACCEPTED)
    bench.flow()


@pytest.mark.parametrize(
    ("pattern", "covered", "others"),
    [
        ("topic/eu.*", [FR, DE], ["topic/eu", "topic/eu.", "topic/eu.fr.paris", "topic/eu.fr/paris", "topic/eu/fr"]),
        ("topic/*.fr", [FR, "topic/us.fr"], [DE, "topic/eu/x.fr", "topic/.fr"]),
        ("topic/*", ["topic/eu"], [FR, "topic/eu/fr", "topic/"]),
        ("topic/eu.#", [FR, "topic/eu", "topic/eu.fr.paris", "topic/eu.fr/paris", "topic/eu."], ["topic/eux"]),
        ("topic/*.#", ["topic/eu", FR, "topic/eu.fr.paris"], ["topic/eu/fr"]),
        ("topic/eu/+", ["topic/eu/fr", "topic/eu/fr.paris", "topic/eu/"], ["topic/eu", "topic/eu/fr/paris", FR]),
        ("topic/eu/#", ["topic/eu", "topic/eu/fr", "topic/eu/fr/paris", "topic/eu/\n"], [FR, "topic/eux"]),
        ("topic/+/fr", ["topic/eu/fr", "topic//fr"], ["topic/fr", "topic/eu/x/fr"]),
    ],
)
def test_what_a_pattern_covers(pattern: str, covered: list[str], others: list[str]) -> None:
    assert is_pattern(pattern)
    assert [address for address in covered + others if meets(pattern, address) and meets(address, pattern)] == covered


@pytest.mark.parametrize("address", ["topic/a*", "topic/a*b.c", "topic/#a", "topic/a#", "topic/a.+", "topic/a+/b", ""])
def test_other_addresses_are_what_they_are(address: str) -> None:
    assert not is_pattern(address) and not is_misplaced(address)
    assert [other for other in ("topic/ab", "topic/axb.c", "topic/a.b", "topic/ab/b") if meets(address, other)] == []


def test_its_subscriber_is_given_what_is_published_to_each() -> None:
    bench = Bench("a", "b")
    reader = reader_at(bench, "b", address="topic/eu.*")
    french, german, other = (pen_at(bench, "a", name=name, address=name) for name in (FR, DE, "topic/us.ny"))
    for pen, text in ((french, b"1"), (german, b"2"), (other, b"3"), (french, b"4")):
        pen.send(text)
    assert reader.delivered == [b"1", b"2", b"4"]
    assert other.outcomes == {b"3": ACCEPTED} and french.outcomes == {}
    reader.accept(b"1", b"2", b"4")
    assert french.outcomes == {b"1": ACCEPTED, b"4": ACCEPTED} and german.outcomes == {b"2": ACCEPTED}


def test_it_is_in_the_audience_as_its_attach_is_answered_and_not_when_it_has_closed() -> None:
    bench = Bench("a", "b")
    pen, exact = pen_at(bench, "a", address=FR), reader_at(bench, "a", "exact", address=FR)
    pen.send(b"1")
    exact.accept(b"1")
    pen.settle(b"1")
    reader = reader_at(bench, "b", address="topic/#")
    pen.send(b"2")
    exact.accept(b"2")
    assert pen.outcomes == {b"1": ACCEPTED} and reader.delivered == [b"2"]
    reader.accept(b"2")
    pen.settle(b"2")
    reader.close()
    pen.send(b"3")
    exact.accept(b"3")
    assert pen.outcomes == dict.fromkeys((b"1", b"2", b"3"), ACCEPTED) and reader.delivered == [b"2"]


def test_who_has_what_is_older_gates_it_for_each_publisher_by_itself() -> None:
    bench = Bench("a", "b")
    french, german = pen_at(bench, "a", name="fr", address=FR), pen_at(bench, "a", name="de", address=DE)
    exact = reader_at(bench, "a", "exact", address=FR)
    french.send(b"1")
    reader = reader_at(bench, "b", address="topic/eu.*")
    french.send(b"2")
    german.send(b"3")
    assert reader.delivered == [b"3"]  # 1 is in doubt, and not its own
    exact.accept(b"1")
    french.settle(b"1")
    assert reader.delivered == [b"3", b"2"]


def test_its_router_is_lost_and_it_comes_back_elsewhere_with_its_map() -> None:
    bench = Bench("a", "b", "c")
    reader = reader_at(bench, "b", address="topic/eu.*")
    french, german = pen_at(bench, "a", name="fr", address=FR), pen_at(bench, "c", name="de", address=DE)
    french.send(b"1", b"2")
    german.send(b"3")
    reader.accept(b"1")
    bench.kill("b")
    german.send(b"4")
    assert german.outcomes == {}
    unsettled = {key_of(french, b"1"): ACCEPTED, key_of(french, b"2"): 0, key_of(german, b"3"): 0}
    back = reader_at(bench, "c", address="topic/eu.*", unsettled=unsettled)
    assert back.map == unsettled and back.delivered == [b"4"]
    assert {(text, state) for text, state, _ in back.resumed if not state} == {(b"2", 0), (b"3", 0)}
    back.accept(b"4")
    assert german.outcomes == {b"4": ACCEPTED}


@pytest.mark.parametrize("first", [FR, "topic/eu.*"])
def test_deliveries_whose_publisher_nobody_knows_are_named_by_all_that_may_have_them(first: str) -> None:
    """All routers have been started anew, and the subscribers come back before the publisher."""
    bench = Bench("a", "b")
    former = pen_at(bench, "a", address=FR)
    key, generation = key_of(former, b"1"), former.stream.generation
    bench = Bench("a", "b")
    addresses = [first, *(at for at in (FR, "topic/eu.*", "topic/#") if at != first)]
    readers = [reader_at(bench, "b", str(n), address=at, unsettled={key: 0}) for n, at in enumerate(addresses)]
    assert [reader.map for reader in readers] == [{key: 0}] * 3
    pen = bench.publisher("a", address=FR, lifetime=former.stream.lifetime, generation=generation, unsettled={b"1": 0})
    pen.send(b"1")
    assert [reader.resumed for reader in readers] == [[(b"1", 0, False)]] * 3
    for reader in readers:
        accept_resumed(bench, reader, key)
    assert pen.outcomes == {b"1": ACCEPTED}
    pen.settle(b"1")
    for reader in readers:
        reader.answer_echo()
    assert bench.records() == {}


def test_who_named_what_it_does_not_cover_is_not_waited_for() -> None:
    misnamed(0)


def test_who_refused_what_it_does_not_cover_has_no_say_in_it() -> None:
    misnamed(DeliveryOutcome.REJECTED)


def misnamed(state: int) -> None:
    """A subscriber's map names a delivery of an address that its pattern does not cover."""
    bench = Bench("a", "b")
    former = pen_at(bench, "a", address=FR)
    key, generation = key_of(former, b"1"), former.stream.generation
    bench = Bench("a", "b")
    stranger = reader_at(bench, "b", "stranger", address="topic/*.de", unsettled={key: state})
    reader = reader_at(bench, "b", address="topic/eu.*", unsettled={key: 0})
    pen = bench.publisher("a", address=FR, lifetime=former.stream.lifetime, generation=generation, unsettled={b"1": 0})
    pen.send(b"1")
    accept_resumed(bench, reader, key)
    assert pen.outcomes == {b"1": ACCEPTED} and stranger.delivered == []
    pen.settle(b"1")
    reader.answer_echo()
    stranger.close()
    assert bench.records() == {}
    for core in bench.cores.values():
        core.check()
