"""What MQTT clients publish, at one router and at another: what arrives once, and what again.

a ~~~ b ~~~ c       whole routers but for their sockets, all in contact
"""

import pytest

from router.mesh.config import Limits
from router.mqtt.format.values import V3, V5, PacketKind, Reason
from tests.fuzz.mesh import MAX_MESSAGE, GoodClient
from tests.router.mqtt import by_hand
from tests.router.mqtt.bench import NARROW, TOPIC, MqttBench, MqttGuest, answer, answer_all, leave, publish

PUBREC, PUBREL, PUBCOMP, PUBACK = PacketKind.PUBREC, PacketKind.PUBREL, PacketKind.PUBCOMP, PacketKind.PUBACK


@pytest.mark.parametrize("version", [V3, V5])
def test_what_is_published_is_sent_once_at_the_lower_qos_of_both(bench: MqttBench, version: int) -> None:
    readers = [bench.reader("b", f"reader {qos}", qos, version=version) for qos in (0, 1, 2)]
    writer = bench.client("a", "writer", version=version)
    for qos in (0, 1, 2):
        publish(writer, b"%d" % qos, qos, 7 + qos)
    for most, reader in enumerate(readers):
        assert sorted((m.payload, m.qos) for m in reader.messages) == [(b"%d" % q, min(q, most)) for q in (0, 1, 2)]
    assert writer.told(PUBACK) == [(8, 0)]
    assert writer.told(PUBREC) == [(9, 0)]
    writer.say(by_hand.ack(PUBREL, 9))
    assert writer.told(PUBCOMP) == [(9, 0)]


@pytest.mark.parametrize(("qos", "told"), [(1, PUBACK), (2, PUBREC)])
def test_a_publisher_is_answered_when_all_have_accepted(bench: MqttBench, qos: int, told: PacketKind) -> None:
    fast, slow = bench.reader("a", "fast"), bench.reader("b", "slow", acks=False)
    writer = bench.client("c", "writer")
    publish(writer, b"m", qos, 5)
    assert fast.payloads == slow.payloads == [b"m"]
    assert writer.told(told) == []
    answer(slow, slow.messages[0])
    assert writer.told(told) == [(5, 0)]


def test_what_a_subscriber_refuses_is_refused_to_the_publisher(bench: MqttBench) -> None:
    reader, old = bench.reader("b", acks=False), bench.client("a", "old", version=V3)
    writer = bench.client("a", "writer")
    publish(writer, b"m", 2, 5)
    publish(writer, b"n", 1, 6)
    publish(old, b"o", 2, 7)
    for message in reader.messages:
        kind = PUBACK if message.qos == 1 else PUBREC
        reader.say(by_hand.ack(kind, message.identifier, Reason.IMPLEMENTATION))
    assert writer.told(PUBREC) == [(5, Reason.IMPLEMENTATION)]
    assert writer.told(PUBACK) == [(6, Reason.IMPLEMENTATION)]
    assert old.told(PUBREC) == [(7, 0)], "3.1.1 has no other word"


def test_a_copy_on_the_same_connection_is_not_sent_again(bench: MqttBench) -> None:
    reader, writer = bench.reader("b"), bench.client("a", "writer")
    publish(writer, b"m", 2, 5)
    publish(writer, b"m", 2, 5, dup=True)
    assert reader.payloads == [b"m"]
    assert writer.told(PUBREC) == [(5, 0), (5, 0)]


def test_a_copy_after_a_cut_is_not_sent_again_at_the_same_router(bench: MqttBench) -> None:
    reader, writer = bench.reader("b", acks=False), bench.client("a", "writer", clean=False, expiry=4)
    publish(writer, b"m", 2, 5)
    writer.leave()
    writer = bench.client("a", "writer", clean=False, expiry=4)
    assert writer.is_present
    publish(writer, b"m", 2, 5, dup=True)
    answer(reader, reader.messages[0])
    assert reader.payloads == [b"m"]
    assert writer.told(PUBREC) == [(5, 0)]
    for _ in range(2):  # as its PUBCOMP may have been lost
        writer.heard.clear()
        writer.say(by_hand.ack(PUBREL, 5))
        assert writer.told(PUBCOMP) == [(5, 0)]


@pytest.mark.parametrize("is_answered", [False, True])
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_copy_is_not_sent_again_at_another_router(bench: MqttBench, is_answered: bool, is_killed: bool) -> None:
    """Also if the first home was killed in between."""
    reader = bench.reader("b", acks=is_answered)
    writer = bench.client("a", "writer", clean=False, expiry=4)
    publish(writer, b"m", 2, 5)
    assert writer.told(PUBREC) == ([(5, 0)] if is_answered else [])
    leave(bench, writer, is_killed=is_killed)
    writer = bench.client("c", "writer", clean=False, expiry=4)
    assert writer.is_present
    publish(writer, b"m", 2, 5, dup=True)
    if not is_answered:
        answer(reader, reader.messages[0])
    assert reader.payloads == [b"m"]
    assert writer.told(PUBREC) == [(5, 0)]
    writer.say(by_hand.ack(PUBREL, 5))
    publish(writer, b"next", 2, 5)
    if not is_answered:
        answer(reader, reader.messages[-1])
    assert reader.payloads == [b"m", b"next"]


def test_copies_that_come_one_by_one_keep_their_order(bench: MqttBench) -> None:
    reader, writer = bench.reader("b", acks=False), bench.client("a", "writer", clean=False, expiry=4)
    for n in range(4):
        publish(writer, b"%d" % n, 2, 1 + n)
    bench.lose("a")
    writer = bench.client("c", "writer", clean=False, expiry=4)
    for n in range(4):
        publish(writer, b"%d" % n, 2, 1 + n, dup=True)
    publish(writer, b"4", 2, 5)
    answer_all(reader)
    assert reader.payloads == [b"0", b"1", b"2", b"3"]
    assert writer.told(PUBREC) == [(1 + n, 0) for n in range(4)]
    for n in range(4):
        writer.say(by_hand.ack(PUBREL, 1 + n))
    assert reader.payloads == [b"0", b"1", b"2", b"3", b"4"]


def test_an_identifier_used_again_is_another_message_though_it_reads_the_same(bench: MqttBench) -> None:
    """The first one was accepted, its home is killed before it could settle: the other must not be taken for it."""
    reader = bench.reader("b")
    writer = bench.client("a", "writer", clean=False, expiry=4)
    publish(writer, b"on", 2, 1)
    assert writer.told(PUBREC) == [(1, 0)]
    bench.lose("a")
    writer = bench.client("c", "writer", clean=False, expiry=4)
    writer.say(by_hand.ack(PUBREL, 1))
    assert writer.told(PUBCOMP) == [(1, 0)]
    publish(writer, b"on", 2, 1)
    assert reader.payloads == [b"on", b"on"]
    assert writer.told(PUBREC) == [(1, 0)]


def test_an_identifier_may_be_used_again_at_once(bench: MqttBench) -> None:
    reader = bench.reader("b")
    writer = bench.client("a", "writer", clean=False, expiry=4)
    for _ in range(20):
        publish(writer, b"on", 2, 1)
        bench.time(0.1)
        assert writer.told(PUBREC) == [(1, 0)]
        writer.say(by_hand.ack(PUBREL, 1))
        bench.time(0.1)
        writer.heard.clear()
    assert reader.payloads == 20 * [b"on"]


def test_another_message_under_the_identifier_of_one_that_was_answered_is_a_message(bench: MqttBench) -> None:
    """The client went on at another router, behind a partition, and came back: this session has not heard of that."""
    reader, writer = bench.reader("b"), bench.client("a", "writer", clean=False, expiry=4)
    publish(writer, b"m", 2, 5)
    publish(writer, b"n", 2, 5, dup=True)
    assert reader.payloads == [b"m", b"n"]
    assert writer.told(PUBREC) == [(5, 0), (5, 0)]


def test_who_has_been_elsewhere_is_not_taken_for_who_it_was(bench: MqttBench) -> None:
    """At b the session still has the first message under identifier 1, which the client has settled at c."""
    reader = bench.reader("a")
    for router in ("b", "c", "b"):
        writer = bench.client(router, "writer", clean=False, expiry=4)
        writer.say(by_hand.ack(PUBREL, 1))
        publish(writer, b"on", 2, 1)
        assert writer.told(PUBREC) == [(1, 0)]
        writer.leave()
    assert reader.payloads == 3 * [b"on"]


def test_a_client_that_begins_anew_leaves_what_it_had(bench: MqttBench) -> None:
    reader = bench.reader("b", acks=False)
    writer = bench.client("a", "writer", clean=False, expiry=4)
    publish(writer, b"m", 2, 5)
    writer.leave()
    writer = bench.client("c", "writer")
    assert not writer.is_present
    writer.say(by_hand.ack(PUBREL, 5))
    assert writer.told(PUBCOMP) == [(5, Reason.ID_NOT_FOUND)]
    answer_all(reader)
    assert reader.payloads == [b"m"]


def test_what_is_published_at_qos_0_arrives_though_its_client_leaves_at_once(bench: MqttBench) -> None:
    """Before the mesh knows of the publisher, and however much that is."""
    reader = bench.reader("b")
    writer = bench.stranger("a")
    payloads = [b"%d" % n for n in range(100)]  # of which the window takes 20 at once
    said = b"".join(by_hand.publish(TOPIC, payload) for payload in payloads)
    writer.say(by_hand.connect("writer") + said + by_hand.DISCONNECT)
    writer.leave()
    assert reader.payloads == payloads
    assert not any(bench.routers["a"].node.topic.home.streams.at(TOPIC))


def test_who_has_left_something_that_is_still_to_be_published_is_on_no_connection(bench: MqttBench) -> None:
    writer = bench.stranger("a")
    said = by_hand.connect("writer") + by_hand.publish(TOPIC, b"m") + by_hand.DISCONNECT
    with bench.acting(writer.router):
        writer.connection.receive(said, bench.now)
    [stream] = writer.router.node.topic.home.streams.at(TOPIC)
    assert stream.link.link.connection.measure() is None
    bench.finish(writer)


def a_hears_at_once_of(bench: MqttBench, client: MqttGuest) -> None:
    """It is at b, and what c has said is on its way."""
    for _ in ("its session is there", "its life is"):
        bench.prove(client)
        bench.flow()
    bench.bring("c", "a")
    bench.bring("b", "a")
    bench.is_slow = False
    bench.flow()


def test_a_link_that_is_taken_as_it_is_answered_publishes_nothing_here() -> None:
    """Router a hears at once that all know of the attach, and that the client is elsewhere."""
    bench = MqttBench("a", "b", "c")
    reader = bench.reader("c", acks=False)
    former = bench.client("a", "writer", expiry=5)
    publish(former, b"m", 2, 5)
    former.leave()
    bench.is_slow = True
    here = bench.client("a", "writer", clean=False, expiry=5)
    bench.prove(here)
    bench.flow()
    bench.bring("a", "b")
    bench.bring("a", "c")
    bench.flow()
    bench.bring("b", "a")
    bench.flow()
    there = bench.client("b", "writer", clean=False, expiry=5)
    publish(there, b"m", 2, 5, dup=True)
    a_hears_at_once_of(bench, there)
    assert here.kinds()[-1] == "DISCONNECT"
    answer(reader, reader.messages[0])
    assert there.told(PUBREC) == [(5, 0)]
    there.say(by_hand.ack(PUBREL, 5))
    bench.time(1.0)
    assert not any(router.node.topic.records.by_key for router in bench.routers.values())
    bench.finish(reader, there)


def test_who_is_sent_away_as_its_link_is_answered_leaves_no_link(bench: MqttBench) -> None:
    """Nobody does what the core asks between the router's goodbye and the end: no answer is to be waited for then."""
    writer = bench.client("a", "writer", expiry=5)
    publish(writer, b"m", 0)
    bench.is_slow = True
    publish(writer, b"n", 1, 5)
    writer.say(by_hand.publish("topic/other", b"zero"))
    bench.prove(writer)
    bench.flow()
    with bench.acting(writer.router):
        writer.connection.close("amqp:connection:forced")
    bench.is_slow = False
    bench.flow()
    bench.finish(writer)


def test_an_answer_waits_for_the_copy() -> None:
    """Else the copy has an answer of its own, which the client takes for that to what it sends next."""
    for qos, kind in ((1, PUBACK), (2, PUBREC)):
        bench = MqttBench("a", "b", "c")
        reader, writer = bench.reader("c", qos=qos, acks=False), bench.client("a", "writer", expiry=5)
        publish(writer, b"m", qos, 5)
        writer.leave()
        writer = bench.client("a", "writer", clean=False, expiry=5)
        answer_all(reader)
        assert writer.told(kind) == []
        publish(writer, b"m", qos, 5, dup=True)
        assert writer.told(kind) == [(5, 0)]
        assert reader.payloads == [b"m"]
        bench.finish(reader, writer)


def test_a_refusal_that_waits_for_the_copy_ends_it(bench: MqttBench) -> None:
    reader, writer = bench.reader("c", acks=False), bench.client("a", "writer", expiry=5)
    publish(writer, b"m", 2, 5)
    writer.leave()
    writer = bench.client("a", "writer", clean=False, expiry=5)
    reader.say(by_hand.ack(PUBREC, reader.messages[0].identifier, Reason.IMPLEMENTATION))
    publish(writer, b"m", 2, 5, dup=True)
    assert writer.told(PUBREC) == [(5, Reason.IMPLEMENTATION)]
    bench.time(1.0)
    assert not any(router.node.topic.records.by_key for router in bench.routers.values())
    bench.finish(reader, writer)


def test_what_credit_lets_go_comes_behind_what_is_delivered_again() -> None:
    """The first message that is transferred again brings credit for new ones, as the second one is to be delivered."""
    bench = MqttBench("a", "b", settings=NARROW)
    reader, writer = GoodClient(bench.routers["a"], "reader"), bench.client("b", "writer", expiry=5)
    reader.router.guests.append(reader)
    link = reader.engine.receiver("hears", TOPIC, rcv_settle_mode=1)
    for number in range(3):
        publish(writer, b"%d" % number, 2, number + 1)
    writer.leave()
    writer = bench.client("a", "writer", clean=False, expiry=5)
    for number in range(3):
        bench.is_slow = number == 2  # its attach is not answered before there is credit for the others
        publish(writer, b"%d" % number, 2, number + 1, dup=True)
    link.flow(10)
    bench.is_slow = False
    bench.flow()
    assert reader.numbers == [0, 1, 2]
    bench.end()


def test_what_was_asked_of_a_connection_that_is_over_attaches_nothing() -> None:
    """The router has said goodbye to it, as the client has come again, and has left that topic for another."""
    bench = MqttBench("a", "b", "c", limits=Limits(max_message=MAX_MESSAGE, links=1))
    bench.is_slow = True
    one = bench.client("a", "writer", expiry=5)
    publish(one, b"m", 2, 1)
    two = bench.client("a", "writer", clean=False, expiry=5)
    assert one.connection.closing and not one.connection.closed
    bench.prove(two)
    two.say(by_hand.publish("topic/other", b"n", 2, 2))
    bench.prove(one)
    bench.is_slow = False
    bench.flow()
    one.leave()
    bench.finish(two)


@pytest.mark.parametrize("router", ["a", "b"])
def test_a_copy_with_an_expiry_is_the_same_message_later(bench: MqttBench, router: str) -> None:
    """The time at which it expires is another, by the router's clock."""
    reader = bench.reader("c", expiry=4, acks=False)
    writer = bench.client("a", "writer", expiry=4)
    found = {"message-expiry-interval": 9}
    writer.say(by_hand.publish(TOPIC, b"m", 2, 1, found=found))
    writer.leave()
    bench.time(2.0)
    again = bench.client(router, "writer", clean=False, expiry=4)
    again.say(by_hand.publish(TOPIC, b"m", 2, 1, dup=True, found=found))
    answer_all(reader)
    assert (reader.payloads, reader.messages[0].properties) == ([b"m"], found)
    assert again.told(PacketKind.PUBREC) == [(1, 0)]
    again.say(by_hand.ack(PacketKind.PUBREL, 1))
    again.say(by_hand.disconnect(0, {"session-expiry-interval": 0}))
    reader.say(by_hand.disconnect(0, {"session-expiry-interval": 0}))


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_subscriber_gets_the_expiry_that_is_left(bench: MqttBench, qos: int) -> None:
    reader, writer = bench.reader("c", qos=max(qos, 1), expiry=5), bench.client("a", "writer")
    writer.say(by_hand.publish(TOPIC, b"m", qos, min(qos, 1), found={"message-expiry-interval": 9}))
    assert reader.messages[-1].properties == {"message-expiry-interval": 9}
    if qos:
        reader.leave()
        writer.say(by_hand.publish(TOPIC, b"m", qos, 2, found={"message-expiry-interval": 9}))
        bench.time(3.0)
        back = bench.client("c", "reader", clean=False, expiry=5)
        assert back.messages[-1].properties == {"message-expiry-interval": 6}
        back.say(by_hand.disconnect(0, {"session-expiry-interval": 0}))
