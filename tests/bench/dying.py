"""`python -m tests.bench.dying`: what clients of a queue see when nodes die, here, at RabbitMQ and at Artemis.

Each broker has three nodes that keep each message on disk: routers of one set, a quorum queue of RabbitMQ, or a primary
of Artemis with two backups. A publisher and a consumer of proton know the addresses of all nodes. If their connection
fails, they go to the next node; the publisher sends a message again that it has read no outcome of. The node that leads
the queue is killed, or others, as a case says; nodes that a case starts again are away for `AWAY_S`.

The bench prints for each case the longest time in which no message was accepted and in which none was delivered, and
the number of messages that were accepted and are lost, and that came twice. RabbitMQ is Debian's package. Artemis is
the directory `--artemis`, with the unpacked distribution. A broker that is not there is left out. A signal that ends
the bench ends all nodes, too.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGTERM, raise_signal, signal
from typing import Any, Final

import attrs
from proton import Message, ProtonException
from proton.utils import BlockingConnection
from rich.console import Console
from rich.table import Table

from router.mesh.rundir import RunDirectory
from tests.bench.load import topology, with_free_ports
from tests.bench.queues import QUEUE, RABBITMQ, declare_at_rabbitmq, free_ports, listens, rabbitmq_homes

NAMES: Final = ("a", "b", "c")
RATE: Final = 100
"""Messages a second."""
LOADED_S: Final = 2.0
"""Seconds of load before a node dies."""
AWAY_S: Final = 4.0
SEEN_S: Final = 8.0
"""Seconds of load after the last kill or start."""
TRIED_S: Final = 3.0
"""Seconds for which a client waits for one answer."""
STARTED_S: Final = 60.0


@attrs.frozen
class Broker:
    nodes: Mapping[str, str]
    """The address of each node for clients."""
    address: str
    leader: Callable[[], str]
    kill: Callable[[Sequence[str]], None]
    start: Callable[[Sequence[str]], None]
    login: str = ""


# the brokers


@contextmanager
def ours(_: Path | None) -> Iterator[Broker]:
    oncemesh = str(Path(sys.executable).with_name("oncemesh"))
    with tempfile.TemporaryDirectory() as directory:
        plan, run = Path(directory) / "mesh.yaml", Path(directory) / "run"
        plan.write_text(with_free_ports(topology("queues")))
        place = RunDirectory(run)

        def command(*words: str) -> bytes:
            return subprocess.run([oncemesh, *words], check=True, capture_output=True).stdout

        def leader() -> str:
            amqp = next(iter(place.read().routers.values())).amqp
            return str(json.loads(command("queue", "show", QUEUE, "--json", "--url", f"amqp://{amqp}"))["leader"])

        def kill(names: Sequence[str]) -> None:
            for name in names:
                pid = place.read().routers[name].pid
                assert pid is not None
                os.kill(pid, SIGKILL)

        def start(names: Sequence[str]) -> None:
            command("start", *names, "--run-dir", str(run))

        command("up", str(plan), "--run-dir", str(run), "--detach")
        try:
            nodes = {name: router.amqp for name, router in place.read().routers.items()}
            yield Broker(nodes, QUEUE, leader, kill, start)
        finally:
            subprocess.run([oncemesh, "down", "--run-dir", str(run)], check=False, capture_output=True)


class Processes:
    """The processes of a broker's nodes, each in a group of its own with its children."""

    def __init__(self, commands: Mapping[str, Sequence[str]], environments: Mapping[str, Mapping[str, str]]) -> None:
        self._commands, self._environments = commands, environments
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, names: Sequence[str]) -> None:
        for name in names:
            self._running[name] = subprocess.Popen(
                self._commands[name], env=self._environments[name], start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip

    def kill(self, names: Sequence[str]) -> None:
        for process in [self._running.pop(name) for name in names if name in self._running]:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, SIGKILL)
            process.wait()


@contextmanager
def rabbitmq(_: Path | None) -> Iterator[Broker]:
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        homes, nodes = rabbitmq_homes(Path(directory), stack)
        processes = Processes({name: [str(RABBITMQ / "rabbitmq-server")] for name in NAMES}, homes)
        stack.callback(processes.kill, NAMES)
        processes.start(NAMES)
        declare_at_rabbitmq(homes)
        yield Broker(nodes, "/amq/queue/bench", lambda: "a", processes.kill, processes.start, "guest:guest@")


ARTEMIS_XML: Final = """\
<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">
<name>{name}</name><persistence-enabled>true</persistence-enabled><journal-type>NIO</journal-type>
<security-enabled>false</security-enabled><cluster-user>bench</cluster-user><cluster-password>bench</cluster-password>
<connectors>{connectors}</connectors>
<acceptors><acceptor name="core">tcp://127.0.0.1:{core}?protocols=CORE</acceptor>
<acceptor name="amqp">tcp://127.0.0.1:{amqp}?protocols=AMQP</acceptor></acceptors>
<cluster-connections><cluster-connection name="bench"><connector-ref>{name}</connector-ref>
<static-connectors>{others}</static-connectors></cluster-connection></cluster-connections>
<ha-policy><replication><{role}><manager>
<class-name>org.apache.activemq.artemis.quorum.file.FileBasedPrimitiveManager</class-name>
<properties><property key="locks-folder" value="{locks}"/></properties></manager></{role}></replication></ha-policy>
<addresses><address name="bench"><anycast><queue name="bench"/></anycast></address></addresses>
</core></configuration>
"""
"""The configuration of a node of Artemis. A lock on a file of the machine decides which node leads."""


@contextmanager
def artemis(home: Path | None) -> Iterator[Broker]:
    assert home is not None
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        ports = free_ports(6)
        locks = Path(directory) / "locks"
        locks.mkdir()
        cores, clients = dict(zip(NAMES, ports, strict=False)), dict(zip(NAMES, ports[3:], strict=True))
        connectors = "".join(f'<connector name="{n}">tcp://127.0.0.1:{port}</connector>' for n, port in cores.items())
        for name in NAMES:
            own = Path(directory) / name
            create = [str(home / "bin" / "artemis"), "create", str(own), "--silent", "--no-web", "--no-autotune"]
            create += ["--allow-anonymous", "--user", "bench", "--password", "bench"]
            subprocess.run(create, check=True, capture_output=True)
            text = ARTEMIS_XML.format(
                name=name,
                connectors=connectors,
                core=cores[name],
                amqp=clients[name],
                others="".join(f"<connector-ref>{other}</connector-ref>" for other in NAMES if other != name),
                role="primary" if name == "a" else "backup",
                locks=locks,
            )
            (own / "etc" / "broker.xml").write_text(text)
        commands = {name: [str(Path(directory) / name / "bin" / "artemis"), "run"] for name in NAMES}
        processes = Processes(commands, dict.fromkeys(NAMES, os.environ))
        stack.callback(processes.kill, NAMES)

        def leader() -> str:
            """Only the node that leads listens for clients."""
            return next(name for name, port in clients.items() if listens(("127.0.0.1", port)))

        def is_copied() -> bool:
            logs = [Path(directory) / name / "log" / "artemis.log" for name in "bc"]
            return any(log.exists() and ARTEMIS_COPIED in log.read_text() for log in logs)

        processes.start(["a"])
        awaited(lambda: listens(("127.0.0.1", clients["a"])), "the primary of Artemis")
        processes.start(["b", "c"])
        awaited(is_copied, "a backup of Artemis")
        nodes = {name: f"127.0.0.1:{port}" for name, port in clients.items()}
        yield Broker(nodes, "bench", leader, processes.kill, processes.start)


ARTEMIS_COPIED: Final = "AMQ221024"
"""What a backup logs when it has all messages of the primary."""


def awaited(probe: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + STARTED_S
    while not probe():
        if time.monotonic() > until:
            sys.exit(f"bench: {what} is not ready in {STARTED_S:g} s")
        time.sleep(0.1)


# the clients


class Client(threading.Thread):
    """A publisher or a consumer, which goes to the next node whenever something fails."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(daemon=True)
        self.times: list[float] = []
        """When a message was accepted, or came."""
        self.messages: list[int] = []
        """The numbers of these messages."""
        self.ends = False
        self._broker = broker

    def run(self) -> None:
        nodes = list(self._broker.nodes.values())
        while not self.ends:
            nodes.append(nodes.pop(0))
            try:
                connection = BlockingConnection(f"amqp://{self._broker.login}{nodes[-1]}", timeout=TRIED_S)
                try:
                    self.use(connection)
                finally:
                    connection.close()
            except (ProtonException, OSError):
                time.sleep(0.1)

    def use(self, connection: Any) -> None:
        """Send or receive until something fails."""
        raise NotImplementedError

    def done(self, number: int) -> None:
        self.times.append(time.monotonic())
        self.messages.append(number)

    def longest(self, ended: float) -> float:
        """The longest time between two messages, in seconds."""
        times = [*self.times, ended]
        return max(later - earlier for earlier, later in pairwise(times))


class Sending(Client):
    number = 0

    def use(self, connection: Any) -> None:
        sender = connection.create_sender(self._broker.address)
        while not self.ends:
            sender.send(Message(body=self.number, durable=True), timeout=TRIED_S)
            self.done(self.number)
            self.number += 1
            time.sleep(1 / RATE)


class Receiving(Client):
    def use(self, connection: Any) -> None:
        receiver = connection.create_receiver(self._broker.address, credit=10)
        while not self.ends:
            self.done(receiver.receive(timeout=TRIED_S).body)
            receiver.accept()


# the cases


@attrs.frozen
class Case:
    title: str
    leader: bool
    """Whether the leader is killed."""
    others: int
    """The number of other nodes that are killed."""
    again: bool
    """Whether the nodes are started again."""


CASES: Final = (
    Case("the leader", leader=True, others=0, again=False),
    Case("another node", leader=False, others=1, again=False),
    Case("the leader and another, for good", leader=True, others=1, again=False),
    Case("the same, and back", leader=True, others=1, again=True),
    Case("all, and back", leader=True, others=2, again=True),
)


def play(broker: Broker, case: Case, seen: float = SEEN_S) -> list[str]:
    """What clients see, as a row of the table. `seen`: seconds of load after the last kill or start."""
    publisher, consumer = Sending(broker), Receiving(broker)
    for client in (publisher, consumer):
        client.start()
    awaited(lambda: len(consumer.times) > RATE, "the queue")
    leader = broker.leader()
    followers = [name for name in broker.nodes if name != leader]
    time.sleep(LOADED_S)
    victims = [leader] * case.leader + followers[: case.others]
    broker.kill(victims)
    if case.again:
        time.sleep(AWAY_S)
        broker.start(victims)
    time.sleep(seen)
    publisher.ends = True
    publisher.join()
    time.sleep(TRIED_S)
    ended = time.monotonic()
    consumer.ends = True
    consumer.join()
    count = Counter(consumer.messages)
    lost, twice = len(set(publisher.messages) - count.keys()), count.total() - len(count)
    gaps = (publisher.longest(ended - TRIED_S), consumer.longest(ended - TRIED_S))
    return [*(f"{gap:.1f}" for gap in gaps), str(len(publisher.messages)), str(lost), str(twice)]


BROKERS: Final[Mapping[str, Callable[[Path | None], AbstractContextManager[Broker]]]] = {
    "oncemesh": ours,
    "RabbitMQ": rabbitmq,
    "Artemis": artemis,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.dying", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--artemis", type=Path, help="the directory of Artemis; without it, Artemis is left out")
    parser.add_argument("--only", choices=BROKERS, help="only this broker")
    parser.add_argument("--case", default="", help="only cases in whose title this is, as 'and back'")
    parser.add_argument("--seconds", type=float, default=SEEN_S, help="of load afterwards (default: %(default)g)")
    asked = parser.parse_args()
    signal(SIGTERM, lambda *_: raise_signal(SIGINT))
    console = Console(width=None if sys.stdout.isatty() else 120)
    heads = ("killed", "broker", "not accepted s", "not delivered s", "accepted", "lost", "twice")
    table = Table(*heads)
    for case in [case for case in CASES if asked.case in case.title]:
        for name, start in BROKERS.items():
            is_there = asked.artemis if name == "Artemis" else name == "oncemesh" or RABBITMQ.exists()
            if is_there and asked.only in (None, name):
                with start(asked.artemis) as broker:
                    row = [case.title, name, *play(broker, case, asked.seconds)]
                console.print(*row)
                table.add_row(*row)
    console.print(table)


if __name__ == "__main__":
    main()
