"""`python -m tests.bench.fanout`: many subscribers of one address, and one message to all of them.

On a mesh of three routers the subscribers attach over 80 connections, spread evenly. Then messages are published at
router a, one at a time. The bench measures the time until all have a message, and until its publisher reads *accepted*.
The clients speak through the engine of `router.amqp`, all of them in this process.
"""

import argparse
from collections.abc import Mapping
from functools import partial
from typing import Any

import trio

from router.amqp.batches import Dispositions, Transfers
from router.amqp.connection import Connection
from router.amqp.format.values import ACCEPTED, EXPIRE_CONNECTION
from router.amqp.proton.link import Link
from router.mesh.quantities import Address
from tests.bench.links import CONNECTIONS, LIMIT_S, TIMEOUT_S, Client, Clock, Crowd
from tests.bench.load import mesh
from tests.processes.clients import Clients

ADDRESS = "topic/all"
MESSAGES = 3
SIZE = 100


class Listener(Client):
    """One connection of subscribers, which accept each message in mode second."""

    def on_open(self, connection: Connection) -> None:
        for number in self.links:
            link = connection.receiver(
                f"link {number}", ADDRESS, rcv_settle_mode=1, timeout=TIMEOUT_S, expiry_policy=EXPIRE_CONNECTION
            )
            link.flow(100)

    def on_transfers(self, link: Link, transfers: Transfers) -> None:
        self.crowd.received.add(len(transfers.handles))
        link.update_many(transfers.handles, ACCEPTED)

    def on_dispositions(self, link: Link, dispositions: Dispositions) -> None:
        link.settle_many([handle for handle, _, is_settled in dispositions if is_settled])


async def measure(routers: Mapping[str, Any], subscribers: int) -> None:
    pids = [router["pid"] for router in routers.values()]
    crowd = Crowd([router["amqp"] for router in routers.values()], Listener)
    share = -(-subscribers // CONNECTIONS)
    with trio.fail_after(LIMIT_S):
        async with trio.open_nursery() as nursery:
            clock = Clock(pids)
            for number in range(CONNECTIONS):
                nursery.start_soon(crowd.run, number, range(subscribers)[number * share : (number + 1) * share])
            await crowd.answered.until(subscribers.__eq__)
            print(f"{subscribers} subscribers attached:  {clock.look()}")
            clients = Clients(nursery)
            publisher = await clients.publisher(Address.parse(routers["a"]["amqp"]), ADDRESS, second=True)
            for number in range(1, MESSAGES + 1):
                clock = Clock(pids)
                publisher.send(bytes(SIZE))
                await crowd.received.until((subscribers * number).__eq__)
                print(f"message {number}, all have it:    {clock.look()}")
                await clients.until(partial(publisher.accepted.__contains__, number - 1), LIMIT_S)
                print(f"           and it is accepted: {clock.look()}")
            nursery.cancel_scope.cancel()
    for reason in crowd.refused[:3]:
        print(f"detached: {reason}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fanout", description=__doc__)
    parser.add_argument("subscribers", type=int, nargs="*", default=[10_000])
    for subscribers in parser.parse_args().subscribers:
        with mesh("triangle") as routers:
            trio.run(measure, routers, subscribers)


if __name__ == "__main__":
    main()
