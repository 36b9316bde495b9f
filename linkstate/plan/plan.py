"""The plan of a mesh: its routers and the links between them. Any two plans can be merged (protocol 11).

Each router and each link has an entry of its own; of two entries about the same router or link, the later one counts.
So plans merge to the same plan in any order, however often. The entries of the operator's topology file have version 0,
and are never sent. Routers flood and store only entries with a later change (`changed`).

    MEMBER ──apply without it──▶ LEAVING ──it has no clients left, or by force──▶ REMOVED ──apply with it──▶ MEMBER

Two sides of a partition may change a router differently. Of two entries with the same `since`, REMOVED wins over
LEAVING, and LEAVING over MEMBER, even if the other entry has a later version. A router that is added again is another
member: its `since` is later than that of all its former entries.
"""

from collections.abc import Collection, Mapping
from enum import IntEnum
from functools import cached_property
from hashlib import blake2b
from typing import Any, TypeVar

import attrs
import msgpack

from linkstate.clock import COUNTER_BITS
from linkstate.plan.names import MOST_COST, ROUTER_NAME, is_address, mended

Version = tuple[int, str]
"""The version of an entry: the hybrid clock and the router of its last change. No two changes have the same version."""
START: Version = (0, "")
"""The version of all entries that come from a topology file."""
MOST = 1000
"""The highest number of routers, and the highest number of links, in a plan that is changed at this router."""
MOST_TAKEN = 2 * MOST
"""The highest number of routers, and the highest number of links, in a plan from another router. It is higher than
`MOST`, because each of two sides of a partition may have added `MOST`."""


class PlanError(Exception):
    """The change cannot be made to the present plan. The text of the error gives the reason."""


class Standing(IntEnum):
    MEMBER = 0
    LEAVING = 1
    """The router sends its clients to other routers. While it is out of contact, the others do not wait for it."""
    REMOVED = 2


@attrs.frozen(order=True, slots=True)
class PlannedRouter:
    """The entry of one router in the plan. Of two entries about the router, the greater one (compared field by field)
    is later."""

    since: int = 0
    """A time in milliseconds. Incarnations of the router up to this time were removed; only later incarnations belong
    to the mesh."""
    standing: Standing = Standing.MEMBER
    version: Version = START
    inter: str = ""
    """The host:port at which neighbours dial the router; empty if they know it from elsewhere."""
    amqp: str = ""
    """The host:port at which clients connect to the router."""


@attrs.frozen(order=True, slots=True)
class PlannedLink:
    """The entry of the link between two routers in the plan. Two routers may have different entries about one link. The
    later one is the greater one: the version is compared first, then the other fields."""

    version: Version = START
    cost: int = 0
    """The cost of the link; 0 if the link does not exist."""
    address: str = ""
    """The host:port to dial for this link. If it is empty, the `inter` of the router with the higher name is
    dialled."""


Pair = tuple[str, str]
"""The names of two routers, sorted."""
K = TypeVar("K")
E = TypeVar("E", PlannedRouter, PlannedLink)


@attrs.frozen(slots=False)
class Plan:
    """A plan: the routers and links of a mesh, as one router knows them."""

    routers: Mapping[str, PlannedRouter]
    links: Mapping[Pair, PlannedLink]

    # The methods from here on read the plan.

    @cached_property
    def listed(self) -> frozenset[str]:
        """The routers that belong to the mesh: members, and routers that are leaving. The other routers wait for them
        even while they are absent (protocol 11.5)."""
        return frozenset(name for name, router in self.routers.items() if router.standing is not Standing.REMOVED)

    @cached_property
    def members(self) -> frozenset[str]:
        """The routers that stay in the mesh: they accept clients, and may be voters of sets."""
        return frozenset(name for name, router in self.routers.items() if router.standing is Standing.MEMBER)

    def admits(self, router: str, incarnation: int) -> bool:
        """Whether this incarnation of the router belongs to the mesh."""
        return router in self.listed and incarnation > self.routers[router].since

    def is_out(self, router: str, incarnation: int) -> bool:
        """Whether this incarnation once belonged to the mesh, and has been removed."""
        return router in self.routers and not self.admits(router, incarnation)

    def costs_of(self, router: str) -> dict[str, int]:
        """The cost of the link to each neighbour of the router; empty if the router is removed."""
        found = {}
        for (a, b), link in self.links.items():
            if link.cost and router in (a, b) and a in self.listed and b in self.listed:
                found[b if router == a else a] = link.cost
        return dict(sorted(found.items()))

    def dialled_by(self, router: str) -> dict[str, str]:
        """The host:port of each neighbour that the router dials. A router dials the neighbours with higher names. The
        result lacks a neighbour whose host:port the plan does not know."""
        higher = [name for name in self.costs_of(router) if name > router]
        found = {name: self.links[router, name].address or self.routers[name].inter for name in higher}
        return {name: address for name, address in found.items() if address}

    def address_of(self, neighbour: str, router: str) -> str:
        """The host:port at which a neighbour listens for this router; empty if the plan does not know it."""
        return self.routers[neighbour].inter or self.dialled_by(router).get(neighbour, "")

    def times_ms(self) -> list[int]:
        """All times in the plan, in milliseconds: when each entry was changed, and the `since` of each router."""
        versions = [router.version for router in self.routers.values()] + [link.version for link in self.links.values()]
        return [clock >> COUNTER_BITS for clock, _ in versions] + [router.since for router in self.routers.values()]

    @property
    def size(self) -> int:
        return max(len(self.routers), len(self.links))

    # The methods from here on make changed plans.

    def merge(self, other: "Plan") -> "Plan":
        return Plan(_merged(self.routers, other.routers), _merged(self.links, other.links))

    def revised(self, wanted: "Plan", version: Version, forced: Collection[str] = ()) -> "Plan":
        """The plan after an operator has applied the topology file `wanted`. Raises PlanError if this is impossible.

        A router that the file lacks becomes LEAVING, or REMOVED at once if `forced` has the router. The links of a
        leaving router stay until it is removed.
        """
        routers, links = dict(self.routers), dict(self.links)
        for name, said in wanted.routers.items():
            routers[name] = _listed(name, routers.get(name), said, version)
        for name in self.listed - wanted.routers.keys():
            standing = Standing.REMOVED if name in forced else Standing.LEAVING
            if routers[name].standing < standing:
                routers[name] = attrs.evolve(routers[name], standing=standing, version=version)
        for pair in self.links.keys() | wanted.links.keys():
            old, new = links.get(pair, PlannedLink()), wanted.links.get(pair, PlannedLink())
            stays = new.cost or wanted.routers.keys() >= set(pair)
            # One end of the link is new, so the topology files of other routers may lack the link.
            comes = new.cost and not self.listed >= set(pair)
            if comes or (stays and (old.cost, old.address) != (new.cost, new.address)):
                links[pair] = attrs.evolve(new, version=version)
        revised = Plan(routers, links)
        if revised.size > MOST:
            raise PlanError(f"the plan would have more than {MOST} routers or links")
        return revised

    def without(self, router: str, version: Version) -> "Plan":
        """The plan with this router marked as removed."""
        removed = attrs.evolve(self.routers[router], standing=Standing.REMOVED, version=version)
        return attrs.evolve(self, routers={**self.routers, router: removed})

    def without_leaving(self) -> "Plan":
        """The plan with all leaving routers marked as removed."""
        leaving = {name: router for name, router in self.routers.items() if router.standing is Standing.LEAVING}
        gone = {name: attrs.evolve(router, standing=Standing.REMOVED) for name, router in leaving.items()}
        return attrs.evolve(self, routers={**self.routers, **gone})

    # The methods from here on pack a plan for messages and stores.

    @cached_property
    def digest(self) -> int:
        """A digest of the changed entries. It is equal for plans with equal changed entries, and 0 if no entry was
        changed."""
        changed = self.changed()
        return int.from_bytes(blake2b(msgpack.packb(changed), digest_size=7).digest()) if any(changed) else 0

    def changed(self) -> list[list[Any]]:
        """The entries that have changed since the topology file, as rows of routers and rows of links, which are ready
        to pack."""
        routers = [[name, *attrs.astuple(r)] for name, r in sorted(self.routers.items()) if r.version > START]
        links = [[*pair, *attrs.astuple(link)] for pair, link in sorted(self.links.items()) if link.version > START]
        return [routers, links]


def plan_of(rows: Any) -> Plan:
    """Make a plan from unpacked rows that `changed` has returned. Raises ValueError for anything else, because the plan
    is passed on and stored."""
    match rows:
        case [list() as routers, list() as links] if max(len(routers), len(links)) <= MOST_TAKEN:
            return Plan(dict(map(_router, routers)), dict(map(_link, links)))
    raise ValueError("the data are not a plan")


def kept_plan_of(rows: Any) -> Plan:
    """Make a plan from the rows in a state store. A malformed address becomes empty, because earlier versions stored
    addresses without a check. Raises ValueError if anything else is malformed."""
    routers, links = rows
    return plan_of([[[*row[:4], *map(mended, row[4:])] for row in kept] for kept in (routers, links)])


def _router(row: Any) -> tuple[str, PlannedRouter]:
    match row:
        case [str(name), int(since), 0 | 1 | 2 as standing, [int(clock), str(by)], str(inter), str(amqp)] if (
            since >= 0 < clock and _are_whole(since, clock) and _are_names(name, by) and _lead_somewhere(inter, amqp)
        ):
            return name, PlannedRouter(since, Standing(standing), (clock, by), inter, amqp)
    raise ValueError("the plan of the mesh has a malformed entry for a router")


def _link(row: Any) -> tuple[Pair, PlannedLink]:
    match row:
        case [str(a), str(b), [int(clock), str(by)], int(cost), str(address)] if (
            a < b and clock > 0 <= cost <= MOST_COST
        ) and (_are_whole(clock, cost) and _are_names(a, b, by) and _lead_somewhere(address)):
            return (a, b), PlannedLink((clock, by), cost, address)
    raise ValueError("the plan of the mesh has a malformed entry for a link")


def _are_whole(*numbers: int) -> bool:
    """Whether all values are integers and none is a boolean. A boolean is refused because True equals 1 but is packed
    differently: plans that compare equal would have different digests."""
    return set(map(type, numbers)) == {int}


def _are_names(*names: str) -> bool:
    return all(map(ROUTER_NAME.fullmatch, names))


def _lead_somewhere(*addresses: str) -> bool:
    return all(not address or is_address(address) for address in addresses)


def _merged(mine: Mapping[K, E], theirs: Mapping[K, E]) -> dict[K, E]:
    return {**mine, **{key: max(entry, mine.get(key, entry)) for key, entry in theirs.items()}}


def _listed(name: str, old: PlannedRouter | None, said: PlannedRouter, version: Version) -> PlannedRouter:
    """The entry for a router in the topology file. Raises PlanError if the router cannot be added."""
    if old is None:
        return attrs.evolve(said, version=version)
    if old.standing is Standing.LEAVING:
        raise PlanError(f"router {name} is still leaving: wait until it has left, then add it again")
    if old.standing is Standing.REMOVED:
        since = max(old.version[0] >> COUNTER_BITS, old.since + 1)  # the new entry must count as later than the removal
        return attrs.evolve(said, since=since, version=version)
    if (old.inter, old.amqp) == (said.inter, said.amqp):
        return old
    return attrs.evolve(old, version=version, inter=said.inter, amqp=said.amqp)
