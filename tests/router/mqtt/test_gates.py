"""What holds nobody up for ever: gates of attaches that are over (protocol 6.5, 6.6).

a ~~~ b ~~~ c       whole routers but for their sockets, all in contact
"""

from router.mqtt.format.values import PacketKind
from tests.router.mqtt.bench import MqttBench, MqttGuest, answer_all, publish


def test_the_gate_of_an_attach_that_is_over_holds_nothing_back() -> None:
    """The writer was at c, as that gated the reader for it; then at a, and at c again. Router b hears of that from a
    before it hears of the gate, and has its stream already: another reader there has what it published."""
    bench = MqttBench("a", "b", "c")
    other, reader = bench.reader("b", "other", acks=False), bench.reader("a", qos=1, expiry=5, acks=False)
    writer = bench.client("c", "writer", expiry=5)
    publish(writer, b"m", 2, 5)
    reader.leave()
    bench.is_slow = True
    writer.leave()
    reader = bench.client("b", "reader", clean=False, expiry=5, acks=False)
    proven(bench, reader)
    brought(bench, ("b", "c"), ("b", "a"))
    writer = bench.client("a", "writer", clean=False, expiry=5)
    proven(bench, writer)
    brought(bench, ("a", "b"))
    writer.leave()
    bench.wall_us += 1_000_000
    writer = bench.client("c", "writer", clean=False, expiry=5)
    proven(bench, writer)
    publish(writer, b"m", 2, 5, dup=True)
    brought(bench, ("c", "a"), ("a", "b"), ("c", "b"))
    bench.is_slow = False
    bench.flow()
    assert reader.payloads == [b"m"]
    answer_all(reader)
    answer_all(other)
    assert writer.told(PacketKind.PUBREC) == [(5, 0)]
    bench.finish(other, reader, writer)


def proven(bench: MqttBench, guest: MqttGuest) -> None:
    bench.prove(guest)
    bench.flow()


def brought(bench: MqttBench, *wires: tuple[str, str]) -> None:
    for wire in wires:
        bench.bring(*wire)
        bench.flow()
