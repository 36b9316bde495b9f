"""Routers whose links with each other can be severed, and clients that stay, move and answer as a test says.

The links go through proxies: clients reach every router all the time.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import attrs
import trio

from failover.chaos.carrier import Impairment
from failover.chaos.mesh import ChaosMesh
from failover.chaos.proxy import LinkProxy
from failover.client.status import fetch_status
from router.amqp.connection import Connection
from router.amqp.format.message import body_of, data_message
from router.amqp.format.values import ACCEPTED, EXPIRE_CONNECTION, RCV_SECOND, SND_MIXED, ErrorCondition
from router.amqp.proton.link import Link
from router.amqp.sasl.client import SaslClient
from router.amqp.sasl.credentials import NOBODY, Credentials
from router.amqp.transport import serve
from router.mesh.config import Security
from router.mesh.quantities import Address
from router.mesh.rundir import RunDirectory
from router.mesh.topology import load
from router.security.certs import issue_all
from tests.processes.mesh import PATIENCE_S, TOPOLOGIES, eventually
from tests.router.amqp.pair import Recorder

TOPIC = "topic/x"
ECHOED = ("oncemesh:epoch", "oncemesh:generation")
PARTITION = 1


async def until(condition: Callable[[], object]) -> None:
    async def probe() -> bool:
        return bool(condition())

    await eventually(probe)


class End(Recorder):
    """One connection with one link."""

    def __init__(
        self, socket: trio.socket.SocketType, container: str, *, answers: bool = True, sasl: SaslClient | None = None
    ) -> None:
        super().__init__()
        self.socket = socket
        self.in_use = answers
        self.link: Link
        self.detached: ErrorCondition | None = None
        """Why the router has detached the link."""
        self.connection = Connection(self, container=container, server=False, asked=self._asked, sasl=sasl)
        self.connection.open()

    def _asked(self, link: Link) -> None:
        """Answer an echo, unless the client has moved elsewhere. The connection stays open and served."""
        if self.in_use:
            link.answer_echo()

    def on_detach(self, link: Link, closed: bool, condition: ErrorCondition | None) -> None:
        super().on_detach(link, closed, condition)
        self.detached = condition

    def go(self) -> None:
        self.in_use = False
        self.socket.shutdown(trio.socket.SHUT_RDWR)
        self.socket.close()

    # a publisher's acts and answers

    def send(self, body: bytes) -> Any:
        """Send a message. The tag is the body."""
        delivery = self.link.send(body, data_message(body))
        self.connection.wake()
        return delivery

    def is_told_accepted(self, delivery: Any) -> bool:
        return (delivery, ACCEPTED, False) in self.outcomes

    # a subscriber's acts and answers

    @property
    def bodies(self) -> list[bytes]:
        """The bodies of messages that came as new."""
        return [body_of(message) for message in self.messages]

    def accept(self) -> None:
        """Accept the last message that came as new."""
        self.link.update(self.deliveries[-1], ACCEPTED)
        self.connection.wake()

    @property
    def is_told_settled(self) -> bool:
        return any(settled for _, _, settled in self.outcomes) or any(settled for _, _, settled, *_ in self.resumed)

    def settle(self, delivery: Any) -> None:
        """Forget the outcomes of the delivery, as its handle may become the next delivery's, and settle it."""
        self.outcomes = [outcome for outcome in self.outcomes if outcome[0] != delivery]
        self.link.settle(delivery)
        self.connection.wake()


class Stage:
    def __init__(self, mesh: ChaosMesh, nursery: trio.Nursery, shown: Credentials) -> None:
        self.mesh = mesh
        self._nursery = nursery
        self._shown = shown

    # clients

    async def publisher(
        self, router: str, unsettled: Mapping[bytes, int] | None, last: End | None = None,
        *, answers: bool = True, through: LinkProxy | None = None, timeout: int = 60,
    ) -> End:  # fmt: skip
        """`last`: the publisher's previous link, whose epoch and generation it echoes."""
        end = await self._connect("P", through.address if through else self.mesh.addresses[router], answers=answers)
        end.link = end.connection.sender("link", TOPIC, snd_settle_mode=SND_MIXED, **_options(unsettled, last, timeout))
        await self.said(end, lambda: end.link.credit > 0)
        return end

    async def subscriber(
        self, router: str, unsettled: Mapping[bytes, int] | None, last: End | None = None,
        *, credit: int, timeout: int = 60, container: str = "S", topic: str = TOPIC,
    ) -> End:  # fmt: skip
        end = await self._connect(container, self.mesh.addresses[router])
        end.link = end.connection.receiver("link", topic, **_options(unsettled, last, timeout))
        end.link.flow(credit)
        await self.said(end, lambda: ("attached", "link") in end.events)
        return end

    async def _connect(self, container: str, address: Address, *, answers: bool = True) -> End:
        below = await trio.open_tcp_stream(address.host, address.port)
        tls = self._shown != NOBODY
        stream = await self._shown.secure(below, address.host) if tls else below
        sasl = SaslClient(self._shown.proofs(tls=tls)) if tls else None
        end = End(below.socket, container, answers=answers, sasl=sasl)
        self._nursery.start_soon(serve, stream, end.connection)
        await self.said(end, lambda: bool(end.events))
        return end

    async def said(self, end: End, condition: Callable[[], object]) -> None:
        """Send what the client has written, and wait until the condition is true."""
        end.connection.wake()
        await until(condition)

    # routers

    def url(self, router: str) -> str:
        return f"amqp://{self.mesh.addresses[router]}"

    def cut_off(self, router: str) -> None:
        self.mesh.links.impair(PARTITION, self.mesh.links.of([router]), Impairment(severed=True))

    async def heal(self) -> None:
        """Heal all links, and wait until all routers are in contact, and no subscriber counts as lapsed."""
        self.mesh.links.heal()

        async def is_whole() -> bool:
            reports = [await self.status(router) for router in self.mesh.routers]
            contacts = [route["contact"] for report in reports for route in report["routes"]]
            others = len(reports) - 1
            return contacts == [True] * (len(reports) * others) and not any(report["lapsed"] for report in reports)

        await eventually(is_whole)

    async def lapses(self, router: str, container: str = "S") -> None:
        """Wait until the router no longer waits for this subscriber."""

        async def has_lapsed() -> bool:
            return container in [link["container"] for link in (await self.status(router))["lapsed"]]

        await eventually(has_lapsed)

    async def all_have_been_told(self) -> None:
        """Wait until no router knows a subscriber that has ended without its client's knowledge."""

        async def are_told() -> bool:
            return not any([(await self.status(router))["untold"] for router in self.mesh.routers])

        await eventually(are_told)

    async def status(self, router: str) -> dict[str, Any]:
        address = self.mesh.addresses[router]
        scheme = "amqp" if self._shown == NOBODY else "amqps"
        return await fetch_status(address.host, address.port, PATIENCE_S, self._shown, scheme)

    def log(self, router: str) -> str:
        return self.mesh.directory.log_path(router).read_text()


def _options(unsettled: Mapping[bytes, int] | None, last: End | None, timeout: int) -> dict[str, Any]:
    properties = {} if last is None else {
        name: value for name, value in last.link.remote_properties.items() if name in ECHOED
    }  # fmt: skip
    return {
        "durable": 2, "expiry_policy": EXPIRE_CONNECTION, "timeout": timeout, "unsettled": unsettled,
        "rcv_settle_mode": RCV_SECOND, "properties": properties,
    }  # fmt: skip


@asynccontextmanager
async def severable_triangle(
    folder: Path, nursery: trio.Nursery, *, tls: bool = False, **timing: float
) -> AsyncIterator[Stage]:
    """Routers a, b and c, each linked to both others; `timing` in seconds. Tasks in the nursery end with the stage.
    With `tls` every router has a certificate, and all clients share one user's."""
    (folder / "run").mkdir()
    triangle, shown = load(TOPOLOGIES / "triangle.yaml"), NOBODY
    triangle = attrs.evolve(triangle, timing=attrs.evolve(triangle.timing, **timing))
    if tls:
        issue_all(triangle, folder, ["alice"])
        security = Security(certificate="{router}.pem", key="{router}.key", ca="ca.pem")
        triangle = attrs.evolve(triangle, security=security, base=folder)
        ca, own, key = (folder / name for name in ("ca.pem", "alice.pem", "alice.key"))
        shown = Credentials(ca=ca, certificate=own, key=key, names=frozenset(triangle.routers))
    mesh = ChaosMesh(triangle, RunDirectory(folder / "run"), print)
    try:
        await mesh.up(nursery, Random(1))
        for router in mesh.routers:
            await mesh.ready(router, PATIENCE_S)
        yield Stage(mesh, nursery, shown)
    finally:
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await mesh.down()
