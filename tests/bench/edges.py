"""`python -m tests.bench.edges`: the processor time that an edge takes for a message, by the kind of its address.

    publisher - a ~~~ b - subscribers       or all of them at b

Router b is whole except for sockets, clock and neighbours (`tests.fuzz.mesh`), and only b is timed. The publisher sends
batches through the engine of `router.amqp`. All effects of a batch have arrived before the next one. The two kinds take
turns; the bench prints medians. A router process also has the costs of the loop and the kernel: `make bench`.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from attrs import frozen

from router.amqp.format.message import data_message
from router.garbage import collect_rarely
from tests.fuzz.mesh import FuzzMesh, GoodClient
from topic.settings import BALANCED, Settings

ADDRESSES: Final = {"topic": "topic/work", "balanced": "work/work"}
SETTINGS: Final = Settings(kinds=(("work/", BALANCED),))
SIZE: Final = 100
LOOKS: Final = 1000
"""Clock reads that measure how long one takes."""

P = ParamSpec("P")
R = TypeVar("R")


class Stopwatch:
    """Counts the processor time of some methods, which may call each other."""

    def __init__(self) -> None:
        self.spent = 0.0
        self._is_running = False
        began = time.process_time()
        for _ in range(LOOKS):
            self._look_s = (time.process_time() - began) / LOOKS

    def of(self, method: Callable[P, R]) -> Callable[P, R]:
        @wraps(method)
        def timed(*arguments: P.args, **options: P.kwargs) -> R:
            if self._is_running:
                return method(*arguments, **options)
            self._is_running, began = True, time.process_time()
            try:
                return method(*arguments, **options)
            finally:
                self.spent += time.process_time() - began - self._look_s
                self._is_running = False

        return timed


@frozen
class Case:
    title: str
    homes: str = "a"
    """The routers with a publisher each."""
    subscribers: int = 1
    batch: int = 100
    """Messages in one read of a publisher's socket."""
    credit: int = 1000
    """The credit of a subscriber."""


CASES: Final = (
    Case("home elsewhere"),
    Case("home here", homes="b"),
    Case("4 subscribers", subscribers=4),
    Case("10 messages at once", batch=10),
    Case("2 homes that use the room of one", homes="ac", credit=100),
)


class Line:
    """Publishers of an address, and its subscribers."""

    def __init__(self, case: Case, address: str) -> None:
        self._mesh = FuzzMesh("a", "b", "c", settings=SETTINGS)
        self._batch, self._sent, self._watch = case.batch, 0, Stopwatch()
        node = self._mesh.routers["b"].node
        node.pump = self._watch.of(node.pump)  # type: ignore[method-assign]
        self._subscribers = [self._client("b", f"subscriber {number}") for number in range(case.subscribers)]
        for subscriber in self._subscribers:
            subscriber.engine.receiver("in", address, rcv_settle_mode=1).flow(case.credit)
        self._publishers = [self._client(home, f"publisher at {home}") for home in case.homes]
        self._outs = [client.engine.sender("out", address, rcv_settle_mode=1) for client in self._publishers]
        self._mesh.flow()

    def _client(self, router: str, name: str) -> GoodClient:
        client = GoodClient(self._mesh.routers[router], name)
        connection = client.connection
        if router == "b":
            connection.receive = self._watch.of(connection.receive)  # type: ignore[method-assign]
            connection.data_to_send = self._watch.of(connection.data_to_send)  # type: ignore[method-assign]
        self._mesh.routers[router].guests.append(client)
        return client

    def run(self, messages: int) -> float:
        """The microseconds that router b takes for a message, over at least this many messages."""
        before, first = self._watch.spent, self._sent
        while self._sent - first < messages:
            for out in self._outs:
                numbers = range(self._sent, self._sent + self._batch)
                bodies = [data_message(b"%0*d" % (SIZE, number)) for number in numbers]
                out.send_many([b"%d" % number for number in numbers], bodies, settled=False)
                self._sent += self._batch
            self._mesh.flow()
        return 1e6 * (self._watch.spent - before) / (self._sent - first)

    def check(self, *, to_all: bool) -> None:
        accepted = sum(publisher.accepted for publisher in self._publishers)
        received = sorted(number for subscriber in self._subscribers for number in subscriber.numbers)
        copies = len(self._subscribers) if to_all else 1
        assert accepted == self._sent, f"{accepted} of {self._sent} messages were accepted"
        assert received == sorted([*range(self._sent)] * copies), "messages were lost or doubled"


def compared(case: Case, messages: int, runs: int) -> dict[str, list[float]]:
    """Kind -> the microseconds of each run. The kinds take turns. The first run of each does not count."""
    lines = {kind: Line(case, address) for kind, address in ADDRESSES.items()}
    found: dict[str, list[float]] = {kind: [] for kind in lines}
    for run in range(runs + 1):
        for kind, line in lines.items():
            spent = line.run(messages)
            if run:
                found[kind].append(spent)
    for kind, line in lines.items():
        line.check(to_all=kind == "topic")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.edges", description=__doc__)
    parser.add_argument("--runs", type=int, default=7, help="runs of each case, default 7")
    parser.add_argument("--messages", type=int, default=5_000, help="of a run, default 5,000")
    options = parser.parse_args()
    collect_rarely()
    for case in CASES:
        found = compared(case, options.messages, options.runs)
        told = ", ".join(f"{kind} {statistics.median(spent):5.1f}" for kind, spent in found.items())
        print(f"{case.title:<33} µs a message: {told}", flush=True)


if __name__ == "__main__":
    main()
