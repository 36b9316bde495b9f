"""A client that says much and reads little: what waits for it is bounded. Who only reads slowly is not sent away."""

import pytest

from router.mqtt import connection
from router.mqtt.connection import MOST_ANSWERS, OVERHEAD
from router.mqtt.format.fields import text
from router.mqtt.format.packets import publish
from router.mqtt.format.values import V3, V5, MqttError, PacketKind, Reason
from tests.router.mqtt import by_hand
from tests.router.mqtt.bench import TOPIC, MqttBench, MqttGuest

MOST_IDENTIFIERS = 0xFFFF
FEW = 64 * 1024
NONE = [f"topic/{number}" for number in range(10)]


def hears_nothing(guest: MqttGuest, said: bytes) -> None:
    """What is said to it waits."""
    with guest.router.mesh.acting(guest.router):
        guest.connection.receive(said, 0.0)


@pytest.mark.parametrize("version", [V3, V5])
@pytest.mark.parametrize("kind", ["PINGREQ", "PUBREL", "PUBREC", "SUBSCRIBE", "UNSUBSCRIBE"])
def test_who_reads_no_answers_is_sent_away(kind: str, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_ANSWERS", FEW)
    bench = MqttBench("a", "b", "c")
    guest = bench.client("a", "guest", version=version)
    said = {
        "PINGREQ": by_hand.PINGREQ,
        "PUBREL": by_hand.ack(PacketKind.PUBREL, 1),
        "PUBREC": by_hand.ack(PacketKind.PUBREC, 1),
        "SUBSCRIBE": by_hand.subscribe(1, [(f"$share/{name}", 1) for name in NONE], version),
        "UNSUBSCRIBE": by_hand.unsubscribe(1, NONE, version),
    }[kind]
    with pytest.raises(MqttError, match="bytes of answers wait, which the client does not read") as caught:
        hears_nothing(guest, FEW // OVERHEAD * said)
    assert caught.value.reason is Reason.QUOTA and guest.connection.closed
    waits = guest.connection.data_to_send()
    assert len(waits) < FEW
    assert version == V3 or bytes((Reason.QUOTA,)) in waits[-100:]
    bench.finish(guest)


def test_who_reads_may_ask_for_ever() -> None:
    bench = MqttBench("a", "b", "c")
    guest = bench.client("a", "guest")
    for _ in range(3):
        guest.say(MOST_ANSWERS // OVERHEAD // 2 * by_hand.PINGREQ)
    assert not guest.connection.is_over
    bench.finish(guest)


def test_each_identifier_may_have_an_answer_that_is_not_read() -> None:
    bench = MqttBench("a", "b", "c")
    guest = bench.client("a", "guest")
    hears_nothing(guest, b"".join(by_hand.ack(PacketKind.PUBREL, 1 + number) for number in range(MOST_IDENTIFIERS)))
    assert guest.connection.unsent == MOST_IDENTIFIERS and not guest.connection.is_over
    bench.finish(guest)


def test_messages_that_wait_are_no_answers() -> None:
    bench = MqttBench("a", "b", "c")
    guest = bench.client("a", "guest")
    for _ in range(3):
        guest.connection.send(publish(text(TOPIC), bytes(MOST_ANSWERS // 2), 0, 0, b"\0"))
    hears_nothing(guest, by_hand.PINGREQ)
    assert not guest.connection.is_over
    guest.connection.data_to_send()
    bench.finish(guest)


@pytest.mark.parametrize("asked", [{}, {"request-problem-information": 1}, {"request-problem-information": 0}])
def test_a_client_that_wants_no_reasons_reads_the_code_alone(bench: MqttBench, asked: dict[str, int]) -> None:
    writer = bench.stranger("a")
    writer.say(by_hand.connect("writer", found=asked))
    writer.say(by_hand.publish("elsewhere", b"m", 1, 1) + by_hand.publish("elsewhere", b"m", 2, 2))
    puback, pubrec = writer.heard[-2:]
    assert puback.reason == pubrec.reason == Reason.BAD_TOPIC
    assert (len(puback.body) == 3, len(pubrec.body) == 3) == ((0 in asked.values(),) * 2)
