"""Reads a chaos script into the classes of `script`, or reports all its errors at once.

    topology: ../mesh6.yaml               # relative to the script
    timing: {terminus: 15s}               # instead of the topology's
    duration: 30s
    publishers: [{name: news, rate: 500, count: 2, at: [a, b]}]
    subscribers: [{name: reader, settle: second, think: 1ms}]
    sets: {west: [a, b, d]}
    faults: [{kill: {home-of: news1}, at: 5s..10s, for: 2s}]

`router.mesh.reading` checks the shape, `fault_reader` the faults; this module checks names, times and targets.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import attrs

from failover.chaos.script.fault_reader import FaultReader, Names
from failover.chaos.script.parts import CONVERTER, PublisherPart, SubscriberPart, names
from failover.chaos.script.script import Crashes, Role, Script, ScriptClient
from failover.chaos.script.times import parse_length
from router.mesh.config import Timing, Topology
from router.mesh.errors import FileError
from router.mesh.marked import MarkedMap, MarkedText, Value
from router.mesh.reading import document, expected, given, joined_with_or, shown, text
from router.mesh.topology import load as load_topology

PARTS = ("topology", "timing", "duration", "publishers", "subscribers", "sets", "faults")


class ScriptError(FileError):
    """The errors that a chaos script has. Each line of the text is one error."""


def load(path: str | Path) -> Script:
    """Return the script in the file at `path`. Raises ScriptError, or TopologyError if the file of the topology has an
    error."""
    path = Path(path)
    root = document(path, "chaos script", PARTS, ScriptError)
    if "routers" in root:
        raise ScriptError(path, [f"{path}: a topology, expected a chaos script; to start it: oncemesh up {path}"])
    reader = _ScriptReader()
    reader.keys(root, PARTS)
    topology = reader.topology(root, path)
    if topology is None:
        reader.check(path, ScriptError)
    assert topology is not None
    script = reader.script(root, path, topology)
    reader.check(path, ScriptError)
    return script


class _ScriptReader(FaultReader):
    CONVERTER = CONVERTER

    def topology(self, root: MarkedMap, path: Path) -> Topology | None:
        found = given(root, "topology")
        if not isinstance(found, MarkedText):
            line = root.line if found is None else found.line
            self.fail(line, "topology: missing, expected the path of a topology file, relative to this script")
            return None
        where = path.parent / found
        if not where.is_file():
            self.fail(
                found.line,
                f"topology: the file {where} does not exist, expected the path of a topology file, "
                "relative to this script",
            )
            return None
        return load_topology(where)

    def script(self, root: MarkedMap, path: Path, topology: Topology) -> Script:
        duration = self.duration(root)
        groups: dict[str, tuple[str, ...]] = {}
        clients = tuple(self.clients(root, topology, groups))
        sets = dict(self.sets(root, topology))
        known = Names.of(topology, clients, groups, sets)
        return Script(
            name=path.stem,
            path=path,
            topology=attrs.evolve(topology, timing=self.timing(root, topology.timing)),
            duration=duration,
            clients=clients,
            groups=groups,
            sets=sets,
            faults=tuple(self.faults(root, known, duration)),
        )

    def duration(self, root: MarkedMap) -> float:
        found = given(root, "duration")
        if found is None:
            self.fail(root.line, '"duration" is missing, expected how long the run takes, such as 30s')
            return 0.0
        try:
            return cast(float, text(parse_length)(found, None))
        except ValueError as error:
            self.fail(found.line, f"duration: {error}")
            return 0.0

    def timing(self, root: MarkedMap, own: Timing) -> Timing:
        found = given(root, "timing")
        part = self.part(root, "timing", Timing)
        if part is None or not isinstance(found, MarkedMap):
            return own
        return attrs.evolve(own, **{str(key): getattr(part, key) for key in found})

    # The methods from here on read the clients.

    def clients(
        self, root: MarkedMap, topology: Topology, groups: dict[str, tuple[str, ...]]
    ) -> Iterator[ScriptClient]:
        """Yield all clients, and note in `groups` which clients each group has."""
        roles: tuple[Role, ...] = ("publisher", "subscriber")
        for role in roles:
            key, taken, known = f"{role}s", len(groups), len(self.problems)
            for index, value in enumerate(self.items(root, key, "groups such as {name: p, count: 3}")):
                part = self.part_of(role, value, f"{key}[{index}]")
                if part is not None:
                    yield from self.group(part, role, topology, value, groups)
            if len(groups) == taken and len(self.problems) == known:
                self.fail(root.line, f"{key}: the list is empty, expected at least one group")

    def part_of(self, role: Role, value: Value, where: str) -> PublisherPart | SubscriberPart | None:
        if role == "publisher":
            return self.structure(value, PublisherPart, where)
        return self.structure(value, SubscriberPart, where)

    def group(
        self,
        part: PublisherPart | SubscriberPart,
        role: Role,
        topology: Topology,
        value: Value,
        groups: dict[str, tuple[str, ...]],
    ) -> Iterator[ScriptClient]:
        members = (part.name,) if part.count == 1 else tuple(f"{part.name}{n + 1}" for n in range(part.count))
        taken = {name for group, others in groups.items() for name in (group, *others)}
        for name in sorted(taken.intersection((part.name, *members))):
            self.fail(value.line, f'{role}s: there is a client or group "{name}" already, expected another name')
        groups[part.name] = members
        self.prefixed(part, topology, value.line, role)
        seats = part.at or tuple(topology.routers)
        for router in seats:
            if router not in topology.routers:
                known = expected(router, topology.routers)
                self.fail(value.line, f'{role}s.{part.name}.at: there is no router "{router}", {known}')
        for number, name in enumerate(members):
            yield _client(part, role, name, seats[number % len(seats)])

    def prefixed(self, part: PublisherPart | SubscriberPart, topology: Topology, line: int, role: str) -> None:
        prefixes = [rule.prefix for rule in topology.addresses]
        if not any(part.address.startswith(prefix) for prefix in prefixes):
            self.fail(
                line,
                f'{role}s.{part.name}.address: "{part.address}", expected an address that begins with '
                f"{joined_with_or(prefixes)}",
            )

    def sets(self, root: MarkedMap, topology: Topology) -> Iterator[tuple[str, tuple[str, ...]]]:
        found = given(root, "sets")
        if found is not None and not isinstance(found, MarkedMap):
            self.fail(found.line, f"sets: {shown(found)}, expected names of routers by name of set")
        for name, value in found.items() if isinstance(found, MarkedMap) else ():
            try:
                members = names(value)
            except ValueError as error:
                self.fail(value.line, f"sets.{name}: {error}")
                continue
            for router in [one for one in members if one not in topology.routers]:
                known = expected(router, topology.routers)
                self.fail(value.line, f'sets.{name}: there is no router "{router}", {known}')
            if name in topology.routers:
                self.fail(name.line, f'sets: "{name}" is a router, expected another name')
            yield str(name), members


def _client(part: PublisherPart | SubscriberPart, role: Role, name: str, router: str) -> ScriptClient:
    crashes = Crashes(part.crash, part.away) if part.crash is not None else None
    client = ScriptClient(name, role, part.address, router, crashes=crashes)
    if isinstance(part, PublisherPart):
        return attrs.evolve(client, rate=part.rate, size=part.size)
    return attrs.evolve(client, settle=part.settle, think=part.think)
