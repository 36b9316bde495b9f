"""What MQTT clients have released: when its identifier may be used again, and who knows of that.

a ~~~ b ~~~ c       whole routers but for their sockets, all in contact
"""

from router.mqtt.format.values import PacketKind
from tests.router.mqtt import by_hand
from tests.router.mqtt.bench import MqttBench, MqttGuest, answer_all, publish, writes_too_early

PUBREC, PUBREL, PUBCOMP, PUBACK = PacketKind.PUBREC, PacketKind.PUBREL, PacketKind.PUBCOMP, PacketKind.PUBACK


def released_as_it_comes_back(bench: MqttBench) -> tuple[MqttGuest, MqttGuest]:
    """A reader, and a writer whose PUBREL is read while the attach of its link waits for the others."""
    reader, writer = bench.reader("c"), bench.client("a", "writer", expiry=5)
    publish(writer, b"m", 2, 5)
    writer.leave()
    bench.is_slow = True
    writer = bench.client("a", "writer", clean=False, expiry=5)
    bench.prove(writer)
    writer.say(by_hand.ack(PUBREL, 5))
    return reader, writer


def test_what_is_settled_as_its_client_comes_back_is_over_at_once(bench: MqttBench) -> None:
    """Its link has no answer yet, and would then wait for who has come meanwhile; what reads the same, for that."""
    reader, writer = bench.reader("c"), bench.client("a", "writer", expiry=5)
    publish(writer, b"m", 2, 5)
    writer.leave()
    late = bench.reader("b", "late", acks=False)
    bench.is_slow = True
    writer = bench.client("a", "writer", clean=False, expiry=5)
    bench.prove(writer)
    writer.say(by_hand.ack(PUBREL, 5))
    bench.is_slow = False
    bench.flow()
    publish(writer, b"m", 2, 5)
    assert reader.payloads == [b"m", b"m"]
    assert late.payloads == [b"m"]
    answer_all(late)


def test_a_release_is_answered_when_all_know_of_it() -> None:
    """Else the identifier could be used for what reads the same, whose copy would be taken for this elsewhere."""
    bench = MqttBench("a", "b", "c")
    reader, writer = released_as_it_comes_back(bench)
    for name in ("b", "c"):
        bench.bring("a", name)
        bench.bring(name, "a")
    bench.flow()
    assert writer.told(PUBCOMP) == []
    bench.is_slow = False
    bench.flow()
    assert writer.told(PUBCOMP) == [(5, 0)]
    bench.finish(reader, writer)


def test_what_was_settled_elsewhere_is_not_taken_for_what_reads_the_same() -> None:
    """Router b hears that the client is at a before it hears of the settlement at c."""
    bench = MqttBench("a", "b", "c")
    reader, there = bench.reader("b"), bench.client("c", "writer", expiry=5)
    publish(there, b"m", 2, 5)
    bench.is_slow = True
    there.say(by_hand.ack(PUBREL, 5))
    assert there.told(PUBCOMP) == [(5, 0)]
    there.leave()
    here = bench.client("a", "writer", clean=False, expiry=5)
    bench.prove(here)
    bench.bring("a", "b")
    bench.is_slow = False
    bench.flow()
    publish(here, b"m", 2, 5, dup=True)
    assert here.told(PUBREC) == [(5, 0)]
    assert reader.payloads == [b"m", b"m"]
    bench.finish(reader, here)


def test_a_release_is_answered_where_the_kernel_does_not_tell_who_is_here(bench: MqttBench) -> None:
    reader, writer = released_as_it_comes_back(bench)
    writer.connection.can_prove = False
    assert writer.told(PUBCOMP) == []
    bench.is_slow = False
    bench.flow()
    assert writer.told(PUBCOMP) == [(5, 0)]
    bench.finish(reader, writer)


def test_a_release_that_was_read_before_the_cut_is_answered_when_it_comes_again(bench: MqttBench) -> None:
    """An answer that nobody asked for on that connection may come as the identifier is used again."""
    reader, writer = released_as_it_comes_back(bench)
    writer.leave()
    bench.is_slow = False
    writer = bench.client("a", "writer", clean=False, expiry=5)
    assert writer.told(PUBCOMP) == []
    writer.say(by_hand.ack(PUBREL, 5))
    assert writer.told(PUBCOMP) == [(5, 0)]
    bench.finish(reader, writer)


def test_a_release_of_what_has_qos_1_is_none(bench: MqttBench) -> None:
    reader, writer = bench.reader("c", qos=1, acks=False), bench.client("a", "writer", expiry=5)
    publish(writer, b"m", 1, 5)
    writer.say(by_hand.ack(PUBREL, 5))
    assert [identifier for identifier, _ in writer.told(PUBCOMP)] == [5]
    answer_all(reader)
    assert writer.told(PUBACK) == [(5, 0)]
    bench.finish(reader, writer)


def test_what_was_settled_before_says_nothing_of_what_comes_after_it(bench: MqttBench) -> None:
    """What b says to a comes late: that the first message is settled, as the client is at a again with the second."""
    reader, writer = bench.reader("b"), bench.client("a", "writer", expiry=5)
    publish(writer, b"m", 2, 5)
    writer.leave()
    writer = bench.client("b", "writer", clean=False, expiry=5)
    publish(writer, b"m", 2, 5, dup=True)
    bench.is_slow = True
    writer.say(by_hand.ack(PUBREL, 5))
    bench.flow_but("b", "a")
    assert writer.told(PUBCOMP) == [(5, 0)]
    publish(writer, b"m", 2, 5)
    bench.flow_but("b", "a")
    assert reader.payloads == [b"m", b"m"]
    writer.leave()
    bench.flow_but("b", "a")
    writer = bench.client("a", "writer", clean=False, expiry=5)
    publish(writer, b"m", 2, 5, dup=True)
    bench.flow_but("b", "a")
    bench.is_slow = False
    bench.flow()
    assert writer.told(PUBREC) == [(5, 0)]
    assert reader.payloads == [b"m", b"m"]
    bench.finish(reader, writer)


def test_what_was_never_published_here_is_not_when_its_session_has_ended_elsewhere() -> None:
    """Its client has sent it again elsewhere, and begun anew there."""
    bench = MqttBench("a", "b", "c")
    reader = bench.reader("c")
    writes_too_early(bench, "a")
    there = bench.client("b", "writer", clean=False, expiry=5)
    publish(there, b"m", 2, 1, dup=True)
    there.say(by_hand.ack(PUBREL, 1))
    there.leave()
    bench.client("b", "writer", expiry=5).leave()
    here = bench.client("a", "writer", clean=False, expiry=5)
    publish(here, b"n", 2, 2)
    assert reader.payloads == [b"m", b"n"]
    bench.finish(reader, here)


def test_a_life_begins_with_who_is_there_when_all_know_of_it() -> None:
    """The writer has gone from a, whose attach begins a life, to b, which goes on with the one that c had begun. Only w
    hears of that, and it has answered a by then."""
    bench = MqttBench("a", "b", "c", "w")
    reader = bench.reader("a")
    bench.is_slow = True
    at_c = bench.client("c", "writer", expiry=5)
    publish(at_c, b"former", 2, 9)
    bench.prove(at_c)
    bench.flow()
    bench.bring("c", "b")
    bench.flow()
    bench.lose("c")
    at_a = bench.client("a", "writer", clean=False, expiry=5)
    publish(at_a, b"m", 2, 1, dup=True)
    bench.prove(at_a)
    bench.flow()
    at_a.is_here = False
    for wire in ("a", "w"), ("w", "a"):
        bench.bring(*wire)
        bench.flow()
    bench.wall_us += 1_000_000
    at_b = bench.client("b", "writer", clean=False, expiry=5)
    bench.prove(at_b)
    bench.flow()
    bench.bring("b", "w")
    bench.flow()
    bench.lose("b")
    bench.is_slow = False
    bench.flow()
    at_w = bench.client("w", "writer", clean=False, expiry=5)
    publish(at_w, b"m", 2, 1, dup=True)
    assert reader.payloads == [b"m"]
    bench.end()


def test_at_qos_1_what_reads_the_same_elsewhere_is_another_message() -> None:
    """Router a dies, and its word of the settlement with it."""
    bench = MqttBench("a", "b", "c")
    reader, there = bench.reader("c", qos=1), bench.client("a", "writer", expiry=5)
    publish(there, b"first", 1, 4)
    bench.is_slow = True
    publish(there, b"m", 1, 5)
    for wire in ("a", "c"), ("c", "a"):
        bench.bring(*wire)
        bench.flow()
    assert there.told(PUBACK) == [(4, 0), (5, 0)]
    bench.lose("a")
    bench.is_slow = False
    bench.flow()
    here = bench.client("b", "writer", clean=False, expiry=5)
    publish(here, b"m", 1, 5, dup=True)
    assert reader.payloads == [b"first", b"m", b"m"]
    bench.finish(reader, here)
