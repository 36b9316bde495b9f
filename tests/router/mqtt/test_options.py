"""Options of subscriptions: subscription identifiers, no-local, retain as published (MQTT 5 3.8.2, 3.8.3).

a ~~~ b ~~~ c       whole routers but for their sockets, all in contact
"""

import pytest

from router.mqtt.format.packets import PublishPacket, SubscriptionOptions, options_of
from router.mqtt.format.values import V3, PacketKind
from tests.router.mqtt import by_hand
from tests.router.mqtt.bench import TOPIC, MqttBench, MqttGuest, publish

NO_LOCAL, RETAIN_AS_PUBLISHED, RETAIN_HANDLING = 0x04, 0x08, 0x20
IDENTIFIER = "subscription-identifier"


def member(bench: MqttBench, router: str = "a", *, clean: bool = True) -> MqttGuest:
    return bench.client(router, "member", clean=clean, expiry=4)


def ends(guest: MqttGuest) -> None:
    guest.say(by_hand.disconnect(0, {"session-expiry-interval": 0}))


def identifiers(messages: list[PublishPacket]) -> list[int]:
    return [message.properties.get(IDENTIFIER, 0) for message in messages]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_client_gets_no_message_of_its_own_if_it_asks_for_that(bench: MqttBench, qos: int) -> None:
    guest, other = member(bench), bench.reader("c")
    guest.say(by_hand.subscribe(1, [(TOPIC, qos | NO_LOCAL)]))
    assert guest.heard[-1].body == b"\0\1\0" + bytes((qos,))
    publish(guest, b"own", qos, 1)
    publish(other, b"other's", qos, 1)
    assert (guest.payloads, other.payloads) == ([b"other's"], [b"own", b"other's"])
    ends(guest)


@pytest.mark.parametrize("router", ["a", "b"])
def test_a_session_keeps_the_options_of_its_subscriptions(bench: MqttBench, router: str) -> None:
    guest, other = member(bench), bench.client("c", "other")
    guest.say(by_hand.subscribe(1, [(TOPIC, 1 | NO_LOCAL)], subscription=9))
    guest.leave()
    back = member(bench, router, clean=False)
    assert back.is_present
    publish(back, b"own", 1, 1)
    publish(other, b"other's", 1, 1)
    assert (back.payloads, identifiers(back.messages)) == ([b"other's"], [9])
    ends(back)


def test_each_subscription_has_its_identifier(bench: MqttBench) -> None:
    guest, other = member(bench), bench.client("c", "other")
    guest.say(by_hand.subscribe(1, [(TOPIC, 1)], subscription=(1 << 28) - 1))
    guest.say(by_hand.subscribe(2, [("topic/+", 2)], subscription=2))
    guest.say(by_hand.subscribe(3, [("topic/#", 0)]))
    publish(other, b"m", 2, 1)
    assert sorted(identifiers(guest.messages)) == [0, 2, (1 << 28) - 1]
    ends(guest)


def test_another_subscribe_replaces_the_options(bench: MqttBench) -> None:
    guest = member(bench)
    for number, (options, subscription) in enumerate([(1 | NO_LOCAL, 1), (1, 2), (1, 0)], 1):
        guest.say(by_hand.subscribe(number, [(TOPIC, options)], subscription=subscription))
        publish(guest, b"%d" % number, 1, number)
    assert (guest.payloads, identifiers(guest.messages)) == ([b"2", b"3"], [2, 0])
    assert len([heard for heard in guest.heard if heard.kind is PacketKind.SUBACK]) == 3
    ends(guest)


def test_options_about_retained_messages_are_taken(bench: MqttBench) -> None:
    """There are none, so these options change nothing."""
    guest = member(bench)
    guest.say(by_hand.subscribe(1, [(TOPIC, 1 | RETAIN_AS_PUBLISHED | RETAIN_HANDLING)]))
    publish(guest, b"m", 1, 1)
    assert guest.payloads == [b"m"]
    ends(guest)


def test_a_client_of_3_1_1_has_no_identifiers(bench: MqttBench) -> None:
    guest, writer = member(bench), bench.client("c", "writer")
    guest.say(by_hand.subscribe(1, [(TOPIC, 1)], subscription=9))
    guest.leave()
    back = bench.client("a", "member", clean=False, version=V3)
    publish(writer, b"m", 1, 1)
    assert (back.payloads, identifiers(back.messages)) == ([b"m"], [0])
    back.leave()
    bench.client("a", "member").leave()


@pytest.mark.parametrize("options", [SubscriptionOptions(), SubscriptionOptions(True, (1 << 28) - 1)])
def test_options_are_kept_as_a_number(options: SubscriptionOptions) -> None:
    assert options_of(options.packed) == options
