"""A session of MQTT whose client is gone for good, ended as a whole on an operator's word.

a ~~~ b ~~~ c       whole routers but for their sockets, all in contact
"""

from unittest.mock import Mock

import pytest

from router.management.forgetting import forget
from router.management.requests import ManagementError
from router.mqtt.format.values import PacketKind
from tests.router.mqtt import by_hand
from tests.router.mqtt.bench import MqttBench, publish
from topic.directory.entry import LinkEntry

PUBREC, PUBREL = PacketKind.PUBREC, PacketKind.PUBREL


def links_of(bench: MqttBench, router: str, client: str) -> list[LinkEntry]:
    directory = bench.routers[router].node.topic.directory
    return [entry for entry in directory.entries() if entry.identity.container == client and entry.live]


def end(bench: MqttBench, router: str, entry: LinkEntry) -> None:
    at = bench.routers[router]
    with bench.acting(at):
        forget(Mock(node=at.node), entry.index)
    bench.flow()


def test_all_links_of_a_session_end_together_and_free_who_waits(bench: MqttBench) -> None:
    reader = bench.client("b", "reader", clean=False, expiry=600, acks=False)
    for number, topic in enumerate(("topic/t", "topic/u"), 1):
        reader.say(by_hand.subscribe(number, [(topic, 2)]))
    reader.leave()
    writer = bench.client("a", "writer")
    publish(writer, b"m", 2, 1)
    assert writer.told(PUBREC) == []
    one, other = links_of(bench, "b", "reader")
    with pytest.raises(ManagementError, match="was last attached at router b; send the request there"):
        end(bench, "a", one)
    end(bench, "b", one)
    assert writer.told(PUBREC) == [(1, 0)]
    assert not any(links_of(bench, router, "reader") for router in "abc")
    with pytest.raises(ManagementError, match="the link does not exist any more"):
        end(bench, "b", other)
    again = bench.client("c", "reader", clean=False, expiry=600)
    assert not again.is_present and again.messages == []


def test_a_session_with_its_client_goes_on(bench: MqttBench) -> None:
    reader = bench.client("b", "reader", clean=False, expiry=600)
    reader.say(by_hand.subscribe(1, [("topic/t", 2)]))
    [link] = links_of(bench, "b", "reader")
    with pytest.raises(ManagementError, match="is attached here"):
        end(bench, "b", link)
    publish(bench.client("a", "writer"), b"m", 2, 1)
    assert reader.payloads == [b"m"]


def test_a_session_whose_router_is_lost_ends_at_any_other(bench: MqttBench) -> None:
    reader = bench.client("b", "reader", clean=False, expiry=600)
    reader.say(by_hand.subscribe(1, [("topic/t", 2)]))
    bench.lose("b")
    writer = bench.client("a", "writer")
    publish(writer, b"m", 2, 1)
    assert writer.told(PUBREC) == []
    [link] = links_of(bench, "a", "reader")
    end(bench, "c", link)
    assert writer.told(PUBREC) == [(1, 0)]
    assert not links_of(bench, "a", "reader")
