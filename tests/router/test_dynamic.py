"""Dynamic sources: who is granted an address, who may use it, and what comes of what is sent there (protocol 12.8)."""

import re
from unittest.mock import Mock

import pytest

from router.amqp.batches import Dispositions, Transfers
from router.amqp.format.codec import Described
from router.amqp.format.message import body_of, data_message
from router.amqp.format.sections import write_message
from router.amqp.format.values import ACCEPTED, REJECTED, ErrorCondition
from router.amqp.proton.library import lib, read_map, write_map
from router.amqp.proton.link import Link
from router.edge.attach import Refusal
from router.edge.guard import Guard
from router.mesh.config import Limits
from router.mqtt.format.values import PacketKind, Reason
from router.security.rules import Rule
from tests.fuzz.mesh import FuzzMesh, GoodClient
from tests.router.mqtt import by_hand
from tests.router.mqtt.bench import MqttBench

NOT_FOUND = "amqp:not-found"


class Client(GoodClient):
    def __init__(self, mesh: FuzzMesh, router: str, container: str) -> None:
        super().__init__(mesh.routers[router], container)
        self.router.guests.append(self)
        self.had: list[bytes] = []
        self.told: list[tuple[int, str]] = []
        self.detached: list[ErrorCondition | None] = []
        self.takes = True

    def on_transfers(self, link: Link, transfers: Transfers) -> None:
        self.had += map(body_of, transfers.messages)
        if self.takes:
            link.update_many([handle for handle in transfers.handles if handle is not None], ACCEPTED, True)

    def on_dispositions(self, link: Link, dispositions: Dispositions) -> None:
        for handle, state in zip(dispositions.handles, dispositions.states, strict=True):
            self.told.append((state, link.remote_outcome(handle).condition or "" if state == REJECTED else ""))
        link.settle_many(dispositions.handles)

    def on_detach(self, link: Link, closed: bool, condition: ErrorCondition | None) -> None:
        self.detached.append(condition)

    def flow(self) -> None:
        self.router.mesh.flow()

    def asks(self) -> Link:
        link = self.engine.receiver("asks", "")
        link.flow(10)
        self.flow()
        return link

    def attaches(self, *, sends_to: str = "", receives_from: str = "") -> Link:
        link = self.engine.receiver("l", receives_from) if receives_from else self.engine.sender("l", sends_to)
        self.flow()
        return link

    @property
    def refusal(self) -> str:
        (condition,) = self.detached
        assert condition is not None
        return condition.name


@pytest.fixture
def mesh() -> FuzzMesh:
    return FuzzMesh("a", "b", "c")


def address_of(link: Link) -> str:
    assert link.remote_source is not None and link.remote_source.address
    return link.remote_source.address


def test_a_dynamic_source_is_granted_an_address_that_ends_with_its_link(mesh: FuzzMesh) -> None:
    one, other = Client(mesh, "a", "one").asks(), Client(mesh, "b", "other").asks()
    assert re.fullmatch(r"_dynamic/a/[\w-]{20}", address_of(one)) and address_of(one) != address_of(other)
    source = one.remote_source
    assert source is not None and source.dynamic and (source.expiry_policy, source.timeout) == ("link-detach", 0)
    properties = read_map(lib.pn_terminus_properties(lib.pn_link_remote_source(one.pointer)))
    assert properties == {"lifetime-policy": Described(0x2B, [])}


@pytest.mark.parametrize("policy", [5, "delete-on-close", Described(0x24, [])])
def test_a_lifetime_policy_that_is_none_is_refused(mesh: FuzzMesh, policy: object) -> None:
    client = Client(mesh, "a", "one")
    link = client.engine.receiver("asks", "")
    write_map({"lifetime-policy": policy}, lib.pn_terminus_properties(lib.pn_link_source(link.pointer)))
    client.flow()
    assert client.refusal == "amqp:invalid-field"


@pytest.mark.parametrize("router", ["a", "b"])
@pytest.mark.parametrize("by_anonymous", [True, False])
def test_a_reply_comes_from_any_router_by_a_link_or_the_anonymous_terminus(
    mesh: FuzzMesh, router: str, by_anonymous: bool
) -> None:
    asking, answering = Client(mesh, "a", "asking"), Client(mesh, router, "answering")
    address = address_of(asking.asks())
    link = answering.attaches(sends_to="" if by_anonymous else address)
    for number in range(3):
        properties = {"to": address} if by_anonymous else {}
        link.send(b"%d" % number, write_message({"properties": properties, "data": b"%d" % number}))
    answering.flow()
    assert asking.had == [b"0", b"1", b"2"] and answering.told == [(ACCEPTED, "")] * 3


@pytest.mark.parametrize("by_anonymous", [True, False])
def test_what_is_sent_when_it_has_ended_is_refused_by_name(mesh: FuzzMesh, by_anonymous: bool) -> None:
    asking, answering = Client(mesh, "a", "asking"), Client(mesh, "b", "answering")
    asking.takes = False
    asks = asking.asks()
    address = address_of(asks)
    link = answering.attaches(sends_to="" if by_anonymous else address)
    message = write_message({"properties": {"to": address}, "data": b"1"})
    link.send(b"under way", message)
    answering.flow()
    assert asking.had == [b"1"] and not answering.told
    asks.detach()
    asking.flow()
    link.send(b"late", message)
    answering.flow()
    assert answering.told == [(REJECTED, NOT_FOUND)] * 2 and not link.ended
    for where in (address, "_dynamic/a/guessed"):
        late = Client(mesh, "c", f"late for {where}")
        late.attaches(sends_to=where)
        assert late.refusal == NOT_FOUND
    other = Client(mesh, "c", "another")
    link = other.attaches(sends_to="")
    link.send(b"0", message)
    other.flow()
    assert other.told == [(REJECTED, NOT_FOUND)]


def test_a_settled_answer_to_who_has_gone_ends_nothing(mesh: FuzzMesh) -> None:
    answering = Client(mesh, "b", "answering")
    link = answering.attaches(sends_to="")
    link.send(b"0", write_message({"properties": {"to": "_dynamic/a/gone"}, "data": b"0"}), settled=True)
    link.send(b"1", write_message({"properties": {"to": "topic/x"}, "data": b"1"}))
    answering.flow()
    assert answering.told == [(ACCEPTED, "")] and not answering.detached


def test_nobody_else_receives_from_it(mesh: FuzzMesh) -> None:
    address = address_of(Client(mesh, "a", "asking").asks())
    for number, what in enumerate((address, "_dynamic/#", "_dynamic/a/*")):
        nosy = Client(mesh, "a", f"nosy {number}")
        nosy.attaches(receives_from=what)
        assert nosy.refusal == "amqp:not-allowed"


def test_of_a_link_to_it_nothing_outlives_it(mesh: FuzzMesh) -> None:
    asking, answering = Client(mesh, "a", "asking"), Client(mesh, "b", "answering")
    address = address_of(asking.asks())
    link = answering.engine.sender("l", address, timeout=5, durable=2, expiry_policy="connection-close")
    answering.flow()
    assert link.remote_target is not None
    granted = link.remote_target
    assert (granted.timeout, granted.durable, granted.expiry_policy) == (0, 0, "link-detach")


def test_its_end_leaves_nothing(mesh: FuzzMesh) -> None:
    asking, answering = Client(mesh, "a", "asking"), Client(mesh, "b", "answering")
    address = address_of(asking.asks())
    link = answering.attaches(sends_to=address)
    link.send(b"0", data_message(b"0"))
    answering.flow()
    asking.leave()
    link.detach()
    mesh.flow()
    for router in mesh.routers.values():
        topic = router.node.topic
        assert not [entry for entry in topic.directory.entries() if entry.live and entry.identity.address == address]
        assert not topic.records.by_key


@pytest.mark.parametrize(
    ("rule", "may"),
    [(Rule(send=("topic/x",)), (False, True)), (Rule(receive=("topic/x",)), (True, False)), (Rule(), (False, False))],
)
def test_who_may_publish_anything_may_answer_and_who_may_receive_anything_may_ask(
    rule: Rule, may: tuple[bool, bool]
) -> None:
    guard, client = Guard(Mock(rule_of=lambda _: rule), Limits()), Client(FuzzMesh("a", "b"), "a", "client")

    def is_let(*, receives: bool) -> bool:
        try:
            guard.attaches(client.connection, "_dynamic/a/x", receives=receives)
        except Refusal:
            return False
        return True

    assert (is_let(receives=True), is_let(receives=False)) == may


def test_a_client_of_mqtt_may_answer() -> None:
    bench = MqttBench("a", "b")
    asking, answering = Client(bench, "a", "asking"), bench.client("b", "answering")
    asks = asking.asks()
    for number, where in enumerate((address_of(asks), "_dynamic/a/guessed"), 1):
        answering.say(by_hand.publish(where, b"1", 2, number))
    assert asking.had == [b"1"]
    assert answering.told(PacketKind.PUBREC) == [(1, Reason.SUCCESS), (2, Reason.BAD_TOPIC)]
