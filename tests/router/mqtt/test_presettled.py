"""What MQTT clients publish at QoS 0: at most once, and once where nothing has failed.

a ~~~ b ~~~ c       whole routers but for their sockets, all in contact
"""

import pytest

from router.edge.ends import ClientPublishingEnd
from router.mqtt.format.values import V5, PacketKind
from tests.fuzz.mesh import MAX_MESSAGE, SETTINGS
from tests.router.mqtt import by_hand
from tests.router.mqtt.bench import TOPIC, MqttBench, MqttGuest, publish


@pytest.mark.parametrize("expiry", [0, 5])
def test_what_waits_for_credit_as_its_client_goes_on_elsewhere_is_published(bench: MqttBench, expiry: int) -> None:
    reader, old = bench.reader("c"), bench.client("a", "writer", clean=not expiry, expiry=expiry)
    publish(old, b"first", 0)
    bench.is_slow = True
    for _ in range(2 * SETTINGS.window):
        publish(old, b"left behind", 0)
    old.leave()
    new = bench.client("b", "writer", clean=not expiry, expiry=expiry)
    bench.is_slow = False
    bench.flow()
    publish(new, b"new", 2, 1)
    assert new.kinds() == ["CONNACK", "PUBREC"]
    assert reader.payloads == [b"first", *[b"left behind"] * 2 * SETTINGS.window, b"new"]
    bench.finish(reader, new)


def test_what_waits_for_credit_goes_before_what_its_client_publishes_when_it_is_back(bench: MqttBench) -> None:
    reader, writer = bench.reader("c"), bench.client("a", "writer", expiry=5)
    publish(writer, b"first", 0)
    bench.is_slow = True
    for _ in range(2):
        for _ in range(SETTINGS.window):
            publish(writer, b"waits", 0)
        writer.leave()
        writer = bench.client("a", "writer", clean=False, expiry=5)
    publish(writer, b"last", 0)
    bench.is_slow = False
    bench.flow()
    assert reader.payloads == [b"first", *[b"waits"] * 2 * SETTINGS.window, b"last"]
    writer.leave()
    writer = bench.client("a", "writer", clean=False, expiry=5)
    assert not bench.edges["a"].sessions["", "writer"].presettled
    bench.finish(reader, writer)


@pytest.mark.parametrize("expiry", [0, 5])
@pytest.mark.parametrize("says_goodbye", [False, True])
def test_what_is_published_at_qos_0_waits_for_no_proof(bench: MqttBench, expiry: int, says_goodbye: bool) -> None:
    """Many a client publishes one message, and has gone before anybody knows that it was there."""
    reader = bench.reader("c")
    for number in range(3):
        bench.is_slow = True
        writer = bench.client("a", "writer", clean=not expiry, expiry=expiry)
        writer.say(by_hand.publish(TOPIC, b"%d" % number) + by_hand.DISCONNECT * says_goodbye)
        writer.leave()
        bench.is_slow = False
        bench.flow()
    assert reader.payloads == [b"0", b"1", b"2"]
    bench.finish(reader)


def reader_of_one_that_was_at_a(bench: MqttBench) -> MqttGuest:
    """That one's session goes on."""
    reader, writer = bench.reader("c"), bench.client("a", "writer", expiry=5)
    publish(writer, b"m", 2, 5)
    writer.say(by_hand.ack(PacketKind.PUBREL, 5))
    writer.leave()
    return reader


@pytest.mark.parametrize("last", ["a", "b"])
def test_who_says_goodbye_was_there(bench: MqttBench, last: str) -> None:
    """Where its session goes on, and nothing has proven that it is there: unless all has come with its CONNECT."""
    reader = reader_of_one_that_was_at_a(bench)
    bench.is_slow = True
    said = by_hand.publish(TOPIC, b"zero"), by_hand.DISCONNECT
    early = bench.stranger(last)
    early.say(b"".join([by_hand.connect("writer", V5, clean=False, found={"session-expiry-interval": 5}), *said]))
    early.leave()
    cut_off = bench.client(last, "writer", clean=False, expiry=5)
    cut_off.say(said[0])
    cut_off.leave()
    late = bench.client(last, "writer", clean=False, expiry=5)
    for packet in said:
        late.say(packet)
    late.leave()
    bench.is_slow = False
    bench.flow()
    assert reader.payloads == [b"m", b"zero"]
    again = bench.client(last, "writer", clean=False, expiry=5)
    assert again.is_present
    bench.finish(reader, again)


@pytest.mark.parametrize("last", ["a", "b"])
@pytest.mark.parametrize("sizes", [[9000] * 9, [MAX_MESSAGE - 100], [1] * 1000])
def test_what_comes_before_a_goodbye_is_published_whatever_its_size(
    bench: MqttBench, last: str, sizes: list[int]
) -> None:
    reader, messages = reader_of_one_that_was_at_a(bench), [b"x" * size for size in sizes]
    bench.is_slow = True
    late = bench.client(last, "writer", clean=False, expiry=5)
    late.say(b"".join(by_hand.publish(TOPIC, message) for message in messages) + by_hand.DISCONNECT)
    late.leave()
    bench.is_slow = False
    bench.flow()
    assert reader.payloads == [b"m", *messages]


@pytest.mark.parametrize("last", ["a", "b"])
def test_who_comes_again_before_the_end_of_its_last_connection_is_read_has_said_goodbye(
    bench: MqttBench, last: str
) -> None:
    reader = reader_of_one_that_was_at_a(bench)
    bench.is_slow = True
    first = bench.client(last, "writer", clean=False, expiry=5)
    first.say(by_hand.publish(TOPIC, b"zero") + by_hand.DISCONNECT)
    second = bench.client(last, "writer", clean=False, expiry=5)
    first.leave()
    second.say(by_hand.publish(TOPIC, b"one") + by_hand.DISCONNECT)
    second.leave()
    bench.is_slow = False
    bench.flow()
    assert reader.payloads == [b"m", b"zero", b"one"]


@pytest.mark.parametrize(
    ("broken", "published"),
    [
        (b"\xc2\0", [b"n"]),
        (b"\x30\xff\xff\xff\xff", []),
        (b"\x30\3\0\5t", []),
        (by_hand.publish("queue/none", b"not there"), [b"n"]),
    ],
)
def test_what_is_broken_before_a_goodbye_harms_nobody(bench: MqttBench, broken: bytes, published: list[bytes]) -> None:
    """What breaks a PUBLISH, or lengths, ends what is looked at; nothing else is read any more."""
    reader = reader_of_one_that_was_at_a(bench)
    bench.is_slow = True
    late = bench.client("a", "writer", clean=False, expiry=5)
    late.say(broken + by_hand.publish(TOPIC, b"n") + by_hand.DISCONNECT)
    late.leave()
    bench.is_slow = False
    bench.flow()
    assert reader.payloads == [b"m", *published]
    bench.finish(reader, bench.client("a", "writer", clean=False, expiry=5))


def test_many_connections_leave_one_link_to_be_remembered_while_a_router_is_missing(bench: MqttBench) -> None:
    reader = bench.reader("b")
    bench.lose("c")
    for number in range(20):
        writer = bench.client("a", "writer")
        publish(writer, b"%d" % number, 0)
        writer.leave()
    assert len(reader.payloads) == 20
    for router in bench.routers.values():
        assert sum(one.identity.container == "writer" for one in router.node.topic.directory.entries()) == 1


def test_its_link_is_known_for_a_publishers_to_who_looks_at_links(bench: MqttBench) -> None:
    writer = bench.client("a", "writer", expiry=5)
    for qos in (0, 1, 2):
        publish(writer, b"m", qos, 1 + qos)
    ends = [stream.link for stream in bench.routers["a"].node.topic.home.streams.values() if stream.link is not None]
    found = [end.link.name for end in ends if isinstance(end, ClientPublishingEnd)]
    assert {"mqtt", "mqtt-qos0-a", "mqtt-qos1"} <= set(found)
    assert len(found) == len(ends)
    bench.finish(writer)
