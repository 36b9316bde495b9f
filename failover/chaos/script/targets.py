"""The targets of a fault. A script gives them by name, by number (`one`, `minority`, `majority`, `all`), or by the part
that they play for a client or a replica set.

`resolve` chooses the names of the targets when the fault strikes: the mesh at this moment decides which names are
possible, and chance chooses among them. This module does no input or output.
"""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Final, TypeAlias

import attrs

AMOUNTS: Final = ("one", "minority", "majority", "all")
ROLES: Final = {"home-of": "publisher", "custodian-of": "subscriber"}
"""Maps each word that names a client's router (such as `home-of`) to the client's role."""
LEADER_OF: Final = "leader-of"
REPLICAS: Final = (LEADER_OF, "follower-of")


@attrs.frozen
class Some:
    """A number of targets, given by a word such as `one` or `majority`."""

    amount: str

    def of(self, number: int) -> int:
        """The number of targets to strike, if `number` targets are possible."""
        return {"one": 1, "minority": (number - 1) // 2, "majority": number // 2 + 1, "all": number}[self.amount]

    def __str__(self) -> str:
        return self.amount


@attrs.frozen
class Named:
    name: str

    def __str__(self) -> str:
        return self.name


@attrs.frozen
class RouterOf:
    """The router to which a client is attached, or was attached last. A script writes `home-of` a publisher, or
    `custodian-of` a subscriber."""

    what: str
    client: str

    def __str__(self) -> str:
        return f"the router of {ROLES[self.what]} {self.client}"


@attrs.frozen
class ReplicaOf:
    """A router with a replica of a set: the leader of the set, or one of its other voters."""

    what: str
    name: str
    """The name in the script: the replica set, or a queue that the replica set has."""
    of: str
    """The name of the replica set. If the script names a queue, this is the set that has the queue."""

    def __str__(self) -> str:
        return f"{'the leader' if self.what == LEADER_OF else 'a follower'} of {self.name}"


@attrs.frozen
class Several:
    """Several targets of a script. The fault strikes all of them."""

    targets: "tuple[Target, ...]"

    def __str__(self) -> str:
        return " and ".join(map(str, self.targets))


Target: TypeAlias = Some | Named | RouterOf | ReplicaOf | Several


def replicas_in(target: Target | None) -> Iterator[ReplicaOf]:
    if isinstance(target, ReplicaOf):
        yield target
    for one in target.targets if isinstance(target, Several) else ():
        yield from replicas_in(one)


@attrs.frozen
class Field:
    """The names that the targets of a fault may have when the fault strikes."""

    names: Sequence[str]
    open: Sequence[str]
    """The names that the fault can strike at this moment."""
    groups: Mapping[str, Sequence[str]] = attrs.field(factory=dict)
    """Maps the name of each group to the names of its members."""
    seats: Mapping[str, str] = attrs.field(factory=dict)
    """Maps each client to the router to which it is attached, or was attached last."""
    voters: Mapping[str, Sequence[str]] = attrs.field(factory=dict)
    """Maps each replica set to its voters, beginning with the leader."""


def resolve(target: Target, field: Field, random: Random) -> tuple[str, ...]:
    """Return the names to strike, in the order of the mesh. The result is empty if nothing can be struck."""
    chosen = set(_chosen(target, field, random))
    return tuple(name for name in field.open if name in chosen)


def _chosen(target: Target, field: Field, random: Random) -> Sequence[str]:
    match target:
        case Some():
            return random.sample(list(field.open), min(target.of(len(field.names)), len(field.open)))
        case Named(name):
            return field.groups.get(name, (name,))
        case RouterOf(_, client):
            router = field.seats.get(client)
            return () if router is None else field.groups.get(router, (router,))
        case ReplicaOf(what, _, of):
            voters = field.voters[of][:1] if what == LEADER_OF else field.voters[of][1:]
            names = [field.groups.get(voter, (voter,)) for voter in voters]
            struck = [some for some in names if not set(some).isdisjoint(field.open)]
            return random.choice(struck) if struck else ()
        case Several(targets):
            return [name for one in targets for name in _chosen(one, field, random)]


def sides(target: Target, field: Field, random: Random) -> list[tuple[str, ...]]:
    """Return the sides of a partition: the named ones, and one more side with all other routers."""
    found: list[tuple[str, ...]] = []
    left = list(field.names)
    for one in target.targets if isinstance(target, Several) else (target,):
        side = resolve(one, attrs.evolve(field, open=left), random)
        left = [name for name in left if name not in side]
        found += [side] if side else []
    return [*found, tuple(left)] if left else found
