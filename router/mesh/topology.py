"""Reads a topology file into the classes of router.mesh.config, or reports all of its faults at once.

`router.mesh.reading` checks the shape of each part. This module checks the rules between parts (names, ports, links).
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from linkstate.plan.names import NAME, ROUTER_NAME
from router.mesh.config import (
    AMQP,
    AMQP_WS,
    HTTP,
    INTER,
    MQTT,
    AddressRule,
    Limits,
    LinkConfig,
    LogSettings,
    RouterConfig,
    Security,
    Timing,
    Topology,
    is_loopback,
    kind_of,
)
from router.mesh.errors import FileError
from router.mesh.marked import MarkedList, MarkedMap, MarkedText, Value
from router.mesh.quantities import Address, format_duration
from router.mesh.reading import Reader, document, expected, given, joined_with_or, shown
from router.mesh.topology_parts import CONVERTER, LinkPart, RouterPart
from router.mesh.topology_queues import read_queues
from topic.delivery.kinds import NAMED

PARTS = ("mesh", "routers", "links", "addresses", "queues", "timing", "limits", "log", "security")

ROUTERS_NAMED = "expected at most 63 letters, digits, - and _, with single dots between them"
# No router may have one of these names, because the router's folder would collide with them in the run directory.
# _CLIENTS is the folder of the clients' logs. _FILES are the endings of the names of files.
_CLIENTS = "clients"
_FILES = (".json", ".yaml", ".lock", ".new")


def names_a_router(text: str) -> bool:
    return bool(ROUTER_NAME.fullmatch(text)) and not _is_reserved(text)


def _is_reserved(name: str) -> bool:
    return name == _CLIENTS or name.endswith(_FILES)


# With this limit, a neighbour is not lost if one or two HELLOs come late.
_HELLOS = 3


class TopologyError(FileError):
    """The faults of a topology file, one line each."""


def load(path: str | Path) -> Topology:
    """Load the topology at `path`. Raises TopologyError."""
    path = Path(path)
    reader, root = _Reader(), document(path, "topology", PARTS, TopologyError)
    if "topology" in root:
        raise TopologyError(path, [f"{path}: a chaos script, expected a topology; to run it: oncemesh chaos {path}"])
    topology = reader.topology(root, path)
    reader.check(path, TopologyError)
    return topology


class _Reader(Reader):
    CONVERTER = CONVERTER

    def topology(self, root: MarkedMap, path: Path) -> Topology:
        self.keys(root, PARTS)
        routers, lines = self.routers(root)
        addresses = self.addresses(root)
        topology = Topology(
            mesh=self.mesh(root),
            routers=routers,
            links=self.links(root, lines),
            addresses=addresses,
            timing=self.timing(root),
            limits=self.part(root, "limits", Limits) or Limits(),
            log=self.part(root, "log", LogSettings) or LogSettings(),
            path=path,
            security=self.security(root),
            queues=read_queues(self, root, lines, addresses),
        )
        self.findable(topology, lines)
        self.strangers(topology, lines)
        return topology

    def mesh(self, root: MarkedMap) -> str:
        name = root.get(MarkedText("mesh"))
        if name is None:
            self.fail(root.line, '"mesh" is missing, expected the name of the mesh')
        elif not isinstance(name, MarkedText) or not NAME.fullmatch(name):
            self.fail(name.line, f"mesh: {shown(name)} is not a name, expected letters, digits, - and _")
        return str(name)

    def routers(self, root: MarkedMap) -> tuple[dict[str, RouterConfig], dict[str, int]]:
        """The routers that are free of faults, and the line of each router in the file. Both are keyed by the router's
        name."""
        found = root.get(MarkedText("routers"))
        if not isinstance(found, MarkedMap) or not found:
            line = root.line if found is None else found.line
            self.fail(line, "routers: the mesh is empty, expected a router such as a: {amqp: host:port}")
            return {}, {}
        routers = {}
        for name, value in found.items():
            if _is_reserved(name):
                self.fail(name.line, f'routers: "{name}" is reserved, expected another name')
            elif not ROUTER_NAME.fullmatch(name):
                self.fail(name.line, f'routers: "{name}" cannot name a router, {ROUTERS_NAMED}')
            part = self.structure(value, RouterPart, f"routers.{name}")
            if part is not None:
                routers[str(name)] = part.config(str(name))
        self.ports(found, routers)
        return routers, {str(name): name.line for name in found}

    def ports(self, found: MarkedMap, routers: Mapping[str, RouterConfig]) -> None:
        taken: list[tuple[Address, str]] = []
        for name, router in routers.items():
            own = {AMQP: router.amqp, INTER: router.inter, HTTP: router.http, MQTT: router.mqtt}
            for listener, address in {**own, **router.more}.items():
                if address is None or address.port == 0:
                    continue
                place = Address(router.told.host, address.port) if address.is_anywhere else address
                owner = next((other for old, other in taken if _collide(old, place)), None)
                if owner is not None:
                    part = found[MarkedText(name)]
                    line = part[MarkedText(kind_of(listener))].line if isinstance(part, MarkedMap) else part.line
                    self.fail(line, f"routers.{name}.{listener}: {address} is already {owner}, expected another port")
                taken.append((place, f"routers.{name}.{listener}"))

    def links(self, root: MarkedMap, routers: Mapping[str, int]) -> tuple[LinkConfig, ...]:
        links: dict[tuple[str, str], LinkConfig] = {}
        problems_before = len(self.problems)
        for index, value in enumerate(self.items(root, "links", "links such as [a, b]")):
            where = f"links[{index}]"
            part = self.structure(_long_form(value), LinkPart, where)
            if part is not None and self.joins_two(part.between, routers, value.line, where):
                a, b = sorted(part.between)
                if (a, b) in links:
                    self.fail(value.line, f"{where}: {a} and {b} are linked already, expected one link between them")
                links[a, b] = LinkConfig(a, b, part.cost, part.address)
        if len(self.problems) == problems_before:
            self.connected(routers, list(links))
        return tuple(links.values())

    def joins_two(self, ends: tuple[str, str], routers: Mapping[str, int], line: int, where: str) -> bool:
        unknown = [end for end in ends if end not in routers]
        for end in unknown:
            known = expected(end, routers) if routers else "expected a router of this mesh"
            self.fail(line, f'{where}: there is no router "{end}", {known}')
        if ends[0] == ends[1]:
            self.fail(line, f'{where}: links "{ends[0]}" to itself, expected two different routers')
        return not unknown and ends[0] != ends[1]

    def connected(self, routers: Mapping[str, int], links: list[tuple[str, str]]) -> None:
        if not routers:
            return
        first = next(iter(routers))
        reached = reachable(first, links)
        for name, line in routers.items():
            if name not in reached:
                self.fail(line, f"routers.{name}: no path to {first}, expected links that join all routers")

    def addresses(self, root: MarkedMap) -> tuple[AddressRule, ...]:
        if given(root, "addresses") is None:
            return (AddressRule("topic/"),)
        rules: dict[str, AddressRule] = {}
        for index, value in enumerate(self.items(root, "addresses", "rules such as {prefix: topic/, kind: topic}")):
            rule = self.structure(value, AddressRule, f"addresses[{index}]")
            if rule is not None and rule.prefix in rules:
                self.fail(
                    value.line,
                    f'addresses[{index}]: prefix "{rule.prefix}" has two rules, expected one',
                )
            elif rule is not None:
                assert isinstance(value, MarkedMap)
                rules[rule.prefix] = rule
                for key, problem in _problems(rule):
                    self.fail(value[MarkedText(key)].line, f"addresses[{index}].{key}: {problem}")
        return tuple(rules.values())

    def timing(self, root: MarkedMap) -> Timing:
        timing = self.part(root, "timing", Timing) or Timing()
        least = _HELLOS * timing.hello
        if timing.dead < least and not math.isclose(timing.dead, least):
            line = root[MarkedText("timing")].line
            dead, hello = format_duration(timing.dead), format_duration(timing.hello)
            self.fail(
                line,
                f"timing: dead is {dead}, expected at least {_HELLOS} times hello ({hello}): {format_duration(least)}",
            )
        if timing.forget < timing.terminus:
            self.too_short(root, "forget", timing.forget, "terminus", timing.terminus)
        # A neighbour notices only after `dead` that the router's former incarnation is over.
        # So a booting router has to wait for longer than `dead`.
        if timing.boot_wait < timing.dead:
            self.too_short(root, "boot_wait", timing.boot_wait, "dead", timing.dead)
        return timing

    def security(self, root: MarkedMap) -> Security:
        security = self.part(root, "security", Security) or Security()
        tls = {"certificate": security.certificate, "key": security.key, "ca": security.ca}
        missing = [name for name, file in tls.items() if file is None]
        if missing and len(missing) < len(tls):
            line = root[MarkedText("security")].line
            self.fail(line, f"security: certificate, key and ca belong together, expected {' and '.join(missing)}, too")
        if security.users is not None and not security.closes_mesh:
            line = root[MarkedText("security")].line
            what = "expected also a secret or certificates, by which routers know each other"
            self.fail(line, f"security: clients need a password, but anybody can connect as a router: {what}")
        return security

    def findable(self, topology: Topology, lines: Mapping[str, int]) -> None:
        """Report each router that listens at every address and advertises none: clients could not find it."""
        for name, router in topology.routers.items():
            if router.told.is_anywhere:
                what = f"routers.{name}.amqp: {router.amqp} is no address that clients can connect to"
                self.fail(lines[name], f"{what}, expected also advertise: host:port")

    def strangers(self, topology: Topology, lines: Mapping[str, int]) -> None:
        """Report each listener that is open to everybody and is not listed in `security.open`."""
        security = topology.security
        by_user, by_password = "users or certificates", "certificates, or users and plain: in-clear"
        ways = {AMQP: by_user, AMQP_WS: by_user, INTER: "a secret or certificates"}
        for name, listener, address in topology.listeners():
            says = security.users is not None and security.hears_passwords(address.host)
            proves = security.users is not None or security.tls
            closed = {AMQP: proves, AMQP_WS: proves, INTER: security.closes_mesh}
            kind = kind_of(listener)
            if not (closed.get(kind, security.tls or says) or kind in security.open or is_loopback(address.host)):
                way = f"expected security by {ways.get(kind, by_password)}, or security: {{open: [{kind}]}}"
                self.fail(lines[name], f"routers.{name}.{listener}: {address} is open to everybody, {way}")

    def too_short(self, root: MarkedMap, name: str, value: float, other: str, least: float) -> None:
        line = root[MarkedText("timing")].line
        text = f"{name} is {format_duration(value)}, expected at least {other} ({format_duration(least)})"
        self.fail(line, f"timing: {text}")


def _problems(rule: AddressRule) -> Iterator[tuple[str, str]]:
    """Yield the keys of a rule that do not go together with its other keys, each with the reason."""
    said = [field.name for field in attrs.fields(AddressRule) if field.name.startswith("retry_")]
    for key in [key for key in said if getattr(rule, key) is not None]:
        if NAMED[rule.kind].in_sets:
            yield key, "each queue has its own pauses, expected oncemesh queue declare NAME --retry-after"
        elif not NAMED[rule.kind].rests:
            resting = joined_with_or(name for name, kind in NAMED.items() if kind.rests)
            yield key, f"a {rule.kind} has no pauses, expected kind: {resting}"
        elif rule.retry_after is None:
            yield key, "no effect without retry_after, expected both"
    if (rule.retry_after or 0.0) > (rule.retry_most or math.inf):
        after, most = format_duration(rule.retry_after or 0.0), format_duration(rule.retry_most or 0.0)
        yield "retry_most", f"{most} is below retry_after ({after}), expected at least as much"


def reachable(start: str, links: list[tuple[str, str]]) -> set[str]:
    """The routers that a path of `links` joins to `start`, including `start`."""
    reached, fresh = {start}, [start]
    while fresh:
        name = fresh.pop()
        ends = {b if a == name else a for a, b in links if name in (a, b)} - reached
        reached |= ends
        fresh.extend(ends)
    return reached


def _collide(one: Address, other: Address) -> bool:
    return one.port == other.port and (one.host == other.host or one.is_anywhere or other.is_anywhere)


def _long_form(link: Value) -> Value:
    if not isinstance(link, MarkedList):
        return link
    long = MarkedMap({MarkedText("between"): link})
    long.line = link.line
    return long
