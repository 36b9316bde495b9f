"""Random walks of MQTT clients through a mesh: clients are cut off and move, and their routers are killed and started
again.

    a ~~~ b ~~~ c ~~~ w - witness, of AMQP        all in contact; whole routers without sockets

Data from a client or another router arrives in order, when the dice say so. When a router is killed, only a part of its
data under way arrives. A client is back long before its session ends, except in walks in which sessions end. If no two
messages are equal, homes may be killed one after the other, before other routers know their messages. If messages are
equal, others learn of them first. In some walks contacts are lost and made again.

    python -m tests.router.mqtt.walk SEED
"""

import argparse
from collections.abc import Callable
from random import Random

from router.mqtt.format.values import V3, V5
from tests.fuzz.mesh import SETTINGS
from tests.garbage import collect_seldom
from tests.router.mqtt.bench import NARROW, MqttGuest
from tests.router.mqtt.judge import MqttJudge, MqttViolation
from tests.router.mqtt.mortal import KILLED, STEP_US, MortalBench
from tests.router.mqtt.roles import Reader, Writer
from tests.router.mqtt.sessions import EXPIRY_S, TOPICS, Client, Line
from tests.router.mqtt.witness import Witness

STEPS = 800
RARE = 0.3
PATIENCE_S = 2.0
"""Seconds after which an absent client is back at the latest."""
LIVES = 1000
"""The most messages of one writer."""
WIDE = 500_000
"""From this seed on walks have more features, as their dice say. Walks of lower seeds stay as they were when mutants
were pinned to them."""
SCARCE = 700_000
"""From this seed on credit is scarce in some walks: for publishers until the size of their messages is known, and for
the witness."""
REFUSING = 740_000
"""From this seed on, in some walks, readers of MQTT 5 refuse messages. Each always refuses the same ones."""

PARTING = 900_000
"""From this seed on, in some walks without equal messages, contacts of living routers come and go."""


class MqttWalk(MortalBench):
    def __init__(self, seed: int) -> None:
        more = Random(~seed)
        self.is_scarce = seed >= SCARCE and Random(-seed).random() < 0.5
        super().__init__(seed, NARROW if self.is_scarce else SETTINGS)
        self.says_all = seed >= SCARCE
        self.are_refusing = seed >= REFUSING and Random(-2 * seed).random() < 0.5
        self._at_qos_0 = more.choice((0.0, 0.3)) if seed >= WIDE else 0.0
        """How often a writer publishes at QoS 0."""
        self.parts = seed >= PARTING and Random(-3 * seed).random() < 0.5
        self._repeats = seed >= WIDE and not self.parts and more.random() < 0.5
        """Whether writers send equal messages: see `_publish`."""
        self.are_heard_out = self._repeats
        self._ends = seed >= WIDE and more.random() < 0.5
        """Whether sessions end, by a clean start or by a long absence of their clients."""
        self.judge = MqttJudge(self)
        self.witness = Witness(self, 3 if self.is_scarce else 1000)
        self.flow()
        self.clients: list[Client] = []
        self.writers = [Writer(self._client(f"writer {n}"), (2, 2, 1)[n], n * LIVES) for n in range(3)]
        self.readers = [Reader(self._reads(n), (2, 2, 1)[n], eager=n == 0) for n in range(3)]
        self.lines: list[Line] = []
        self.is_slow = True

    def _client(self, name: str) -> Client:
        self.clients.append(Client(self, name, self.dice.choice((V3, V5))))
        return self.clients[-1]

    def _reads(self, n: int) -> Client:
        """A reader's client, which is sometimes a writer's, too."""
        return self.writers[n].client if self.dice.random() < 0.3 else self._client(f"reader {n}")

    def line(self, client: Client, router: str) -> Line:
        line = Line(self.routers[router], self.edges[router], client.version, client=client)
        self.lines.append(line)
        return line

    # things that take their time

    def settle(self) -> None:
        """Let everything come to rest, with all clients."""
        self.note("all is brought")
        self.come_together()
        for client in self.clients:
            if self._is_to_go_on(client):
                self._go_on(client)
        moves = True
        while moves:
            self.is_slow = False
            self.flow()
            self.is_slow = True
            moves = self.witness.grant()
            for line in list(self.lines):
                moves = self._read(line, 100) or moves
            for client in self.clients:
                moves = moves or (client.line is not None and bool(client.line.down))
                client.hear(100)
                if client.is_asleep:
                    continue
                if client.line is None or not client.line.router.node.topic.booted:
                    self._go_on(client)
                    moves = True
        for client in self.clients:
            if client.is_let_in and client.line is not None and not client.line.is_over:
                client.is_known()
                self.judge.has_not_missed(client, are_all_told=True)

    def _read(self, line: Line, most: int) -> bool:
        """Let the router read. Returns whether it read something."""
        if line.is_dead:
            self.lines.remove(line)
        elif not line.router.node.topic.booted:
            return False  # the router accepts no client yet
        elif line.up and not line.connection.closed:
            self.note(f"{line.router.name} reads of {line.client}, {min(most, len(line.up))} of {len(line.up)} packets")
            line.read(most)
        elif line.client.line is not line or line.connection.closed:
            self.note(f"{line.router.name} reads the end of {line.client}")
            self.lines.remove(line)
            line.leave()
        else:
            return False
        return True

    def prove(self, guest: MqttGuest) -> None:
        if isinstance(guest, Line):
            self.note(f"{guest.client} is known to be at {guest.router.name}")
            self.judge.is_at(guest)
        super().prove(guest)

    # events

    def play(self) -> None:
        actions: list[tuple[int, Callable[[], None]]] = [
            (8, self.some_router_hears), (8, self._some_router_reads), (8, self._some_client_reads),
            (6, self._some_writer_publishes), (4, self._some_machine_acknowledges), (2, self._time_passes),
            (2, self._somebody_goes_on), (1, self._somebody_is_cut_off), (1, self._somebody_says_goodbye),
            (2, self.somebody_notices), (1, self._some_reader_changes),
        ]  # fmt: skip
        weights = [weight for weight, _ in actions]
        kills = self.dice.random() < 0.7
        for _ in range(STEPS):
            self.wall_us += STEP_US
            for client in self.clients:
                if (
                    client.away_since is not None
                    and self.now > max(client.away_since, client.sleeps_until) + PATIENCE_S
                ):
                    self.settle()
            self.dice.choices(actions, weights)[0][1]()
            if self.is_scarce and self.dice.random() < 0.1:
                self.witness.grant()
                self.flow()
            if kills and self.dice.random() < 0.01:
                self.some_router_dies()
            if kills and self.dice.random() < 0.02:
                self.some_router_boots()
            if self.parts and self.dice.random() < 0.02:
                self.some_contact_is_lost()
            if self.parts and self.dice.random() < 0.03:
                self.some_contact_is_made()
            if self._ends:
                self._some_session_may_end()
        self._finish()

    def some_router_dies(self) -> None:
        """Kill a router. The sessions of its clients begin to expire, whether the clients know or not."""
        super().some_router_dies()
        for client in self.clients:
            if client.line is not None and client.line.is_dead and client.line.dead_since is None:
                client.line.dead_since = self.now

    def boot(self, name: str) -> None:
        super().boot(name)
        self.judge.hearsay.boots(name)

    def _some_router_reads(self) -> None:
        if self.lines:
            self._read(self.dice.choice(self.lines), self.dice.randint(1, 4))

    def _some_client_reads(self) -> None:
        self.dice.choice(self.clients).hear(self.dice.randint(1, 4))

    def _some_writer_publishes(self) -> None:
        writer = self.dice.choice(self.writers)
        if writer.client.is_let_in and writer.free:
            self._publish(writer, self.dice.choice(TOPICS))

    def _publish(self, writer: Writer, topic: str) -> None:
        """Publish a message. An equal one has the identifier of the earlier one, most often."""
        if self._at_qos_0 and self.dice.random() < self._at_qos_0:
            writer.publish_once(topic)
        elif self._repeats and writer.latest and self.dice.random() < 0.5:
            any_former = self.dice.choice(list(writer.latest.values()))
            writer.publish_equal(
                writer.latest.get(writer.free[0], any_former) if self.dice.random() < 0.7 else any_former
            )
        else:
            writer.publish(topic)

    def _some_reader_changes(self) -> None:
        """A reader changes one of its two subscriptions. The other one stays at QoS 2, so other routers know that the
        reader may hold something.
        """
        reader = self.dice.choice([reader for reader in self.readers if reader.qos == 2])
        qos = self.dice.choice((0, 1, 2))
        if (
            reader.client.is_let_in
            and not reader.asked
            and qos != reader.wanted[TOPICS[1]]
            and self.dice.random() < RARE
        ):
            reader.change(TOPICS[1], qos)

    def _some_session_may_end(self) -> None:
        client = self.dice.choice(self.clients)
        if client.version == V5 and self.dice.random() < 0.005:
            client.begin_anew()
        elif not client.is_asleep and self.dice.random() < 0.004:
            client.cut()
            client.sleeps_until = self.now + self.dice.uniform(0.5, 3.0) * EXPIRY_S
            self.note(f"{client} sleeps until {client.sleeps_until:.3f}")
        elif any(client.is_asleep for client in self.clients) and self.dice.random() < 0.03:
            self.settle()
            self.time(self.dice.uniform(0.5, 1.5))

    def _some_machine_acknowledges(self) -> None:
        lines = [client.line for client in self.clients if client.line is not None]
        if asked := [line for line in lines if line.connection.proofs and not line.is_dead]:
            self.prove(self.dice.choice(asked))
            self.flow()

    def _time_passes(self) -> None:
        self.time(self.dice.uniform(0.0, 0.1))

    def _somebody_goes_on(self) -> None:
        if away := [client for client in self.clients if self._is_to_go_on(client)]:
            self._go_on(self.dice.choice(away))

    def _is_to_go_on(self, client: Client) -> bool:
        return not client.is_asleep and (client.line is None or client.line.is_over)

    def _go_on(self, client: Client) -> None:
        if client.line is not None:
            self.note(f"{client} notices that its connection is over")
            client.cut()
        client.connect(self.dice.choice(list(self.routers)))

    def _somebody_is_cut_off(self) -> None:
        client = self.dice.choice(self.clients)
        if client.line is not None:
            self.note(f"{client} is cut off")
            for _ in range(self.dice.randint(0, len(client.line.up))):
                client.line.up.pop()
            client.cut()

    def _somebody_says_goodbye(self) -> None:
        client = self.dice.choice(self.clients)
        if client.is_let_in and self.dice.random() < RARE:
            self.note(f"{client} says goodbye")
            client.say_goodbye()

    def _finish(self) -> None:
        """All routers run, and everything under way comes to its end."""
        for name in KILLED:
            if name not in self.routers:
                self.boot(name)
        for client in self.clients:
            client.sleeps_until = 0.0
        for _ in range(12):
            self.settle()
            self.time(0.5)
        self.settle()
        self.judge.check_all()
        for client in self.clients:
            client.cut()
        self.is_slow = False
        while self.lines:
            self._read(self.lines[0], 100)
        self.witness.leave()
        self.witness.engine.release()
        self.finish()


def play(seed: int) -> None:
    """Play the walk. Raises MqttViolation with the trace."""
    walk = MqttWalk(seed)
    try:
        walk.play()
    except AssertionError as error:
        lines = [*walk.trace, f"seed {seed}: {error}", f"replay with: python -m tests.router.mqtt.walk {seed}"]
        raise MqttViolation("\n".join(lines)) from error


def scenario(seed: int) -> Callable[[], None]:
    """A walk as a scenario for mutants."""

    def walk() -> None:
        try:
            play(seed)
        except MqttViolation as violation:
            raise MqttViolation(str(violation).splitlines()[-2]) from None

    walk.__name__ = f"mqtt_walk_{seed}"
    return walk


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.router.mqtt.walk", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--count", type=int, default=1, help="play so many seeds from this one on")
    asked = parser.parse_args()
    collect_seldom()
    failed = 0
    for seed in range(asked.seed, asked.seed + asked.count):
        try:
            play(seed)
        except MqttViolation as violation:
            failed += 1
            print(violation if asked.count == 1 else str(violation).splitlines()[-2])
    print(f"{asked.count} seeds, {failed} failed")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
