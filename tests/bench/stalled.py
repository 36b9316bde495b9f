"""`python -m tests.bench.stalled`: what a busy topic costs beside ten publishers whose subscribers take nothing.

On a line: the busy topic goes from a to c, by the load generator in C, in turn without the ten and beside them. These
send 1 MiB messages from a to subscribers at c that grant no credit, until their windows are full. The bench prints rate
and processor time of each run, and the medians of the ratios between a run beside the ten and the run right before it.
"""

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median
from typing import Any

import trio

from router.mesh.quantities import Address
from tests.bench.load import Load, Routers, build, measure, mesh
from tests.bench.memory import MIB, Watch, feeding, quiet
from tests.processes.clients import Clients

TEN = 10
LOAD = Load(("c",), count=60_000, size=1000)


@asynccontextmanager
async def standing(routers: Routers, watch: Watch) -> AsyncIterator[None]:
    """Ten publishers whose windows are full."""
    a, c = (Address.parse(routers[name]["amqp"]) for name in "ac")
    async with trio.open_nursery() as nursery:
        clients = Clients(nursery)
        for number in range(TEN):
            await clients.subscriber(c, f"topic/{number}", f"s{number}", credit=0)
        await quiet(
            [await feeding(clients, a, f"topic/{number}", f"p{number}", MIB, 100) for number in range(TEN)], watch
        )
        yield
        nursery.cancel_scope.cancel()


async def compare(routers: Routers, rounds: int) -> None:
    watch = Watch({name: router["pid"] for name, router in routers.items()})
    rates, costs = list[float](), list[float]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.look)
        await _run(routers)  # the first run is slower
        for _ in range(rounds):
            alone = await _run(routers)
            async with standing(routers, watch):
                beside = await _run(routers)
            rates.append(beside["msg_s"] / alone["msg_s"])
            costs.append(_cost(beside) / _cost(alone))
            print(f"alone {_shown(alone)}; beside {_shown(beside)}; rate {rates[-1]:.2f}", flush=True)
        nursery.cancel_scope.cancel()
    print(f"medians: rate {median(rates):.2f}, processor time {median(costs):.2f}; RSS in MiB {watch}")


async def _run(routers: Routers) -> dict[str, Any]:
    return await trio.to_thread.run_sync(measure, LOAD, routers)


def _cost(result: dict[str, Any]) -> float:
    """Processor microseconds a message, over all routers."""
    return sum(float(result[f"cpu_{name}"]) for name in "abc")


def _shown(result: dict[str, Any]) -> str:
    return f"{result['msg_s']:,.0f} messages/s, {_cost(result):.1f} µs"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.stalled", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    build()
    with mesh("line") as routers:
        trio.run(compare, routers, options.rounds)


if __name__ == "__main__":
    main()
