"""The path to a violation as text: every event, what the router logged, and what it sent to whom."""

from collections.abc import Iterator
from typing import Any

from tests.exhaustive.clients import Violation
from tests.exhaustive.model import Model
from tests.exhaustive.search import Finding, prepare
from tests.exhaustive.stand_ins import JOURNAL
from tests.exhaustive.world import Event, World
from topic.wire.segments import Segment, decode


def explain(model: Model, finding: Finding) -> list[str]:
    """Replay the path, and return its lines."""
    lines = [f"VIOLATION {finding.violation}", f"  after {len(finding.path)} events:"]
    world = prepare(model)
    talking = Talking(model)
    for number, event in enumerate(finding.path):
        lines.append(f"  {number:3} {_said(model, event)}")
        lines += [f"        {line}" for line in talking.step(world, event)]
        if talking.after is None:
            break
        world = talking.after
    lines += [f"  at rest: {model.clients.states.values[number]}" for number in model.look(world).clients]
    return lines


def _said(model: Model, event: Event) -> str:
    kind, *rest = event
    names = model.names
    if kind in ("contact", "lost", "lose", "receive", "kill", "die", "look", "replan"):
        return " ".join([kind, *(names[index] for index in rest)])
    if kind == "restart":
        return f"{kind} {names[rest[0]]} {'with' if rest[1] else 'without'} its store"
    if kind in ("attach", "partial"):
        return f"{kind} client {rest[0]} at {names[rest[1]]}"
    if kind == "expire":
        return "time passes"
    if kind == "doom":
        return f"doom {names[rest[0]]}, not heard by client {rest[1]}"
    return f"{kind} client {' '.join(map(str, rest))}"


class Talking:
    """Runs steps of a model and describes them."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.after: World | None = None
        self.lines: list[str] = []
        self._apply = model.routers.apply

    def step(self, world: World, event: Event) -> Iterator[str]:
        self.lines, self.after = [], None
        routers: Any = self.model.routers
        routers.apply = self._run
        try:
            self.after = self.model.step(world, event)
        except Violation as violation:
            self.lines.append(f"!! {violation}")
        finally:
            routers.apply = self._apply
        yield from self.lines

    def _run(self, number: int, event: Event, rank: int = 0) -> Any:
        routers = self.model.routers
        try:
            step = routers.run(number, event, rank)
        finally:
            for logged, columns in JOURNAL.rows:
                told = {name: _short(value) for name, value in columns.items() if name not in ("time_us", "hlc")}
                self.lines.append(f"log {logged.name} {told}")
        for index, _, frame in step.to_clients:
            self.lines.append(f"to client {index}: {_short(frame)}")
        for target, batch in step.to_routers:
            for payload in routers.batches.values[batch]:
                for kind, *said in decode(payload):
                    self.lines.append(f"to router {target}: {Segment(kind).name} {_short(said)}")
        return step


def _short(value: Any) -> Any:
    """The value with keys and names shortened to their first and last characters."""
    if isinstance(value, bytes):
        return value if len(value) <= 6 else repr(value[:3])[2:-1] + ".." + repr(value[-4:])[2:-1]
    if isinstance(value, list | tuple):
        return [_short(item) for item in value]
    if isinstance(value, dict):
        return {_short(key): _short(item) for key, item in value.items()}
    return value
