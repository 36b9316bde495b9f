"""A home whose publisher has gone elsewhere gives nothing of it to anybody (protocol 6.6).

    a  ✂  b - c      clients reach all routers. P has K in doubt at a, and goes to c; S gets K at b, and comes to a

Once a has heard P answer, only what P says itself tells a that it is still there: its old connection may be open for
long, and its machine, or a proxy's, acknowledge what a writes.
"""

from pathlib import Path

import pytest
import trio

from failover.chaos.carrier import Impairment
from failover.chaos.proxy import LinkProxy
from router.amqp.format.message import data_message
from router.amqp.format.values import ACCEPTED
from tests.processes.mesh import eventually
from tests.processes.severed import Stage, severable_triangle

TAG, K = b"1", data_message(b"K")
NOTHING_COMES_S = 1.0
"""What is given wrongly is given within a tenth of that."""


LEAVES = ["its socket open", "closed", "closed, having answered nothing", "behind a proxy"]


@pytest.mark.parametrize(
    ("leaves", "tls"),
    [*((leaves, False) for leaves in LEAVES), ("its socket open", True), ("closed, having answered nothing", True)],
)
async def test_nothing_is_given_twice_when_a_publisher_goes_elsewhere(
    leaves: str, tls: bool, tmp_path: Path, nursery: trio.Nursery
) -> None:
    async with severable_triangle(tmp_path, nursery, tls=tls) as stage:
        proxy = LinkProxy(lambda: stage.mesh.addresses["a"])
        await nursery.start(proxy.run)
        await _play(stage, leaves, proxy)


async def _play(stage: Stage, leaves: str, proxy: LinkProxy) -> None:
    answers = "nothing" not in leaves
    s = await stage.subscriber("a", None, credit=0)  # so K stays at a
    p = await stage.publisher("a", None, answers=answers, through=proxy if "proxy" in leaves else None)
    p.link.send(TAG, K)
    p.connection.wake()

    async def read() -> bool:
        """What P sent, and heard it answer."""
        publishers = (await stage.status("a"))["publishers"]
        return [(p["received"], p["answers"]) for p in publishers] == [(1, answers)]

    await eventually(read)
    stage.cut_off("a")
    proxy.become(Impairment(silent=True))
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
