"""What the cores ask of links is done in the order in which they have asked, also where a link asks for more at that;
and what a link adds is done if it is there still.

    a ~~~ b ~~~ c       whole routers but for their sockets; what they say to each other is brought by hand
"""

import pytest

from router.amqp.batches import Transfers
from router.amqp.format.message import body_of, data_message
from router.amqp.format.sections import write_message
from router.amqp.format.values import ACCEPTED, REJECTED, AttachOptions
from router.amqp.proton.link import Link
from router.mqtt.format.values import PacketKind
from tests.fuzz.mesh import FuzzMesh, GoodClient, Guest
from tests.router.amqp import frames
from tests.router.amqp.frames import BEGIN, DETACH, DISPOSITION, FLOW, HEADER, OPEN, Described, frame, transfer
from tests.router.mqtt import by_hand
from tests.router.mqtt.bench import TOPIC, MqttBench, publish


class Client(GoodClient):
    """It is sent whatever there is."""

    def __init__(self, mesh: FuzzMesh, router: str, container: str) -> None:
        super().__init__(mesh.routers[router], container)
        self.router.guests.append(self)
        self.payloads: list[bytes] = []

    def on_transfers(self, link: Link, transfers: Transfers) -> None:
        self.payloads += map(body_of, transfers.messages)
        link.update_many([handle for handle in transfers.handles if handle is not None], ACCEPTED)
        link.flow(len(transfers.handles))

    def reads(self, *, lasts: bool = False) -> None:
        options: AttachOptions = {"rcv_settle_mode": 1}
        if lasts:
            options |= {"timeout": 5, "expiry_policy": "connection-close"}
        self.engine.receiver("reads", TOPIC, **options).flow(100)
        self.router.mesh.flow()


class Refusing(Client):
    """It takes nothing."""

    def on_transfers(self, link: Link, transfers: Transfers) -> None:
        self.payloads += map(body_of, transfers.messages)
        link.update_many([handle for handle in transfers.handles if handle is not None], REJECTED)


class Hand(Guest):
    """It says frames by hand. What it is sent it does not answer."""

    def __init__(self, mesh: FuzzMesh, router: str, container: str) -> None:
        super().__init__(mesh.routers[router])
        self.router.guests.append(self)
        self._heard = b""
        self.say(HEADER + frame(OPEN, container) + frame(BEGIN, None, 0, 1000, 1000))

    def hears(self, data: bytes) -> None:
        self._heard += data

    @property
    def last_bytes(self) -> list[bytes]:
        """Of each transfer, two."""
        return [body[-2:] for body in self._heard_of(b"\0\x53\x14")]

    @property
    def outcomes(self) -> list[int]:
        """Of each disposition that has one."""
        said = self._heard_of(b"\0\x53\x15")
        return [state for body in said for state in (ACCEPTED, REJECTED) if b"\0\x53" + bytes((state,)) in body]

    def _heard_of(self, performative: bytes) -> list[bytes]:
        data, found = self._heard[self._heard.rindex(HEADER) + len(HEADER) :], []
        while data:
            size = int.from_bytes(data[:4], "big")
            if data[8:11] == performative:
                found.append(data[8:size])
            data = data[size:]
        return found


def attach(handle: int, *, receives: bool = False, unsettled: dict[bytes, None] | None = None) -> bytes:
    return frames.attach("l", handle, receiver=receives, modes=(0, 1), address=TOPIC, unsettled=unsettled, timeout=5)


def both(bench: MqttBench, *, times: int) -> None:
    """What a and b say to each other is brought, in turn."""
    for _ in range(times):
        for wire in ("a", "b"), ("b", "a"):
            bench.bring(*wire)
            bench.flow()


def test_a_link_to_no_address_that_is_taken_as_it_is_answered_publishes_nothing_here() -> None:
    bench = MqttBench("a", "b")
    reader, here, there = Client(bench, "a", "reader"), Client(bench, "a", "writer"), Client(bench, "b", "writer")
    reader.reads()
    links = [client.engine.sender("l", "", rcv_settle_mode=1) for client in (here, there)]
    bench.flow()
    bench.is_slow = True
    links[0].send(b"1", write_message({"properties": {"to": TOPIC}, "data": b"m"}))
    bench.flow()
    bench.bring("a", "b")
    bench.flow()
    links[1].send(b"1", write_message({"properties": {"to": TOPIC}, "data": b"n"}))
    bench.flow()
    bench.bring("b", "a")
    bench.is_slow = False
    bench.flow()
    assert reader.payloads == [b"n"]
    bench.end()


@pytest.mark.parametrize("is_fresh", [False, True])
@pytest.mark.parametrize("overlaps", [False, True])
def test_a_publisher_that_attached_again_and_is_elsewhere_by_then_publishes_nothing_here(
    overlaps: bool, is_fresh: bool
) -> None:
    """Its message waits here for the key else, and comes twice."""
    bench = MqttBench("a", "b", "c")
    readers = [Client(bench, "a", "reader"), Client(bench, "a", "other")]
    for reader in readers:
        reader.reads(lasts=True)
    here = Hand(bench, "a", "writer")
    here.say(attach(0))
    here.say(transfer(0, 0, b"t", payload=data_message(b"m")))
    bench.is_slow = True
    here.say(frame(DETACH, 0, False) + attach(1))
    bench.bring("a", "b")
    bench.bring("a", "c")
    bench.flow()
    bench.bring("c", "a")
    bench.flow()
    if not overlaps:
        bench.bring("b", "a")
        bench.flow()
    there = Hand(bench, "b", "writer")
    there.say(attach(0, unsettled=None if is_fresh else {b"t": None}))
    bench.bring("b", "a")
    bench.is_slow = False
    bench.flow()
    if not is_fresh:
        there.say(transfer(0, 0, b"t", payload=data_message(b"m")))
        there.say(frame(DISPOSITION, False, 0, 0, True, Described(ACCEPTED)))
    for _ in range(20):
        bench.time(1.0)
    assert not any(router.node.topic.records.by_key for router in bench.routers.values())
    there.say(transfer(0, 0 if is_fresh else 1, b"t", payload=data_message(b"again")))
    assert [reader.payloads for reader in readers] == 2 * [[b"m", b"again"]]


def test_what_waits_for_a_key_does_not_overtake_what_is_asked_for_as_it_is_freed() -> None:
    """Router b hears at once that the first message is settled, and of two more, of which the second has its key. Its
    reader of MQTT answers an echo as that is asked for, which frees the key."""
    bench = MqttBench("a", "b")
    reader, amqp = bench.reader("b", expiry=5), Client(bench, "b", "amqp")
    amqp.reads()
    writer = bench.client("a", "writer", expiry=5)
    publish(writer, b"on", 2, 1)
    bench.part("a", "b")
    writer.say(by_hand.ack(PacketKind.PUBREL, 1))
    bench.is_slow = True
    bench.part("a", "b")
    both(bench, times=2)
    bench.prove(writer)
    bench.flow()
    publish(writer, b"off", 2, 2)
    publish(writer, b"on", 2, 1)
    publish(writer, b"last", 2, 3)
    bench.bring("a", "b")
    bench.is_slow = False
    bench.flow()
    assert reader.payloads == amqp.payloads == [b"on", b"off", b"on", b"last"]


@pytest.mark.parametrize("late", ["amqp", "mqtt"])
def test_credit_that_is_put_back_lets_nothing_overtake_what_is_asked_for(late: str) -> None:
    """Router a hears at once of what its subscriber, attached again, has in hand, which takes no credit, of another
    subscriber's attach, and of two messages, of which there was credit for one."""
    bench = MqttBench("a", "b")
    hand, writer = Hand(bench, "a", "hand"), bench.client("b", "writer", expiry=5)
    hand.say(attach(0, receives=True) + frame(FLOW, 0, 1000, 0, 1000, 0, 0, 5))
    publish(writer, b"k1", 2, 1)
    bench.is_slow = True
    hand.say(frame(DETACH, 0, False) + attach(1, receives=True) + frame(FLOW, 1, 1000, 0, 1000, 1, 0, 2))
    both(bench, times=2)
    other = Client(bench, "b", "other")
    speaks = other.engine.sender("speaks", TOPIC, rcv_settle_mode=1)
    bench.flow()
    bench.bring("b", "a")
    bench.flow()
    both(bench, times=3)
    bench.prove(writer)
    bench.flow()
    if late == "amqp":
        Client(bench, "a", "late").engine.receiver("hears", "topic/else", rcv_settle_mode=1).flow(10)
    else:
        bench.client("a", "late").say(by_hand.subscribe(1, [("topic/else", 2)]))
    bench.flow()
    bench.bring("a", "b")
    bench.flow()
    for payload in (b"n1", b"n2"):
        speaks.send(payload, data_message(payload))
        bench.flow()
    bench.bring("b", "a")
    bench.is_slow = False
    bench.flow()
    assert hand.last_bytes == [b"k1", b"n1", b"n2"]


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_publisher_that_attaches_again_and_settles_in_one_breath_has_settled(is_alone: bool) -> None:
    bench = MqttBench("a", "b")
    if is_alone:
        bench.lose("b")
    reader, here = Client(bench, "a", "reader"), Hand(bench, "a", "writer")
    reader.reads()
    here.say(attach(0))
    here.say(transfer(0, 0, b"t", payload=data_message(b"m")))
    settles = frame(DISPOSITION, False, 0, 0, True, Described(ACCEPTED))
    here.say(frame(DETACH, 0, False) + attach(1) + settles)
    here.say(transfer(1, 1, b"t", payload=data_message(b"n")))
    assert reader.payloads == [b"m", b"n"]
    assert len(bench.routers["a"].node.topic.records.by_key) == 1
    bench.end()


def test_what_a_publisher_is_known_to_have_kept_is_not_transferred_again_as_it_attaches_again() -> None:
    """The reader joined when the first message was accepted: it would have that behind the second."""
    bench = MqttBench("a", "b")
    here, reader = Hand(bench, "a", "writer"), Client(bench, "b", "reader")
    here.say(attach(0))
    here.say(frame(FLOW, 0, 1000, 0, 1000, 0, 0, 20))  # it answers an echo
    here.say(transfer(0, 0, b"t", payload=data_message(b"m")))
    reader.reads()
    here.say(frame(FLOW, 0, 1000, 1, 1000, 0, 1, 19))  # and the one behind the outcome
    here.say(transfer(0, 1, b"u", payload=data_message(b"n")))
    assert reader.payloads == [b"n"]
    here.say(frame(DETACH, 0, False) + attach(1))
    here.say(frame(DETACH, 1, False) + attach(0))
    assert reader.payloads == [b"n"] and len(bench.routers["a"].node.topic.records.by_key) == 1
    here.say(frame(DISPOSITION, False, 0, 1, True, Described(ACCEPTED)))
    for _ in range(20):
        bench.time(1.0)
    assert not bench.routers["a"].node.topic.records.by_key
    here.say(transfer(0, 2, b"v", payload=data_message(b"o")))
    assert reader.payloads == [b"n", b"o"]
    bench.end()


def test_an_outcome_stands_when_its_publisher_attaches_again_on_its_session() -> None:
    """A reader that came behind it refuses the message."""
    bench = MqttBench("a", "b")
    here, reader = Hand(bench, "a", "writer"), Refusing(bench, "b", "reader")
    here.say(attach(0))
    here.say(transfer(0, 0, b"t", payload=data_message(b"m")))
    assert here.outcomes == [ACCEPTED]
    reader.reads()
    here.say(frame(DETACH, 0, False) + attach(1))
    assert reader.payloads == [b"m"] and here.outcomes == [ACCEPTED]
    here.say(frame(DISPOSITION, False, 0, 0, True, Described(ACCEPTED)))
    here.say(transfer(1, 1, b"t", payload=data_message(b"n")))
    assert reader.payloads == [b"m", b"n"] and here.outcomes == [ACCEPTED, REJECTED]
    bench.end()


def test_messages_without_an_address_of_one_breath_are_published_in_their_order() -> None:
    """The first one attaches, which is answered at once."""
    bench = MqttBench("a", "b")
    bench.lose("b")
    reader, writer = Client(bench, "a", "reader"), Client(bench, "a", "writer")
    reader.reads()
    link = writer.engine.sender("l", "", rcv_settle_mode=1)
    bench.flow()
    for number in range(4):
        link.send(b"%d" % number, write_message({"properties": {"to": TOPIC}, "data": b"%d" % number}), number % 2 == 0)
    bench.flow()
    assert reader.payloads == [b"0", b"1", b"2", b"3"]
    bench.end()


def test_what_goes_out_just_before_a_subscriber_attaches_again_does_not_come_again() -> None:
    bench = MqttBench("a", "b")
    bench.lose("b")
    hand, writer = Hand(bench, "a", "reader"), Client(bench, "a", "writer")
    hand.say(attach(0, receives=True))
    link = writer.engine.sender("w", TOPIC, rcv_settle_mode=1)
    bench.flow()
    for payload in (b"k1", b"k2"):
        link.send(payload, data_message(payload))
    bench.flow()
    credit = [frame(FLOW, 0, 1000, 0, 1000, handle, count, 10) for handle, count in ((0, 0), (1, None))]
    hand.say(credit[0] + frame(DETACH, 0, False) + attach(1, receives=True) + credit[1])
    assert hand.last_bytes == [b"k1", b"k2"]
    bench.end()
