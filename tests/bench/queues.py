"""`python -m tests.bench.queues`: a replicated queue beside a quorum queue of RabbitMQ, on one machine, in turn.

Both have three nodes that keep each message on disk; messages are of 1 kB, durable and confirmed. The load comes from
`amqpload.c`, in receiver settle mode first, the only one that RabbitMQ has. The publisher is at the node that leads the
queue, or elsewhere, the consumers are elsewhere. The bench prints medians, and the ratios of the runs. With `--kill` it
kills the leader or a follower under load, a node without clients, and prints the longest time without a delivery, and
how many messages came twice; each such run has nodes of its own. With `--moves` it measures only ours, with each policy
by which the lead of a set moves, each with a mesh of its own.

RabbitMQ is Debian's package; without it, only ours is measured. Its nodes have their files and their cookie in a
directory of the bench. The nodes and their port mapper (`epmd`) are children of the bench, and end with it.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
from rich.console import Console
from rich.table import Table

from tests.bench.load import BINARY, TIMEOUT_S, build, mesh

RABBITMQ: Final = Path("/usr/lib/rabbitmq/bin")
QUEUE: Final = "queue/bench"
SIZE: Final = 1000
STARTED_S: Final = 60


@attrs.frozen
class Node:
    amqp: str
    """The address for clients."""
    pid: int


@attrs.frozen
class Broker:
    """Three running nodes, and the place of the queue."""

    nodes: Mapping[str, Node]
    leader: str
    address: str
    options: Sequence[str] = ()
    """Options for the load generator."""

    @property
    def others(self) -> list[str]:
        return [name for name in self.nodes if name != self.leader]


@contextmanager
def ours(more: str = "") -> Iterator[Broker]:
    with mesh("queues", more=more) as routers:
        nodes = {name: Node(router["amqp"], router["pid"]) for name, router in routers.items()}
        first = Broker(nodes, "a", QUEUE)
        load(first, Case("", 100), "a")
        yield attrs.evolve(first, leader=_leader(nodes))


def _leader(nodes: Mapping[str, Node]) -> str:
    """The router that leads the set of the queue."""
    return str(json.loads(_oncemesh(nodes, "queue", "show", QUEUE, "--json"))["leader"])


def _oncemesh(nodes: Mapping[str, Node], *words: str) -> bytes:
    """What the command prints, which asks the first of these routers."""
    oncemesh = str(Path(sys.executable).with_name("oncemesh"))
    url = f"amqp://{next(iter(nodes.values())).amqp}"
    return subprocess.run([oncemesh, *words, "--url", url], check=True, capture_output=True).stdout


@contextmanager
def rabbitmq() -> Iterator[Broker]:
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        homes, addresses = rabbitmq_homes(Path(directory), stack)
        for environment in homes.values():
            process = subprocess.Popen(
                [str(RABBITMQ / "rabbitmq-server")],
                env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            stack.callback(_end, process)
        pids = declare_at_rabbitmq(homes)
        nodes = {name: Node(address, pids[name]) for name, address in addresses.items()}
        yield Broker(nodes, "a", "/amq/queue/bench", ("--user", "guest", "--pass", "guest"))


def rabbitmq_homes(directory: Path, stack: ExitStack) -> tuple[dict[str, Mapping[str, str]], dict[str, str]]:
    """The environments of three nodes of RabbitMQ, and their addresses for clients. Writes the nodes' files, and starts
    their port mapper, which ends with `stack`."""
    ports = free_ports(7)
    mapper, addresses, homes = ports.pop(), dict[str, str](), dict[str, Mapping[str, str]]()
    for name, amqp, dist in zip("abc", ports[:3], ports[3:], strict=True):
        homes[name] = _home(directory / name, name, amqp, dist, mapper)
        addresses[name] = f"127.0.0.1:{amqp}"
    stack.callback(_end, _start_mapper(homes["a"]))
    return homes, addresses


def declare_at_rabbitmq(homes: Mapping[str, Mapping[str, str]]) -> dict[str, int]:
    """Wait until the nodes run, and declare a quorum queue that node a leads. Returns the process of each node."""
    pids: dict[str, int] = {}
    for name, environment in homes.items():
        pids[name] = _pid(Path(environment["RABBITMQ_PID_FILE"]))
        _control(environment, "await_startup", "--timeout", str(STARTED_S))
    queue = 'rabbit_misc:r(<<"/">>, queue, <<"bench">>), true, false'
    kind = '[{<<"x-queue-type">>, longstr, <<"quorum">>}], none, <<"bench">>'
    _control(homes["a"], "await_online_nodes", "3")
    _control(homes["a"], "eval", f"rabbit_amqqueue:declare({queue}, {kind}).")
    return pids


def free_ports(count: int) -> list[int]:
    """Ports that no process uses now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _home(directory: Path, name: str, amqp: int, dist: int, mapper: int) -> Mapping[str, str]:
    """The environment of the node. Writes the node's files."""
    directory.mkdir()
    cookie = directory / ".erlang.cookie"
    cookie.write_text("bench")
    cookie.chmod(0o400)
    (directory / "plugins").write_text("[rabbitmq_amqp1_0].\n")
    nodes = [f"cluster_formation.classic_config.nodes.{i} = {one}@localhost" for i, one in enumerate("abc", 1)]
    settings = (f"listeners.tcp.1 = 127.0.0.1:{amqp}", "loopback_users = none", "log.file.level = error")
    backend = "cluster_formation.peer_discovery_backend = classic_config"
    (directory / "rabbitmq.conf").write_text("\n".join((*settings, backend, *nodes)) + "\n")
    own = {
        "HOME": str(directory),
        "RABBITMQ_NODENAME": f"{name}@localhost",
        "RABBITMQ_DIST_PORT": str(dist),
        "ERL_EPMD_PORT": str(mapper),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq"),
        "RABBITMQ_CONF_ENV_FILE": str(directory / "none"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_PID_FILE": str(directory / "pid"),
    }
    return os.environ | own


def _control(environment: Mapping[str, str], *words: str) -> None:
    command = [str(RABBITMQ / "rabbitmqctl"), *words]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"bench: {' '.join(command)}: {done.stdout}{done.stderr}")


def _pid(file: Path) -> int:
    until = time.monotonic() + STARTED_S
    while not (file.exists() and file.read_text().strip()):
        if time.monotonic() > until:
            sys.exit(f"bench: RabbitMQ has not written {file} in {STARTED_S} s")
        time.sleep(0.1)
    return int(file.read_text())


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and all its children."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _start_mapper(environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the port mapper of the nodes, and wait until it listens. A node without one starts a daemon, which outlives
    the bench."""
    mapper = shutil.which("epmd")
    if mapper is None:
        sys.exit("bench: there is no epmd, which comes with Erlang")
    process = subprocess.Popen(
        [mapper], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    at = environment["ERL_EPMD_ADDRESS"], int(environment["ERL_EPMD_PORT"])
    until = time.monotonic() + STARTED_S
    while not listens(at):
        if time.monotonic() > until:
            _end(process)
            sys.exit(f"bench: epmd does not listen at {at} after {STARTED_S} s")
        time.sleep(0.1)
    return process


def listens(at: tuple[str, int]) -> bool:
    try:
        socket.create_connection(at).close()
    except OSError:
        return False
    return True


# the measurements


@attrs.frozen
class Case:
    title: str
    count: int
    consumers: int = 1
    rate: int = 0
    """Messages a second; 0: as fast as possible."""
    elsewhere: bool = False
    """The publisher is at a node that does not lead the queue."""
    everywhere: bool = False
    """A consumer is at each node."""


CASES: Final = (
    Case("full load", 30_000),
    Case("full load, publisher elsewhere", 30_000, elsewhere=True),
    Case("full load, 10 consumers", 30_000, consumers=10),
    Case("500 msg/s", 2_500, rate=500),
)
LEADER_KILLED: Final = Case("500 msg/s, the leader is killed", 2_500, rate=500, elsewhere=True)
FOLLOWER_KILLED: Final = Case("500 msg/s, a follower is killed", 2_500, rate=500)


def load(broker: Broker, case: Case, consumer: str, *options: str) -> dict[str, Any]:
    """The load generator's results. Ends the bench if a message is missing."""
    publisher = broker.others[0] if case.elsewhere else broker.leader
    command = [str(BINARY), "--pub", f"{broker.nodes[publisher].amqp}/{broker.address}"]
    consumers = list(broker.nodes) if case.everywhere else [consumer] * case.consumers
    for at in consumers:
        command += ["--sub", f"{broker.nodes[at].amqp}/{broker.address}"]
    for name, node in broker.nodes.items():
        command += ["--pid", f"{name}={node.pid}"]
    figures = {"-n": case.count, "-s": SIZE, "-w": 1000, "-c": 1000 // len(consumers), "--timeout": TIMEOUT_S}
    command += [str(word) for pair in figures.items() for word in pair]
    command += ["--shared", "--durable", *broker.options, *options]
    if case.rate:
        command += ["--rate", str(case.rate)]
    told = subprocess.run(command, check=False, capture_output=True, text=True)
    try:
        result: dict[str, Any] = json.loads(told.stdout)
    except ValueError:
        sys.exit(f"bench: {' '.join(command)}: {told.stdout}{told.stderr}")
    if result["lost_accepted"] or result["accepted"] < case.count:
        sys.exit(f"bench: {case.title}: {result['lost_accepted']} lost, {result['accepted']} accepted")
    return result


FIGURES: Final[Mapping[str, Callable[[dict[str, Any]], float]]] = {
    "msg/s": lambda result: result["msg_s"],
    "CPU-µs/msg": lambda result: result["cpu_total"],
    "p50 ms": lambda result: result["lat_us"]["p50"] / 1000,
    "p99 ms": lambda result: result["lat_us"]["p99"] / 1000,
}


def shown(values: Sequence[float]) -> str:
    return f"{statistics.median(values):,.2f}"


def compare(
    brokers: Mapping[str, Callable[[], AbstractContextManager[Broker]]],
    cases: Sequence[Case],
    runs: int,
    console: Console,
) -> None:
    with ExitStack() as stack:
        there = {name: stack.enter_context(broker()) for name, broker in brokers.items()}
        for case in cases:
            found: dict[str, list[dict[str, Any]]] = {name: [] for name in there}
            for run in range(runs + 1):
                for name, broker in there.items():
                    result = load(broker, case, broker.others[-1])
                    if run:
                        found[name].append(result)
            console.print(_table(case.title, found))


def _table(title: str, found: Mapping[str, Sequence[dict[str, Any]]]) -> Table:
    table = Table("", *FIGURES, title=title)
    values = {name: [[of(each) for each in results] for of in FIGURES.values()] for name, results in found.items()}
    for name, columns in values.items():
        table.add_row(name, *map(shown, columns))
    if len(values) == 2:
        mine, others = values.values()
        pairs = zip(mine, others, strict=True)
        table.add_row("ratio", *(shown([a / b for a, b in zip(one, other, strict=True)]) for one, other in pairs))
    return table


def kill(brokers: Mapping[str, Callable[[], AbstractContextManager[Broker]]], runs: int, console: Console) -> None:
    for case in (LEADER_KILLED, FOLLOWER_KILLED):
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in brokers}
        for _ in range(runs):
            for name, start in brokers.items():
                with start() as broker:
                    load(broker, attrs.evolve(case, count=500), broker.others[-1])
                    victim = broker.leader if case is LEADER_KILLED else broker.others[0]
                    half = f"{case.count // 2}:{broker.nodes[victim].pid}"
                    found[name].append(load(broker, case, broker.others[-1], "--retry", "--kill", half))
        for name, results in found.items():
            gaps = sorted(one["max_gap_ms"] / 1000 for one in results)
            twice = sum(one["dup"] for one in results)
            listed = ", ".join(f"{gap:.2f}" for gap in gaps)
            told = f"{statistics.median(gaps):.2f} s without a delivery ({listed}), {twice} messages twice"
            console.print(f"{case.title}: {name}: {told}")


# policies

POLICIES: Final = ("prefer", "follow", "share, hold: 1s", "share, hold: 10s")
MOVED: Final = (
    Case("one consumer, at c", 0, rate=300),
    Case("10 consumers, at c", 0, consumers=10, rate=300),
    Case("a consumer at each router", 0, rate=300, everywhere=True),
)
FULL: Final = 20_000
"""Messages at full load."""
FOLLOWED_S: Final = 31
"""Seconds after which a leader may follow its consumers."""


def policies(asked: Sequence[str], seconds: int, console: Console) -> None:
    """A set that begins at router a, with each of these policies in turn. The publisher is at a. Each workload comes at
    a fixed rate, then at full load."""
    heads = ("moves", "workload", "led by", "moves", *list(FIGURES)[1:], "longest gap ms", "full load msg/s")
    table = Table(*heads, "full load CPU-µs/msg", title="policies")
    for policy in asked:
        more = f"  named: [{{name: bench, prefix: {QUEUE}, voters: [a, b, c], moves: {policy}}}]\n"
        with ours(more) as started:
            _oncemesh(started.nodes, "queue", "move", "bench", "a")
            broker = attrs.evolve(started, leader="a")
            time.sleep(FOLLOWED_S if policy == "follow" else 0)
            for case in MOVED:
                load(broker, attrs.evolve(case, count=3 * case.rate), "c")  # the leader follows
                before = _term(broker)
                result = load(broker, attrs.evolve(case, count=seconds * case.rate), "c")
                figures = [f"{of(result):,.1f}" for of in list(FIGURES.values())[1:]]
                row = [_leader(broker.nodes), str(_term(broker) - before), *figures, f"{result['max_gap_ms']:,.0f}"]
                full = load(broker, attrs.evolve(case, count=FULL, rate=0), "c")
                row += [f"{of(full):,.0f}" for of in list(FIGURES.values())[:2]]
                table.add_row(policy, case.title, *row)
                console.print(policy, case.title, *row)
    console.print(table)


def _term(broker: Broker) -> int:
    """The term of the set that has the queue: each move begins another one."""
    sets = json.loads(_oncemesh(broker.nodes, "queue", "sets", "--json"))
    return next(int(one["term"]) for one in sets if one["name"] == "bench")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.queues", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="runs of each case, default 5")
    parser.add_argument("--kill", action="store_true", help="kill nodes instead")
    parser.add_argument("--moves", action="store_true", help="compare the policies by which the lead of a set moves")
    parser.add_argument("--seconds", type=int, default=15, help="of a run with --moves, default %(default)s")
    parser.add_argument("--only", default="", help="only cases, or policies, with this text, as '500'")
    parser.add_argument("--alone", action="store_true", help="only ours")
    options = parser.parse_args()
    build()
    console = Console(width=None if sys.stdout.isatty() else 120)
    brokers: dict[str, Callable[[], AbstractContextManager[Broker]]] = {"ours": ours}
    if (RABBITMQ / "rabbitmq-server").exists() and not options.alone:
        brokers["RabbitMQ"] = rabbitmq
    if options.moves:
        policies([policy for policy in POLICIES if options.only in policy], options.seconds, console)
    elif options.kill:
        kill(brokers, options.runs, console)
    else:
        compare(brokers, [case for case in CASES if options.only in case.title], options.runs, console)


if __name__ == "__main__":
    main()
