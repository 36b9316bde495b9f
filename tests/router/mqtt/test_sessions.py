"""When an MQTT client has a session, and when it has none any more: what it is told, and what becomes of its links.

a ~~~ b ~~~ c       whole routers but for their sockets, all in contact
"""

import pytest

from router.mqtt.format.values import V3, V5, PacketKind, Reason
from router.security.rules import Rule
from tests.router.mqtt import by_hand
from tests.router.mqtt.bench import TOPIC, MqttBench, MqttGuest, leave, publish
from topic.directory.entry import Role, Status

OTHER = "topic/other"


def wait(bench: MqttBench, seconds: int) -> None:
    for _ in range(seconds):
        bench.time(1.0)


def both(bench: MqttBench, router: str, expiry: int = 4) -> MqttGuest:
    """A client that is subscribed, and publishes."""
    client = bench.reader(router, "client", expiry=expiry)
    client.say(by_hand.publish(OTHER, b"said", 2, 7) + by_hand.ack(PacketKind.PUBREL, 7))
    return client


def links(bench: MqttBench, client: str = "client") -> set[tuple[str, str]]:
    """The live ones: of which role, and at which router, as all of them have it."""
    found = [
        {
            (entry.role.name, entry.router)
            for entry in router.node.topic.directory.of_session((client, ""))
            if entry.live
        }
        for router in bench.routers.values()
    ]
    assert all(one == found[0] for one in found)
    return found[0]


def test_a_session_that_has_expired_is_not_present(bench: MqttBench) -> None:
    bench.reader("b", clean=False, expiry=2).leave()
    bench.client("a", "writer", expiry=2).leave()
    for _ in range(8):
        bench.time(1.0)
    assert not bench.client("b", "reader", clean=False, expiry=2).is_present
    assert not bench.client("c", "other", clean=False, expiry=2).is_present
    assert list(bench.edges["a"].sessions) == [("", "writer")]
    bench.client("a", "another")
    assert list(bench.edges["a"].sessions) == [("", "another")]


def test_what_a_session_that_has_expired_had_in_doubt_is_not_published_again(bench: MqttBench) -> None:
    """The one who comes is told that there is none, and has no copies to send."""
    reader, writer = bench.reader("c"), bench.client("a", "writer", expiry=1)
    publish(writer, b"m", 2, 5)
    writer.leave()
    bench.time(1.5)
    assert not bench.client("a", "writer", clean=False, expiry=1).is_present
    assert reader.payloads == [b"m"]


def test_a_session_ends_with_its_client_or_when_it_says_so(bench: MqttBench) -> None:
    for expiry, said in ((0, b""), (4, by_hand.packet(0xE0, b"\0\5\x11\0\0\0\0"))):
        reader = bench.reader("b", "reader", clean=False, expiry=expiry)
        reader.say(said)
        if reader in reader.router.guests:
            reader.leave()
        assert not bench.client("b", "reader", clean=False).is_present
        bench.edges["b"].sessions.clear()


def test_a_session_that_its_client_may_not_have_heard_of_is_not_kept(bench: MqttBench) -> None:
    """The client may expect the one that it had before. Who has asked for a new one expects that."""
    bench.client("a", "client", clean=False, expiry=4).leave()
    assert not bench.client("a", "client", clean=False, expiry=4).is_present
    bench.client("a", "other", clean=True, expiry=4).leave()
    assert bench.client("a", "other", clean=False, expiry=4).is_present


def test_a_session_whose_client_has_said_something_is_kept(bench: MqttBench) -> None:
    client = bench.client("a", "client", clean=False, expiry=4)
    client.say(by_hand.PINGREQ)
    client.leave()
    assert bench.client("a", "client", clean=False, expiry=4).is_present


def test_all_links_of_a_session_last_until_the_last_one_would_have_expired(bench: MqttBench) -> None:
    client = both(bench, "a")
    client.leave()
    wait(bench, 3)
    client = bench.client("a", "client", clean=False, expiry=4)
    wait(bench, 20)
    assert links(bench) == {("PUBLISHER", "a"), ("SUBSCRIBER", "a")}
    client.leave()
    wait(bench, 8)
    assert links(bench) == set()


def test_at_another_router_a_client_has_all_its_links_from_the_begin(bench: MqttBench) -> None:
    """Else those that it has not used yet would expire while it is there."""
    both(bench, "a").leave()
    there = bench.client("c", "client", clean=False, expiry=4)
    assert there.is_present
    assert links(bench) == {("PUBLISHER", "c"), ("SUBSCRIBER", "c")}
    wait(bench, 20)
    there.leave()
    back = bench.client("a", "client", clean=False, expiry=4)
    assert back.is_present
    assert links(bench) == {("PUBLISHER", "a"), ("SUBSCRIBER", "a")}


def test_a_session_of_which_a_link_has_expired_is_over_and_what_is_left_of_it_ends(bench: MqttBench) -> None:
    """All routers are not told of all ends at once. Nothing ends before the client has heard of it: that would be known
    of one link before it is of another, to who has to tell the client next."""
    both(bench, "a").leave()
    for router in bench.routers.values():
        directory = router.node.topic.directory
        (published,) = [one for one in directory.of_session(("client", "")) if one.role is Role.PUBLISHER]
        directory.mark(published, Status.EXPIRED if router.name == "b" else Status.BOUND)
    for name in ("b", "a"):
        client = bench.client(name, "client", clean=False, expiry=4)
        assert not client.is_present
        assert any(entry.live for entry in directory.of_session(("client", "")))
    client.say(by_hand.PINGREQ)
    assert links(bench) == set()


def test_a_session_of_which_the_latest_link_has_expired_is_over_though_an_earlier_one_lasts() -> None:
    """The client was at c before c had heard of what it had at a. Router b is lost before it can agree to both ends."""
    bench = MqttBench("a", "b", "c")
    bench.is_slow = True
    here = bench.client("a", "writer", expiry=5)
    publish(here, b"m", 2, 1)
    bench.flow_but("a", "c")
    here.leave()
    bench.time(0.1)
    there = bench.client("c", "writer", expiry=5)
    there.say(by_hand.subscribe(1, [(OTHER, 2)]))
    bench.is_slow = False
    bench.flow()
    there.leave()
    while links(bench, "writer") == {("PUBLISHER", "a"), ("SUBSCRIBER", "c")}:
        bench.time(0.5)
    bench.lose("b")
    wait(bench, 8)
    assert links(bench, "writer") == {("PUBLISHER", "a")}
    back = bench.client("c", "writer", clean=False, expiry=5)
    assert not back.is_present
    back.say(by_hand.PINGREQ)
    assert links(bench, "writer") == set()
    bench.finish(*bench.mqtt_guests())


def test_a_session_that_goes_on_is_not_over_for_what_its_client_has_left_elsewhere() -> None:
    """A dead connection is read at b, which has not heard of the client at a: that link is the last, and expires."""
    bench = MqttBench("a", "b", "c")
    bench.is_slow = True
    here = bench.client("a", "client", clean=False, expiry=4)
    here.say(by_hand.subscribe(1, [(TOPIC, 2)]))
    bench.flow_but("a", "b")
    bench.time(0.1)
    late = bench.stranger("b")
    late.is_here = False
    asked = by_hand.connect("client", clean=False, found={"session-expiry-interval": 4})
    late.say(asked + by_hand.subscribe(1, [(OTHER, 2)]))
    late.leave()
    bench.is_slow = False
    bench.flow()
    assert links(bench) == {("SUBSCRIBER", "a"), ("SUBSCRIBER", "b")}
    wait(bench, 20)
    here.leave()
    publish(bench.client("b", "writer"), b"m", 2, 1)
    back = bench.client("c", "client", clean=False, expiry=4)
    assert back.is_present and back.payloads == [b"m"]
    bench.finish(*bench.mqtt_guests())


@pytest.mark.parametrize("is_certain", [False, True])
def test_who_begins_anew_and_says_goodbye_has_that_session(bench: MqttBench, is_certain: bool) -> None:
    """That the former one has expired is remembered, until then."""
    bench.reader("a", "client", expiry=4).leave()
    wait(bench, 8)
    client = bench.stranger("a")
    client.is_here = is_certain
    client.say(by_hand.connect("client", clean=True, found={"session-expiry-interval": 4}))
    client.say(by_hand.DISCONNECT)
    assert bench.client("a", "client", clean=False, expiry=4).is_present


def test_who_is_told_of_a_new_session_and_says_goodbye_has_heard_of_it(bench: MqttBench) -> None:
    both(bench, "a").leave()
    for router in bench.routers.values():
        for entry in list(router.node.topic.directory.of_session(("client", ""))):
            router.node.topic.directory.mark(entry, Status.BOUND)
    client = bench.client("b", "client", clean=False, expiry=4)
    assert not client.is_present
    client.say(by_hand.DISCONNECT)
    assert links(bench) == set()


def test_who_was_told_that_its_session_goes_on_is_sent_away_if_it_is_over_by_then() -> None:
    """It was let in at c; the end was under way, and is here before it is certain that the client is."""
    bench = MqttBench("a", "b", "c")
    both(bench, "a").leave()
    there = bench.stranger("c")
    there.is_here = False
    there.say(by_hand.connect("client", clean=False, found={"session-expiry-interval": 4}))
    assert there.is_present
    wait(bench, 8)
    assert links(bench) == set()
    there.is_here = True
    bench.flow()
    assert there.kinds()[-1] == "DISCONNECT"
    there.leave()
    assert not bench.client("c", "client", clean=False, expiry=4).is_present
    bench.finish(*bench.mqtt_guests())


def test_what_the_rules_do_not_allow_any_more_does_not_go_on_at_another_router() -> None:
    bench = MqttBench("a", "b", "c")
    both(bench, "a").leave()
    bench.rule = Rule(send=(), receive=(TOPIC,))
    there = bench.client("c", "client", clean=False, expiry=4)
    assert links(bench) == {("SUBSCRIBER", "c")}
    bench.finish(there)


def test_who_is_cut_off_before_it_has_its_links_again_has_no_session_there() -> None:
    """The links of the former one end where they were; a session without any would be thought to go on."""
    bench = MqttBench("a", "b", "c")
    bench.reader("a", expiry=4).leave()
    there = bench.stranger("c")
    there.is_here = False
    there.say(by_hand.connect("reader", clean=False, found={"session-expiry-interval": 4}))
    assert there.is_present
    there.leave()
    assert links(bench, "reader") == {("SUBSCRIBER", "a")}
    back = bench.client("a", "reader", clean=False, expiry=4)
    assert back.is_present
    back.say(by_hand.packet(0xE0, b"\0\5\x11\0\0\0\0"))  # goodbye, and no session any more
    assert links(bench, "reader") == set()
    assert not bench.client("c", "reader", clean=False, expiry=4).is_present
    bench.finish(*bench.mqtt_guests())


def test_what_a_former_session_has_left_elsewhere_says_nothing_of_the_one_that_follows() -> None:
    """Router c has not forgotten yet what expired; its owner has."""
    for is_killed in (False, True):
        bench = MqttBench("a", "b", "c")
        former = bench.client("a", "client", expiry=4)
        former.say(by_hand.subscribe(1, [(OTHER, 1)]))
        former.leave()
        wait(bench, 9)
        assert bench.routers["c"].node.topic.directory.of_session(("client", ""))
        client = bench.client("a", "client", clean=False, expiry=4)
        assert not client.is_present
        client.say(by_hand.subscribe(1, [(TOPIC, 1)]))
        leave(bench, client, is_killed=is_killed)
        publish(bench.client("b", "writer"), b"m", 1, 1)
        there = bench.client("c", "client", clean=False, expiry=4)
        assert there.is_present
        assert there.payloads == [b"m"]
        bench.finish(*bench.mqtt_guests())


@pytest.mark.parametrize("version", [V3, V5])
@pytest.mark.parametrize("routers", ["bbb", "ccc", "bcb"])
@pytest.mark.parametrize("heals", [False, True])
def test_who_has_missed_something_is_told_so_and_let_in(version: int, routers: str, heals: bool) -> None:
    """It has had one topic at a, and another at c, as they were apart. Something was accepted without the first."""
    bench = MqttBench("a", "b", "c")
    bench.part("a", "c")
    bench.part("b", "c")
    bench.reader("a", "client", 1, clean=False, expiry=4, version=version).leave()
    last = bench.client("c", "client", clean=False, expiry=4, version=version)
    last.say(by_hand.subscribe(1, [(OTHER, 1)], version))
    bench.part("b", "c")
    bench.part("a", "b")
    publish(bench.client("b", "writer"), b"missed", 1, 9)
    wait(bench, 8)
    last.leave()
    if heals:
        bench.meet()
    told = []
    for name in routers:
        client = bench.client(name, "client", clean=False, expiry=4, version=version)
        client.say(by_hand.PINGREQ)
        told.append((client.is_present, client.connection.is_over))
        client.leave()
    assert not told[0][0]
    assert not any(is_over for _, is_over in told)


def test_a_connection_that_is_over_late_is_not_that_of_the_session_that_follows(bench: MqttBench) -> None:
    """Its client has gone to c, and has come back, before it has answered the router's goodbye."""
    late = bench.reader("a", "client")
    bench.reader("c", "client")
    assert late.connection.closing and not late.connection.closed
    client = bench.client("a", "client", clean=False, expiry=4)
    client.say(by_hand.PINGREQ)
    client.leave()
    late.leave()
    assert bench.client("a", "client", clean=False, expiry=4).is_present


@pytest.mark.parametrize(("before", "after"), [(4, 1), (1, 4)])
def test_a_client_may_change_its_session_expiry_as_it_leaves(bench: MqttBench, before: int, after: int) -> None:
    client = both(bench, "b", before)
    assert links(bench) == {("SUBSCRIBER", "b"), ("PUBLISHER", "b")}
    client.say(by_hand.disconnect(0, {"session-expiry-interval": after}))
    assert "DISCONNECT" not in client.kinds()
    client.leave()
    wait(bench, 3)
    again = bench.client("b", "client", clean=False)
    assert again.is_present == (after == 4)
    publish(bench.client("a", "writer"), b"m", 1, 1)
    assert again.payloads == ([b"m"] if after == 4 else [])
    again.leave()


def test_what_is_under_way_as_the_session_expiry_changes_comes_again(bench: MqttBench) -> None:
    reader, writer = bench.reader("b", "client", expiry=1, acks=False), bench.client("a", "writer")
    publish(writer, b"m", 2, 1)
    reader.say(by_hand.disconnect(0, {"session-expiry-interval": 4}))
    wait(bench, 3)
    assert writer.told(PacketKind.PUBREC) == []
    again = bench.client("b", "client", clean=False)
    assert (reader.payloads, again.payloads, again.messages[0].dup) == ([b"m"], [b"m"], True)
    assert writer.told(PacketKind.PUBREC) == [(1, 0)]
    again.leave()


def test_a_session_that_was_not_to_last_cannot_be_made_to_last(bench: MqttBench) -> None:
    client = bench.client("b", "client")
    client.say(by_hand.disconnect(0, {"session-expiry-interval": 4}))
    assert [(heard.kind, heard.reason) for heard in client.heard[1:]] == [
        (PacketKind.DISCONNECT, Reason.PROTOCOL_ERROR)
    ]
