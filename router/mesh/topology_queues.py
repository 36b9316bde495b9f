"""Reads the part `queues` of a topology file: the replica sets of the mesh, and the routers of their replicas (protocol
13).

`router.mesh.topology_parts` checks the shape of the part. This module checks the rules between it and the other parts.
"""

from collections.abc import Collection, Iterable, Sequence

import attrs

from router.mesh.config import AddressRule, NamedSet, Queues
from router.mesh.marked import MarkedMap, MarkedText, Value
from router.mesh.reading import Reader, expected, given, joined_with_or
from router.mesh.topology_parts import REPLICAS
from topic.delivery.kinds import NAMED
from topic.queues.moving.policy import PREFER, SHARE

_NAMED = MarkedText("named")


def read_queues(
    reader: Reader, root: MarkedMap, routers: Collection[str], addresses: Sequence[AddressRule]
) -> Queues | None:
    """The part `queues`; None if it is missing or has faults, which `reader` reports."""
    found = given(root, "queues")
    rules = [rule for rule in addresses if NAMED[rule.kind].in_sets]
    if found is None:
        for rule in rules:
            what = f'the address rule "{rule.prefix}" is of kind {rule.kind}, and the mesh has no replica sets'
            reader.fail(root.line, f"queues: {what}, expected also a part such as queues: {{sets: 8, replicas: 3}}")
        return None
    said = given(root, "addresses")
    is_read = not isinstance(said, list) or len(said) == len(addresses)
    # A rule for addresses that has a fault is not read, and may be meant for queues.
    # So report the lack of a rule for queues only if all rules could be read.
    if not rules and is_read:
        what = "expected also an address rule such as {prefix: queue/, kind: queue}"
        reader.fail(found.line, f"queues: no address is of kind queue, {what}")
    queues = reader.structure(_without_named(found), Queues, "queues")
    if queues is None or not isinstance(found, MarkedMap):
        return None
    if (said := given(found, "replicas")) is not None and 0 < len(routers) < queues.replicas:
        most = max(number for number in REPLICAS if number <= len(routers))
        reader.fail(
            said.line,
            f"queues.replicas: the mesh has {len(routers)} router{'s'[: len(routers) > 1]}, expected at most as many "
            f"replicas, such as replicas: {most}, not {queues.replicas}",
        )
    prefixes = [rule.prefix for rule in rules]
    return attrs.evolve(queues, named=tuple(_named_sets(reader, found, routers, prefixes)))


def _without_named(found: Value) -> Value:
    if not isinstance(found, MarkedMap):
        return found
    rest = MarkedMap({key: value for key, value in found.items() if key != _NAMED})
    rest.line = found.line
    return rest


def _named_sets(
    reader: Reader, found: MarkedMap, routers: Collection[str], prefixes: Sequence[str]
) -> Iterable[NamedSet]:
    """Yield the named sets, in the order of the file. Each one is checked against the sets before it."""
    sets: list[NamedSet] = []
    such = "sets such as {name: eu, prefix: queue/eu/, voters: [a, b, c], prefer: a}"
    for index, value in enumerate(reader.items(found, "named", such, "queues.")):
        where = f"queues.named[{index}]"
        if (named := reader.structure(value, NamedSet, where)) is None:
            continue
        assert isinstance(value, MarkedMap)
        for key, problem in _problems(named, sets, routers, prefixes):
            reader.fail(value[MarkedText(key)].line, f"{where}.{key}: {problem}")
        sets.append(named)
    return sets


def _problems(
    named: NamedSet, former: Iterable[NamedSet], routers: Collection[str], prefixes: Sequence[str]
) -> Iterable[tuple[str, str]]:
    """Yield the keys of a named set that do not fit the sets before it or the other parts of the file, each with the
    reason."""
    for voter in named.voters:
        if voter not in routers:
            yield "voters", f'there is no router "{voter}", {expected(voter, routers)}'
    for copy in named.copies:
        if copy not in routers:
            yield "async", f'there is no router "{copy}", {expected(copy, routers)}'
        elif copy in named.voters:
            yield "async", f"router {copy} is a voter of this set, expected routers without a vote"
    if named.prefer is not None and named.prefer not in named.voters:
        yield "prefer", f'"{named.prefer}" is no voter of this set, {expected(named.prefer, named.voters)}'
    if named.moves != PREFER and len(named.voters) == 1:
        yield "moves", f"the set has one voter, which always leads, expected several voters, or {PREFER}"
    if named.hold is not None and named.moves != SHARE:
        yield "hold", f"a set with moves: {named.moves} does not share its lead, expected it with moves: {SHARE} only"
    if prefixes and not named.prefix.startswith(tuple(prefixes)):
        yield (
            "prefix",
            f'"{named.prefix}" is of no queue, expected a prefix that begins with {joined_with_or(prefixes)}',
        )
    for other in former:
        if other.name == named.name:
            yield "name", f'another set has the name "{named.name}", expected different names'
        if other.prefix == named.prefix:
            yield "prefix", f'set {other.name} has the prefix "{named.prefix}", expected different prefixes'
        elif named.prefix.startswith(other.prefix):
            what = f'set {other.name} has all queues of "{other.prefix}"'
            yield "prefix", f'{what}, so none is left for "{named.prefix}", expected the longer prefix first'
