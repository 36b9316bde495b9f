"""Wills: who publishes them, when, and that no subscriber gets one twice (protocol 15).

a ~~~ b ~~~ c       whole routers but for their sockets, all in contact
"""

from collections.abc import Mapping
from math import inf
from typing import Any

import pytest

from router.mqtt.format.values import V3, V5, PacketKind, Reason
from router.security.rules import Rule
from tests.fuzz.mesh import FuzzRouter
from tests.router.mqtt import by_hand
from tests.router.mqtt.bench import TOPIC, MqttBench, MqttGuest, answer_all
from topic.errors import BreachError
from topic.wills.will import MOST_WILL, WILLS, WillWord, read_message, write_message

DELAY = {"will-delay-interval": 2}


def mortal(
    bench: MqttBench, router: str = "a", *, expiry: int = 0, version: int = V5, clean: bool = True, qos: int = 1,
    found: Mapping[str, Any] | None = None, payload: bytes = b"will",
) -> MqttGuest:  # fmt: skip
    """A client with a will."""
    guest = bench.stranger(router, version)
    asked = {"session-expiry-interval": expiry} if expiry else {}
    will = by_hand.WillByHand(TOPIC, payload, qos, found or {})
    guest.say(by_hand.connect("mortal", version, clean=clean, found=asked, will=will))
    assert guest.connection.opened, guest.heard
    return guest


def dies(bench: MqttBench, name: str = "a") -> None:
    """The router's process is gone, and its neighbours know that."""
    bench.lose(name)
    told = min(bench.routers)
    with bench.acting(bench.routers[told]):
        bench.routers[told].node.refused(name)
    bench.flow()


def are_forgotten(bench: MqttBench) -> bool:
    return not any(router.node.wills.count for router in bench.routers.values())


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", [V3, V5])
def test_the_will_of_a_client_that_is_cut_off_is_published_once(bench: MqttBench, version: int, qos: int) -> None:
    readers = [bench.reader(router, f"reader {router}") for router in "ac"]
    guest = mortal(bench, version=version, qos=qos)
    assert [reader.payloads for reader in readers] == [[], []]
    guest.leave()
    assert [reader.payloads for reader in readers] == [[b"will"], [b"will"]]
    assert {reader.messages[0].qos for reader in readers} == {qos}
    assert are_forgotten(bench)


@pytest.mark.parametrize(("goodbye", "wills"), [
    (by_hand.DISCONNECT, 0), (by_hand.disconnect(0), 0), (by_hand.disconnect(Reason.WITH_WILL), 1),
    (by_hand.disconnect(Reason.UNSPECIFIED), 1),
])  # fmt: skip
def test_a_client_that_says_goodbye_has_no_will_unless_it_asks_for_it(
    bench: MqttBench, goodbye: bytes, wills: int
) -> None:
    reader, guest = bench.reader("b"), mortal(bench)
    guest.say(goodbye)
    assert len(reader.messages) == wills
    assert are_forgotten(bench)


def test_a_will_has_its_properties(bench: MqttBench) -> None:
    reader = bench.reader("b")
    found = {"content-type": "a/b", "response-topic": "topic/r", "correlation-data": b"c", "message-expiry-interval": 9,
             "payload-format-indicator": 1, "user-property": [("k", "1"), ("k", "2")]}  # fmt: skip
    mortal(bench, found=found).leave()
    assert reader.messages[0].properties == found


def test_a_will_waits_for_its_delay(bench: MqttBench) -> None:
    reader = bench.reader("b")
    mortal(bench, expiry=4, found=DELAY).leave()
    bench.time(1.5)
    assert reader.payloads == []
    bench.time(0.6)
    assert reader.payloads == [b"will"]
    bench.client("a", "mortal").leave()


def test_a_will_does_not_wait_longer_than_the_session_lasts(bench: MqttBench) -> None:
    reader = bench.reader("b")
    mortal(bench, expiry=1, found=DELAY).leave()
    bench.time(1.1)
    assert reader.payloads == [b"will"]
    bench.client("a", "mortal").leave()
    mortal(bench, found=DELAY).leave()
    assert reader.payloads == [b"will"] * 2


@pytest.mark.parametrize("router", ["a", "b"])
def test_a_client_that_is_back_in_time_has_no_will(bench: MqttBench, router: str) -> None:
    """At another router, it is not even certain that it has left."""
    reader, guest = bench.reader("c"), mortal(bench, expiry=4, found=DELAY)
    guest.say(by_hand.subscribe(1, [("topic/other", 1)]))
    if router == "a":
        guest.leave()
    back = bench.client(router, "mortal", clean=False, expiry=4)
    assert back.is_present
    bench.time(3.0)
    assert reader.payloads == []
    assert are_forgotten(bench)
    assert guest.connection.is_over
    back.say(by_hand.disconnect(0, {"session-expiry-interval": 0}))


@pytest.mark.parametrize("router", ["a", "b"])
@pytest.mark.parametrize("found", [DELAY, {}])
def test_the_will_of_a_session_that_is_over_does_not_wait(
    bench: MqttBench, router: str, found: Mapping[str, Any]
) -> None:
    """The client begins another session, or its will has no delay: it is published at once."""
    reader, guest = bench.reader("c"), mortal(bench, expiry=4, found=found)
    back = mortal(bench, router, clean=bool(found), payload=b"other")
    assert reader.payloads == [b"will"]
    assert guest.connection.is_over and not back.connection.is_over
    back.say(by_hand.DISCONNECT)
    assert reader.payloads == [b"will"]
    assert are_forgotten(bench)


def test_a_connect_that_is_read_late_ends_no_will() -> None:
    """The client has given the connection up, and is at its router."""
    bench = MqttBench("a", "b", "c")
    reader = bench.reader("c")
    guest = mortal(bench, expiry=4, found=DELAY)
    late = bench.stranger("b")
    late.is_here = False
    late.say(by_hand.connect("mortal"))
    assert not guest.connection.is_over
    late.leave()
    guest.leave()
    bench.time(2.5)
    assert reader.payloads == [b"will"]
    bench.client("a", "mortal").leave()
    bench.finish(*bench.mqtt_guests())


@pytest.mark.parametrize("expiry", [0, 4])
def test_the_will_is_published_although_its_router_has_died(bench: MqttBench, expiry: int) -> None:
    readers = [bench.reader(router, f"reader {router}") for router in "bc"]
    mortal(bench, expiry=expiry, found=DELAY if expiry else {})
    dies(bench)
    if expiry:
        assert [reader.payloads for reader in readers] == [[], []]
        bench.time(2.5)
    assert [reader.payloads for reader in readers] == [[b"will"], [b"will"]]
    assert are_forgotten(bench)


def test_the_will_is_published_when_its_router_is_back(bench: MqttBench) -> None:
    """Its host did not say that the process had gone."""
    reader = bench.reader("b")
    mortal(bench)
    bench.lose("a")
    bench.time(30.0)
    assert reader.payloads == []
    restart(bench, "a")
    assert reader.payloads == [b"will"]
    assert are_forgotten(bench)


def test_a_router_out_of_contact_may_have_the_client(bench: MqttBench) -> None:
    reader, guest = bench.reader("b"), mortal(bench)
    bench.part("a", "b")
    bench.part("a", "c")
    bench.time(3.0)
    assert reader.payloads == []
    bench.meet()
    guest.leave()
    assert reader.payloads == [b"will"]


def test_a_will_that_its_router_was_publishing_comes_once() -> None:
    """It died when one subscriber had it, and another one had not answered."""
    bench = MqttBench("a", "b", "c")
    fast, slow = bench.reader("b", "fast"), bench.reader("c", "slow", acks=False, expiry=4)
    mortal(bench).leave()
    assert (fast.payloads, slow.payloads) == ([b"will"], [b"will"])
    dies(bench)
    assert not are_forgotten(bench)
    answer_all(slow)
    assert (fast.payloads, slow.payloads) == ([b"will"], [b"will"])
    assert are_forgotten(bench)
    bench.finish(*bench.mqtt_guests())


def test_a_will_that_was_published_is_not_published_by_one_that_has_not_heard() -> None:
    """Only b had heard that the will is over when its router died."""
    bench = MqttBench("a", "b", "c")
    reader = bench.reader("b", qos=1, acks=False)
    mortal(bench).leave()
    bench.is_slow = True
    answer_all(reader)
    bench.flow_but("a", "c")
    assert [router.node.wills.count for router in bench.routers.values()] == [0, 0, 1]
    bench.is_slow = False
    dies(bench)
    assert reader.payloads == [b"will"]
    assert are_forgotten(bench)
    bench.finish(*bench.mqtt_guests())


def test_a_router_that_is_said_to_have_ended_but_lives_decides_about_its_wills(bench: MqttBench) -> None:
    """The delay of the will begins only when the router has ended."""
    reader, guest = bench.reader("c"), mortal(bench, expiry=9, found=DELAY)
    wills = bench.routers["b"].node.wills
    incarnation = bench.routers["a"].node.topic.directory.incarnation
    with bench.acting(bench.routers["b"]):
        wills.receive("c", write_message(WillWord.ENDED, "a", incarnation), bench.routers["b"].node.now())
    bench.time(3.0)
    assert reader.payloads == []
    assert wills.deadline() == inf
    dies(bench)
    bench.time(1.5)
    assert reader.payloads == []
    bench.time(1.0)
    assert reader.payloads == [b"will"]
    assert guest.connection.opened


def test_a_client_that_is_back_elsewhere_has_no_will_when_its_router_has_died(bench: MqttBench) -> None:
    reader, guest = bench.reader("c"), mortal(bench, expiry=4, found=DELAY)
    guest.say(by_hand.subscribe(1, [("topic/other", 1)]))
    bench.lose("a")
    back = bench.client("b", "mortal", clean=False, expiry=4)
    assert back.is_present
    dies_late(bench)
    bench.time(3.0)
    assert reader.payloads == []
    assert are_forgotten(bench)
    back.say(by_hand.disconnect(0, {"session-expiry-interval": 0}))


def test_a_will_that_the_client_may_not_publish_is_refused(bench: MqttBench) -> None:
    bench.rule = Rule(send=("topic/mine",), receive=(TOPIC,))
    guest = refused(bench, by_hand.WillByHand(TOPIC))
    assert guest.heard[0].body[1] == Reason.NOT_AUTHORIZED


@pytest.mark.parametrize(("will", "reason"), [
    (by_hand.WillByHand("elsewhere"), Reason.BAD_TOPIC),
    (by_hand.WillByHand(TOPIC, retain=True), Reason.NO_RETAIN),
    (by_hand.WillByHand(TOPIC, bytes(MOST_WILL + 1)), Reason.QUOTA),
])  # fmt: skip
def test_a_will_that_no_router_would_publish_is_refused(
    bench: MqttBench, will: by_hand.WillByHand, reason: Reason
) -> None:
    guest = refused(bench, will)
    assert guest.heard[0].kind is PacketKind.CONNACK and guest.heard[0].body[1] == reason


def refused(bench: MqttBench, will: by_hand.WillByHand) -> MqttGuest:
    guest = bench.stranger("a")
    guest.say(by_hand.connect("mortal", will=will))
    assert guest.connection.closed and are_forgotten(bench)
    return guest


def restart(bench: MqttBench, name: str) -> None:
    bench.routers[name] = FuzzRouter(bench, name, incarnation=2)
    bench.edges[name] = bench.edge(bench.routers[name])
    for pair in [pair for pair in bench._parted if name in pair]:
        bench._parted.discard(pair)
    for other in bench.routers:
        if other != name:
            bench._meet(name, other)
    bench.flow()


def dies_late(bench: MqttBench) -> None:
    with bench.acting(bench.routers["b"]):
        bench.routers["b"].node.refused("a")
    bench.flow()


@pytest.mark.parametrize("payload", [
    b"", b"\x00", b"\x90", write_message(WillWord.OVER, "a", 1)[1:], b"\x94\x01\xa1a\x01\x02\x03", b"\x93\x09\x01\x01",
    write_message(WillWord.ANSWER, "a", 1, 1, 9)[1:], write_message(WillWord.OVER, "a", 1, 1 << 63)[1:],
    write_message(WillWord.KEEP, "a", 1, 1, "c", "", "", b"", 0, False, 0)[1:],
    write_message(WillWord.KEEP, "a", 1, 1, "c", "", "topic/t", bytes(MOST_WILL + 1), 0, False, 0)[1:],
    write_message(WillWord.KEEP, "a", 1, 1, "c", "", "topic/t", b"", -1, False, 0)[1:],
])  # fmt: skip
def test_a_malformed_message_about_wills_is_a_breach(payload: bytes) -> None:
    with pytest.raises(BreachError):
        read_message(WILLS + payload)
