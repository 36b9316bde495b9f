"""What an MQTT client has at another router, as it is back where its session was.

a ~~~ b ~~~ c       whole routers but for their sockets, all in contact
"""

from tests.router.mqtt import by_hand
from tests.router.mqtt.bench import TOPIC, MqttBench, answer_all, publish, writes_too_early
from tests.router.mqtt.test_sessions import OTHER, links


def test_who_has_a_link_elsewhere_that_it_never_had_here_has_it_here_when_it_is_back() -> None:
    """Else it expires there, with the client here."""
    bench = MqttBench("a", "b", "c")
    writes_too_early(bench, "a")
    there = bench.client("b", "writer", clean=False, expiry=5)
    publish(there, b"m", 2, 1, dup=True)
    there.leave()
    here = bench.client("a", "writer", clean=False, expiry=5)
    assert links(bench, "writer") == {("PUBLISHER", "a")}
    bench.finish(here)


def test_who_was_subscribed_elsewhere_before_it_came_here_has_that_here_when_it_is_back() -> None:
    """Router a had not heard of that, and began a session: that goes on, with what was sent under its identifier."""
    bench = MqttBench("a", "b", "c")
    writer = bench.client("c", "writer")
    bench.is_slow = True
    there = bench.client("b", "reader", expiry=5)
    there.say(by_hand.subscribe(1, [(OTHER, 2)]))
    there.leave()
    before = bench.client("a", "reader", clean=False, expiry=5, acks=False)
    before.say(by_hand.subscribe(1, [(TOPIC, 2)]))
    bench.is_slow = False
    bench.flow()
    assert not before.is_present
    assert links(bench, "reader") == {("SUBSCRIBER", "a"), ("SUBSCRIBER", "b")}
    publish(writer, b"m", 2, 1)
    before.leave()
    again = bench.client("a", "reader", clean=False, expiry=5, acks=False)
    assert again.is_present
    assert [(m.identifier, m.dup) for m in again.messages] == [(m.identifier, True) for m in before.messages]
    assert links(bench, "reader") == {("SUBSCRIBER", "a")}
    answer_all(again)
    bench.finish(writer, again)


def test_who_has_subscribed_elsewhere_since_does_not_go_on_with_what_was_under_way_before() -> None:
    """Router b was apart, and told its client that there is none."""
    bench = MqttBench("a", "b")
    writer = bench.client("a", "writer")
    bench.part("a", "b")
    before = bench.client("a", "reader", expiry=5, acks=False)
    before.say(by_hand.subscribe(1, [(TOPIC, 2)]))
    publish(writer, b"m", 2, 1)
    assert before.payloads == [b"m"]
    before.leave()
    there = bench.client("b", "reader", clean=False, expiry=5)
    there.say(by_hand.subscribe(1, [(OTHER, 2)]))
    bench.meet()
    assert not there.is_present
    there.leave()
    again = bench.client("a", "reader", clean=False, expiry=5, acks=False)
    assert again.is_present
    assert links(bench, "reader") == {("SUBSCRIBER", "a")}
    assert not any(message.dup for message in again.messages)
    again.leave()
    last = bench.client("a", "reader", clean=False, expiry=5)
    assert last.payloads == [b"m"]
    bench.finish(writer, last)
