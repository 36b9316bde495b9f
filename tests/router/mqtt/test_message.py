"""What becomes of a PUBLISH on its way through AMQP, and of a message of AMQP on its way to a client of MQTT."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.amqp.format.codec import Described, Raw, Symbol, encode, ulong
from router.amqp.format.message import body_of, in_envelope, sections_of
from router.amqp.format.sections import read_message, write_message
from router.mqtt.format.fields import MOST_PROPERTIES, FieldReader, properties
from router.mqtt.format.values import PacketKind
from router.mqtt.translation import MOST_BESIDE, MOST_SECTIONS, NO_PROPERTIES, MqttContent, from_amqp, to_amqp
from tests.router.mqtt.test_packets import TEXT, TOPIC

NAMES = st.sampled_from(["k", ""]) | TEXT
SAID = st.fixed_dictionaries(
    {},
    optional={
        "payload-format-indicator": st.integers(0, 1),
        "message-expiry-interval": st.integers(0, 4_000_000),
        "content-type": TEXT,
        "response-topic": TOPIC,
        "correlation-data": st.binary(max_size=40),
        "user-property": st.lists(st.tuples(NAMES, TEXT), min_size=1, max_size=5),
    },
)


@settings(max_examples=100)
@given(st.binary(max_size=300), st.integers(0, 2), SAID)
def test_a_publish_is_the_same_for_who_is_subscribed_by_mqtt(payload: bytes, qos: int, said: dict[str, Any]) -> None:
    content = from_amqp(to_amqp(payload, qos, said))
    assert content is not None
    assert (content.payload, content.qos) == (payload, 1 if qos == 1 else 2)
    assert FieldReader(content.properties).properties(PacketKind.PUBLISH) == said


@pytest.mark.parametrize("payload", [b"", b"m", bytes(100_000)])
def test_the_body_is_the_payload_for_who_is_subscribed_by_amqp(payload: bytes) -> None:
    assert body_of(to_amqp(payload, 2, {})) == body_of(to_amqp(payload, 1, {"content-type": "x"})) == payload


def test_texts_and_several_sections_of_data_are_payloads() -> None:
    assert from_amqp(write_message({"value": "é"})) == MqttContent("é".encode(), 2, NO_PROPERTIES)
    assert from_amqp(write_message({"data": b"one"}) + write_message({"data": b"two"})) == MqttContent(
        b"onetwo", 2, NO_PROPERTIES
    )


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"no message",
        b"\x00\x53\x75\xb0\xff\xff\xff\xffcut short",
        write_message({"value": 7}),
        write_message({"value": {"a": 1}}),
        write_message({"sequence": [[1, 2]]}),
        in_envelope(b"anything", 5),
    ],
)
def test_what_has_no_bytes_for_a_body_is_nothing_for_mqtt(message: bytes) -> None:
    assert from_amqp(message) is None


NULLS = b"\xd0" + (MOST_BESIDE + 4).to_bytes(4, "big") + MOST_BESIDE.to_bytes(4, "big") + b"\x40" * MOST_BESIDE


@pytest.mark.parametrize(
    "message",
    [
        *(b"\x00\x53" + bytes((code,)) + NULLS + write_message({"data": b"d"}) for code in range(0x70, 0x78)),
        write_message({"data": b"d"}) + b"\x00\x53\x78" + NULLS,
        b"\x00" + NULLS + b"\xa0\x01d" + write_message({"data": b"d"}),
        NULLS + write_message({"data": b"d"}),
        write_message({"data": b"d"}) * (MOST_SECTIONS + 1),
        b"\x40" * 2 * MOST_BESIDE,
    ],
)
def test_a_message_that_takes_long_to_read_is_nothing_for_mqtt(message: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.mqtt.translation.decode", lambda message, at: pytest.fail("it is looked into"))
    monkeypatch.setattr("router.mqtt.translation.sections_of", lambda message: pytest.fail("it is looked into"))
    assert from_amqp(message) is None


@pytest.mark.parametrize(
    "beside", [Described(0x74, {"a": "b"}), Described(0x72, {Symbol("n" * 60_000): None}), Raw(b"\x40")]
)
def test_what_is_beside_a_body_is_read_once_for_all_subscribers(beside: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    message, looked = encode(beside) + write_message({"data": b"d"}), list[bytes]()

    def counted(sections: bytes) -> list[tuple[Any, Any]]:
        looked.append(sections)
        return sections_of(sections)

    monkeypatch.setattr("router.mqtt.translation.sections_of", counted)
    told = [from_amqp(bytes(bytearray(message))) for _ in range(3)]
    assert told == 3 * told[:1] and looked == [encode(beside)]


def test_a_body_is_as_large_as_it_likes() -> None:
    large = bytes(10 * MOST_BESIDE)
    for written in ({"data": large}, {"value": large}, {"value": large.decode()}):
        content = from_amqp(write_message({"properties": {"content-type": "t"}, **written}))
        assert content is not None and content.payload == large
    content = from_amqp(write_message({"data": b"d"}) * MOST_SECTIONS)
    assert content is not None and content.payload == b"d" * MOST_SECTIONS


@pytest.mark.parametrize("again", [0, 1])
@pytest.mark.parametrize("length", [0, 1, 127, 255, 256, 1000, 20_000])
def test_all_the_properties_that_may_be_published_can_be_sent(length: int, again: int) -> None:
    """They are longer as sections of AMQP, and there twice if two have one name."""
    pairs = (MOST_PROPERTIES - 3) // (5 + 4 + length)
    names = [f"{number:04}" for number in range(pairs - again)]
    said = {"content-type": "", "user-property": [(name, "x" * length) for name in names + names[:again]]}
    assert FieldReader(properties(said)).properties(PacketKind.PUBLISH) == said
    content = from_amqp(to_amqp(b"p", 1, said))
    assert content is not None
    assert FieldReader(content.properties).properties(PacketKind.PUBLISH) == said


def test_of_user_properties_with_one_name_amqp_has_the_last_and_mqtt_has_all() -> None:
    said = {"content-type": "text/ü", "user-property": [("k", "1"), ("a", "x"), ("k", "2")]}
    message = read_message(to_amqp(b"p", 0, said))
    assert message["application-properties"] == {"k": "2", "a": "x"}
    assert message["message-annotations"]["x-opt-mqtt-user-properties"] == ["k", "1", "a", "x", "k", "2"]
    assert message["message-annotations"]["x-opt-mqtt-content-type"] == "text/ü"
    assert "properties" not in message


@pytest.mark.parametrize("texts", ["k", ["k"], ["k", 1], ["k\0", "v"], ["k", "v" * 70_000]])
def test_user_properties_that_mqtt_cannot_carry_are_those_of_the_application(texts: Any) -> None:
    annotations = {"x-opt-mqtt-user-properties": texts, "x-opt-mqtt-content-type": 7}
    content = from_amqp(
        write_message({"message-annotations": annotations, "application-properties": {"a": "b"}, "data": b"d"})
    )
    assert content is not None
    assert FieldReader(content.properties).properties(PacketKind.PUBLISH) == {"user-property": [("a", "b")]}


def test_what_mqtt_cannot_carry_is_left_out() -> None:
    message = write_message(
        {
            "properties": {"reply-to": "a/+", "correlation-id": 7, "content-type": "t"},
            "application-properties": {"zero\0": "x", "nil": None, "bytes": b"b", "fine": 1.5},
            "data": b"d",
        }
    )
    content = from_amqp(message)
    assert content is not None
    assert FieldReader(content.properties).properties(PacketKind.PUBLISH) == {
        "correlation-data": b"7",
        "content-type": "t",
        "user-property": [("fine", "1.5")],
    }


CHARACTER = b"\x73\x00\x00\xd8\x00"  # of AMQP, and a surrogate


@pytest.mark.parametrize(
    "section",
    [
        encode(Described(0x70, [None, None, ulong(2**63)])),
        encode(Described(0x70, [None, None, -5])),
        encode(Described(0x73, [None] * 4 + [7, [1, 2], 8])),
        encode(Described(0x74, {"k": "x", 7: "x"})),
        encode(Described(0x74, {"k": {"a": 1}, "l": [1], "f": float("nan")})),
        encode(Described(0x72, {Symbol("x-opt-mqtt-qos"): "1", Symbol("x-opt-mqtt-payload-is-text"): 3})),
    ],
)
def test_sections_that_mean_nothing_to_mqtt_are_left_out(section: bytes) -> None:
    content = from_amqp(section + write_message({"data": b"d"}))
    assert content is not None and content.payload == b"d"
    FieldReader(content.properties).properties(PacketKind.PUBLISH)


@pytest.mark.parametrize(
    "section", [Described(0x73, [None] * 5 + [Raw(CHARACTER)]), Described(0x74, {"k": Raw(CHARACTER)})]
)
def test_half_a_character_makes_a_message_nothing_for_mqtt(section: Described) -> None:
    assert from_amqp(encode(section) + write_message({"data": b"d"})) is None


@settings(max_examples=200)
@given(st.binary(max_size=80))
def test_whatever_comes_as_a_message_has_content_or_none(message: bytes) -> None:
    from_amqp(b"\x00\x53" + message)


def test_what_is_published_reads_as_amqp_says() -> None:
    assert read_message(to_amqp(b"p", 1, {"payload-format-indicator": 1, "message-expiry-interval": 2})) == {
        "header": {"ttl": 2000},
        "message-annotations": {"x-opt-mqtt-qos": 1, "x-opt-mqtt-payload-is-text": True},
        "data": b"p",
    }


def test_the_expiry_that_is_left_is_counted_down() -> None:
    message = to_amqp(b"p", 1, {"message-expiry-interval": 10, "content-type": "t"}, 1_000_010_000)
    assert read_message(message)["properties"] == {"content-type": "t", "absolute-expiry-time": 1_000_010_000}
    content = from_amqp(message)
    assert content is not None
    assert FieldReader(content.properties).properties(PacketKind.PUBLISH) == {"content-type": "t"}
    told = [content.expiry_at(1_000_000_000 + late) for late in (-5000, 0, 1, 1000, 9999, 10_000, 99_999)]
    assert [one["message-expiry-interval"] for one in told] == [10, 10, 10, 9, 1, 0, 0]


def test_an_expiry_of_amqp_without_a_ttl_is_one_of_mqtt() -> None:
    content = from_amqp(write_message({"properties": {"absolute-expiry-time": 5000}, "data": b"d"}))
    assert content is not None and content.expiry_at(2000) == {"message-expiry-interval": 3}


def test_a_message_without_a_time_has_no_expiry() -> None:
    content = from_amqp(to_amqp(b"p", 1, {"content-type": "t"}))
    assert content is not None and content.expiry_at(0) == {}
