"""`failover.client` as docs/python.md teaches it: publisher or subscriber, see `tests/interop/foreign.py`."""

import json
import sys
from typing import Any

import trio

from failover.client import Handle, Outcome, Publisher, Subscriber

ROLE, ROUTERS, ADDRESS, COUNT, SIZE, *_ = sys.argv[1:]
URLS = [f"amqp://{router}" for router in ROUTERS.split(",")]
TOTAL, BYTES = int(COUNT), int(SIZE)


def tell(event: str, **what: Any) -> None:
    print(json.dumps({"event": event, **what}), flush=True)


async def input_ends() -> None:
    async with trio.lowlevel.FdStream(sys.stdin.fileno()) as orders:
        async for _ in orders:
            pass


async def publish() -> None:
    numbers: list[int] = []
    refused = 0

    async def note(number: int, delivery: Handle) -> None:
        nonlocal refused
        if await delivery.outcome() is Outcome.ACCEPTED:
            numbers.append(number)
        else:
            refused += 1

    async with Publisher(URLS, ADDRESS, container="ours-publish", link="ours", in_flight=100) as publisher:
        tell("attached")
        async with trio.open_nursery() as outcomes:
            for number in range(TOTAL):
                delivery = await publisher.send((b"%d " % number).ljust(BYTES, b"."))
                outcomes.start_soon(note, number, delivery)
        tell("complete")
        await input_ends()
    tell("done", numbers=numbers, refused=refused)


async def subscribe() -> None:
    numbers: list[int] = []
    seen: set[int] = set()
    damaged = 0

    async def consume(subscriber: Subscriber) -> None:
        nonlocal damaged
        async for delivery in subscriber:
            number = int(delivery.body.split()[0])
            numbers.append(number)
            damaged += len(delivery.body) != BYTES
            await delivery.accept()
            if number in seen:
                continue
            seen.add(number)
            if len(seen) in (TOTAL // 3, TOTAL * 2 // 3):
                tell("part")
            if len(seen) == TOTAL:
                tell("received")
                tell("complete")

    async with Subscriber(URLS, ADDRESS, container="ours-subscribe", link="ours") as subscriber:
        tell("attached")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consume, subscriber)
            await input_ends()
            nursery.cancel_scope.cancel()
    tell("done", numbers=numbers, damaged=damaged)


trio.run({"publish": publish, "subscribe": subscribe}[ROLE])
