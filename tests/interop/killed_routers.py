"""Kills the router of a subscriber, then that of its publisher, by SIGKILL. Both clients are of other makes.

    python -m tests.interop.killed_routers DIR [--make MAKE]... [--address ADDRESS]... [--runs N]

The clients find another router by themselves. The program plays each make at each kind of address, both clients of that
make, and prints a table. Each run is a line of DIR/runs.jsonl; runs that are there are not repeated.
"""

import argparse
import json
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from tests.interop.foreign import foreign
from tests.processes.mesh import RunningMesh, running

COUNT: Final = 1500
DOUBTFUL: Final = 100
"""The most messages of a publisher that have no outcome yet."""
CREDIT: Final = {
    "ours": 0,
    "proton": 100,
    "proton-c++": 100,
    "rhea": 1000,
    "jms": 1000,
    "protonj2": 100,
    "go": 100,
    "azure": 100,
}
"""Make -> the most messages that come again because a subscriber had them when its router was killed. Our subscriber
resumes, so it gets none again."""
RESENDS: Final = {"ours": 0, "azure": 1}
"""Make -> the most messages that its publisher sends again after a kill, if this is not `DOUBTFUL`."""
ADDRESSES: Final = "topic/x", "queue/x"
NOT_DURABLE: Final = "azure"
"""The make that cannot ask for a durable subscriber, which would miss messages of a topic."""


@attrs.frozen
class Seen:
    """What the clients saw."""

    lost: int
    """Accepted messages that did not come."""
    twice: int
    damaged: int
    """Messages that came with other content than any publisher sent."""
    refused: int
    unanswered: int
    """Messages without an outcome."""

    def wrong(self, subscriber: str, publisher: str) -> list[str]:
        """The broken promises."""
        nothing = "lost", "damaged", "refused", "unanswered"
        found = [f"{getattr(self, what)} {what}" for what in nothing if getattr(self, what)]
        most = most_twice(subscriber, publisher)
        return found + ([f"{self.twice} came twice, at most {most} may"] if self.twice > most else [])


def most_twice(subscriber: str, publisher: str) -> int:
    return 2 * (RESENDS.get(publisher, DOUBTFUL) + CREDIT[subscriber])


async def play(mesh: RunningMesh, address: str, subscriber: str, publisher: str) -> Seen:
    by_subscriber, by_publisher = (",".join(str(mesh.address(router)) for router in order) for order in ("bca", "acb"))
    async with (
        foreign(subscriber, "subscribe", by_subscriber, address, COUNT, 100) as receiving,
        foreign(publisher, "publish", by_publisher, address, COUNT, 100) as sending,
    ):
        for victim in "ba":
            await receiving.event("part")
            mesh.signal(victim, signal.SIGKILL)
            await mesh.ending(victim)
            await mesh.start(victim)
        await receiving.event("received")
        await receiving.event("complete")
        await sending.event("complete")
        published = await sending.finish()
        received = await receiving.finish()
    had = Counter(received["numbers"])
    accepted = set(published["numbers"])
    return Seen(
        lost=len(accepted - had.keys()),
        twice=had.total() - len(had),
        damaged=received["damaged"] + len(had.keys() - {*range(COUNT)}),
        refused=published["refused"],
        unanswered=COUNT - len(accepted),
    )


def play_alone(address: str, make: str) -> Seen:
    with tempfile.TemporaryDirectory() as folder, running("queues", Path(folder)) as mesh:
        return trio.run(play, mesh, address, make, make)


def table(runs: list[dict[str, Any]]) -> Iterator[str]:
    yield "| client | address | runs | lost | came twice: in all, most in a run | may come twice in a run |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for make in CREDIT:
        for address in ADDRESSES:
            found = [run for run in runs if (run["make"], run["address"]) == (make, address)]
            if found:
                twice = [run["twice"] for run in found]
                lost = sum(run["lost"] for run in found)
                kind = address.partition("/")[0]
                most = most_twice(make, make)
                yield f"| {make} | {kind} | {len(found)} | {lost} | {sum(twice)}, {max(twice)} | {most} |"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.interop.killed_routers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--make", action="append", choices=CREDIT, help="default: all")
    parser.add_argument("--address", action="append", choices=ADDRESSES, help="default: all")
    parser.add_argument("--runs", type=int, default=10, help="of each make at each address; default 10")
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    record = options.directory / "runs.jsonl"
    record.touch()
    wrong = False
    for make in options.make or CREDIT:
        for address in options.address or ADDRESSES:
            if make == NOT_DURABLE and address.startswith("topic/"):
                continue
            runs = [json.loads(line) for line in record.read_text().splitlines()]
            done = sum((run["make"], run["address"]) == (make, address) for run in runs)
            for _ in range(done, options.runs):
                seen = play_alone(address, make)
                line = {"make": make, "address": address, **attrs.asdict(seen), "wrong": seen.wrong(make, make)}
                wrong = wrong or bool(line["wrong"])
                with record.open("a") as log:
                    print(json.dumps(line), file=log)
    print("\n".join(table([json.loads(line) for line in record.read_text().splitlines()])))
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
