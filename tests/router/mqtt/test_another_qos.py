"""Another QoS for a topic, with messages under way: what a subscriber is sent again, and what it has said counts.

a ~~~ b ~~~ c       whole routers but for their sockets, all in contact
"""

from router.mqtt.format.values import PacketKind, Reason
from tests.router.mqtt import by_hand
from tests.router.mqtt.bench import TOPIC, MqttBench, publish

PUBREC, PUBREL, PUBCOMP, PUBACK = PacketKind.PUBREC, PacketKind.PUBREL, PacketKind.PUBCOMP, PacketKind.PUBACK


def test_what_was_sent_on_a_connection_is_not_sent_again_on_it() -> None:
    """It would be answered twice, and the second answer be taken for that to what has its identifier next."""
    bench = MqttBench("a", "b", "c")
    reader, writer = bench.reader("b", qos=1, expiry=5, acks=False), bench.client("a", "writer")
    publish(writer, b"m", 1, 5)
    for qos in (2, 1):
        reader.say(by_hand.subscribe(2, [(TOPIC, qos)]))
    assert reader.payloads == [b"m"]
    reader.leave()
    again = bench.client("b", "reader", clean=False, expiry=5, acks=False)
    assert [(message.identifier, message.dup) for message in again.messages] == [(reader.messages[0].identifier, True)]
    again.say(by_hand.ack(PUBACK, again.messages[0].identifier))
    assert writer.told(PUBACK) == [(5, 0)]
    bench.finish(again, writer)


def test_what_a_subscriber_refuses_while_its_link_is_attached_anew_it_has_refused() -> None:
    """The others have not heard of the attach yet. Then another router is home, and asks who has the message."""
    bench = MqttBench("a", "b", "c")
    reader, writer = bench.reader("b", expiry=5, acks=False), bench.client("a", "writer", expiry=5)
    publish(writer, b"m", 2, 5)
    writer.leave()
    bench.is_slow = True
    reader.say(by_hand.subscribe(2, [(TOPIC, 1)]))
    reader.say(by_hand.ack(PUBREC, reader.messages[0].identifier, Reason.IMPLEMENTATION))
    bench.is_slow = False
    bench.flow()
    writer = bench.client("c", "writer", clean=False, expiry=5)
    publish(writer, b"m", 2, 5, dup=True)
    assert reader.payloads == [b"m"]
    assert writer.told(PUBREC) == [(5, Reason.IMPLEMENTATION)]
    bench.finish(reader, writer)
