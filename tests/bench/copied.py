"""`python -m tests.bench.copied`: what it costs the clients of a set that a router becomes a replica of it.

The set of three routers has a long queue. A publisher fills it, and a consumer drains it. Beside it, `amqpload.c`
measures another queue of the set: first alone, then while router d gets a copy of all. With `--cuts` router d is paused
at random moments, for longer than its contacts last, and once the leader is killed. In the end, all replicas have
applied the same, and no store was set aside.

A copy takes each message once: of the messages that were there when router d was added, and of those that came until
d was a voter. The bench counts the messages in all pieces that d has stored, also in pieces that d has dropped. A piece
that is on its way at a cut is sent again; it does not count.

The last line is the verdict. The exit status is 1 if the copy did not end, if a store was set aside, if d was sent more
messages than there were, or if the longest wait was more than 100 ms longer than without the copy. A signal that ends
the bench ends its routers, too.
"""

import argparse
import random
import re
import subprocess
import sys
import tempfile
import time
from functools import partial
from itertools import repeat
from pathlib import Path
from signal import SIGCONT, SIGINT, SIGKILL, SIGSTOP, SIGTERM, raise_signal, signal
from typing import Any, Final

import psutil
import trio
import yaml

from tests.bench.backlog import memory
from tests.bench.load import build
from tests.bench.queues import Broker, Case, Node, load
from tests.processes.clients import Clients, Publisher, Subscriber
from tests.processes.mesh import RunningMesh, eventually

LONG, PROBED, SET = "queue/long", "queue/probed", "long"
TICK_S: Final = 0.05
PAUSE_S: Final = 3.0
"""Seconds of a pause: the other routers lose their contacts."""
FILLED_S: Final = 300
"""The most seconds until the queue is full."""
COPIED: Final = re.compile(r"a copy of the leader's state (?:has come|are dropped): (\d+) messages in (\d+) bytes")
"""What a router logs about pieces: how many messages they have, and how many bytes."""
MOST_MS: Final = 100
"""The longest wait may be longer by so many milliseconds than without the copy."""


def with_d(mesh: RunningMesh) -> RunningMesh:
    """The same mesh with a router that has no replica."""
    plan = yaml.safe_load(mesh.plan.read_text())
    plan["routers"]["d"] = dict(plan["routers"]["a"])
    plan["links"] += [["a", "d"], ["b", "d"], ["c", "d"]]
    plan["queues"]["named"] = [{"name": SET, "prefix": "queue/", "voters": ["a", "b", "c"]}]
    mesh.plan.write_text(yaml.safe_dump(plan))
    return mesh


async def view(mesh: RunningMesh, router: str) -> dict[str, Any]:
    """The set as this router knows it."""
    sets = (await mesh.status(router))["sets"]
    found: dict[str, Any] = next(one for one in sets if one["name"] == SET)
    return found


async def turned_over(publisher: Publisher, consumer: Subscriber, rate: int) -> None:
    """Publish and consume at this rate until cancelled."""
    due = trio.current_time()
    while True:
        for _ in range(int(rate * TICK_S)):
            publisher.send(bytes(1000))
        consumer.link.flow(int(rate * TICK_S))
        consumer.link.connection.wake()
        due += TICK_S
        await trio.sleep_until(due)


async def probe(mesh: RunningMesh, title: str, rate: int, seconds: float) -> float:
    """Measure the other queue. Returns the longest wait of a message, in milliseconds."""
    nodes = {name: Node(str(mesh.address(name)), mesh.pid(name)) for name in "abc"}
    run = partial(load, Broker(nodes, "a", PROBED), Case(title, int(rate * seconds), rate=rate), "b")
    found: dict[str, Any] = await trio.to_thread.run_sync(run, abandon_on_cancel=True)
    waits: dict[str, float] = {name: found["lat_us"][name] / 1000 for name in ("p50", "p99", "max")}
    told = ", ".join(f"{name} {wait:.1f} ms" for name, wait in waits.items())
    print(f"{title}: {told}, longest time without a delivery {found['max_gap_ms']:.0f} ms", flush=True)
    return waits["max"]


async def add(mesh: RunningMesh) -> None:
    """Have d become a replica."""
    oncemesh = str(Path(sys.executable).with_name("oncemesh"))
    command = [oncemesh, "queue", "replicas", SET, "--add", "d", "--no-wait", "--url", f"amqp://{mesh.address('a')}"]
    await trio.run_process(command, capture_stdout=True, stderr=subprocess.STDOUT)


async def copied(mesh: RunningMesh, within: float) -> None:
    """Wait until d is a voter. Ends the bench if this takes longer than `within` seconds."""
    began = time.monotonic()

    async def is_voter() -> bool:
        return "d" in (await view(mesh, "b"))["voters"]

    try:
        await eventually(is_voter, timeout=within)
    except trio.TooSlowError:
        sys.exit(f"FAILED: router d is no voter after {within:g} s: {(await view(mesh, 'b'))['copied']} per cent")
    print(f"copied in {time.monotonic() - began:.1f} s", flush=True)


async def measured(mesh: RunningMesh, asked: argparse.Namespace) -> None:
    count, rate, probed, seconds, cuts = asked.count, asked.rate, asked.probed, asked.seconds, asked.cuts
    longest: list[float] = []
    await mesh.up()
    drawn = random.Random(asked.seed)
    async with trio.open_nursery() as nursery:
        clients = Clients(nursery)
        publisher = await clients.publisher(mesh.address("b"), LONG, "p")
        publisher.feed = repeat(bytes(1000), count)
        publisher.pump()
        await clients.until(lambda: len(publisher.accepted) == count, timeout=FILLED_S)
        print(f"{count:,} messages: {memory(mesh)}", flush=True)
        consumer = await clients.subscriber(mesh.address("c"), LONG, "s", credit=1)
        consumer.credit = 0  # `turned_over` grants it
        nursery.start_soon(turned_over, publisher, consumer, rate)
        if not cuts:
            longest.append(await probe(mesh, "without", probed, seconds))
        before, there = len(publisher.accepted), len(publisher.accepted) - len(consumer.received)
        came = 0

        async def until_copied() -> None:
            nonlocal came
            await copied(mesh, asked.within)
            came = len(publisher.accepted) - before

        await add(mesh)
        async with trio.open_nursery() as both:
            both.start_soon(until_copied)
            if cuts:
                await cut(mesh, cuts, drawn)
            else:
                longest.append(await probe(mesh, "with   ", probed, seconds))
        print(f"{len(publisher.accepted):,} came, {len(consumer.received):,} left", flush=True)
        nursery.cancel_scope.cancel()

    async def is_equal() -> bool:
        views = [await view(mesh, name) for name in "abcd"]
        return len({one["applied"] for one in views}) == 1

    try:
        await eventually(is_equal, timeout=60)
    except trio.TooSlowError:
        sys.exit("FAILED: the replicas have not applied the same after 60 s")
    print(f"all replicas are equal: {memory(mesh)}", flush=True)
    print("\n".join(line for name in "abcd" for line in mesh.log(name).splitlines() if COPIED.search(line)))
    sent = sum(int(count) for count, _ in COPIED.findall(mesh.log("d")))
    share = f"{there:,} were there when d was added, and {came:,} came during the copy"
    print(f"d was sent {sent:,} messages in pieces: {share}", flush=True)
    if aside := [name for name in "abcd" if "set aside" in mesh.log(name)]:
        sys.exit(f"FAILED: a store was set aside at router {', '.join(aside)}")
    if sent > there + came:
        sys.exit(f"FAILED: d was sent {sent:,} messages, expected {there + came:,} at most")
    if longest and longest[1] > longest[0] + MOST_MS:
        sys.exit(f"FAILED: the longest wait grew by {longest[1] - longest[0]:.0f} ms, expected {MOST_MS} at most")
    print("passed", flush=True)


async def cut(mesh: RunningMesh, cuts: int, drawn: random.Random) -> None:
    for number in range(cuts):
        await trio.sleep(drawn.uniform(0.1, 1.5))
        if number == cuts // 2:
            leader = (await view(mesh, "d"))["leader"]
            mesh.signal(leader, SIGKILL)
            await mesh.ending(leader)
            await trio.sleep(PAUSE_S)
            await mesh.start(leader)
        mesh.signal("d", SIGSTOP)
        await trio.sleep(PAUSE_S)
        mesh.signal("d", SIGCONT)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.copied", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--count", type=int, default=200_000, help="messages of 1 kB (default: %(default)s)")
    parser.add_argument("--rate", type=int, default=2000, help="of filling and draining (default: %(default)s)")
    parser.add_argument("--probed", type=int, default=100, help="messages a second (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=60, help="of each measurement (default: %(default)s)")
    parser.add_argument("--cuts", type=int, default=0)
    parser.add_argument("--within", type=float, default=600, help="seconds of the copy, at most (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    build()
    with tempfile.TemporaryDirectory() as folder:
        mesh = with_d(RunningMesh("queues", Path(folder), {}, queues={"sets": 1, "replicas": 3}))
        signal(SIGTERM, lambda *_: raise_signal(SIGINT))
        try:
            trio.run(measured, mesh, asked, strict_exception_groups=False)
        finally:
            mesh.end()
            for child in psutil.Process().children():  # a load generator
                child.kill()


if __name__ == "__main__":
    main()
