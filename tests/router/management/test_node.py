"""The nodes `$management`: what a client that asks, or does not read, may cost (see their module)."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from router.amqp.batches import Transfers
from router.amqp.format.codec import Described, Raw, encode
from router.amqp.format.message import sections_of
from router.edge.attach import Refusal
from router.edge.dynamic import DynamicLink
from router.management.agent import Agent
from router.management.entity import EntityType
from router.management.node import MOST_LINKS, MOST_REQUESTS, PAUSE_S, Callers, ManagementNodes
from router.management.recent_events import RecentEvents
from router.management.requests import ManagementError
from router.security.operator import OPERATOR
from topic.identity import LinkIdentity


class Asking:
    """A client's link, as far as the nodes look at it."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.is_sender = False
        self.context: Any = None
        self.unsent = 0
        self.ended = False
        self.granted = 0
        self.said: list[str] = []
        self.remote_max_message_size = 0
        connection.links.append(self)

    def takes(self, message: bytes) -> bool:
        return not 0 < self.remote_max_message_size < len(message)

    def answer(self, **options: Any) -> None:
        """It is let in."""

    def flow(self, credit: int) -> None:
        self.granted += credit

    def update(self, handle: Any, state: int, settle: bool) -> None:
        self.said.append("accepted")

    def reject(self, handle: Any, condition: str, description: str, settle: bool) -> None:
        self.said.append(f"{condition}: {description}")


NUMBERS = count()


class Source(DynamicLink):
    """A dynamic source, as far as they do."""

    def __init__(self, nodes: ManagementNodes, host: "Host", credit: int) -> None:
        self.link = link = Asking(host)  # type: ignore[assignment]
        link.context = self
        self._nodes, self.credit = nodes, credit
        self.identity = LinkIdentity("client", "answers", f"_dynamic/a/{next(NUMBERS)}")
        self.got: list[bytes] = []

    @property
    def can_say(self) -> bool:
        return self.credit > 0

    def send_answer(self, tag: bytes, message: bytes) -> None:
        self.credit -= 1
        self.got.append(message)

    def grant(self, credit: int) -> None:
        self.credit += credit
        self._nodes.callers.awaits_credit(self.link.connection)

    def end(self) -> None:
        self.link.ended = True


class Host:
    def __init__(self, user: str = "") -> None:
        self.user = user
        self.links: list[Any] = []

    def wake(self) -> None:
        pass


class Others:
    """A relay: what is asked there is answered when the test says so."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.let_go = trio.Event()

    async def ask(self, router: str, message: bytes) -> bytes:
        self.asked.append(router)
        await self.let_go.wait()
        raise ManagementError(504, "late")

    async def run(self) -> None:
        await trio.sleep_forever()


class Counted:
    """How often an entity was looked at."""

    def __init__(self) -> None:
        self.looks = 0

    def kind(self) -> EntityType[int]:
        return EntityType[int]("thing", {"identity": self._identity, "name": str}, lambda: [1])

    def _identity(self, _: int) -> str:
        self.looks += 1
        return "1"


async def at_once() -> None:
    pass


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.fixture
def others() -> Iterator[Others]:
    yield Others()


@pytest.fixture
def nodes(counted: Counted, others: Others) -> ManagementNodes:
    agent = Agent([counted.kind()], list, RecentEvents("a", 1), lambda: b"{}", lambda _: Raw(b""), at_once)
    return ManagementNodes("a", agent, others, Callers(), is_closed=True)  # type: ignore[arg-type]


def attached(nodes: ManagementNodes, address: str, link: Asking) -> Asking:
    node: Any = nodes.table(["a", "b"])[address]
    node.attach(link)
    return link


def pair(nodes: ManagementNodes, host: Any, credit: int = 1, router: str = "") -> tuple[Asking, Source]:
    """For requests, and for answers."""
    address = f"_topo/0/{router}/$management" if router else "$management"
    return attached(nodes, address, Asking(host)), Source(nodes, host, credit)


def request(reply_to: str, operation: str = "QUERY", **asked: str) -> bytes:
    properties = [None, None, None, None, reply_to, "id"]
    sections: list[tuple[int, Any]] = [(0x73, properties), (0x74, {"operation": operation, **asked}), (0x77, {})]
    return b"".join(encode(Described(code, value)) for code, value in sections)


def send(link: Asking, *messages: bytes) -> None:
    count = len(messages)
    link.context.on_transfers(Transfers([object()] * count, [b"t"] * count, list(messages), [False] * count))


def status_of(answer: bytes) -> int:
    status: int = dict(sections_of(answer))[0x74]["statusCode"]
    return status


async def test_an_answer_is_made_when_there_is_credit_for_it(
    nodes: ManagementNodes, counted: Counted, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    nursery.start_soon(nodes.run)
    requests, answers = pair(nodes, Host(), credit=0)
    send(requests, request(answers.identity.address))
    await trio.sleep(10)
    assert (requests.said, counted.looks, answers.got) == (["accepted"], 0, [])
    answers.grant(1)
    await trio.sleep(1)
    assert (counted.looks, [status_of(answer) for answer in answers.got]) == (1, [200])
    assert requests.granted == 2


async def test_who_does_not_read_gets_no_second_answer_and_none_is_made(
    nodes: ManagementNodes, counted: Counted, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    nursery.start_soon(nodes.run)
    requests, answers = pair(nodes, Host(), credit=1000)
    send(requests, request(answers.identity.address))
    await trio.sleep(1)
    answers.link.unsent = 1  # type: ignore[misc]
    send(requests, *[request(answers.identity.address)] * 5)
    await trio.sleep(100)
    assert (counted.looks, len(answers.got)) == (1, 1)
    answers.link.unsent = 0  # type: ignore[misc]
    await trio.sleep(10 * PAUSE_S)
    assert len(answers.got) == 6


async def test_a_connection_has_so_many_requests_here_and_others_are_served_meanwhile(
    nodes: ManagementNodes, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    nursery.start_soon(nodes.run)
    requests, answers = pair(nodes, Host(), credit=0)
    send(requests, *[request(answers.identity.address)] * (MOST_REQUESTS + 3))
    assert requests.said.count("accepted") == MOST_REQUESTS
    assert sum("resource-limit-exceeded" in said for said in requests.said) == 3
    requests, answers = pair(nodes, Host())
    send(requests, request(answers.identity.address))
    await trio.sleep(1)
    assert len(answers.got) == 1


async def test_an_answer_that_is_larger_than_its_link_takes_is_an_error(
    nodes: ManagementNodes, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    nursery.start_soon(nodes.run)
    requests, answers = pair(nodes, Host())
    answers.link.remote_max_message_size = 20
    send(requests, request(answers.identity.address))
    await trio.sleep(1)
    assert [status_of(answer) for answer in answers.got] == [400]


async def test_nobody_is_answered_on_the_link_of_another_connection(
    nodes: ManagementNodes, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    nursery.start_soon(nodes.run)
    _, others_answers = pair(nodes, Host())
    requests, _ = pair(nodes, Host())
    send(
        requests,
        request(others_answers.identity.address),
        b"no message",
        encode(Described(0x74, {"operation": "QUERY"})),
    )
    await trio.sleep(1)
    assert others_answers.got == []
    assert [said.split(":")[1] for said in requests.said] == ["not-found", "decode-error", "invalid-field"]
    assert requests.granted == 4


async def test_requests_go_with_the_link_that_their_answers_are_for(
    nodes: ManagementNodes, counted: Counted, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    nursery.start_soon(nodes.run)
    host = Host()
    requests, answers = pair(nodes, host, credit=0)
    send(requests, request(answers.identity.address))
    answers.end()
    again = Source(nodes, host, 1)
    send(requests, request(again.identity.address))
    await trio.sleep(1)
    assert (counted.looks, len(again.got), requests.granted) == (1, 1, 3)


async def test_a_router_that_does_not_answer_holds_up_only_who_asked_it(
    nodes: ManagementNodes, others: Others, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    nursery.start_soon(nodes.run)
    host = Host()
    there, there_answers = pair(nodes, host, router="b")
    here, here_answers = pair(nodes, Host())
    send(there, request(there_answers.identity.address))
    send(here, request(here_answers.identity.address))
    await trio.sleep(1)
    assert (others.asked, there_answers.got, len(here_answers.got)) == (["b"], [], 1)
    others.let_go.set()
    await trio.sleep(1)
    assert [status_of(answer) for answer in there_answers.got] == [504]


async def test_of_a_closed_mesh_only_who_runs_it_changes_anything_at_any_router(
    nodes: ManagementNodes, others: Others, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    nursery.start_soon(nodes.run)
    told = []
    for user, router in (("guest", "a"), ("guest", "b"), (OPERATOR, "a")):
        requests, answers = pair(nodes, Host(user), router=router)
        send(requests, request(answers.identity.address, "DELETE", identity="1"))
        await trio.sleep(1)
        told.append(status_of(answers.got[0]))
    assert (told, others.asked) == ([403, 403, 501], [])


def test_credit_is_awaited_while_there_is_a_request(nodes: ManagementNodes) -> None:
    """So it is not drained then."""
    host = Host()
    requests, answers = pair(nodes, host, credit=0)
    assert not nodes.callers.awaits_credit(host)  # type: ignore[arg-type]
    send(requests, request(answers.identity.address))
    assert nodes.callers.awaits_credit(host)  # type: ignore[arg-type]


def test_a_connection_has_so_many_links_here(nodes: ManagementNodes) -> None:
    host = Host()
    for _ in range(MOST_LINKS):
        attached(nodes, "$management", Asking(host))
    with pytest.raises(Refusal, match="has 1000 links to management already"):
        attached(nodes, "$management", Asking(host))


def test_a_link_that_is_attached_again_counts_once(nodes: ManagementNodes) -> None:
    """The end of the stolen link hears of it after the attach of the new one."""
    host = Host()
    [*_, stolen] = [attached(nodes, "$management", Asking(host)) for _ in range(MOST_LINKS)]
    stolen.ended = True
    attached(nodes, "$management", Asking(host))
    stolen.context.gone(0.0, closed=True)
    with pytest.raises(Refusal, match="has 1000 links to management already"):
        attached(nodes, "$management", Asking(host))


def test_a_connection_without_links_is_forgotten(nodes: ManagementNodes) -> None:
    requests, _ = pair(nodes, Host())
    requests.context.gone(0.0, closed=False)
    assert nodes.callers._callers == {}


async def test_a_client_that_goes_while_others_work_for_it_is_answered_no_more(
    nodes: ManagementNodes, others: Others, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    nursery.start_soon(nodes.run)
    host = Host()
    requests, answers = pair(nodes, host, credit=2, router="b")
    send(requests, *[request(answers.identity.address)] * 2)
    await trio.sleep(1)
    requests.context.gone(0.0, closed=False)
    host.links = []  # a connection that is released has none
    others.let_go.set()
    await trio.sleep(1)
    assert (others.asked, answers.got) == (["b"], [])


async def test_a_client_that_has_closed_its_link_for_requests_gets_the_answer_under_way(
    nodes: ManagementNodes, others: Others, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    nursery.start_soon(nodes.run)
    requests, answers = pair(nodes, Host(), router="b")
    send(requests, request(answers.identity.address))
    await trio.sleep(1)
    requests.ended = True
    requests.context.gone(0.0, closed=True)
    others.let_go.set()
    await trio.sleep(1)
    assert [status_of(answer) for answer in answers.got] == [504]
