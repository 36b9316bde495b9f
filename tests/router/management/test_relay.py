"""Requests for other routers, between two relays."""

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from router.amqp.format.codec import Described, encode
from router.management.relay import PATIENCE_S, Relay
from router.management.requests import ManagementError, Request
from topic.errors import BreachError

REQUEST = encode(Described(0x73, [None, None, None, None, "reply"]))


class Nodes:
    """Of routers in contact with each other: what one is told reaches the other as the first pumps."""

    def __init__(self) -> None:
        self.of: dict[str, Any] = {}
        self.said: list[tuple[str, str, bytes]] = []
        self.loses = False

    def node(self, name: str, *others: str) -> Any:
        topic = SimpleNamespace(directory=SimpleNamespace(contacts=dict.fromkeys(others, 1)))
        self.of[name] = SimpleNamespace(
            name=name, topic=topic, receive=None, now=trio.current_time, pump=self._pump, send_to_shell=self._tell(name)
        )
        return self.of[name]

    def relay(self, name: str, other: str, answer: Callable[[Request], Awaitable[bytes]]) -> Relay:
        relay = Relay(self.node(name, other), answer)
        self.of[name].receive = relay.receive
        return relay

    def _tell(self, sender: str) -> Callable[[str, bytes], None]:
        return lambda router, payload: self.said.append((sender, router, payload))

    def _pump(self) -> None:
        said, self.said = self.said, []
        for sender, router, payload in said:
            if not self.loses:
                self.of[router].receive(sender, payload)


async def test_the_answer_of_another_router_comes_back(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    nodes, answered = Nodes(), []

    async def answer(request: Request) -> bytes:
        answered.append(request.reply_to)
        await trio.sleep(1)
        return b"answer %d" % len(answered)

    a, b = nodes.relay("a", "b", answer), nodes.relay("b", "a", answer)
    nursery.start_soon(a.run)
    nursery.start_soon(b.run)
    told: list[bytes] = []

    async def ask() -> None:
        told.append(await a.ask("b", REQUEST))

    async with trio.open_nursery() as asking:
        for _ in range(3):
            asking.start_soon(ask)
    assert sorted(told) == [b"answer 1", b"answer 2", b"answer 3"]
    assert answered == ["reply"] * 3


async def test_an_answer_that_waits_holds_up_only_the_router_that_asked(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    nodes, decided = Nodes(), trio.Event()

    async def answer(request: Request) -> bytes:
        if request.asked == {"operation": "CREATE"}:
            await decided.wait()
        return str(request.asked["operation"]).encode()

    relays = {name: nodes.relay(name, "b", answer) for name in "ac"} | {"b": Relay(nodes.node("b", "a", "c"), answer)}
    nodes.of["b"].receive = relays["b"].receive
    nodes.said.clear()
    nursery.start_soon(relays["b"].run)
    told: list[bytes] = []

    async def ask(router: str, operation: str) -> None:
        told.append(await relays[router].ask("b", REQUEST + encode(Described(0x74, {"operation": operation}))))

    async with trio.open_nursery() as asking:
        asking.start_soon(ask, "a", "CREATE")
        await trio.sleep(1)
        await ask("c", "QUERY")
        decided.set()
    assert told == [b"QUERY", b"CREATE"]


async def test_a_router_out_of_contact_and_one_that_does_not_answer_are_told_apart(autojump_clock: MockClock) -> None:
    nodes = Nodes()
    a = nodes.relay("a", "b", _never)
    nodes.relay("b", "a", _never)
    with pytest.raises(ManagementError, match="router a is not in contact with router c") as unavailable:
        await a.ask("c", REQUEST)
    began = trio.current_time()
    with pytest.raises(ManagementError, match="router b has not answered within 10 s") as late:
        await a.ask("b", REQUEST)
    assert (unavailable.value.status, late.value.status) == (503, 504)
    assert trio.current_time() - began == pytest.approx(PATIENCE_S)


async def test_an_answer_that_comes_late_answers_nothing_else(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    nodes = Nodes()
    a = nodes.relay("a", "b", _never)
    nodes.node("b", "a").receive = lambda router, payload: None
    with pytest.raises(ManagementError):
        await a.ask("b", REQUEST)
    nursery.start_soon(_answers, a, 2, 1)
    assert await a.ask("b", REQUEST) == b"2"


async def _answers(relay: Relay, right: int, wrong: int) -> None:
    await trio.sleep(1)
    for number in (wrong, right):
        relay.receive("b", b"!" + number.to_bytes(8, "big") + str(number).encode())


@pytest.mark.parametrize("payload", [b"", b"x" * 20, b"?12345678", b"?12345678no message", b"?1234"])
async def test_what_cannot_be_meant_breaks_the_protocol(payload: bytes) -> None:
    relay = Relay(Nodes().node("a", "b"), _never)
    with pytest.raises(BreachError):
        relay.receive("b", payload)


async def _never(request: Request) -> bytes:
    raise AssertionError("nothing is asked here")
