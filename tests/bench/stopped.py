"""`python -m tests.bench.stopped [STOPS] [--seed N]`: routers stop for a second, and plain clients must miss nothing
without being told (protocol 8, Apart).

A triangle; a plain publisher and a plain subscriber of one address at each router. Routers, drawn by the seed, are
stopped by SIGSTOP and woken by SIGCONT, one after the other. The bench prints for each subscriber the messages that
were accepted while it was attached and have not reached it. Messages of an attach that routers ended do not count, as
the client is told; nor do messages under way when it attached. Exit 1: a subscriber misses a message untold, or no
message was accepted.
"""

import argparse
import os
import sys
from collections.abc import Mapping
from random import Random
from signal import SIGCONT, SIGSTOP
from typing import Any, Final

import trio

from router.mesh.quantities import Address
from tests.bench.load import mesh
from tests.processes.clients import Clients, Publisher, Subscriber, client_of

TOPIC: Final = "topic/stopped"
STOPS: Final = 6
STOP_S: Final = 1.0
EVERY_S: Final = 3.0
MESSAGES: Final = 20_000
RATE: Final = 1_000
"""Messages a second of all publishers together."""
QUIET_S: Final = 5.0


class Listener:
    """A plain subscriber that attaches anew when its router reports a missed message."""

    def __init__(self, clients: Clients, at: Address, name: str) -> None:
        self.name, self.told = name, 0
        self.missed: set[int] = set()
        self.received: set[int] = set()
        self.doubled = 0
        self._clients, self._at = clients, at
        self._end: Subscriber
        self._since: set[int] = set()

    async def attach(self, sent: set[int]) -> None:
        """Attach. Messages in `sent` are not for it."""
        self._end = await self._clients.subscriber(self._at, TOPIC, self.name, credit=1000, first=True)
        self._since = set(sent)

    async def look(self, sent: set[int]) -> None:
        if self._end.ended or client_of(self._end).connection.closed:
            self.told += 1
            self._take()
            await self.attach(sent)

    def finish(self, accepted: set[int]) -> None:
        self.missed = accepted - self._since - set(self._end.numbers)
        self._take()

    def _take(self) -> None:
        numbers = self._end.numbers
        self.received.update(numbers)
        self.doubled += len(numbers) - len(set(numbers))


class Load:
    """The publishers, which send in turn. Each message has a number of its own."""

    def __init__(self, publishers: list[Publisher]) -> None:
        self.publishers = publishers
        self.sent: set[int] = set()

    async def run(self) -> None:
        for number in range(MESSAGES):
            self.publishers[number % len(self.publishers)].send(b"%d" % number)
            self.sent.add(number)
            if number % 10 == 9:
                await trio.sleep(10 / RATE)

    @property
    def accepted(self) -> set[int]:
        count = len(self.publishers)
        return {place * count + which for which, end in enumerate(self.publishers) for place in end.accepted}


async def measure(routers: Mapping[str, Any], stops: int, dice: Random) -> bool:
    addresses = {name: Address.parse(router["amqp"]) for name, router in routers.items()}
    async with trio.open_nursery() as nursery:
        clients = Clients(nursery)
        load = Load([await clients.publisher(at, TOPIC, f"p{name}") for name, at in addresses.items()])
        listeners = [Listener(clients, at, f"s{name}") for name, at in addresses.items()]
        for listener in listeners:
            await listener.attach(load.sent)
        nursery.start_soon(load.run)
        for _ in range(stops):
            stopped = dice.choice(list(routers))
            await trio.sleep(EVERY_S - STOP_S)
            os.kill(routers[stopped]["pid"], SIGSTOP)
            await trio.sleep(STOP_S)
            os.kill(routers[stopped]["pid"], SIGCONT)
            print(f"{stopped} stood still", flush=True)
            for listener in listeners:
                await listener.look(load.sent)
        answered = -1
        while len(load.sent) < MESSAGES or answered < (answered := sum(len(p.outcomes) for p in load.publishers)):
            await trio.sleep(QUIET_S)
            for listener in listeners:
                await listener.look(load.sent)
        accepted = load.accepted
        for listener in listeners:
            listener.finish(accepted)
        nursery.cancel_scope.cancel()
    print(f"{len(accepted):,} of {MESSAGES:,} messages accepted")
    for one in listeners:
        print(f"{one.name}: {len(one.received):,} received, {one.doubled} doubled, told {one.told} times; "
              f"{len(one.missed)} missed untold: {sorted(one.missed)[:10]}")  # fmt: skip
    return accepted != set() and not any(listener.missed for listener in listeners)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.stopped", description=__doc__)
    parser.add_argument("stops", type=int, nargs="?", default=STOPS)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with mesh("triangle") as routers:
        return not trio.run(measure, routers, options.stops, Random(options.seed))


if __name__ == "__main__":
    sys.exit(main())
