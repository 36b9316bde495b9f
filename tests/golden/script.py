"""The player of golden scenarios: it reads a script's commands and writes the effects of each. README.md has the words.

python -m tests.golden.script        # writes all traces anew
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.golden.trace import TracedBench
from tests.topic.bench import LASTING
from tests.topic.clients import Pen, Reader, key_of
from topic.actions import Resume
from topic.delivery.outcomes import DeliveryOutcome

SCENARIOS = sorted(Path(__file__).parent.glob("*.txt"))
PROMPT = "> "


def play(text: str) -> str:
    """The script with its present traces: they replace everything except commands, comments and empty lines."""
    lines = [line for line in text.splitlines() if not line.startswith("  ")]
    commands = [line.removeprefix(PROMPT) for line in lines if line.startswith(PROMPT)]
    player = Player(commands)
    return "".join(f"{line}\n" for line in _played(player, lines))


def _played(player: "Player", lines: list[str]) -> Iterator[str]:
    for line in lines:
        yield line
        if line.startswith(PROMPT):
            yield from (f"  {said}" for said in player.play(line.removeprefix(PROMPT)))


class Player:
    def __init__(self, commands: list[str]) -> None:
        verb, *routers = commands[0].split()
        assert verb == "mesh", f"{commands[0]}: expected mesh ROUTERS first"
        names = [re.findall(rf"^(\w+) {role}", "\n".join(commands), re.M) for role in ("publishes", "subscribes")]
        self.bench = TracedBench(routers, *names)
        self._pens: dict[str, Pen] = {}
        self._readers: dict[str, Reader] = {}
        self._dead: set[str] = set()

    def play(self, command: str) -> list[str]:
        self.bench.lines.clear()
        for pattern, act in _WORDS.items():
            if found := re.fullmatch(pattern, command):
                act(self, *found.groups())
                return list(self.bench.lines)
        raise ValueError(f"{command}: no such command")

    # clients

    def publish(self, name: str, silent: str | None, router: str, state: str | None) -> None:
        options: dict[str, Any] = {"lifetime": LASTING, "lively": not silent}
        if state is not None:
            former = self._pens[name].stream
            unsettled = {_tag(delivery): outcome for delivery, outcome in _map(state)}
            options |= {"unsettled": unsettled, "generation": former.generation, "seen": former.epoch}
        self._pens[name] = self.bench.publisher(router, name, **options)

    def subscribe(self, name: str, plain: str | None, router: str, state: str | None) -> None:
        options: dict[str, Any] = {} if plain else {"lifetime": LASTING}
        if state is not None:
            unsettled = {self._key(delivery): outcome for delivery, outcome in _map(state)}
            options |= {"unsettled": unsettled, "seen": self._readers[name].end.epoch}
        self._readers[name] = self.bench.subscriber(router, name, **options)

    def _key(self, delivery: str) -> bytes:
        return key_of(self._pens[delivery[0]], _tag(delivery))

    def send(self, name: str, deliveries: str) -> None:
        messages = deliveries.split()
        self._pens[name].send(*(message.encode() for message in messages), tags=[_tag(message) for message in messages])

    def reuse(self, name: str, tag: str, message: str) -> None:
        self._pens[name].send(message.encode(), tags=[tag.encode()])

    def settle(self, name: str, deliveries: str) -> None:
        self._pens[name].settle(*(delivery.encode() for delivery in deliveries.split()))

    def accept(self, name: str, deliveries: str) -> None:
        """Accept deliveries, including ones transferred with resume=true."""
        reader = self._readers[name]
        had = [record for record, _ in reader.handed] + [resume.record for resume in reader.mine(Resume)]
        latest = {record.key: record for record in had}
        records = [latest[self._key(delivery)] for delivery in deliveries.split()]
        self.bench.tick(reader.router).outcomes(reader.end, records, DeliveryOutcome.ACCEPTED)
        self.bench.flow()

    def act(self, name: str, verb: str) -> None:
        getattr(self._pens.get(name) or self._readers[name], _ACTS[verb])()

    def vanish(self, name: str) -> None:
        (self._pens.get(name) or self._readers[name]).vanish()

    # the mesh

    def rule(self, verb: str, routers: str) -> None:
        if verb == "kill":
            self._dead.add(routers)
        getattr(self.bench, verb)(*routers.split())
        self.bench.flow()

    def restart(self, router: str) -> None:
        """Restart the router with the content of its store."""
        self._dead.discard(router)
        former = self.bench.stations[router]
        self.bench.boot(router, former.node.incarnation + 1, former.store)
        for other in self.bench.names:
            if other != router:
                self.bench.meet(router, other)
        self.bench.flow()

    def wait(self, seconds: str) -> None:
        self.bench.wait(int(seconds))

    def records(self) -> None:
        held = [f"{router} {count}" for router, count in self.bench.records().items() if router not in self._dead]
        self.bench.lines.append(", ".join(held) or "none")


def _tag(delivery: str) -> bytes:
    """The tag of a delivery: a publisher p calls its delivery with tag 1 p1."""
    return delivery[1:].encode()


def _map(text: str) -> Iterator[tuple[str, int]]:
    """Parse a map: `p1 p2:accepted`."""
    for delivery in text.split():
        name, _, state = delivery.partition(":")
        yield name, DeliveryOutcome[state.upper()] if state else 0


_ACTS = {"answers the echo": "answer_echo", "answers the detach": "answer_detach"}
_WORDS: dict[str, Callable[..., None]] = {
    r"mesh .+": lambda player: None,
    r"(\w) publishes( silently)? at (\w)(?: with \[(.*)\])?": Player.publish,
    r"(\w) subscribes( plainly)? at (\w)(?: with \[(.*)\])?": Player.subscribe,
    r"(\w) sends (.+)": Player.send,
    r"(\w) uses tag (\w) once more for (\w+)": Player.reuse,
    r"(\w) settles (.+)": Player.settle,
    r"(\w) accepts (.+)": Player.accept,
    r"(\w) vanishes": Player.vanish,
    r"(\w) (answers the echo|answers the detach)": Player.act,
    r"(kill|part|meet) (.+)": Player.rule,
    r"restart (\w)": Player.restart,
    r"wait (\d+)": Player.wait,
    r"records": Player.records,
}
