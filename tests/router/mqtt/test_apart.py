"""What is published where nobody has heard of its publisher, as routers are out of contact.

a ~/~ b ~~~ c       whole routers but for their sockets; a and b are apart, all others in contact
"""

import pytest

from router.mqtt.format.values import PacketKind
from tests.fuzz.mesh import SETTINGS
from tests.router.mqtt import by_hand
from tests.router.mqtt.bench import MqttBench, MqttGuest, answer_all, publish
from tests.router.mqtt.test_sessions import OTHER, wait

PUBREC, PUBREL = PacketKind.PUBREC, PacketKind.PUBREL


def apart() -> MqttBench:
    """All know that the writer has a session."""
    bench = MqttBench("a", "b", "c")
    writer = bench.client("a", "writer", expiry=5)
    writer.say(by_hand.subscribe(1, [(OTHER, 2)]))
    writer.leave()
    bench.part("a", "b")
    return bench


def goes_where_nobody_has_heard_of_it(bench: MqttBench) -> tuple[MqttGuest, MqttGuest]:
    """A reader, and a writer that has published a message at a, and sends its copy at b."""
    reader, writer = bench.reader("c"), bench.client("a", "writer", clean=False, expiry=5)
    publish(writer, b"m", 2, 1)
    writer.leave()
    writer = bench.client("b", "writer", clean=False, expiry=5)
    assert writer.is_present
    publish(writer, b"m", 2, 1, dup=True)
    return reader, writer


def test_a_copy_waits_for_the_routers_that_are_out_of_contact() -> None:
    bench = apart()
    reader, writer = goes_where_nobody_has_heard_of_it(bench)
    publish(writer, b"n", 2, 2)
    assert writer.told(PUBREC) == []
    bench.meet()
    assert writer.told(PUBREC) == [(1, 0)]
    writer.say(by_hand.ack(PUBREL, 1))
    assert writer.told(PUBREC) == [(1, 0), (2, 0)]
    assert reader.payloads == [b"m", b"n"]
    bench.finish(reader, writer)


def test_a_copy_does_not_wait_for_ever() -> None:
    """Nor is it certain to be one of what somebody has."""
    bench = apart()
    reader, writer = goes_where_nobody_has_heard_of_it(bench)
    wait(bench, int(SETTINGS.boot_wait) - 1)
    assert writer.told(PUBREC) == []
    wait(bench, 2)
    assert writer.told(PUBREC) == [(1, 0)]
    assert reader.payloads == [b"m", b"m"]
    bench.meet()
    bench.finish(reader, writer)


def test_a_copy_does_not_wait_anew_when_its_client_comes_again() -> None:
    bench = apart()
    reader, writer = goes_where_nobody_has_heard_of_it(bench)
    for _ in range(int(SETTINGS.boot_wait) + 1):
        writer.leave()
        writer = bench.client("b", "writer", clean=False, expiry=5)
        publish(writer, b"m", 2, 1, dup=True)
        wait(bench, 1)
    assert writer.told(PUBREC) == [(1, 0)]
    bench.meet()
    bench.finish(reader, writer)


def test_a_copy_that_has_waited_is_not_published_for_who_has_gone() -> None:
    """What is taken for new begins a life, for which its client has to be there once more (7.8)."""
    bench = apart()
    reader, writer = goes_where_nobody_has_heard_of_it(bench)
    writer.is_here = False
    wait(bench, int(SETTINGS.boot_wait) + 1)
    assert reader.payloads == [b"m"]
    writer.leave()
    bench.meet()
    bench.finish(reader)


@pytest.mark.parametrize(("clean", "expiry"), [(True, 5), (False, 0)])
def test_what_no_session_goes_on_with_waits_for_nobody(clean: bool, expiry: int) -> None:
    """It is no copy of what somebody may have, for the mesh: it was told that there is no session, or has none."""
    bench = apart()
    reader, writer = bench.reader("c"), bench.client("b", "writer", clean=clean, expiry=expiry)
    publish(writer, b"m", 2, 1, dup=True)
    assert writer.told(PUBREC) == [(1, 0)]
    bench.meet()
    bench.finish(reader, writer)


def test_who_goes_back_from_where_its_copy_waits_has_its_session_there() -> None:
    bench = apart()
    reader, writer = goes_where_nobody_has_heard_of_it(bench)
    writer.leave()
    writer = bench.client("a", "writer", clean=False, expiry=5)
    assert writer.is_present
    publish(writer, b"m", 2, 1, dup=True)
    writer.say(by_hand.ack(PUBREL, 1))
    bench.meet()
    assert reader.payloads == [b"m"]
    bench.finish(reader, writer)


def test_a_copy_that_waits_leaves_what_its_client_is_sent_as_it_was() -> None:
    """Its client goes, and comes back: its session is whole."""
    bench = apart()
    writer = bench.client("c", "another")
    bench.reader("b", expiry=5).leave()
    before = bench.client("b", "reader", clean=False, expiry=5, acks=False)
    publish(writer, b"m", 2, 1)
    publish(before, b"n", 2, 7, dup=True)
    before.leave()
    again = bench.client("b", "reader", clean=False, expiry=5, acks=False)
    assert [(m.identifier, m.dup) for m in again.messages] == [(m.identifier, True) for m in before.messages]
    answer_all(again)
    bench.meet()
    bench.finish(writer, again)


def test_what_is_no_copy_waits_for_nobody() -> None:
    bench = apart()
    reader, writer = bench.reader("c"), bench.client("b", "writer", clean=False, expiry=5)
    publish(writer, b"n", 2, 2)
    assert writer.told(PUBREC) == [(2, 0)]
    bench.meet()
    bench.finish(reader, writer)
