"""What waits until it is certain that an MQTT client is there: which session goes on, and where.

a ~~~ b ~~~ c       whole routers but for their sockets, all in contact
"""

import pytest

from router.mqtt.format.values import PacketKind
from tests.router.mqtt import by_hand
from tests.router.mqtt.bench import TOPIC, MqttBench, publish
from tests.router.mqtt.test_sessions import OTHER, both, links, wait


def test_a_connect_that_is_read_late_takes_nothing_from_a_later_session() -> None:
    """Its client has begun anew at b, of which a has not heard yet."""
    bench = MqttBench("a", "b", "c")
    reader, here = bench.reader("c"), both(bench, "a")
    here.leave()
    bench.is_slow = True
    there = bench.client("b", "client", expiry=4)
    bench.prove(there)
    bench.flow()
    late = bench.client("a", "client", clean=False, expiry=4)
    late.is_here = False
    assert late.is_present
    late.say(by_hand.publish(OTHER, b"late", 2, 8, dup=True))
    bench.is_slow = False
    bench.flow()
    publish(there, b"m", 2, 7)
    late.leave()
    publish(there, b"n", 2, 8)
    assert there.kinds() == ["CONNACK", "PUBREC", "PUBREC"]
    assert reader.payloads == [b"m", b"n"]
    assert links(bench) == {("PUBLISHER", "b")}
    bench.finish(reader, there)


@pytest.mark.parametrize("expiry", [0, 9])
def test_who_is_cut_off_before_it_is_certain_that_it_was_here_is_away_as_before(bench: MqttBench, expiry: int) -> None:
    """For as long as it had asked for when it was here."""
    writer, before = bench.client("c", "writer"), bench.reader("a", acks=False, expiry=4)
    publish(writer, b"m", 2, 5)
    before.leave()
    wait(bench, 2)
    bench.is_slow = True
    bench.client("a", "reader", clean=False, expiry=expiry).leave()
    bench.is_slow = False
    again = bench.client("a", "reader", clean=False, expiry=4, acks=False)
    assert again.is_present
    assert [(m.identifier, m.dup) for m in again.messages] == [(m.identifier, True) for m in before.messages]
    again.leave()
    wait(bench, 3)
    bench.is_slow = True
    bench.client("a", "reader", clean=False, expiry=expiry).leave()
    bench.is_slow = False
    wait(bench, 2)
    assert not bench.client("a", "reader", clean=False, expiry=4).is_present
    bench.finish(writer)


def test_a_session_that_ends_before_it_is_certain_that_its_client_is_here_does_not_go_on(bench: MqttBench) -> None:
    both(bench, "a").leave()
    bench.is_slow = True
    here = bench.client("a", "client", clean=False, expiry=4)
    bench.is_slow, here.is_here = False, False
    wait(bench, 6)
    here.is_here = True
    bench.flow()
    assert here.is_present and here.connection.is_over
    assert links(bench) == set()
    here.leave()
    assert not bench.client("a", "client", clean=False, expiry=4).is_present


def test_a_session_that_has_been_elsewhere_as_is_known_by_then_goes_on_from_there() -> None:
    """Router a has answered the CONNECT before it hears that the client was at b, whose word counts for what it has."""
    bench = MqttBench("a", "b", "c")
    reader, here = bench.reader("c"), bench.client("a", "client", expiry=4)
    publish(here, b"m", 2, 7)
    here.leave()
    bench.is_slow = True
    there = bench.client("b", "client", clean=False, expiry=4)
    bench.prove(there)
    bench.flow()
    there.leave()
    here = bench.client("a", "client", clean=False, expiry=4)
    assert here.is_present
    bench.bring("b", "a")
    bench.flow()
    bench.prove(here)
    bench.flow()
    assert here.kinds() == ["CONNACK", "DISCONNECT"]
    here.leave()
    bench.is_slow = False
    bench.flow()
    again = bench.client("a", "client", clean=False, expiry=4)
    assert again.is_present
    publish(again, b"m", 2, 7, dup=True)
    assert again.told(PacketKind.PUBREC) == [(7, 0)]
    assert reader.payloads == [b"m"]
    bench.finish(reader, again)


def test_who_says_goodbye_before_it_is_certain_that_it_was_here_has_what_it_had_where_it_was(bench: MqttBench) -> None:
    """It may have gone elsewhere by then. What it wants to end does, but for what it has had since."""
    wants_end = by_hand.packet(0xE0, b"\0\5\x11\0\0\0\0")
    for router in "a", "b":
        both(bench, "a").leave()
        bench.is_slow = True
        passing = bench.client(router, "client", clean=False, expiry=4)
        passing.say(by_hand.DISCONNECT)
        passing.leave()
        bench.is_slow = False
        bench.flow()
        assert links(bench) == {("PUBLISHER", "a"), ("SUBSCRIBER", "a")}
        bench.is_slow = True
        leaving, late = (bench.client(router, "client", clean=False, expiry=4) for router in (router, "c"))
        leaving.say(wants_end)
        leaving.leave()
        late.say(wants_end)
        bench.is_slow = False
        bench.flow()
        assert links(bench) == set()
        again = both(bench, "b")
        late.leave()
        assert links(bench) == {("PUBLISHER", "b"), ("SUBSCRIBER", "b")}
        again.say(wants_end)
        again.leave()


def test_who_has_missed_something_is_told_so_for_as_long_as_anything_is_left_of_its_session() -> None:
    """Router c is apart as the subscription lapses, and again before the end of what was published on is agreed."""
    for router in "a", "b":
        bench = MqttBench("a", "b", "c")
        both(bench, "a").leave()
        _part(bench, "c")
        wait(bench, 6)
        writer = bench.client("b", "writer")
        publish(writer, b"missed", 2, 1)
        assert writer.kinds() == ["CONNACK", "PUBREC"]
        bench.meet()
        bench.time(0.6)
        bench.is_slow = True
        bench.time(6.0)
        _part(bench, "c")
        bench.is_slow = False
        bench.flow()
        assert ("PUBLISHER", "a") in links(bench)
        assert not bench.client(router, "client", clean=False, expiry=4).is_present


def _part(bench: MqttBench, name: str) -> None:
    """From all others."""
    for other in bench.routers:
        if other != name:
            bench.part(name, other)


def test_who_comes_back_is_sent_a_copy_though_what_it_had_published_elsewhere_was_heard_of_late() -> None:
    """It has never published that here: no identifier stands for it. It has that link here from now on, too."""
    bench = MqttBench("a", "b", "c")
    bench.is_slow = True
    there = bench.client("b", "client", expiry=5)
    there.say(by_hand.publish(OTHER, b"said", 2, 7))
    bench.prove(there)
    there.leave()
    here = bench.client("a", "client", clean=False, expiry=5, acks=False)
    here.say(by_hand.subscribe(1, [(TOPIC, 2)]))
    bench.is_slow = False
    bench.flow()
    assert links(bench) == {("PUBLISHER", "b"), ("SUBSCRIBER", "a")}
    publish(bench.client("c", "writer"), b"m", 2, 1)
    here.leave()
    again = bench.client("a", "client", clean=False, expiry=5, acks=False)
    assert again.is_present
    assert [(m.identifier, m.dup) for m in again.messages] == [(m.identifier, True) for m in here.messages]
    assert again.payloads == [b"m"]
    assert links(bench) == {("PUBLISHER", "a"), ("SUBSCRIBER", "a")}
    bench.finish(*bench.mqtt_guests())
