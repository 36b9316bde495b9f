"""Reads the faults of a chaos script: a word of the vocabulary with its target, a time, and the word's options.

    {kill: one, every: 5s, during: 10s..50s, for: 1s..3s}
    {partition: [west, {home-of: news}], at: 5s, for: 3s}
    {slow: a-b, latency: 20ms, jitter: 10ms, during: 5s..25s}

`vocabulary` has the options of each word.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import attrs

from failover.chaos.script.script import FaultLine, ScriptClient, When
from failover.chaos.script.targets import AMOUNTS, REPLICAS, ROLES, Named, ReplicaOf, RouterOf, Several, Some, Target
from failover.chaos.script.times import Span, Window, parse_period, parse_rate
from failover.chaos.script.vocabulary import VERBS, Aim, Verb
from router.mesh.config import Topology
from router.mesh.marked import MarkedList, MarkedMap, MarkedText, Value
from router.mesh.planned import sets_of
from router.mesh.reading import Reader, expected, given, joined_with_or, shown, text

Result = TypeVar("Result")

TIMES = ("at", "every", "random", "during")
OF_WHOM = ("home-of: PUBLISHER", "custodian-of: SUBSCRIBER", "leader-of: QUEUE", "follower-of: QUEUE")


def link_names(topology: Topology) -> tuple[str, ...]:
    return tuple(f"{link.a}-{link.b}" for link in topology.links)


@attrs.frozen
class Names:
    """The names that a target may have. They depend on the kind of targets of the fault's word (`Aim`)."""

    counted: Mapping[Aim, Sequence[str]]
    """Maps each kind of targets to all names of this kind. `one`, `minority`, `majority` and `all` choose among these
    names."""
    named: Mapping[Aim, Sequence[str]]
    clients: Mapping[str, Sequence[str]]
    """The names of the clients, by role: publisher or subscriber."""
    topology: Topology

    @classmethod
    def of(
        cls, topology: Topology, clients: Sequence[ScriptClient], groups: Iterable[str], sets: Iterable[str]
    ) -> "Names":
        routers, links = tuple(topology.routers), link_names(topology)
        every = tuple(client.name for client in clients)
        roles = {role: [one.name for one in clients if one.role == role] for role in ROLES.values()}
        in_sets = (*routers, *sets)
        return cls(
            {Aim.ROUTERS: routers, Aim.SIDES: routers, Aim.LINKS: links, Aim.CLIENTS: every},
            {
                Aim.ROUTERS: in_sets,
                Aim.SIDES: in_sets,
                Aim.LINKS: (*links, *in_sets),
                Aim.CLIENTS: tuple(dict.fromkeys((*every, *groups))),
            },
            roles,
            topology,
        )


class FaultReader(Reader):
    def faults(self, root: MarkedMap, known: Names, duration: float) -> Iterator[FaultLine]:
        for index, value in enumerate(self.items(root, "faults", "faults such as {kill: one, at: 5s, for: 2s}")):
            if isinstance(value, MarkedMap):
                fault = self.fault(value, known, duration, f"faults[{index}]")
                if fault is not None:
                    yield fault
            else:
                self.fail(
                    value.line, f"faults[{index}]: {shown(value)}, expected a fault such as {{kill: one, at: 5s}}"
                )

    def fault(self, value: MarkedMap, known: Names, duration: float, where: str) -> FaultLine | None:
        words = [key for key in value if key in VERBS]
        if len(words) != 1:
            self.fail(value.line, f"{where}: {_not_one(value, words)}")
            return None
        verb = VERBS[words[0]]
        problems = len(self.problems)
        if verb.queues and known.topology.queues is None:
            such = "expected a topology with the part queues"
            self.fail(value.line, f"{where}: {verb.name} strikes stores of replica sets, {such}")
        when, window = self.when(value, verb, duration, where)
        lasting = window or self.one(value, "for", Span.parse, where)
        options = self.options(value, verb, where)
        target = self.aim(value[words[0]], verb, known, f"{where}.{verb.name}")
        return FaultLine(verb, target, when, lasting, options, value.line) if len(self.problems) == problems else None

    def options(self, value: MarkedMap, verb: Verb, where: str) -> dict[str, object]:
        allowed = (verb.name, *TIMES, *(("for",) if verb.lasts else ()), *verb.options)
        for key in value:
            if key not in allowed:
                self.fail(key.line, f'{where}: unknown key "{key}", {expected(key, allowed)}')
        for name in verb.needs:
            if given(value, name) is None:
                self.fail(value.line, f'{where}: "{name}" is missing, {verb.name} needs it')
        found = {name: self.one(value, name, parse, where) for name, parse in verb.options.items()}
        return {name: one for name, one in found.items() if one is not None}

    def one(self, value: MarkedMap, key: str, parse: Callable[[str], Result], where: str) -> Result | None:
        found = given(value, key)
        if found is None:
            return None
        try:
            result: Result = text(parse)(found, None)
        except ValueError as error:
            self.fail(found.line, f"{where}.{key}: {error}")
            return None
        return result

    # The methods from here on read times.

    def when(self, value: MarkedMap, verb: Verb, duration: float, where: str) -> tuple[When, Span | None]:
        """Read the times at which a fault strikes. If only `during` gives the times, the fault lasts for the whole
        window, and its duration is returned, too."""
        window = self.one(value, "during", Window.parse, where) or Window(0.0, duration)
        times: dict[str, Any] = {
            "at": self.one(value, "at", Span.parse, where),
            "every": self.one(value, "every", parse_period, where),
            "random": self.one(value, "random", parse_rate, where),
        }
        told = [name for name, one in times.items() if one is not None]
        written = [name for name in times if given(value, name) is not None]
        during = given(value, "during") is not None
        if len(written) > 1 or not (written or during) or (during and "at" in written):
            self.fail(
                value.line, f"{where}: expected at, every, random or during (which may also limit every or random)"
            )
        elif not written and not verb.lasts:
            self.fail(value.line, f"{where}: {verb.name} takes no duration, expected at, every or random")
        elif not written and given(value, "for") is not None:
            self.fail(value.line, f"{where}: both during and for, expected one of them")
        self.in_time(value, times["at"], window, duration, where)
        if told or written:
            return When(window, times["at"], times["every"], times["random"]), None
        return When(window, at=Span(window.start, window.start)), Span(window.length, window.length)

    def in_time(self, value: MarkedMap, at: Span | None, window: Window, duration: float, where: str) -> None:
        latest = window.start if at is None else at.most
        if duration and latest >= duration:
            self.fail(
                value.line, f"{where}: the fault begins after the end of the run, expected a time before {duration:g}s"
            )

    # The methods from here on read targets.

    def aim(self, value: Value, verb: Verb, known: Names, where: str) -> Target | None:
        if verb.aim is Aim.MESH:
            if value not in ("", "all"):
                self.fail(
                    value.line,
                    f"{where}: {shown(value)}, expected no target, because the fault concerns the whole mesh",
                )
            return None
        if value == "" and verb.name == "rolling-restart":
            return Some("all")
        return self.target(value, verb, known, where)

    def target(self, value: Value, verb: Verb, known: Names, where: str) -> Target | None:
        if isinstance(value, MarkedList):
            found = [self.target(one, verb, known, f"{where}[{n}]") for n, one in enumerate(value)]
            if not found:
                self.fail(value.line, f"{where}: an empty list, expected at least one target")
            return Several(tuple(one for one in found if one is not None))
        if isinstance(value, MarkedMap):
            return self.router_of(value, verb, known, where)
        return self.named(value, verb, known, where)

    def named(self, value: MarkedText, verb: Verb, known: Names, where: str) -> Target | None:
        if value in AMOUNTS:
            some, count = Some(str(value)), len(known.counted[verb.aim])
            if not some.of(count):
                self.fail(value.line, f"{where}: no {value} of {count} exists, expected one, majority or all")
            return some
        names = known.named[verb.aim]
        a, _, b = value.partition("-")
        name = f"{b}-{a}" if verb.aim is Aim.LINKS and f"{b}-{a}" in names else str(value)
        if name not in names:
            known_ones = expected(value, (*AMOUNTS, *names))
            self.fail(value.line, f"{where}: no target is called {shown(value)}, {known_ones}")
        return Named(name)

    def router_of(self, value: MarkedMap, verb: Verb, known: Names, where: str) -> Target | None:
        [(what, client), *more] = value.items() or [(MarkedText(""), MarkedText(""))]
        if more or what not in (*ROLES, *REPLICAS) or verb.aim is Aim.CLIENTS:
            such = "names" if verb.aim is Aim.CLIENTS else joined_with_or(OF_WHOM)
            self.fail(value.line, f"{where}: a mapping, expected {such}")
            return None
        if what in REPLICAS:
            return self.replica_of(what, client, known.topology, f"{where}.{what}")
        role = ROLES[what]
        if client not in known.clients[role]:
            names = known.clients[role]
            such = expected(str(client), names) if names else f"expected a {role} of this script"
            self.fail(client.line, f"{where}.{what}: {shown(client)} is no {role}, {such}")
        return RouterOf(str(what), str(client))

    def replica_of(self, what: str, name: Value, topology: Topology, where: str) -> Target | None:
        sets = sets_of(topology)
        found = sets.plans.get(str(name)) or sets.plan_of(str(name))
        if found is None:
            such = "expected a topology with the part queues"
            if sets.plans:
                such = expected(str(name), (*sets.plans, f"the address of a queue such as {sets.prefixes[0]}orders"))
            self.fail(name.line, f"{where}: {shown(name)} is no replica set and no queue, {such}")
            return None
        return ReplicaOf(str(what), str(name), found.name)


def _not_one(value: MarkedMap, words: Sequence[str]) -> str:
    if words:
        return f"both {words[0]} and {words[1]}, expected one of them"
    likely = next((key for key in value if key not in TIMES), "")
    return f"the fault is missing, {expected(likely, VERBS)}"
