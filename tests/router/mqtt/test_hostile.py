"""Clients of MQTT that break it, in an order that a seed chooses: nobody else is harmed, nothing is left of them."""

import logging
import random
from collections.abc import Callable, Sequence

import attrs
import pytest

from router.edge.topics import durable_of
from router.mesh.config import Limits
from router.mqtt.connection import HELD_TURN, MOST_PACKET
from router.mqtt.format import fields
from router.mqtt.format.fields import MOST_PROPERTIES, text
from router.mqtt.format.packets import MOST_FILTERS, PINGRESP
from router.mqtt.format.values import V3, V5, PacketKind, Reason
from router.mqtt.permissions import MOST_LOOKED_AT
from router.mqtt.publisher import MqttPublisher
from router.mqtt.subscriber import MqttSubscriber
from router.security.rules import EVERYTHING
from tests.fuzz.mesh import MAX_MESSAGE
from tests.router.mqtt import by_hand
from tests.router.mqtt.bench import OPENING_S, TOPIC, MqttBench, MqttGuest
from topic.node import Node

KINDS = (PacketKind.PUBACK, PacketKind.PUBREC, PacketKind.PUBREL, PacketKind.PUBCOMP)


def words(chance: random.Random, version: int) -> bytes:
    """A packet that is right as it stands, whether or not it is right where it stands."""
    topic = chance.choice([TOPIC, "topic/more", "topic/other", "queue/none", "$status"])
    identifier, qos = chance.randint(1, 4), chance.randint(0, 2)
    payload, dup = chance.choice([b"x", b"y"]), qos > 0 and chance.random() < 0.5
    return chance.choice(
        [
            by_hand.publish(topic, payload, qos, identifier, version, dup=dup),
            by_hand.ack(chance.choice(KINDS), chance.randint(1, 6)),
            by_hand.subscribe(identifier, [(topic, qos)], version),
            by_hand.unsubscribe(identifier, [topic], version),
            by_hand.PINGREQ,
            by_hand.PINGREQ if chance.random() < 0.7 else by_hand.DISCONNECT,
        ]
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(30))
def test_whatever_clients_say_others_are_served_and_nothing_is_left(seed: int) -> None:
    chance = random.Random(seed)
    bench = MqttBench("a", "b", "c")
    guests: list[MqttGuest] = []
    for _ in range(120):
        if len(guests) < 4 or chance.random() < 0.1:
            guest = bench.stranger(chance.choice("abc"), chance.choice([V3, V5]))
            guest.acks = chance.random() < 0.5
            guest.is_here = chance.random() < 0.9
            expiry = {"session-expiry-interval": 4} if chance.random() < 0.7 else {}
            name = chance.choice(["one", "two", "three"])
            guest.say(by_hand.connect(name, guest.version, clean=chance.random() < 0.3, found=expiry))
            guests.append(guest)
        guest = chance.choice(guests)
        said = b"".join(words(chance, guest.version) for _ in range(chance.randint(1, 4)))
        if chance.random() < 0.1:
            said = bytes(byte if chance.random() < 0.95 else chance.randrange(256) for byte in said)
        guest.say(said)
        if guest.connection.is_over or chance.random() < 0.05:
            guests.remove(guest)
            guest.leave()
        if chance.random() < 0.1:
            bench.time(chance.random())
    bench.check()
    bench.finish(*guests)


def test_a_flood_of_what_nobody_takes_ends_the_connection_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    limits = Limits(max_message=MAX_MESSAGE, window_bytes=50_000)
    bench = MqttBench("a", "b", "c", limits=limits)
    reader = bench.reader("b", acks=False)
    writer = bench.client("a", "writer", version=V3)
    for number in range(1, 200):
        if not writer.connection.closed:
            writer.say(by_hand.publish(TOPIC, bytes(5000), 1, number, V3))
    assert writer.connection.error is not None and writer.connection.error.limit == "unsettled"
    bench.finish(reader, writer)


def test_what_is_not_answered_is_not_much_more_than_was_agreed() -> None:
    bench = MqttBench("a", "b", "c", limits=Limits(max_message=MAX_MESSAGE, window=10))
    reader, writer = bench.reader("b", acks=False), bench.client("a", "writer")
    for number in range(1, 82):
        assert not writer.connection.is_over, "some send again more than a receive maximum of 10 lets them"
        writer.say(by_hand.publish(TOPIC, b"m", 2, number))
    (told,) = [heard for heard in writer.heard if heard.kind is PacketKind.DISCONNECT]
    assert told.reason == Reason.TOO_MANY
    bench.finish(reader, writer)


def test_silence_ends_a_connection_after_half_as_long_again_as_its_keep_alive() -> None:
    bench = MqttBench("a", "b", "c")
    guest = bench.stranger("a")
    guest.say(by_hand.connect("c", keep_alive=10))
    assert guest.connection.tick(14.9) == 15.0
    with pytest.raises(Exception, match="keep alive"):
        guest.connection.tick(15.0)
    assert guest.connection.closed
    bench.finish(guest)


def test_who_says_nothing_is_given_up_and_who_pings_is_answered() -> None:
    bench = MqttBench("a", "b", "c")
    silent, pinging = bench.stranger("a"), bench.client("a", "pinging")
    assert silent.connection.tick(0.0) == OPENING_S
    with pytest.raises(Exception, match="the client sent no CONNECT in time"):
        silent.connection.tick(OPENING_S)
    pinging.heard.clear()
    pinging.say(by_hand.PINGREQ)
    assert [heard.kind for heard in pinging.heard] == [PINGRESP[0] >> 4]
    bench.finish(silent, pinging)


def test_topics_beyond_the_limit_take_the_place_of_idle_ones(caplog: pytest.LogCaptureFixture) -> None:
    bench = MqttBench("a", "b", "c", limits=Limits(max_message=MAX_MESSAGE, links=3))
    reader, writer = bench.reader("b", acks=False), bench.client("a", "writer")
    for number in range(10):
        writer.say(by_hand.publish(f"topic/{number}", b"m", 1, 1 + number))
        bench.time(0.1)
    assert len(writer.told(PacketKind.PUBACK)) == 10
    assert len(bench.edges["a"].sessions["", "writer"].publishers) == 3
    with caplog.at_level(logging.WARNING, "oncemesh"):
        reader.say(by_hand.subscribe(2, [("topic/1", 1), ("topic/2", 1), ("topic/3", 1)]))
    (suback,) = [heard for heard in reader.heard if heard.kind is PacketKind.SUBACK]
    assert list(suback.body[3:]) == [1, 1, Reason.QUOTA]
    assert sum("more than 3 topics" in line for line in caplog.messages) == 2
    bench.finish(reader, writer)


def subscribe(identifier: int, filters: Sequence[str], version: int) -> bytes:
    return by_hand.subscribe(identifier, [(name, 0) for name in filters], version)


@pytest.mark.parametrize("version", [V3, V5])
@pytest.mark.parametrize("word", [subscribe, by_hand.unsubscribe])
def test_one_packet_has_so_many_filters_and_no_more(
    version: int, word: Callable[[int, Sequence[str], int], bytes]
) -> None:
    bench = MqttBench("a", "b", "c")
    guest = bench.client("a", "guest", version=version)
    guest.say(word(1, [f"queue/{number}" for number in range(MOST_FILTERS)], version))
    assert not guest.connection.is_over
    guest.say(word(2, [f"queue/{number}" for number in range(MOST_FILTERS + 1)], version))
    assert guest.connection.error is not None and guest.connection.error.reason == Reason.QUOTA
    assert guest.kinds()[2:] == (["DISCONNECT"] if version == V5 else [])
    bench.finish(guest)


def test_subscriptions_that_are_kept_are_counted_once_for_a_packet_and_those_of_the_packet_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = list[str]()

    def count(node: Node, user: str) -> int:
        counted.append(user)
        return durable_of(node, user)

    monkeypatch.setattr("router.mqtt.permissions.durable_of", count)
    bench = MqttBench("a", "b", "c", rule=attrs.evolve(EVERYTHING, durable=3))
    guest = bench.client("a", "guest", expiry=4)
    guest.say(by_hand.subscribe(1, [("topic/none", 0), *((f"topic/{number}", 1) for number in range(5))]))
    guest.say(by_hand.subscribe(2, [("topic/more", 2)]))
    subacks = [heard for heard in guest.heard if heard.kind is PacketKind.SUBACK]
    assert [list(suback.body[3:]) for suback in subacks] == [[0, 1, 1, 1, Reason.QUOTA, Reason.QUOTA], [Reason.QUOTA]]
    assert counted == ["", ""]
    bench.finish(guest)


@pytest.mark.parametrize("kind", [kind for kind in PacketKind if kind is not PacketKind.PUBLISH])
def test_a_packet_that_carries_no_message_is_not_waited_for_if_it_is_large(kind: PacketKind) -> None:
    bench = MqttBench("a", "b", "c")
    guest = bench.client("a", "guest")
    guest.say(bytes((kind << 4 | 2,)) + fields.number(MOST_PACKET + 1))
    assert guest.connection.error is not None and guest.connection.error.reason == Reason.TOO_LARGE
    assert guest.connection.error.limit == "max_frame"
    bench.finish(guest)


def test_the_properties_of_a_message_are_not_read_if_they_are_large() -> None:
    bench = MqttBench("a", "b", "c", limits=Limits(max_message=2 * MOST_PROPERTIES))
    for size in (MOST_PROPERTIES, MOST_PROPERTIES + 5):
        guest = bench.client("a", f"guest {size}")
        empty = b"\x26\0\0\0\0" * (size // 5)
        guest.say(by_hand.packet(0x32, text(TOPIC) + b"\0\1" + fields.number(len(empty)) + empty + b"payload"))
        assert guest.told(PacketKind.PUBACK) == ([(1, 0)] if size == MOST_PROPERTIES else [])
    assert guest.connection.error is not None and guest.connection.error.reason == Reason.TOO_LARGE
    bench.finish(*bench.mqtt_guests())


def test_one_identifier_for_all_messages_gets_past_no_limit() -> None:
    """Each ends the one before, which waits all the same: a subscriber takes none of them."""
    bench = MqttBench("a", "b", "c", limits=Limits(max_message=MAX_MESSAGE, window_bytes=MAX_MESSAGE))
    bench.reader("b", acks=False)
    writer = bench.client("a", "writer")
    count = 0
    while writer.connection.error is None and count < 1000:
        writer.say(by_hand.publish(TOPIC, b"x" * (count % 2), 2, 1))
        count += 1
    assert writer.connection.error is not None and writer.connection.error.reason == Reason.QUOTA
    bench.finish(*bench.mqtt_guests())


@pytest.mark.parametrize("ends", [False, True])
def test_what_waits_for_an_identifier_waits_once_however_often_its_subscription_is_another(ends: bool) -> None:
    bench = MqttBench("a", "b", "c")
    slow = bench.stranger("b")
    slow.acks = False
    slow.say(by_hand.connect("slow", found={"receive-maximum": 1}))
    slow.say(by_hand.subscribe(1, [("topic/first", 2), (TOPIC, 2)]))
    writer = bench.client("a", "writer")
    writer.say(by_hand.publish("topic/first", b"", 2, 100))
    for number in range(1, 6):
        writer.say(by_hand.publish(TOPIC, b"x", 2, number))
    session = bench.edges["b"].sessions["", "slow"]
    waits = len(session._unsent)
    for number in range(1, 6):
        if ends:
            slow.say(by_hand.unsubscribe(number, [TOPIC]))
            assert not session._unsent
        slow.say(by_hand.subscribe(number, [(TOPIC, 1 + number % 2)]))
        for at in range(1, 6 if ends else 1):
            writer.say(by_hand.publish(TOPIC, b"x", 2, 10 * number + at))
        assert len(session._unsent) <= waits
    bench.finish(*bench.mqtt_guests())


def test_what_was_held_is_handled_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = MqttBench("a", "b", "c")
    bench.reader("a", qos=1, clean=False, expiry=4).leave()
    guest = bench.stranger("b")
    guest.is_here = False
    guest.say(by_hand.connect("reader", clean=False, found={"session-expiry-interval": 4}))
    for _ in range(5):
        guest.say(by_hand.PINGREQ * (HELD_TURN // 4 // len(by_hand.PINGREQ)))
    guest.say(by_hand.publish(TOPIC, b"the last", 1, 1))
    assert guest.kinds() == ["CONNACK"]
    turns = list[int]()
    monkeypatch.setattr(guest.edge, "on_batch", lambda connection: turns.append(connection.unsent))
    guest.is_here = True
    bench.flow()
    assert len(turns) == 2 and max(turns) <= HELD_TURN // len(by_hand.PINGREQ) + 1
    monkeypatch.undo()
    guest.say(by_hand.PINGREQ)
    assert guest.told(PacketKind.PUBACK) == [(1, 0)] and guest.payloads == [b"the last"]
    bench.finish(guest)


def test_another_qos_begins_a_link_and_is_paced_as_one() -> None:
    bench = MqttBench("a", "b", "c", limits=Limits(max_message=MAX_MESSAGE, links=4, attaches=1))
    guest = bench.client("a", "guest")
    for number in range(1, 7):
        guest.say(by_hand.subscribe(number, [(TOPIC, number % 2)]))
    subacks = [heard for heard in guest.heard if heard.kind is PacketKind.SUBACK]
    assert [suback.body[3] for suback in subacks] == [1, 0, 1, 0, Reason.QUOTA, 0]
    bench.finish(guest)


def test_of_a_filter_that_stands_twice_in_a_packet_the_last_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = MqttBench("a", "b", "c")
    guest, attached = bench.client("a", "guest"), list[int]()
    attach = MqttSubscriber.subscribe

    def counted(subscriber: MqttSubscriber, *, resumes: bool) -> None:
        attached.append(subscriber.qos)
        attach(subscriber, resumes=resumes)

    monkeypatch.setattr(MqttSubscriber, "subscribe", counted)
    guest.say(by_hand.subscribe(1, [(TOPIC, number % 3) for number in range(MOST_FILTERS)]))
    (suback,) = [heard for heard in guest.heard if heard.kind is PacketKind.SUBACK]
    assert list(suback.body[3:]) == [number % 3 for number in range(MOST_FILTERS)]
    assert attached == [(MOST_FILTERS - 1) % 3]
    bench.finish(guest)


def test_a_subscription_that_begins_to_last_counts_as_one_that_does() -> None:
    bench = MqttBench("a", "b", "c", rule=attrs.evolve(EVERYTHING, durable=1))
    guest = bench.client("a", "guest", expiry=4)
    guest.say(by_hand.subscribe(1, [("topic/one", 0), ("topic/two", 0)]))
    guest.say(by_hand.subscribe(2, [("topic/one", 1), ("topic/two", 1)]))
    subacks = [heard for heard in guest.heard if heard.kind is PacketKind.SUBACK]
    assert [list(suback.body[3:]) for suback in subacks] == [[0, 0], [1, Reason.QUOTA]]
    bench.finish(guest)


def test_a_suback_is_said_once_all_that_was_granted_is_attached(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = MqttBench("a", "b", "c")
    for other in "bc":  # nobody is waited for
        bench.lose(other)
    guest = bench.client("a", "guest")
    attached, attach = list[int](), MqttSubscriber.subscribe

    def counted(subscriber: MqttSubscriber, *, resumes: bool) -> None:
        attach(subscriber, resumes=resumes)
        attached.append(guest.connection.unsent)

    monkeypatch.setattr(MqttSubscriber, "subscribe", counted)
    guest.say(by_hand.subscribe(1, [("topic/one", 1), ("topic/two", 1), ("queue/none", 1)]))
    assert guest.kinds() == ["CONNACK", "SUBACK"] and attached == [0, 0]
    bench.finish(guest)


def test_for_an_idle_topic_not_all_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = MqttBench("a", "b", "c", limits=Limits(max_message=MAX_MESSAGE, links=2 * MOST_LOOKED_AT))
    reader, writer = bench.client("b", "reader", acks=False), bench.client("a", "writer")
    reader.say(by_hand.subscribe(1, [("topic/#", 1)]))
    for number in range(1, 2 * MOST_LOOKED_AT + 1):
        writer.say(by_hand.publish(f"topic/{number}", b"m", 1, number))
    bench.time(0.1)  # it may attach again
    looked = list[str]()

    def is_idle(publisher: MqttPublisher) -> bool:
        looked.append(publisher.identity.address)
        return False

    monkeypatch.setattr(MqttPublisher, "is_idle", property(is_idle))
    writer.say(by_hand.publish("topic/more", b"m", 1, 1000))
    assert writer.told(PacketKind.PUBACK) == [(1000, Reason.QUOTA)]
    assert looked == [f"topic/{number}" for number in range(1, MOST_LOOKED_AT + 1)]
    monkeypatch.undo()
    bench.finish(reader, writer)
