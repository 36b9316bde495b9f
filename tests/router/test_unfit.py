"""What a subscriber says that it does not take its router refuses for it (protocol 5, Unfit)."""

from typing import Unpack

import attrs
import pytest

from router.amqp.batches import Dispositions, ResumedTransfers, Transfers
from router.amqp.format.message import body_of, content_of, data_message, in_envelope
from router.amqp.format.values import ACCEPTED, MODIFIED, REJECTED, AttachOptions
from router.amqp.proton.link import Link
from router.mqtt.format.values import PacketKind
from tests.fuzz.mesh import SETTINGS, FuzzMesh, GoodClient
from tests.router.mqtt import by_hand
from tests.router.mqtt.bench import TOPIC, MqttBench, publish

WORK, NEWS = "topic/work", "topic/news"
SMALL, LARGE = b"1", b"2" * 200
TAKES = len(data_message(b"3" * 150))


class Client(GoodClient):
    def __init__(self, mesh: FuzzMesh, router: str, container: str) -> None:
        super().__init__(mesh.routers[router], container)
        self.router.guests.append(self)
        self.had: list[bytes] = []
        self.told: list[int] = []
        self.resumed: list[ResumedTransfers] = []
        self.answer = ACCEPTED

    def on_transfers(self, link: Link, transfers: Transfers) -> None:
        self.had += [body_of(content_of(message)) for message in transfers.messages]
        if self.answer:
            link.update_many([handle for handle in transfers.handles if handle is not None], self.answer)

    def on_resumed(self, link: Link, resumed: ResumedTransfers) -> None:
        self.resumed.append(resumed)

    def on_dispositions(self, link: Link, dispositions: Dispositions) -> None:
        if link.name == "writes":
            self.told += dispositions.states
        link.settle_many(dispositions.handles)

    def reads(self, address: str, *, most: int = 0, credit: int = 10, **options: Unpack[AttachOptions]) -> Link:
        options["rcv_settle_mode"] = 1
        link = self.engine.receiver("reads", address, max_message_size=most, **options)
        self.router.mesh.flow()
        link.flow(credit)
        self.router.mesh.flow()
        return link

    def writes(self, address: str) -> Link:
        link = self.engine.sender("writes", address, rcv_settle_mode=1)
        self.router.mesh.flow()
        return link

    def send(self, link: Link, *messages: bytes) -> None:
        for message in messages:
            link.send(b"%d %d" % (len(message), len(self.told)), message)
        self.router.mesh.flow()


@pytest.fixture
def mesh() -> FuzzMesh:
    return FuzzMesh("a", "b", "c", settings=attrs.evolve(SETTINGS, kinds=((WORK, "balanced"),)))


def test_what_is_too_large_for_one_subscriber_of_a_topic_is_rejected_and_others_have_it(mesh: FuzzMesh) -> None:
    one, other, writer = Client(mesh, "b", "one"), Client(mesh, "c", "other"), Client(mesh, "a", "writer")
    link = one.reads(NEWS, most=TAKES, credit=2)
    other.reads(NEWS)
    sends = writer.writes(NEWS)
    writer.send(sends, data_message(LARGE))
    assert writer.told == [REJECTED] and other.had == [LARGE] and not one.had
    writer.send(sends, data_message(SMALL), data_message(b"3" * 150))
    assert one.had == [SMALL, b"3" * 150], "it has the credit still"
    assert writer.told == [REJECTED, ACCEPTED, ACCEPTED] and not link.ended


@pytest.mark.parametrize("router", ["a", "b"])
def test_what_is_too_large_for_one_subscriber_of_many_another_is_given(mesh: FuzzMesh, router: str) -> None:
    one, writer = Client(mesh, router, "one"), Client(mesh, "a", "writer")
    one.reads(WORK, most=TAKES)
    sends = writer.writes(WORK)
    other = Client(mesh, "c", "other")
    other.reads(WORK, credit=0)
    writer.send(sends, data_message(LARGE))
    assert not writer.told and not one.had
    writer.send(sends, data_message(SMALL))
    assert one.had == [SMALL] and writer.told == [ACCEPTED]
    other.engine.receiver("reads too", WORK, rcv_settle_mode=1).flow(1)
    mesh.flow()
    assert other.had == [LARGE] and writer.told == [ACCEPTED, ACCEPTED]


def test_what_is_too_large_for_all_subscribers_is_rejected(mesh: FuzzMesh) -> None:
    one, other, writer = Client(mesh, "a", "one"), Client(mesh, "c", "other"), Client(mesh, "a", "writer")
    one.reads(WORK, most=TAKES)
    other.reads(WORK, most=TAKES)
    writer.send(writer.writes(WORK), data_message(LARGE))
    assert writer.told == [REJECTED] and not one.had and not other.had


def test_what_grows_too_large_as_it_is_given_once_more_is_not(mesh: FuzzMesh) -> None:
    one, writer = Client(mesh, "b", "one"), Client(mesh, "a", "writer")
    one.answer = MODIFIED
    one.reads(NEWS, most=TAKES)
    writer.send(writer.writes(NEWS), data_message(b"3" * 150))
    assert one.had == [b"3" * 150] * (SETTINGS.redeliveries + 1) and writer.told == [REJECTED]


def test_the_format_of_a_message_is_not_in_its_size(mesh: FuzzMesh) -> None:
    one, writer = Client(mesh, "b", "one"), Client(mesh, "a", "writer")
    one.reads(NEWS, most=TAKES)
    writer.send(writer.writes(NEWS), in_envelope(data_message(b"3" * 150), 7))
    assert writer.told == [ACCEPTED]


def test_who_takes_settled_messages_misses_those_that_are_too_large(mesh: FuzzMesh) -> None:
    one, writer = Client(mesh, "b", "one"), Client(mesh, "a", "writer")
    one.reads(NEWS, most=TAKES, credit=1, snd_settle_mode=1)
    sends = writer.writes(NEWS)
    writer.send(sends, data_message(LARGE), data_message(SMALL))
    assert one.had == [SMALL]


def test_what_a_client_has_in_its_map_and_takes_no_more_is_over_for_it(mesh: FuzzMesh) -> None:
    one, writer = Client(mesh, "b", "one"), Client(mesh, "a", "writer")
    one.answer = 0
    one.reads(NEWS, timeout=5, expiry_policy="connection-close")
    writer.send(writer.writes(NEWS), data_message(LARGE))
    (key,) = mesh.routers["a"].node.topic.records.by_key
    one.leave()
    back = Client(mesh, "c", "one")
    back.reads(NEWS, most=TAKES, timeout=5, expiry_policy="connection-close", unsettled={key: 0})
    assert writer.told == [REJECTED] and [resumed.aborted for resumed in back.resumed] == [[True]]


def test_a_message_larger_than_one_client_of_mqtt_takes_another_is_given() -> None:
    bench = MqttBench("a", "b", settings=attrs.evolve(SETTINGS, kinds=((TOPIC, "balanced"),)))
    reader, other, writer = bench.stranger("a"), bench.client("b", "other"), bench.client("a", "writer")
    reader.say(by_hand.connect("reader", found={"maximum-packet-size": 100}))
    for one in (reader, other):
        one.say(by_hand.subscribe(1, [(TOPIC, 2)]))
    publish(writer, bytes(200), 2, 1)
    assert not reader.payloads and other.payloads == [bytes(200)] and writer.told(PacketKind.PUBREC) == [(1, 0)]
