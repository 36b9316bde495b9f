"""Shared subscriptions: the members of a group consume from one queue, which is bound to their filter (protocol
14.22)."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from router.mqtt.format.values import V3, V5, PacketKind, Reason
from router.mqtt.shared import SharedSubscriber, queue_for, subscription_of, topic_filter_of
from router.mqtt.subscriber import Subacks
from tests.router.mqtt import by_hand
from tests.router.mqtt.bench import TOPIC, MqttBench, MqttGuest
from tests.router.mqtt.shared_bench import QUEUE, SHARED, SharedBench
from tests.topic.raft.mutants import Broken, must_notice
from topic.queues.declaring.declarations import Declarations
from topic.queues.leader.ingress import Ingress
from topic.queues.leader.temporary import AWAY_S, TemporaryQueues


@pytest.fixture
def bench() -> Iterator[SharedBench]:
    bench = SharedBench("a", "b", "c")
    yield bench
    bench.end()


def joins(
    bench: MqttBench, router: str, client: str, name: str = SHARED, *, qos: int = 2, expiry: int = 0, acks: bool = True
) -> MqttGuest:
    guest = bench.client(router, client, expiry=expiry, acks=acks)
    guest.say(by_hand.subscribe(1, [(name, qos)]))
    assert codes_of(guest) == [qos]
    guest.heard.clear()
    return guest


def codes_of(guest: MqttGuest) -> list[int]:
    """The codes of its only SUBACK."""
    (suback,) = [heard for heard in guest.heard if heard.kind is PacketKind.SUBACK]
    return list(suback.body[2:] if guest.version == V3 else suback.body[3:])


def sends(bench: MqttBench, *payloads: bytes, topic: str = TOPIC, router: str = "c", qos: int = 2) -> None:
    writer = bench.client(router, "writer")
    for number, payload in enumerate(payloads, 1):
        writer.say(by_hand.publish(topic, payload, qos, number))
    writer.leave()


BODIES = [b"%d" % number for number in range(12)]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_message_goes_to_one_member(bench: SharedBench, qos: int) -> None:
    members = [joins(bench, router, f"m{router}", qos=qos) for router in "abc"]
    other = bench.reader("a", "alone")
    sends(bench, *BODIES)
    assert sorted(payload for member in members for payload in member.payloads) == sorted(BODIES)
    assert other.payloads == BODIES
    assert {packet.topic for member in members for packet in member.messages} == {TOPIC}
    assert {packet.qos for member in members for packet in member.messages} == {qos}
    assert bench.queues() == [QUEUE]


def test_the_queue_goes_with_the_last_member(bench: SharedBench) -> None:
    first, second = joins(bench, "a", "first"), joins(bench, "b", "second")
    first.leave()
    bench.time(5)
    assert bench.queues() == [QUEUE]
    second.say(by_hand.unsubscribe(2, [SHARED]))
    assert second.kinds() == ["UNSUBACK"]
    bench.time(5)
    assert bench.queues() == []
    sends(bench, b"nobody")
    again = joins(bench, "c", "again")
    sends(bench, b"1")
    assert again.payloads == [b"1"]


def test_two_first_members_at_two_routers_make_one_queue(bench: SharedBench) -> None:
    guests = [bench.client(router, f"m{router}") for router in "bc"]
    bench.is_slow = True
    for guest in guests:
        guest.say(by_hand.subscribe(1, [(SHARED, 2)]))
    assert bench.queues() == []
    bench.is_slow = False
    bench.flow()
    assert [codes_of(guest) for guest in guests] == [[2], [2]] and bench.queues() == [QUEUE]


@pytest.mark.parametrize("qos", [1, 2])
def test_what_a_member_has_not_answered_another_member_gets(bench: SharedBench, qos: int) -> None:
    joins(bench, "a", "mute", qos=qos, acks=False)
    sends(bench, *BODIES[:3])
    other = joins(bench, "b", "other", qos=qos)
    assert other.payloads == []
    next(guest for guest in bench.mqtt_guests() if guest.connection.remote_container == "mute").leave()
    bench.time(3)
    assert sorted(other.payloads) == BODIES[:3]


def test_a_member_that_is_away_stays_a_member_until_its_session_expires(bench: SharedBench) -> None:
    member = joins(bench, "a", "member", expiry=20)
    member.leave()
    bench.time(5)
    sends(bench, b"1")
    assert bench.queues() == [QUEUE]
    again = bench.client("a", "member", clean=False, expiry=20)
    assert again.is_present and again.payloads == [b"1"]
    again.leave()
    bench.time(60)
    assert bench.queues() == []


def test_a_member_goes_on_at_another_router(bench: SharedBench) -> None:
    member = joins(bench, "a", "member", "$share/g/topic/+/x", expiry=20)
    member.leave()
    sends(bench, b"1", topic="topic/1/x")
    again = bench.client("b", "member", clean=False, expiry=20)
    bench.flow()
    assert [(packet.topic, packet.payload) for packet in again.messages] == [("topic/1/x", b"1")]
    again.heard.clear()
    again.say(by_hand.unsubscribe(2, ["$share/g/topic/+/x"]))
    (unsuback,) = [heard for heard in again.heard if heard.kind is PacketKind.UNSUBACK]
    assert unsuback.body[-1] == Reason.SUCCESS
    bench.time(5)
    assert bench.queues() == []


def test_a_pattern_shows_the_topic_of_each_message_and_groups_are_apart(bench: SharedBench) -> None:
    one, two = joins(bench, "a", "one", "$share/g/topic/#"), joins(bench, "a", "two", "$share/h/topic/#", qos=1)
    for topic in ("topic/x", "topic/y/z"):
        sends(bench, topic.encode(), topic=topic)
    for member in (one, two):
        assert [(packet.topic, packet.payload) for packet in member.messages] == [
            ("topic/x", b"topic/x"),
            ("topic/y/z", b"topic/y/z"),
        ]


@pytest.mark.parametrize("version", [V3, V5])
def test_which_groups_are_refused(bench: SharedBench, version: int) -> None:
    guest, bad, other = bench.client("a", "x", version=version), Reason.BAD_FILTER, Reason.IMPLEMENTATION
    asked = {
        "$share/": bad, "$share/g": bad, "$share/g/": bad, "$share//topic/t": bad, "$share/g+/topic/t": bad,
        "$share/#/topic/t": bad, "$share/g/topic/a+": bad, "$share/g/queue/q": other, "$share/g/none/t": bad,
        f"$share/g/topic/{'x' * 250}": Reason.NO_SHARED, "$share/g/topic/fine": 1,
    }  # fmt: skip
    guest.say(by_hand.subscribe(1, [(name, 1) for name in asked], version))
    assert codes_of(guest) == [code if code < 0x80 or version == V5 else 0x80 for code in asked.values()]


def test_no_local_breaks_the_protocol(bench: SharedBench) -> None:
    guest = bench.client("a", "x")
    guest.say(by_hand.subscribe(1, [(SHARED, 2 | 4)]))
    assert guest.heard[-1].kind is PacketKind.DISCONNECT and guest.heard[-1].reason == Reason.PROTOCOL_ERROR


def test_a_subscription_is_refused_while_no_router_leads_the_set(bench: SharedBench) -> None:
    for router in "bc":
        bench.lose(router)
    bench.time(10)
    guest = bench.client("a", "x")
    guest.say(by_hand.subscribe(1, [(SHARED, 2), ("topic/t", 1), (SHARED, 1)]))
    bench.time(60)
    assert codes_of(guest) == [Reason.UNSPECIFIED, 1, Reason.UNSPECIFIED]


@pytest.mark.parametrize("others", [0, 1])
def test_a_client_that_goes_before_its_queue_is_declared_leaves_nothing(bench: SharedBench, others: int) -> None:
    members = [joins(bench, "b", "other") for _ in range(others)]
    guest = bench.client("a", "x", expiry=20)
    bench.is_slow = True
    guest.say(by_hand.subscribe(1, [(SHARED, 2)]))
    guest.leave()
    bench.is_slow = False
    bench.flow()
    bench.time(5)
    assert len(bench.queues()) == others
    sends(bench, b"1")
    assert [member.payloads for member in members] == [[b"1"]] * others


def test_a_member_joins_while_the_queue_of_the_last_one_is_deleted(bench: SharedBench) -> None:
    """The set still has the queue when the router of the new member declares it, and none when its link comes."""
    leader, joining = bench.leader, next(name for name in "abc" if name != bench.leader)
    joins(bench, leader, "last").leave()
    former = bench.queue()
    guest = bench.client(joining, "next")
    bench.is_slow = True
    guest.say(by_hand.subscribe(1, [(SHARED, 2)]))
    for other in "abc":
        if other != joining:
            bench.bring(joining, other)
    bench.is_slow, bench.mute = False, joining
    bench.time(4)
    assert bench.queues() == [] and "SUBACK" not in guest.kinds()
    bench.mute = ""
    bench.flow()
    assert codes_of(guest) == [2] and bench.queue() != former
    sends(bench, b"1")
    assert guest.payloads == [b"1"]
    bench.time(30)
    assert bench.queues() == [QUEUE]


def test_the_queue_stays_a_second_after_its_last_member(bench: SharedBench) -> None:
    joins(bench, "a", "first").leave()
    bench.time(1)
    member = joins(bench, "a", "member")
    bench.time(3)
    member.leave()
    bench.time(1)
    assert bench.queues() == [QUEUE]
    bench.time(1.2)
    assert bench.queues() == []


def test_a_queue_stays_while_its_only_member_is_out_of_contact(bench: SharedBench) -> None:
    there = next(name for name in "abc" if name != bench.leader)
    member = joins(bench, there, "member")
    bench.cut(there)
    bench.time(AWAY_S - 5)
    assert bench.queues() == [QUEUE]
    sends(bench, b"1", router=bench.leader)
    bench.cut(there)
    bench.time(5)
    assert member.payloads == [b"1"] and "DISCONNECT" not in member.kinds()


@pytest.mark.parametrize("seconds", [AWAY_S - 10, AWAY_S + 5])
def test_a_leader_that_does_not_know_the_links_of_members_waits_a_minute_for_them(
    bench: SharedBench, seconds: float
) -> None:
    there = next(name for name in "abc" if name != bench.leader)
    member = joins(bench, there, "member")
    bench.cut(there)
    bench.restart(*(name for name in "abc" if name != there), apart=there)
    bench.time(seconds)
    is_over = seconds > AWAY_S
    assert bench.queues() == [QUEUE] * (not is_over)
    bench.cut(there)
    bench.time(5)
    told = [(heard.kind, heard.reason) for heard in member.heard]
    assert told == [(PacketKind.DISCONNECT, Reason.ADMINISTRATIVE)] * is_over
    last = joins(bench, there, "member") if is_over else member
    sends(bench, b"1")
    assert last.payloads == [b"1"]


def test_a_member_that_is_refused_takes_the_queue_from_nobody(bench: SharedBench) -> None:
    """The router of the refused member may not delete a queue that it may have declared: others have it too."""
    there = next(name for name in "abc" if name != bench.leader)
    stays = joins(bench, bench.leader, "stays")
    bench.cut(there)
    guest = bench.client(there, "refused")
    guest.say(by_hand.subscribe(1, [(SHARED, 2)]))
    bench.time(60)
    assert codes_of(guest) == [Reason.UNSPECIFIED]
    bench.cut(there)
    bench.time(5)
    sends(bench, b"1")
    assert stays.payloads == [b"1"] and "DISCONNECT" not in stays.kinds()


def test_a_new_qos_keeps_the_membership(bench: SharedBench) -> None:
    member = joins(bench, "a", "member")
    member.say(by_hand.subscribe(2, [(SHARED, 1)]))
    assert codes_of(member) == [1]
    sends(bench, b"1")
    assert [(packet.qos, packet.payload) for packet in member.messages] == [(1, b"1")]


@pytest.mark.parametrize("name", ["$share/g/topic/+/a/#", "$share/100%/topic/*.x%2B", "$share/ü/topic/a"])
def test_the_name_of_a_queue_tells_the_subscription(bench: SharedBench, name: str) -> None:
    queue = queue_for(bench.routers["a"].node, name)
    assert queue is not None and not {"+", "#", "*"} & {*queue}
    assert subscription_of(queue) == name and subscription_of(name) is None
    assert topic_filter_of(name) == name.split("/", 2)[2]


def test_without_sets_the_mesh_has_no_groups() -> None:
    bench = MqttBench("a", "b")
    guest = bench.client("a", "x", version=V5)
    guest.say(by_hand.subscribe(1, [(SHARED, 2)]))
    assert codes_of(guest) == [Reason.NO_SHARED]


def _on(scene: Callable[..., None], *arguments: Any) -> Callable[[], None]:
    """The scene on a bench of its own."""

    def played() -> None:
        scene(SharedBench(*"abc"), *arguments)

    return played


BROKEN: list[Broken] = [
    (SharedSubscriber, "detach", "action.description == DELETED and not self.is_answered", "False",
     _on(test_a_member_joins_while_the_queue_of_the_last_one_is_deleted)),
    (TemporaryQueues, "_may_have_links", "LINGER_S if", "0 if",
     _on(test_the_queue_stays_a_second_after_its_last_member)),
    (TemporaryQueues, "_may_have_links", "self._unlinked.pop(queue.id, None)", "pass",
     _on(test_the_queue_stays_a_second_after_its_last_member)),
    (TemporaryQueues, "_may_have_links", "LINGER_S if self._directory.complete else AWAY_S", "LINGER_S",
     _on(test_a_leader_that_does_not_know_the_links_of_members_waits_a_minute_for_them, AWAY_S - 10)),
    (TemporaryQueues, "_may_have_links", "LINGER_S if self._directory.complete else AWAY_S", "float('inf')",
     _on(test_a_leader_that_does_not_know_the_links_of_members_waits_a_minute_for_them, AWAY_S + 5)),
    (Declarations, "answered", "is_held and", "",
     _on(test_a_member_that_is_refused_takes_the_queue_from_nobody)),
    (SharedSubscriber, "gone", "if not self._is_declared", "if False",
     _on(test_a_client_that_goes_before_its_queue_is_declared_leaves_nothing, 1)),
    (SharedSubscriber, "_declared", "self.host.refused(", "(lambda *_: None)(",
     _on(test_a_subscription_is_refused_while_no_router_leads_the_set)),
    (Ingress, "_message", "marking is not None", "False",
     _on(test_a_pattern_shows_the_topic_of_each_message_and_groups_are_apart)),
    (Subacks, "refuse", "waiting.places[end]", "waiting.places[end][:1]",
     _on(test_a_subscription_is_refused_while_no_router_leads_the_set)),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_a_rule_that_is_broken_is_noticed(number: int) -> None:
    must_notice(BROKEN[number])
