"""A home whose publisher has gone elsewhere gives nothing of it to anybody (protocol 6.6).

    a  ✂  b - c      clients reach all routers. P has K in doubt at a, and goes to c; S gets K at b, and comes to a

Once a has heard P answer, only what P says itself tells a that it is still there: its old connection may be open for
long, and its machine, or a proxy's, acknowledge what a writes.
"""

import socket
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio

from failover.chaos.links import Condition
from failover.chaos.mesh import Mesh
from failover.chaos.proxy import LinkProxy
from failover.client.status import fetch_status
from router.amqp.connection import Connection
from router.amqp.handler import ACCEPTED, EXPIRE_CONNECTION, RCV_SECOND, SND_MIXED
from router.amqp.link import Link
from router.amqp.message import data_message
from router.amqp.transport import serve
from router.quantities import Address
from router.rundir import RunDirectory
from router.topology import load
from tests.processes.mesh import TOPOLOGIES, eventually
from tests.router.amqp.pair import Recorder

TOPIC = "topic/x"
TAG, K = b"1", data_message(b"K")
ECHOED = ("oncemesh:epoch", "oncemesh:generation")
NOTHING_COMES_S = 1.0
"""What is given wrongly is given within a tenth of that."""


class End(Recorder):
    """One connection with one link."""

    def __init__(self, stream: trio.SocketStream, container: str, *, answers: bool = True) -> None:
        super().__init__()
        self.stream = stream
        self.in_use = answers
        self.link: Link
        self.connection = Connection(self, container=container, server=False, asked=self._asked)
        self.connection.open()

    def _asked(self, link: Link) -> None:
        """What we have moved elsewhere nobody answers here, though the connection is open, and served."""
        if self.in_use:
            link.answer_echo()

    def go(self) -> None:
        self.in_use = False
        self.stream.socket.shutdown(socket.SHUT_RDWR)
        self.stream.socket.close()


class Stage:
    def __init__(self, mesh: Mesh, nursery: trio.Nursery) -> None:
        self.mesh = mesh
        self._nursery = nursery

    async def publisher(
        self, router: str, unsettled: Mapping[bytes, int] | None, last: End | None = None,
        *, answers: bool = True, through: LinkProxy | None = None,
    ) -> End:  # fmt: skip
        end = await self._connect("P", through.address if through else self.mesh.addresses[router], answers=answers)
        end.link = end.connection.sender("link", TOPIC, snd_settle_mode=SND_MIXED, **_options(unsettled, last))
        await self._until(end, lambda: end.link.credit > 0)
        return end

    async def subscriber(
        self, router: str, unsettled: Mapping[bytes, int] | None, last: End | None = None, *, credit: int
    ) -> End:
        end = await self._connect("S", self.mesh.addresses[router])
        end.link = end.connection.receiver("link", TOPIC, **_options(unsettled, last))
        end.link.flow(credit)
        await self._until(end, lambda: ("attached", "link") in end.events)
        return end

    async def _connect(self, container: str, address: Address, *, answers: bool = True) -> End:
        stream = await trio.open_tcp_stream(address.host, address.port)
        end = End(stream, container, answers=answers)
        self._nursery.start_soon(serve, stream, end.connection)
        await self._until(end, lambda: bool(end.events))
        return end

    async def _until(self, end: End, condition: Any) -> None:
        end.connection.wake()

        async def probe() -> bool:
            return bool(condition())

        await eventually(probe)

    async def said(self, end: End, condition: Any) -> None:
        await self._until(end, condition)

    async def holds(self, router: str, *, answered: bool) -> bool:
        """Whether the router has read what P sent, and heard it answer."""
        address = self.mesh.addresses[router]
        status = await fetch_status(address.host, address.port, 10.0)
        return [(p["received"], p["answers"]) for p in status["publishers"]] == [(1, answered)]


def _options(unsettled: Mapping[bytes, int] | None, last: End | None) -> dict[str, Any]:
    properties = {} if last is None else {
        name: value for name, value in last.link.remote_properties.items() if name in ECHOED
    }  # fmt: skip
    return {
        "durable": 2, "expiry_policy": EXPIRE_CONNECTION, "timeout": 60, "unsettled": unsettled,
        "rcv_settle_mode": RCV_SECOND, "properties": properties,
    }  # fmt: skip


@pytest.mark.parametrize("leaves", ["its socket open", "closed", "closed, having answered nothing", "behind a proxy"])
async def test_nothing_is_given_twice_when_a_publisher_goes_elsewhere(
    leaves: str, tmp_path: Path, nursery: trio.Nursery
) -> None:
    (tmp_path / "run").mkdir()
    mesh = Mesh(load(TOPOLOGIES / "triangle.yaml"), RunDirectory(tmp_path / "run"), print)
    try:
        await mesh.up(nursery, Random(1))
        for router in mesh.routers:
            await mesh.ready(router, 10)
        proxy = LinkProxy(lambda: mesh.addresses["a"])
        await nursery.start(proxy.run)
        await _play(Stage(mesh, nursery), leaves, proxy)
    finally:
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await mesh.down()


async def _play(stage: Stage, leaves: str, proxy: LinkProxy) -> None:
    answers = "nothing" not in leaves
    s = await stage.subscriber("a", None, credit=0)  # so K stays at a
    p = await stage.publisher("a", None, answers=answers, through=proxy if "proxy" in leaves else None)
    p.link.send(TAG, K)
    p.connection.wake()

    async def read() -> bool:
        return await stage.holds("a", answered=answers)

    await eventually(read)
    stage.mesh.links.spoil(1, stage.mesh.links.of(["a"]), Condition(severed=True))
    proxy.silence()
    if "open" in leaves:
        p.in_use = False
    else:
        p.go()

    there = await stage.publisher("c", {TAG: 0}, p)
    delivery = there.link.send(TAG, K)  # as new: c has it not
    there.connection.wake()
    s.go()
    s2 = await stage.subscriber("b", {}, s, credit=10)
    await stage.said(s2, lambda: s2.messages == [K])
    s2.link.update(s2.deliveries[0], ACCEPTED)
    await stage.said(s2, lambda: (delivery, ACCEPTED, False) in there.outcomes)
    there.link.settle(delivery)
    there.connection.wake()
    await stage.said(s2, lambda: any(settled for _, _, settled in s2.outcomes))
    s2.link.settle(s2.deliveries[0])  # S forgets K: it was settled
    s2.go()
    s3 = await stage.subscriber("a", {}, s2, credit=10)
    with trio.move_on_after(NOTHING_COMES_S):
        while not s3.order:
            await trio.sleep(0.01)
    assert s3.order == [], "S is given K twice"
