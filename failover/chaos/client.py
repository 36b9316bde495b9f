"""One client of a run: a process of its own, which can be killed and continues from its state file.

    python -m failover.chaos.client SPEC        # JSON of `Spec`

The client writes lines of JSON to its output: each router to which it attaches, each loss, and its counts so far. A
publisher begins and finishes by orders on its input; a subscriber gets only the order to finish. When its input is
closed, the client ends at once: the process that started it is gone.
"""

import json
import sqlite3
import sys
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Literal

import attrs
import trio

from failover.chaos.hosts.namespace import enter
from failover.chaos.ledger import Ledger, body, open_database
from failover.client import Connected, Event, Lost, Publisher, SqliteStore, Subscriber
from failover.client.endpoint import Options
from failover.client.workload import Pace, publish, subscribe
from router.garbage import collect_rarely
from router.groups import leaves
from router.mesh.rundir import RunDirectory
from router.security.operator import operator_of

LINK = "chaos"
BEGIN, FINISH = b"begin\n", b"finish\n"
GAVE_UP = 3
"""The exit status of a client that has given up because it found no router in time. The run may start such a client
again."""
COUNT_S = 0.25


@attrs.frozen
class Spec:
    name: str
    role: Literal["publisher", "subscriber"]
    run_dir: str
    """The run directory of the mesh. The client has the rights of the user who runs the mesh."""
    urls: tuple[str, ...]
    """The URLs of the routers, in the order in which the client tries them."""
    address: str
    folder: str
    """The folder of the client's log and state."""
    timeout: int
    """The timeout of the client's link in seconds. For this long, the client also looks for a router."""
    rate: float = 1.0
    count: int = 0
    """The number of messages that a publisher offers."""
    size: int = 100
    settle: Literal["first", "second"] = "second"
    think: float = 0.0
    namespace: str = ""
    """The path of the network namespace that the client enters. If it is empty, the client stays where it is."""

    @property
    def state(self) -> Path:
        return Path(self.folder) / "state.db"


def tell(**what: object) -> None:
    print(json.dumps(what), flush=True)


def listen(event: Event) -> None:
    match event:
        case Connected(_, router):
            tell(attached=router)
        case Lost(reason):
            tell(lost=reason)


async def main(spec: Spec) -> None:
    with closing(open_database(spec.state)) as connection:
        store, ledger, told = SqliteStore(connection), Ledger(connection), {BEGIN: trio.Event(), FINISH: trio.Event()}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_obey, told, nursery.cancel_scope)
            nursery.start_soon(_count, connection, ledger.counts)
            await _play(spec, store, ledger, told)
            nursery.cancel_scope.cancel()
        connection.commit()


async def _play(spec: Spec, store: SqliteStore, ledger: Ledger, told: Mapping[bytes, trio.Event]) -> None:
    _, credentials = operator_of(RunDirectory(Path(spec.run_dir)))
    options: Options = {
        "log": Path(spec.folder) / "log",
        "store": store,
        "events": listen,
        "timeout": spec.timeout,
        "credentials": credentials,
    }
    if spec.role == "publisher":
        async with Publisher(spec.urls, spec.address, container=spec.name, link=LINK, **options) as publisher:
            await told[BEGIN].wait()
            pace = Pace(spec.rate, publisher.sent, spec.count)
            make = partial(_body, spec)
            await publish(publisher, pace, make, ledger, told[FINISH])
        return
    subscriber = Subscriber(spec.urls, spec.address, container=spec.name, link=LINK, settle=spec.settle, **options)
    async with subscriber, trio.open_nursery() as receiving:
        receiving.start_soon(subscribe, subscriber, ledger.received, spec.think)
        await told[FINISH].wait()
        receiving.cancel_scope.cancel()


def _body(spec: Spec, number: int, due: int) -> bytes:
    return body(spec.name, number, spec.size)


async def _obey(told: Mapping[bytes, trio.Event], scope: trio.CancelScope) -> None:
    async with trio.lowlevel.FdStream(sys.stdin.fileno()) as orders:
        # One read returns the whole order, because an order is a few bytes that were written at once.
        async for order in orders:
            for line in order.splitlines(keepends=True):
                told[bytes(line)].set()
    scope.cancel()


async def _count(connection: sqlite3.Connection, counts: Mapping[str, int]) -> None:
    """Commit and report the counts regularly. In settle mode first, nothing else commits the account of received
    messages."""
    while True:
        await trio.sleep(COUNT_S)
        connection.commit()
        tell(counts=counts)


def run(spec: Spec) -> int:
    collect_rarely()
    if spec.namespace:
        enter(spec.namespace)
    status = 0
    try:
        trio.run(main, spec)
    except* ConnectionError as group:
        tell(gave_up="; ".join(map(str, leaves(group))))
        status = GAVE_UP
    return status


if __name__ == "__main__":
    sys.exit(run(Spec(**json.loads(sys.argv[1]))))
