"""Packets of MQTT, read and written: what is right comes back, what is wrong is refused, nothing else ever happens."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.mqtt.format.fields import FieldReader, number, properties, text
from router.mqtt.format.packets import (
    AckPacket,
    ConnectPacket,
    DisconnectPacket,
    PublishPacket,
    SubscribePacket,
    UnsubscribePacket,
    connack,
    publish,
    read_packet,
    suback,
)
from router.mqtt.format.values import V3, V5, MqttError, PacketKind, Reason
from tests.router.mqtt import by_hand

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
TOPIC = st.text(st.characters(exclude_characters="\0+#", exclude_categories=["Cs"]), min_size=1, max_size=20)
SAID = st.fixed_dictionaries(
    {},
    optional={
        "payload-format-indicator": st.integers(0, 1),
        "message-expiry-interval": st.integers(0, 2**32 - 1),
        "content-type": TEXT,
        "response-topic": TEXT,
        "correlation-data": st.binary(max_size=40),
        "user-property": st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=5),
    },
)


def read(data: bytes, version: int = V5) -> Any:
    """One packet with its header."""
    reader = FieldReader(data[1:])
    size = reader.number()
    body = reader.rest()
    assert len(body) == size
    return read_packet(data[0], body, version)


@settings(max_examples=100)
@given(TOPIC, st.binary(max_size=100), st.integers(0, 2), st.booleans(), SAID)
def test_what_is_published_is_read_as_it_was_written(
    topic: str, payload: bytes, qos: int, dup: bool, found: dict[str, Any]
) -> None:
    data = by_hand.publish(topic, payload, qos, 7, found=found, dup=dup and qos > 0)
    assert read(data) == PublishPacket(topic, payload, qos, dup and qos > 0, 7 if qos else 0, found)


@settings(max_examples=50)
@given(TOPIC, st.binary(max_size=100), st.integers(0, 2), SAID)
def test_what_a_subscriber_is_sent_reads_as_what_a_publisher_sends(
    topic: str, payload: bytes, qos: int, found: dict[str, Any]
) -> None:
    data = publish(text(topic), payload, qos, 9, properties(found))
    assert data == by_hand.publish(topic, payload, qos, 9, found=found)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 268_435_455])
def test_numbers_of_variable_length_have_one_to_four_bytes(value: int) -> None:
    assert FieldReader(number(value)).number() == value


def test_a_connect_of_either_version() -> None:
    told = {"session-expiry-interval": 60, "receive-maximum": 10}
    five = read(by_hand.connect("c", V5, clean=False, keep_alive=5, found=told, user="bob", password=b"\xff"))
    assert five == ConnectPacket(V5, "c", False, 5, "bob", b"\xff", None, told)
    assert read(by_hand.connect("c", V3)) == ConnectPacket(V3, "c", True, 0, None, None, None, {})


def test_subscriptions_and_answers() -> None:
    subscribed = read(by_hand.subscribe(3, [("topic/a", 1), ("topic/b", 2 | 4)]))
    assert isinstance(subscribed, SubscribePacket)
    assert [(one.filter, one.qos, one.options.no_local) for one in subscribed.filters] == [
        ("topic/a", 1, False),
        ("topic/b", 2, True),
    ]
    assert read(by_hand.unsubscribe(3, ["topic/a"], V3), V3) == UnsubscribePacket(3, ("topic/a",))
    assert read(by_hand.ack(PacketKind.PUBREL, 5, 0x92)) == AckPacket(PacketKind.PUBREL, 5, 0x92)
    assert read(by_hand.DISCONNECT, V3) == DisconnectPacket(0, {})


def test_what_a_client_of_3_1_1_is_told_has_codes_of_its_own() -> None:
    assert connack(V3, Reason.NOT_AUTHORIZED) == b"\x20\x02\x00\x05"
    assert connack(V3, Reason.SUCCESS, present=True) == b"\x20\x02\x01\x00"
    assert suback(V3, PacketKind.SUBACK, 1, [2, Reason.NO_SHARED]) == b"\x90\x04\x00\x01\x02\x80"
    assert suback(V3, PacketKind.UNSUBACK, 1, [0]) == b"\xb0\x02\x00\x01"


BAD: dict[str, tuple[bytes, int]] = {
    "another protocol": (by_hand.packet(0x10, b"\0\4HTTP\5\2\0\0\0\0\0"), V5),
    "a level that there is not": (by_hand.connect(version=6), V5),
    "a CONNECT with the reserved flag": (by_hand.packet(0x10, b"\0\4MQTT\5\3\0\0\0\0\0"), V5),
    "a will of QoS 3": (by_hand.packet(0x10, b"\0\4MQTT\5\x1e\0\0\0\0\0"), V5),
    "the QoS of no will": (by_hand.packet(0x10, b"\0\4MQTT\5\x0a\0\0\0\0\0"), V5),
    "a password without a user, in 3.1.1": (by_hand.packet(0x10, b"\0\4MQTT\4\x42\0\0\0\1c\0\1p"), V3),
    "a client identifier with a zero byte": (by_hand.packet(0x10, b"\0\4MQTT\5\2\0\0\0\0\1\0"), V5),
    "a client identifier that is not UTF-8": (by_hand.packet(0x10, b"\0\4MQTT\5\2\0\0\0\0\1\xff"), V5),
    "a surrogate": (by_hand.packet(0x10, b"\0\4MQTT\5\2\0\0\0\0\3\xed\xa0\x80"), V5),
    "a receive maximum of 0": (by_hand.connect(found={"receive-maximum": 0}), V5),
    "a maximum packet size of 0": (by_hand.connect(found={"maximum-packet-size": 0}), V5),
    "a property twice": (by_hand.packet(0x10, b"\0\4MQTT\5\2\0\0\6\x21\0\1\x21\0\1\0\0"), V5),
    "a property of another packet": (by_hand.connect(found={"reason-string": "x"}), V5),
    "a property that there is not": (by_hand.packet(0x10, b"\0\4MQTT\5\2\0\0\2\x7f\0\0\0"), V5),
    "properties longer than the packet": (by_hand.packet(0x10, b"\0\4MQTT\5\2\0\0\x7f\0\0"), V5),
    "a flag of 2": (by_hand.connect(found={"request-problem-information": 2}), V5),
    "a CONNECT that goes on": (by_hand.connect()[:1] + b"\x0e" + by_hand.connect("")[2:] + b"x", V5),
    "a PUBLISH of QoS 3": (by_hand.packet(0x36, b"\0\1t\0\1\0"), V5),
    "a copy at QoS 0": (by_hand.packet(0x38, b"\0\1t\0"), V5),
    "a retained message": (by_hand.packet(0x31, b"\0\1t\0"), V5),
    "a PUBLISH with the identifier 0": (by_hand.packet(0x32, b"\0\1t\0\0\0"), V5),
    "a PUBLISH to a wildcard": (by_hand.publish("topic/+", b""), V5),
    "a PUBLISH to nothing": (by_hand.publish("", b""), V5),
    "neither topic nor alias": (by_hand.publish("", b""), V5),
    "a topic cut off": (by_hand.packet(0x30, b"\0\x09top"), V5),
    "a SUBSCRIBE to nothing": (by_hand.subscribe(1, []), V5),
    "a SUBSCRIBE of QoS 3": (by_hand.subscribe(1, [("t", 3)]), V5),
    "a SUBSCRIBE with reserved options": (by_hand.subscribe(1, [("t", 0x40)]), V5),
    "a SUBSCRIBE of 5 options, in 3.1.1": (by_hand.subscribe(1, [("t", 4)], V3), V3),
    "a SUBSCRIBE with other flags": (b"\x80" + by_hand.subscribe(1, [("t", 0)])[1:], V5),
    "an UNSUBSCRIBE from nothing": (by_hand.unsubscribe(1, []), V5),
    "a PUBREL with other flags": (b"\x60" + by_hand.ack(PacketKind.PUBREL, 1)[1:], V5),
    "a PUBACK without an identifier": (by_hand.packet(0x40), V5),
    "a PUBACK of 0": (by_hand.ack(PacketKind.PUBACK, 0), V5),
    "a reason of 3.1.1": (by_hand.ack(PacketKind.PUBACK, 1, 0), V3),
    "a PINGREQ with a body": (by_hand.packet(0xC0, b"x"), V5),
    "an AUTH": (by_hand.packet(0xF0), V5),
    "a CONNACK": (by_hand.packet(0x20, b"\0\0\0"), V5),
    "type 0": (by_hand.packet(0x00), V5),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_no_client_may_say_is_refused(kind: str) -> None:
    data, version = BAD[kind]
    with pytest.raises(MqttError):
        read(data, version)


@settings(max_examples=300)
@given(st.integers(0, 255), st.binary(max_size=60), st.sampled_from([V3, V5]))
def test_whatever_comes_is_a_packet_or_refused(first: int, body: bytes, version: int) -> None:
    try:
        read_packet(first, body, version)
    except MqttError as error:
        assert error.reason >= 0x80


@settings(max_examples=200)
@given(st.sampled_from(sorted(BAD)), st.data())
def test_whatever_is_cut_or_changed_is_a_packet_or_refused(kind: str, data: st.DataObject) -> None:
    said, version = BAD[kind]
    changed = bytearray(said[2:])
    for _ in range(data.draw(st.integers(0, 3))):
        if changed:
            changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    del changed[data.draw(st.integers(0, len(changed))) :]
    with suppress(MqttError):
        read_packet(said[0], bytes(changed), version)
