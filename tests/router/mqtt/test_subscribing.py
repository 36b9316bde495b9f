"""What MQTT clients are sent, at one router and at another: what once, and what again.

a ~~~ b ~~~ c       whole routers but for their sockets, all in contact
"""

import pytest
from attrs import evolve

from router.amqp.format.message import data_message
from router.mqtt.format.values import V3, V5, PacketKind, Reason
from tests.fuzz.mesh import SETTINGS
from tests.router.mqtt import by_hand
from tests.router.mqtt.bench import TOPIC, MqttBench, MqttGuest, answer, answer_all, leave, publish
from topic.actions import SettleSubscriber
from topic.ends.nobody import Nobody
from topic.identity import LinkIdentity
from topic.settings import BALANCED
from topic.settings import TOPIC as OF_TOPICS

PUBREC, PUBREL, PUBCOMP, PUBACK = PacketKind.PUBREC, PacketKind.PUBREL, PacketKind.PUBCOMP, PacketKind.PUBACK


def let_go(reader: MqttGuest) -> None:
    """Of what it is told to."""
    for identifier, _ in reader.told(PUBREL):
        reader.say(by_hand.ack(PUBCOMP, identifier))


def test_a_client_that_never_lets_go_is_asked_on_three_connections(bench: MqttBench) -> None:
    bench.reader("b", clean=False, expiry=4).leave()
    publish(bench.client("a", "writer"), b"m", 2, 1)
    for asked in (True, True, True, False):
        reader = bench.client("c", "reader", clean=False, expiry=4, acks=False)
        assert bool(reader.told(PUBREL)) == asked
        assert reader.payloads == ([] if asked else [b"m"])
        reader.leave()


def test_a_subscriber_resumes_by_its_identifiers_at_the_same_router(bench: MqttBench) -> None:
    reader = bench.reader("b", clean=False, expiry=4, acks=False)
    writer = bench.client("a", "writer")
    for n in range(3):
        publish(writer, b"%d" % n, 2, 1 + n)
    first, second, third = (message.identifier for message in reader.messages)
    reader.say(by_hand.ack(PUBREC, first))
    assert reader.told(PUBREL) == [(first, 0)]
    reader.leave()
    publish(writer, b"3", 2, 4)
    reader = bench.client("b", "reader", clean=False, expiry=4, acks=False)
    assert reader.is_present
    assert reader.told(PUBREL) == [(first, 0)]
    assert [(m.identifier, m.payload, m.dup) for m in reader.messages[:2]] == [
        (second, b"1", True),
        (third, b"2", True),
    ]
    assert [(m.payload, m.dup) for m in reader.messages[2:]] == [(b"3", False)]
    reader.say(by_hand.ack(PUBCOMP, first))
    answer_all(reader)
    assert [identifier for identifier, _ in writer.told(PUBREC)] == [1, 2, 3, 4]


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("qos", [1, 2])
def test_at_another_router_a_subscriber_is_sent_again_what_it_has_not_answered(
    bench: MqttBench, qos: int, is_killed: bool
) -> None:
    reader = bench.reader("b", qos=qos, clean=False, expiry=4, acks=False)
    writer = bench.client("a", "writer")
    publish(writer, b"answered", qos, 1)
    answer(reader, reader.messages[0])
    publish(writer, b"open", qos, 2)
    if qos == 2:  # it hands a message on when it reads PUBREL, which may be lost with its router
        reader.say(by_hand.ack(PUBREC, reader.messages[1].identifier))
    leave(bench, reader, is_killed=is_killed)
    publish(writer, b"later", qos, 3)
    reader = bench.client("c", "reader", clean=False, expiry=4)
    assert reader.is_present
    assert [(m.payload, m.qos, m.dup) for m in reader.messages] == [(b"open", qos, False), (b"later", qos, False)]
    assert [one for one, _ in writer.told(PUBREC if qos == 2 else PUBACK)] == [1, 2, 3]


def test_a_client_that_comes_again_takes_its_session_from_itself(bench: MqttBench) -> None:
    for router in ("b", "c"):
        old = bench.reader("b", "reader", clean=False, expiry=4)
        new = bench.client(router, "reader", clean=False, expiry=4)
        assert [heard.reason for heard in old.heard if heard.kind is PacketKind.DISCONNECT] == [Reason.TAKEN_OVER]
        old.leave()
        publish(bench.client("a", f"writer {router}"), b"m", 2, 1)
        assert new.payloads == [b"m"]
        new.say(by_hand.DISCONNECT)


def test_a_clean_start_ends_the_subscriptions_that_were_elsewhere(bench: MqttBench) -> None:
    bench.reader("b", clean=False, expiry=4).leave()
    bench.client("c", "reader").leave()
    again = bench.client("a", "reader", clean=False, expiry=4)
    assert not again.is_present
    writer = bench.client("a", "writer")
    publish(writer, b"m", 2, 1)
    assert writer.told(PUBREC) == [(1, 0)], "nobody is awaited"
    assert again.messages == []


@pytest.mark.parametrize("clean", [False, True])
def test_what_is_read_late_of_a_client_that_has_gone_elsewhere_takes_nothing_from_it(
    bench: MqttBench, clean: bool
) -> None:
    """Its CONNECT, a PUBLISH and a SUBSCRIBE stood in a socket of router c while it went to b (protocol 7.8)."""
    reader = bench.reader("b", "client", clean=False, expiry=4)
    late = bench.stranger("c")
    late.is_here = False
    late.say(by_hand.connect("client", clean=clean, found={"session-expiry-interval": 4}))
    late.say(by_hand.publish(TOPIC, b"late", 2, 1) + by_hand.subscribe(2, [(TOPIC, 0)]))
    publish(bench.client("a", "writer"), b"m", 2, 1)
    assert reader.payloads == [b"m"]
    assert "DISCONNECT" not in reader.kinds()


def test_a_subscription_that_is_read_late_takes_nothing_from_who_has_it_elsewhere() -> None:
    """Its client was let in at c, said SUBSCRIBE, perhaps goodbye, and went to b before c had read that."""
    for goodbye in (b"", by_hand.DISCONNECT):
        bench = MqttBench("a", "b", "c")
        late = bench.client("c", "client", clean=False, expiry=4)
        late.is_here = False
        reader = bench.reader("b", "client", clean=False, expiry=4)
        late.say(by_hand.subscribe(1, [(TOPIC, 2)]))
        if goodbye:
            late.say(goodbye)
        publish(bench.client("a", "writer"), b"m", 2, 1)
        assert reader.payloads == [b"m"]
        assert "DISCONNECT" not in reader.kinds()
        bench.finish(*bench.mqtt_guests())


@pytest.mark.parametrize("qos", [1, 2])
def test_what_a_client_may_hold_of_another_router_it_lets_go_before_the_identifier_comes_again(
    bench: MqttBench, qos: int
) -> None:
    """It would take the next message for a copy. What comes at QoS 1 it holds nothing of."""
    reader, writer = bench.reader("b", qos=qos, clean=False, expiry=4, acks=False), bench.client("a", "writer")
    publish(writer, b"first", 2, 1)
    reader.leave()
    reader = bench.client("c", "reader", clean=False, expiry=4, acks=False)
    publish(writer, b"second", 2, 2)
    assert bool(reader.told(PUBREL)) == (not reader.messages) == (qos == 2)
    let_go(reader)
    assert [message.payload for message in reader.messages] == [b"first", b"second"]
    answer_all(reader)
    assert [identifier for identifier, _ in writer.told(PUBREC)] == [1, 2]


def test_a_client_goes_on_where_it_was_though_it_has_a_topic_elsewhere(bench: MqttBench) -> None:
    """It publishes to that here, and is cut off before it is certain that it was here."""
    client = bench.reader("b", "client", clean=False, expiry=4, acks=False)
    client.say(by_hand.publish("topic/p", b"p", 2, 1))
    client.leave()
    client = bench.client("c", "client", clean=False, expiry=4, acks=False)
    let_go(client)
    publish(bench.client("a", "writer"), b"m", 2, 1)
    client.is_here = False
    client.say(by_hand.publish("topic/p", b"p", 2, 1, dup=True))
    client.leave()
    client = bench.client("c", "client", clean=False, expiry=4, acks=False)
    assert [(message.payload, message.dup) for message in client.messages] == [(b"m", True)]


def test_what_was_under_way_as_a_subscription_ended_does_not_stay_so(bench: MqttBench) -> None:
    """Its client takes one message at a time, and was cut off with the end."""

    def connected() -> MqttGuest:
        guest = bench.stranger("b")
        found = {"receive-maximum": 1, "session-expiry-interval": 4}
        guest.say(by_hand.connect("reader", clean=False, found=found))
        return guest

    reader, writer = connected(), bench.client("a", "writer")
    reader.acks = False
    reader.say(by_hand.subscribe(1, [(TOPIC, 2)]))
    publish(writer, b"first", 2, 1)
    reader.say(by_hand.unsubscribe(2, [TOPIC]))
    reader.leave()
    reader = connected()
    let_go(reader)
    reader.say(by_hand.subscribe(3, [(TOPIC, 2)]))
    publish(writer, b"second", 2, 2)
    assert reader.payloads == [b"second"]


def test_what_waits_is_sent_at_the_qos_that_holds_by_then(bench: MqttBench) -> None:
    reader = bench.stranger("b")
    reader.acks = False
    reader.say(by_hand.connect("reader", found={"receive-maximum": 1}))
    reader.say(by_hand.subscribe(1, [(TOPIC, 2)]))
    writer = bench.client("a", "writer")
    for n in range(3):
        publish(writer, b"%d" % n, 2, 1 + n)
    reader.say(by_hand.subscribe(2, [(TOPIC, 1)]))
    for _ in range(3):
        answer(reader, reader.messages[-1])
    assert {message.payload: message.qos for message in reader.messages} == {b"0": 2, b"1": 1, b"2": 1}


def test_who_begins_anew_and_leaves_ends_what_it_had_elsewhere(bench: MqttBench) -> None:
    """It has read the CONNACK, and closes before its machine has acknowledged anything else."""
    bench.reader("b", clean=False, expiry=4).leave()
    passing = bench.stranger("c")
    passing.is_here = False
    passing.say(by_hand.connect("reader"))
    passing.say(by_hand.DISCONNECT)
    passing.leave()
    writer = bench.client("a", "writer")
    publish(writer, b"m", 2, 1)
    assert writer.told(PUBREC) == [(1, 0)], "nobody is awaited"


def test_more_is_not_under_way_to_a_client_than_it_takes(bench: MqttBench) -> None:
    reader = bench.stranger("b")
    reader.acks = False
    reader.say(by_hand.connect("reader", found={"receive-maximum": 2}))
    reader.say(by_hand.subscribe(1, [(TOPIC, 2)]))
    writer = bench.client("a", "writer")
    for n in range(6):
        publish(writer, b"%d" % n, 1 + n % 2, 1 + n)
    for done in range(6):
        assert len(reader.messages) == min(6, done + 2)
        message = reader.messages[done]
        answer(reader, message)
    assert sorted(reader.payloads) == [b"%d" % n for n in range(6)]


def test_a_message_larger_than_a_client_takes_is_refused_for_it(bench: MqttBench) -> None:
    reader, writer = bench.stranger("b"), bench.client("a", "writer")
    reader.say(by_hand.connect("reader", found={"maximum-packet-size": 100}))
    reader.say(by_hand.subscribe(1, [(TOPIC, 2)]))
    publish(writer, bytes(200), 2, 1)
    publish(writer, b"m", 2, 2)
    assert reader.payloads == [b"m"]
    assert writer.told(PUBREC) == [(1, Reason.IMPLEMENTATION), (2, 0)]


@pytest.mark.parametrize("version", [V3, V5])
def test_what_is_not_supported_is_refused_in_the_suback(bench: MqttBench, version: int) -> None:
    reader = bench.client("b", "reader", version=version)
    asked = ["topic/a+", "topic/#/t", "$share/group/topic/t", "queue/t", "topic/fine", "#", ""]
    reader.say(by_hand.subscribe(9, [(name, 1) for name in asked], version))
    (suback,) = [heard for heard in reader.heard if heard.kind is PacketKind.SUBACK]
    codes = list(suback.body[2:] if version == V3 else suback.body[3:])
    bad = Reason.BAD_FILTER
    five = [bad, bad, Reason.NO_SHARED, bad, 1, bad, bad]
    assert codes == ([0x80, 0x80, 0x80, 0x80, 1, 0x80, 0x80] if version == V3 else five)


def test_a_subscription_to_topics_of_two_kinds_is_refused() -> None:
    rules = ("topic/", OF_TOPICS), ("topic/work/", BALANCED)
    bench = MqttBench("a", "b", settings=evolve(SETTINGS, kinds=rules))
    reader = bench.client("a", "reader")
    asked = ["topic/#", "topic/work/#", "topic/+/x", "topic/news/#", "topic/work/+"]
    reader.say(by_hand.subscribe(9, [(name, 1) for name in asked]))
    (suback,) = [heard for heard in reader.heard if heard.kind is PacketKind.SUBACK]
    refused = Reason.IMPLEMENTATION
    assert list(suback.body[3:]) == [refused, refused, refused, 1, 1]


def test_a_subscription_with_wildcards_is_told_the_topic_of_each_message(bench: MqttBench) -> None:
    reader, writer = bench.client("b", "reader"), bench.client("a", "writer")
    reader.say(by_hand.subscribe(1, [("topic/+/t", 2), ("topic/deep/#", 0)]))
    for number, topic in enumerate(("topic/a/t", "topic/t", "topic/deep/er/t", "topic/deep", "topic/b/t"), 1):
        writer.say(by_hand.publish(topic, b"%d" % number, 2, number))
    assert [(m.topic, m.payload) for m in reader.messages] == [
        ("topic/a/t", b"1"), ("topic/deep/er/t", b"3"), ("topic/deep", b"4"), ("topic/b/t", b"5"),
    ]  # fmt: skip


def test_what_has_an_address_that_is_no_topic_is_refused_for_a_subscription_with_wildcards(bench: MqttBench) -> None:
    reader = bench.client("b", "reader")
    reader.say(by_hand.subscribe(1, [("topic/#", 2)]))
    router = bench.routers["a"]
    with bench.acting(router):
        now, identity = router.node.now(), LinkIdentity("writer", "link", "topic/a#b")
        stream = router.node.topic.attach_publisher(identity, Nobody(), now)
    bench.flow()
    with bench.acting(router):
        (record,) = router.node.topic.publish(stream, [b"0"], [data_message(b"0")], presettled=False)
    bench.flow()
    assert reader.messages == [] and record.refusals == (1, 0, 0, 0)
    with bench.acting(router):
        router.node.topic.detach_publisher(stream, now)
    bench.flow()


def test_a_subscription_may_change_its_qos_and_loses_nothing(bench: MqttBench) -> None:
    reader, writer = bench.reader("b", qos=1, acks=False), bench.client("a", "writer")
    publish(writer, b"0", 2, 1)
    reader.say(by_hand.subscribe(2, [(TOPIC, 2)]))
    publish(writer, b"1", 2, 2)
    assert [(m.payload, m.qos) for m in reader.messages if not m.dup] == [(b"0", 1), (b"1", 2)]
    answer(reader, reader.messages[0])
    answer(reader, reader.messages[-1])
    assert writer.told(PUBREC) == [(1, 0), (2, 0)]


def test_who_unsubscribes_is_awaited_no_more(bench: MqttBench) -> None:
    reader, writer = bench.reader("b", acks=False), bench.client("a", "writer")
    publish(writer, b"0", 2, 1)
    reader.say(by_hand.unsubscribe(3, [TOPIC, "topic/other"]))
    assert [heard.body[3:] for heard in reader.heard if heard.kind is PacketKind.UNSUBACK] == [b"\x00\x11"]
    publish(writer, b"1", 2, 2)
    assert writer.told(PUBREC) == [(1, 0), (2, 0)]
    reader.say(by_hand.ack(PUBREC, reader.messages[0].identifier))
    assert reader.payloads == [b"0"]


def test_what_is_heard_late_of_where_a_client_was_takes_nothing_from_its_session(bench: MqttBench) -> None:
    """It published at b and came to a before that had heard of it."""
    before = bench.reader("b", expiry=5)
    bench.is_slow = True
    before.say(by_hand.publish("topic/other", b"o", 2, 1))
    bench.prove(before)
    bench.flow()
    before.leave()
    first = bench.client("a", "reader", clean=False, expiry=5)
    bench.is_slow = False
    bench.flow()
    first.acks = False
    publish(bench.client("c", "writer"), b"m", 2, 1)
    first.leave()
    again = bench.client("a", "reader", clean=False, expiry=5, acks=False)
    (sent,), (once_more,) = first.messages, again.messages
    assert (once_more.payload, once_more.identifier, once_more.dup) == (sent.payload, sent.identifier, True)


def settled_unanswered(bench: MqttBench) -> MqttGuest:
    """A reader of a message that is settled although it has not answered: it had, at another router, and the home that
    is now has heard of that."""
    reader, writer = bench.reader("b", qos=1, expiry=4, acks=False), bench.client("a", "former")
    publish(writer, b"m", 1, 5)
    end = bench.edges["b"].sessions["", "reader"].subscribers[TOPIC]
    end.perform(SettleSubscriber(end, [outgoing.record for outgoing in end.records.values()]))
    return reader


def test_a_late_puback_is_not_that_of_what_comes_next(bench: MqttBench) -> None:
    reader, writer = settled_unanswered(bench), bench.client("c", "writer")
    publish(writer, b"n", 1, 6)
    late, following = reader.messages
    answer(reader, late)
    assert writer.told(PUBACK) == []
    answer(reader, following)
    assert writer.told(PUBACK) == [(6, 0)]


def test_an_identifier_whose_puback_cannot_come_any_more_is_free(bench: MqttBench) -> None:
    settled_unanswered(bench).leave()
    session = bench.edges["b"].sessions["", "reader"]
    (unanswered,) = session.sent.values()
    bench.client("b", "reader", clean=False, expiry=4, acks=False)
    assert unanswered not in session.sent.values()
