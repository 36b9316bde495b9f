"""Sessions of MQTT clients, at one router and at another: what is sent once, and what again.

a ~~~ b ~~~ c       whole routers but for their sockets, all in contact
"""

from collections.abc import Iterator

import pytest

from router.mqtt.values import PacketKind, Reason
from tests.router.mqtt.bench import TOPIC, V3, V5, MqttBench, MqttGuest, by_hand

PUBREC, PUBREL, PUBCOMP, PUBACK = PacketKind.PUBREC, PacketKind.PUBREL, PacketKind.PUBCOMP, PacketKind.PUBACK


@pytest.fixture
def bench() -> Iterator[MqttBench]:
    bench = MqttBench("a", "b", "c")
    yield bench
    if not bench.ended:
        bench.finish(*bench.mqtt_guests())


def publish(guest: MqttGuest, payload: bytes, qos: int, identifier: int = 0, *, dup: bool = False) -> None:
    guest.say(by_hand.publish(TOPIC, payload, qos, identifier, guest.version, dup=dup))


# what is published


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


@pytest.mark.parametrize(("qos", "answer", "told"), [(1, PUBACK, PUBACK), (2, PUBREC, PUBREC)])
def test_a_publisher_is_answered_when_all_have_accepted(
    bench: MqttBench, qos: int, answer: PacketKind, told: PacketKind
) -> None:
    fast, slow = bench.reader("a", "fast"), bench.reader("b", "slow", acks=False)
    writer = bench.client("c", "writer")
    publish(writer, b"m", qos, 5)
    assert fast.payloads == slow.payloads == [b"m"]
    assert writer.told(told) == []
    slow.say(by_hand.ack(answer, slow.messages[0].identifier))
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
    reader.say(by_hand.ack(PUBREC, reader.messages[0].identifier))
    assert reader.payloads == [b"m"]
    assert writer.told(PUBREC) == [(5, 0)]
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
        reader.say(by_hand.ack(PUBREC, reader.messages[0].identifier))
    assert reader.payloads == [b"m"]
    assert writer.told(PUBREC) == [(5, 0)]
    writer.say(by_hand.ack(PUBREL, 5))
    publish(writer, b"next", 2, 5)
    if not is_answered:
        reader.say(by_hand.ack(PUBREC, reader.messages[-1].identifier))
    assert reader.payloads == [b"m", b"next"]


def leave(bench: MqttBench, guest: MqttGuest, *, is_killed: bool) -> None:
    """Its connection is cut, or its router is no more."""
    if is_killed:
        bench.lose(guest.router.name)
    else:
        guest.leave()


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


def answer_all(reader: MqttGuest) -> None:
    for message in reader.messages:
        reader.say(by_hand.ack(PUBREC, message.identifier))


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


def test_a_session_that_has_expired_is_not_present(bench: MqttBench) -> None:
    bench.reader("b", clean=False, expiry=2).leave()
    bench.client("a", "writer", clean=False, expiry=2).leave()
    for _ in range(8):
        bench.time(1.0)
    assert not bench.client("b", "reader", clean=False, expiry=2).is_present
    assert not bench.client("c", "other", clean=False, expiry=2).is_present
    assert list(bench.edges["a"].sessions) == [("", "writer")]
    bench.client("a", "another")
    assert list(bench.edges["a"].sessions) == [("", "another")]


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


# what is subscribed to


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
    reader.say(by_hand.ack(PUBACK if qos == 1 else PUBREC, reader.messages[0].identifier))
    publish(writer, b"open", qos, 2)
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


def test_a_session_ends_with_its_client_or_when_it_says_so(bench: MqttBench) -> None:
    for expiry, said in ((0, b""), (4, by_hand.packet(0xE0, b"\0\5\x11\0\0\0\0"))):
        reader = bench.reader("b", "reader", clean=False, expiry=expiry)
        reader.say(said)
        if reader in reader.router.guests:
            reader.leave()
        assert not bench.client("b", "reader", clean=False).is_present
        bench.edges["b"].sessions.clear()


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
        reader.say(by_hand.ack(PUBACK if message.qos == 1 else PUBREC, message.identifier))
        if message.qos == 2:
            reader.say(by_hand.ack(PUBCOMP, message.identifier))
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
    asked = ["topic/+", "topic/#", "$share/group/topic/t", "queue/t", "topic/fine", ""]
    reader.say(by_hand.subscribe(9, [(name, 1) for name in asked], version))
    (suback,) = [heard for heard in reader.heard if heard.kind is PacketKind.SUBACK]
    codes = list(suback.body[2:] if version == V3 else suback.body[3:])
    five = [Reason.NO_WILDCARDS, Reason.NO_WILDCARDS, Reason.NO_SHARED, Reason.BAD_FILTER, 1, Reason.BAD_FILTER]
    assert codes == ([0x80, 0x80, 0x80, 0x80, 1, 0x80] if version == V3 else five)


def test_a_subscription_may_change_its_qos_and_loses_nothing(bench: MqttBench) -> None:
    reader, writer = bench.reader("b", qos=1, acks=False), bench.client("a", "writer")
    publish(writer, b"0", 2, 1)
    reader.say(by_hand.subscribe(2, [(TOPIC, 2)]))
    publish(writer, b"1", 2, 2)
    assert [(m.payload, m.qos) for m in reader.messages if not m.dup] == [(b"0", 1), (b"1", 2)]
    reader.say(by_hand.ack(PUBACK, reader.messages[0].identifier))
    reader.say(by_hand.ack(PUBREC, reader.messages[-1].identifier))
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
