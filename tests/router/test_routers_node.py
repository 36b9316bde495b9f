"""The node `$routers`: who is told where to go, and who is asked to go there."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from router.amqp.format.sections import read_message
from router.edge.attach import Refusal
from router.edge.ends import End
from router.plan.routers_node import AGAIN_S, YOUNG, RoutersNode
from topic.properties import MOVE

DEAD_S = 1.0


class Mesh:
    """Of three routers: the alternates of a."""

    router = "a"

    def __init__(self) -> None:
        self.links = {"a": 0, "b": 0, "c": 0}
        self.reachable = "bc"

    def __call__(self, first: str = "") -> list[str]:
        return sorted(self.reachable, key=lambda name: name != first)

    def known(self) -> list[tuple[str, str, bool]]:
        return [(name, "", True) for name in self.reachable]

    def loads(self) -> dict[str, int]:
        return self.links if self.reachable == "bc" else {}


class TopicLink:
    """Of a connection, beside its link from `$routers`."""

    def __init__(self, lasts: bool | None) -> None:
        """None: its attach is not answered."""
        link: Any = self
        self.context = None if lasts is None else (Lasting if lasts else End)(link)


class Lasting(End):
    @property
    def lasts(self) -> bool:
        return True


class Client:
    """A connection with a link from `$routers`, which is both here, and links to topics."""

    is_sender = True

    def __init__(self, *lasts: bool | None, credit: int = 10) -> None:
        self.links = [self, *map(TopicLink, lasts)]
        self.connection = self
        self.ended = False
        self.credit = credit
        self.context: Any = None
        self.lists: list[list[str]] = []
        self.asked: list[str] = []

    def answer(self) -> None: ...
    def wake(self) -> None: ...
    def drained(self) -> None: ...

    def takes(self, message: bytes) -> bool:
        return True

    def send(self, tag: bytes, message: bytes, *, settled: bool) -> None:
        assert settled and self.credit
        self.credit -= 1
        said = read_message(message)
        self.lists.append(said["value"])
        self.asked += said["value"][:1] if said.get("application-properties", {}).get(MOVE) else []


@pytest.fixture
def mesh() -> Mesh:
    return Mesh()


@pytest.fixture
async def node(mesh: Mesh, nursery: trio.Nursery) -> RoutersNode:
    alternates: Any = mesh
    node = RoutersNode(alternates, DEAD_S, trio.lowlevel.checkpoint)
    nursery.start_soon(node.run)
    return node


def come(node: RoutersNode, client: Client) -> Client:
    link: Any = client
    node.attach(link)
    return client


async def test_everybody_is_told_at_once_and_whenever_the_list_is_another(
    node: RoutersNode, mesh: Mesh, autojump_clock: MockClock
) -> None:
    clients = [come(node, Client(True)) for _ in range(3)]
    await trio.sleep(10)
    mesh.reachable = "c"
    await trio.sleep(10)
    assert [client.lists for client in clients] == [[["b", "c"], ["c"]]] * 3


async def test_who_had_no_credit_is_told_the_last_list_when_it_has(
    node: RoutersNode, mesh: Mesh, autojump_clock: MockClock
) -> None:
    client = come(node, Client(True, credit=0))
    mesh.reachable = "c"
    await trio.sleep(10)
    client.credit = 10
    client.context.on_credit()
    client.context.on_credit()
    assert client.lists == [["c"]]


async def test_who_goes_while_others_are_told_is_told_nothing(
    mesh: Mesh, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    alternates: Any = mesh
    clients: list[Client] = []

    async def turn() -> None:
        if last := clients[2:]:
            clients.remove(last[0])
            last[0].context.gone(0.0, closed=False)
            last[0].credit = 0  # as of any link that has ended
        await trio.lowlevel.checkpoint()

    node = RoutersNode(alternates, DEAD_S, turn)
    nursery.start_soon(node.run)
    clients += [come(node, Client(True)) for _ in range(3)]
    gone = clients[2]
    mesh.reachable = "c"
    await trio.sleep(10)
    assert [client.lists for client in clients] == [[["b", "c"], ["c"]]] * 2
    assert gone.lists == [["b", "c"]]


async def test_a_connection_has_one_link_here_and_another_when_that_is_gone(
    node: RoutersNode, autojump_clock: MockClock
) -> None:
    client = come(node, Client(True))
    with pytest.raises(Refusal, match="already"):
        come(node, client)
    client.context.gone(0.0, closed=True)
    come(node, client)


async def test_a_link_that_is_attached_again_under_its_name_gives_way(node: RoutersNode, mesh: Mesh) -> None:
    """The node hears that it is stolen behind the attach of the one that steals it (AMQP 1.0 2.6.1)."""
    former, again, third = (Client(True) for _ in range(3))
    again.connection = third.connection = former
    come(node, former)
    former.ended = True
    come(node, again)
    former.context.gone(0.0, closed=False)
    with pytest.raises(Refusal, match="already"):
        come(node, third)
    again.context.gone(0.0, closed=False)
    come(node, third)


async def test_as_many_are_asked_as_are_too_many_and_nobody_twice_soon(
    node: RoutersNode, mesh: Mesh, autojump_clock: MockClock
) -> None:
    """Nobody follows here."""
    clients = [come(node, Client(True)) for _ in range(6)]
    mesh.links = {"a": 6, "b": 0, "c": 3}
    await trio.sleep(YOUNG * DEAD_S + 2)
    assert [client.asked for client in clients] == [["b"], ["b"], ["b"], [], [], []]
    await trio.sleep(AGAIN_S / 2)
    assert [client.asked for client in clients] == [["b"]] * 6
    await trio.sleep(AGAIN_S)
    assert {len(client.asked) for client in clients} == {2}


@pytest.mark.parametrize("links", [(), (False,), (True, False), (True, None), (True, True, True)])
async def test_who_would_lose_a_link_or_has_too_many_is_not_asked(
    links: tuple[bool | None, ...], node: RoutersNode, mesh: Mesh, autojump_clock: MockClock
) -> None:
    client = come(node, Client(*links))
    mesh.links = {"a": 4, "b": 2, "c": 0}
    await trio.sleep(2 * YOUNG * DEAD_S)
    assert not client.asked


async def test_a_connection_goes_with_all_its_links(node: RoutersNode, mesh: Mesh, autojump_clock: MockClock) -> None:
    client = come(node, Client(True, True))
    mesh.links = {"a": 6, "b": 3, "c": 0}
    await trio.sleep(2 * YOUNG * DEAD_S)
    assert client.asked == ["c"]


async def test_who_has_just_come_stays(node: RoutersNode, mesh: Mesh, autojump_clock: MockClock) -> None:
    mesh.links = {"a": 9, "b": 0, "c": 0}
    await trio.sleep(2 * YOUNG * DEAD_S)
    client = come(node, Client(True))
    await trio.sleep(YOUNG * DEAD_S - 1)
    assert not client.asked
    await trio.sleep(AGAIN_S)
    assert client.asked
