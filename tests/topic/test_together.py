"""Links of one client that expire together, as a session of MQTT does (protocol 8, Expiry)."""

from unittest.mock import Mock

import attrs
import pytest

from tests.topic.bench import LASTING, SETTINGS, Bench
from tests.topic.clients import Pen, Reader
from topic.directory.entry import TOGETHER, LinkEntry, Status

SESSION = attrs.evolve(LASTING, policy=TOGETHER)
CLIENT = "client"


def links_at(bench: Bench, pens: str, readers: str, policy: str = TOGETHER) -> tuple[Pen, Reader]:
    """What a client publishes, and is subscribed to."""
    lifetime = attrs.evolve(SESSION, policy=policy)
    pen = bench.publisher(pens, CLIENT, address="topic/said", lifetime=lifetime)
    return pen, bench.subscriber(readers, CLIENT, lifetime=lifetime)


def live(bench: Bench) -> dict[str, int]:
    """How many links of the client each router takes for live."""
    routers = bench.cores.items()
    return {name: sum(entry.live for entry in core.directory.of_session((CLIENT, ""))) for name, core in routers}


def latest(bench: Bench) -> list[LinkEntry]:
    """The client's last attach, as each router knows it."""
    found = [core.directory.of_session((CLIENT, "")) for core in bench.cores.values()]
    return [max(known, key=lambda entry: entry.epoch) for known in found]


def test_none_expires_while_one_has_a_client_and_then_all_do() -> None:
    bench = Bench("a", "b", "c")
    pen, reader = links_at(bench, "a", "a")
    writer = bench.publisher("b", "writer")
    writer.send(b"1")
    reader.vanish()
    bench.wait(130)
    assert live(bench) == {"a": 2, "b": 2, "c": 2}
    pen.vanish()
    bench.wait(58)
    assert live(bench) == {"a": 2, "b": 2, "c": 2} and not writer.outcomes
    bench.wait(6)
    assert live(bench) == {"a": 0, "b": 0, "c": 0} and b"1" in writer.outcomes


@pytest.mark.parametrize("policy", ["connection-close", "never"])
def test_links_of_other_policies_expire_one_by_one(policy: str) -> None:
    bench = Bench("a", "b")
    _, reader = links_at(bench, "a", "a", policy)
    writer = bench.publisher("b", "writer")
    writer.send(b"1")
    reader.vanish()
    bench.wait(64)
    assert b"1" in writer.outcomes


def test_a_link_at_another_router_is_of_another_stay() -> None:
    """The client has left it behind: nobody waits for it because of what the client has elsewhere."""
    bench = Bench("a", "b", "c")
    _, reader = links_at(bench, "a", "b")
    reader.vanish()
    bench.wait(64)
    assert live(bench) == {"a": 1, "b": 1, "c": 1}


@pytest.mark.parametrize("is_lost", [False, True])
def test_of_those_at_several_routers_the_latest_expires_first(is_lost: bool) -> None:
    """Whatever happens before the others do: who finds them knows that they have been outlived."""
    bench = Bench("a", "b", "c")
    pen, reader = links_at(bench, "a", "b")
    pen.vanish()
    bench.wait(30)
    reader.vanish()
    if is_lost:
        bench.kill("a")
        bench.boot("a", 2)
        for other in ("b", "c"):
            bench.meet("a", other)
        bench.flow()
    bench.wait(58)
    assert live(bench) == {"a": 2, "b": 2, "c": 2}
    while live(bench) == {"a": 2, "b": 2, "c": 2}:
        bench.wait(1)
    assert live(bench) == {"a": 1, "b": 1, "c": 1}
    assert not any(entry.live for entry in latest(bench))
    bench.wait(2)
    assert live(bench) == {"a": 0, "b": 0, "c": 0}


def test_none_expires_before_a_later_one_that_its_speaker_has_not_heard_of() -> None:
    """Router a has not; b has, and says no."""
    bench = Bench("a", "b", "c")
    bench.subscriber("c", CLIENT, lifetime=SESSION)
    bench.hold("c", "a")
    bench.publisher("c", CLIENT, address="topic/said", lifetime=SESSION)
    bench.kill("c")
    bench.boot("c", 2)
    for other in ("a", "b"):
        bench.meet("c", other)
        bench.let_go()
    assert live(bench) == {"a": 1, "b": 2, "c": 2}
    bench.wait(64)
    assert live(bench) == {"a": 2, "b": 2, "c": 2}
    bench.wait(64)
    assert live(bench) == {"a": 0, "b": 0, "c": 0}


def test_who_cannot_see_all_routers_holds_back_none() -> None:
    """For b, the later one has no client, as long as c is out of its contact."""
    bench = Bench("a", "b", "c")
    reader = bench.subscriber("a", CLIENT, lifetime=SESSION)
    bench.publisher("c", CLIENT, address="topic/said", lifetime=SESSION)
    writer = bench.publisher("a", "writer")
    writer.send(b"1")
    bench.part("b", "c")
    bench.flow()
    reader.vanish()
    bench.wait(64)
    assert b"1" in writer.outcomes


def test_that_one_has_expired_is_remembered_while_earlier_ones_are_there() -> None:
    """Also by a router that starts again."""
    bench = Bench("a", "b", "c", settings=attrs.evolve(SETTINGS, terminus=SESSION.timeout))
    pen, reader = links_at(bench, "a", "b")
    pen.vanish()
    reader.vanish()
    while live(bench) == {"a": 2, "b": 2, "c": 2}:
        bench.wait(1)
    bench.kill("c")
    bench.wait(200)
    bench.boot("c", 2)
    for other in ("a", "b"):
        bench.meet("c", other)
    bench.flow()
    bench.hold("c", "a")
    bench.wait(70)
    assert live(bench) == {"a": 1, "b": 1, "c": 1}
    assert [entry.status for entry in latest(bench)] == [Status.EXPIRED] * 3
    bench.let_go()
    bench.wait(64)
    assert not any(bench.cores[name].directory.of_session((CLIENT, "")) for name in "abc")


def test_those_of_a_router_that_was_lost_expire_together() -> None:
    bench = Bench("a", "b", "c")
    links_at(bench, "c", "c")
    bench.kill("c")
    bench.boot("c", 2)
    for other in ("a", "b"):
        bench.meet("c", other)
    bench.flow()
    bench.wait(58)
    assert live(bench) == {"a": 2, "b": 2, "c": 2}
    bench.wait(6)
    assert live(bench) == {"a": 0, "b": 0, "c": 0}


def test_however_many_there_are_each_is_looked_at_once() -> None:
    bench = Bench("a", "b")
    for number in range(100):
        bench.publisher("a", CLIENT, address=f"topic/{number}", lifetime=SESSION)
    is_here = Mock(return_value=False)
    assert len(bench.cores["a"].directory.unattended(is_here)) == 100
    assert is_here.call_count == 100


def test_orphans_of_a_session_that_its_speaker_has_not_heard_of_expire_in_the_time_of_one() -> None:
    """Router b is lost before its word of them is at a, which speaks for them."""
    bench = Bench("a", "b", "c")
    bench.hold("b", "a")
    for number in range(5):
        bench.publisher("b", CLIENT, address=f"topic/{number}", lifetime=SESSION).vanish()
    bench.kill("b")
    bench.let_go()
    bench.boot("b", 2)
    for other in "a", "c":
        bench.meet("b", other)
        bench.flow()
    assert live(bench) == {"a": 0, "b": 5, "c": 5}
    bench.wait(2 * 60 + 15)
    assert live(bench) == {"a": 0, "b": 0, "c": 0}
