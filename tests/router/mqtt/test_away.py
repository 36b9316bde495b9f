"""Sessions without topics whose clients are away: there is room for so many of a user, and those left last are kept."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from router.mqtt import away
from tests.router.mqtt import by_hand
from tests.router.mqtt.bench import TOPIC, MqttBench, publish

MOST = 3


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[MqttBench]:
    monkeypatch.setattr(away, "MOST_EMPTY", MOST)
    bench = MqttBench("a", "b", "c")
    yield bench
    bench.finish(*bench.mqtt_guests())


def visit(bench: MqttBench, name: str, said: bytes = b"", *, user: str = "", clean: bool = True) -> bool:
    """The client comes, says something, and goes. Whether it was told that it has a session."""
    guest = bench.stranger("a")
    guest.edge.entrances[guest.connection] = SimpleNamespace(user_of=lambda packet: user)
    guest.say(by_hand.connect(name, clean=clean, found={"session-expiry-interval": 4}))
    guest.say(said + by_hand.DISCONNECT)
    if guest in guest.router.guests:
        guest.leave()
    return guest.is_present


def names(bench: MqttBench) -> list[str]:
    return [client for _, client in bench.edges["a"].sessions]


def test_what_was_left_first_is_forgotten_first_and_its_client_is_told_so(bench: MqttBench) -> None:
    for number in range(MOST + 2):
        visit(bench, f"c{number}")
    assert names(bench) == ["c2", "c3", "c4"]
    assert visit(bench, "c2", clean=False)
    assert not visit(bench, "c0", clean=False)
    assert names(bench) == ["c2", "c4", "c0"]  # c2 was left later than c3


def test_what_has_topics_is_kept_however_many_others_come(bench: MqttBench) -> None:
    visit(bench, "reader", by_hand.subscribe(1, [(TOPIC, 1)]))
    visit(bench, "writer", by_hand.publish(TOPIC, b"m", 2, 1))
    for number in range(2 * MOST):
        visit(bench, f"c{number}")
    assert visit(bench, "reader", clean=False) and visit(bench, "writer", clean=False)


def test_a_client_that_is_here_is_not_one_that_is_away(bench: MqttBench) -> None:
    for name in ("c0", "here", "c1"):
        visit(bench, name)
    here = bench.client("a", "here", clean=False, expiry=4)
    visit(bench, "c2")
    assert names(bench) == ["c0", "here", "c1", "c2"]
    here.leave()
    assert names(bench) == ["here", "c1", "c2"]
    assert visit(bench, "here", clean=False)


def test_strangers_take_no_place_of_a_user(bench: MqttBench) -> None:
    visit(bench, "boiler", user="heating")
    for number in range(2 * MOST):
        visit(bench, f"c{number}")
    assert visit(bench, "boiler", user="heating", clean=False)


def test_nothing_is_left_of_a_session_in_whose_place_its_client_has_begun_another(bench: MqttBench) -> None:
    for _ in range(2 * MOST):
        visit(bench, "one", by_hand.subscribe(1, [(TOPIC, 1)]) + by_hand.unsubscribe(2, [TOPIC]))
    assert names(bench) == ["one"] and len(bench.edges["a"]._away.since) == 1


def test_what_a_client_may_have_yet_of_a_topic_that_it_has_left_keeps_no_session(bench: MqttBench) -> None:
    writer = bench.client("b", "writer")
    for number in range(2 * MOST):
        reader = bench.reader("a", f"r{number}", expiry=4, acks=False)
        publish(writer, b"m", 2, 1 + number)
        reader.say(by_hand.unsubscribe(1, [TOPIC]) + by_hand.DISCONNECT)
        assert bench.edges["a"].sessions["", f"r{number}"].sent
    assert len(names(bench)) == MOST


def test_all_that_expire_are_forgotten(bench: MqttBench) -> None:
    for number in range(MOST):
        visit(bench, f"c{number}", user=f"user {number % 2}")
    for _ in range(8):
        bench.time(1.0)
    visit(bench, "last")
    away = bench.edges["a"]._away
    assert names(bench) == ["last"] and len(away.since) == 1 and list(away._empty) == [""]
