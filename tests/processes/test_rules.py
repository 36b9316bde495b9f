"""Two routers whose users have rules, and whose limits are narrow: who goes beyond is told, and no one else concerned.

alice, bob -> a---b
"""

import signal
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import trio

from router.amqp.format.sections import write_message
from router.amqp.format.values import EXPIRE_CONNECTION
from router.amqp.sasl.client import SaslClient
from router.amqp.sasl.scram import ScramClient, Verifier
from router.security.users import UserFile, write_users
from tests.hangs import HANGS_S
from tests.processes.clients import Client, Clients, Publisher, Subscriber
from tests.processes.mesh import RunningMesh, eventually, running

USERS = ("alice", "bob", "carol")
RULES = """\
alice: {send: [topic/orders/*], receive: [topic/orders/eu], durable: 2}
bob: {receive: ["*"], connections: 2, status: all}
"""
LINKS, CONNECTIONS = 20, 6
LIMITS: dict[str, int | str] = {"links": LINKS, "attaches": 1, "connections": CONNECTIONS, "opening": "2s"}
UNAUTHORIZED, RESOURCE_LIMIT = "amqp:unauthorized-access", "amqp:resource-limit-exceeded"
LASTING = {"durable": 2, "expiry_policy": EXPIRE_CONNECTION, "timeout": 30}


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    folder = tmp_path_factory.mktemp("rules")
    (folder / "secret").write_text("a secret of routers, 29 letters")
    (folder / "rules").write_text(RULES)
    write_users(folder / "users", UserFile({name: Verifier.of(name) for name in USERS}))
    files = {"secret": "secret", "users": "users", "rules": "rules"}
    with running("pair", folder, security=files, limits=LIMITS) as mesh:
        yield mesh


Login = Callable[[str], Any]


@pytest.fixture
async def login(mesh: RunningMesh, clients: Clients) -> AsyncIterator[Login]:
    """Comes in as a user, at a; and leaves."""
    came: list[Client] = []

    async def come(user: str, **settings: Any) -> Client:
        sasl = SaslClient([ScramClient(user, user)])
        client = await clients.connect(mesh.address("a"), user, sasl=sasl, expect_open=False, **settings)
        came.append(client)
        return client

    yield come
    for client in came:
        client.close()
    await clients.until(lambda: all(client.connection.closed for client in came))


async def comes_to(clients: Clients, end: Publisher | Subscriber) -> str:
    """The condition with which an attach is refused; empty if it is answered."""
    await clients.until(lambda: end.ended or (end.attached and (isinstance(end, Subscriber) or end.link.credit > 0)))
    return end.detached.name if end.detached is not None else ""


@pytest.mark.parametrize(
    ("user", "role", "address", "condition"),
    [
        ("alice", "publisher", "topic/orders/us", ""),
        ("alice", "publisher", "topic/x", UNAUTHORIZED),
        ("alice", "subscriber", "topic/orders/eu", ""),
        ("alice", "subscriber", "topic/orders/us", UNAUTHORIZED),
        ("alice", "subscriber", "$management", UNAUTHORIZED),
        ("alice", "subscriber", "$routers", ""),
        ("bob", "publisher", "topic/x", UNAUTHORIZED),
        ("bob", "subscriber", "topic/x", ""),
        ("carol", "publisher", "topic/x", ""),
        ("carol", "subscriber", "topic/x", ""),
    ],
)
async def test_a_user_may_do_what_its_rule_says(
    mesh: RunningMesh, clients: Clients, login: Login, user: str, role: str, address: str, condition: str
) -> None:
    client = await login(user)
    assert await comes_to(clients, getattr(client, role)(address)) == condition
    if condition:
        lines = mesh.log("a").splitlines()
        assert any(f"user '{user}', a peer at 127.0.0.1:" in line and "may not" in line for line in lines)


@pytest.mark.parametrize(("user", "sees"), [("alice", False), ("bob", True), ("carol", True)])
async def test_who_may_see_the_routers_is_told_which_there_are(
    clients: Clients, login: Login, user: str, sees: bool
) -> None:
    publisher = (await login(user)).publisher("_topo/0/c/$management")
    assert await comes_to(clients, publisher) == "amqp:not-found" and publisher.detached is not None
    told = "expected one of _topo/0/a/$management, _topo/0/b/$management" in publisher.detached.description
    assert told == sees


async def test_a_rule_holds_for_messages_that_say_themselves_where_they_go(clients: Clients, login: Login) -> None:
    publisher = (await login("alice")).publisher("")
    await clients.until(lambda: publisher.link.credit > 0)
    for to in ("topic/orders/us", "topic/x"):
        publisher.send_message(write_message({"properties": {"to": to}, "data": b""}))
    await clients.until(lambda: len(publisher.outcomes) == 2)
    assert publisher.accepted == [0]
    assert publisher.outcomes[1].condition == UNAUTHORIZED


async def test_the_status_shows_others_only_to_who_may_see_them(
    mesh: RunningMesh, clients: Clients, login: Login
) -> None:
    alice, bob, carol = [await login(user) for user in USERS]
    ends = [client.subscriber("topic/orders/eu", name=f"of {client.container}") for client in (alice, bob, carol)]
    await clients.until(lambda: all(end.attached for end in ends))
    seen = {}
    for client in (alice, bob, carol):
        status = client.subscriber("$status", credit=1)
        await clients.until(lambda: bool(status.received))  # noqa: B023
        seen[client.container] = [user for user in USERS if f"of {user}".encode() in status.bodies[0]]
    assert seen == {"alice": ["alice"], "bob": [*USERS], "carol": [*USERS]}


async def exceeds(mesh: RunningMesh, limit: str, went_beyond: Callable[[], Any]) -> None:
    """It is counted, and the log names it."""
    before = (await mesh.status("a"))["exceeded"][limit]
    await went_beyond()

    async def is_counted() -> bool:
        return bool((await mesh.status("a"))["exceeded"][limit] > before)

    await eventually(is_counted)


async def test_durable_links_of_a_user_are_bounded(mesh: RunningMesh, clients: Clients, login: Login) -> None:
    client = await login("alice")

    async def keep_three() -> None:
        ends = [client.publisher("topic/orders/x", name=f"{n}", **LASTING) for n in range(3)]
        assert [await comes_to(clients, end) for end in ends] == ["", "", RESOURCE_LIMIT]
        ends[0].link.detach()
        await clients.until(lambda: ends[0].link.ended)
        again = client.publisher("topic/orders/x", name="another", **LASTING)
        assert await comes_to(clients, again) == ""
        for end in (ends[1], again):
            end.link.detach()

    await exceeds(mesh, "user_durable", keep_three)


async def test_connections_of_a_user_are_bounded(mesh: RunningMesh, clients: Clients, login: Login) -> None:
    for _ in range(2):
        assert (await login("bob")).opened
    assert (await login("carol")).opened

    async def come_again() -> None:
        client = await login("bob")
        await clients.until(lambda: client.connection.closed)
        assert client.closed is not None and client.closed.name == RESOURCE_LIMIT
        assert not client.connection.remote_container

    await exceeds(mesh, "user_connections", come_again)


async def test_clients_of_a_router_are_bounded(mesh: RunningMesh, clients: Clients, login: Login) -> None:
    for _ in range(CONNECTIONS):
        assert await comes_to(clients, (await login("carol")).subscriber("topic/x")) == ""

    async def come_again() -> None:
        client = await login("carol")
        client.subscriber("topic/x")
        await clients.until(lambda: client.connection.closed)
        assert client.closed is not None and client.closed.name == RESOURCE_LIMIT

    await exceeds(mesh, "connections", come_again)


async def test_attaches_of_a_connection_are_slowed_down(mesh: RunningMesh, clients: Clients, login: Login) -> None:
    client = await login("carol")

    async def come_and_go() -> None:
        conditions = []
        for number in range(LINKS + 15):
            end = client.subscriber("topic/x", name=f"{number}")
            conditions.append(await comes_to(clients, end))
            if not conditions[-1]:
                end.link.detach()
        assert RESOURCE_LIMIT in conditions
        assert not client.connection.closed

    await exceeds(mesh, "attaches", come_and_go)


async def test_who_does_not_open_in_time_is_sent_away(mesh: RunningMesh) -> None:
    for said in (b"", b"AMQP\x03\x01\x00\x00"):

        async def wait(said: bytes = said) -> None:
            address = mesh.address("a")
            async with await trio.open_tcp_stream(address.host, address.port) as stream:
                if said:
                    await stream.send_all(said)
                with trio.fail_after(HANGS_S):
                    while await stream.receive_some():
                        pass

        await exceeds(mesh, "opening", wait)


async def test_rules_are_read_anew_on_sighup(mesh: RunningMesh, clients: Clients, login: Login) -> None:
    rules = mesh.plan.parent / "rules"
    for text, condition in (("alice: {receive: [topic/x]}\n", ""), (RULES, UNAUTHORIZED)):
        rules.write_text(text)
        mesh.signal("a", signal.SIGHUP)

        async def is_so() -> bool:
            client = await login("alice")
            return bool(await comes_to(clients, client.subscriber("topic/x")) == condition)  # noqa: B023

        await eventually(is_so)
