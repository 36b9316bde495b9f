"""Topic aliases: of messages from a client, and of messages to it (MQTT 5 3.3.2.3.4)."""

from typing import Any

from router.mqtt.aliases import MOST_ALIASES
from router.mqtt.format.fields import extended, properties
from router.mqtt.format.values import PacketKind, Reason
from tests.router.mqtt import by_hand
from tests.router.mqtt.bench import TOPIC, MqttBench, MqttGuest

ALIAS = "topic-alias"


def listener(bench: MqttBench, most: int, *, expiry: int = 0, clean: bool = True, acks: bool = True) -> MqttGuest:
    """A subscriber of all topics that allows this many aliases."""
    guest = bench.stranger("b")
    guest.acks = acks
    found: dict[str, Any] = {"topic-alias-maximum": most, "session-expiry-interval": expiry}
    guest.say(by_hand.connect("listener", clean=clean, found=found) + by_hand.subscribe(1, [("topic/#", 1)]))
    return guest


def aliased(topic: str, payload: bytes, alias: int, qos: int = 0, number: int = 0) -> bytes:
    return by_hand.publish(topic, payload, qos, number, found={ALIAS: alias})


def shown(guest: MqttGuest) -> list[tuple[str, int, bytes]]:
    return [(one.topic, one.properties.get(ALIAS, 0), one.payload) for one in guest.messages]


def test_a_client_publishes_to_the_topic_that_its_alias_has_at_that_time(bench: MqttBench) -> None:
    reader, writer = listener(bench, 0), bench.client("a", "writer")
    writer.say(aliased(TOPIC, b"1", 1) + aliased("", b"2", 1) + aliased("topic/other", b"3", 1) + aliased("", b"4", 1))
    writer.say(aliased("", b"5", 1, 1, 7))
    wanted = [(TOPIC, b"1"), (TOPIC, b"2"), ("topic/other", b"3"), ("topic/other", b"4"), ("topic/other", b"5")]
    assert sorted((topic, payload) for topic, _, payload in shown(reader)) == sorted(wanted)
    assert writer.told(PacketKind.PUBACK) == [(7, 0)]


def test_aliases_of_a_client_end_with_its_connection(bench: MqttBench) -> None:
    writer = bench.client("a", "writer", expiry=4)
    writer.say(aliased(TOPIC, b"1", 1))
    writer.leave()
    again = bench.client("a", "writer", clean=False, expiry=4)
    again.say(aliased("", b"2", 1))
    assert [heard.reason for heard in again.heard if heard.kind is PacketKind.DISCONNECT] == [Reason.PROTOCOL_ERROR]


def test_a_router_uses_as_many_aliases_as_the_client_allows(bench: MqttBench) -> None:
    reader, writer = listener(bench, 2), bench.client("a", "writer")
    for number, topic in enumerate(["topic/one", "topic/two", "topic/three", "topic/two", "topic/one", "topic/three"]):
        writer.say(by_hand.publish(topic, b"%d" % number))
    assert shown(reader) == [
        ("topic/one", 1, b"0"), ("topic/two", 2, b"1"), ("topic/three", 0, b"2"), ("", 2, b"3"), ("", 1, b"4"),
        ("topic/three", 0, b"5"),
    ]  # fmt: skip


def test_a_short_topic_has_no_alias(bench: MqttBench) -> None:
    reader, writer = listener(bench, 9), bench.client("a", "writer")
    writer.say(by_hand.publish(TOPIC, b"1") * 2)
    assert shown(reader) == [(TOPIC, 0, b"1")] * 2


def test_a_copy_on_another_connection_has_its_topic_again(bench: MqttBench) -> None:
    reader, writer = listener(bench, 9, expiry=4, acks=False), bench.client("a", "writer")
    writer.say(by_hand.publish("topic/one", b"1", 1, 1) + by_hand.publish("topic/one", b"2", 1, 2))
    assert shown(reader) == [("topic/one", 1, b"1"), ("", 1, b"2")]
    reader.leave()
    again = listener(bench, 9, expiry=4, clean=False)
    assert shown(again) == [("topic/one", 1, b"1"), ("", 1, b"2")]
    again.say(by_hand.disconnect(0, {"session-expiry-interval": 0}))


def test_a_message_that_is_too_large_for_the_client_gives_it_no_alias(bench: MqttBench) -> None:
    reader = bench.stranger("b")
    found = {"topic-alias-maximum": 9, "maximum-packet-size": 100}
    reader.say(by_hand.connect("reader", found=found) + by_hand.subscribe(1, [("topic/#", 0)]))
    writer = bench.client("a", "writer")
    writer.say(by_hand.publish("topic/one", bytes(100)) + by_hand.publish("topic/one", b"2"))
    assert shown(reader) == [("topic/one", 1, b"2")]


def test_the_connack_says_how_many_aliases_a_client_may_use(bench: MqttBench) -> None:
    connack = bench.client("a", "writer").heard[0]
    assert properties({"topic-alias-maximum": MOST_ALIASES})[1:] in connack.body


def test_properties_are_added_to_others() -> None:
    known = properties({"content-type": "x" * 126})
    assert extended(known, {ALIAS: 5}) == properties({ALIAS: 5, "content-type": "x" * 126})
    assert extended(b"\0", {ALIAS: 5}) == properties({ALIAS: 5})
