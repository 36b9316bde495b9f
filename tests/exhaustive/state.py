"""Snapshots of a router: a canonical digest that distinguishes states, and bytes that restore one.

A digest covers everything that a core's behaviour depends on, found by walking its objects: containers by content, sets
sorted, objects with an identity of their own by the order in which the walk meets them. `IGNORED` names what it leaves
out. Two states with the same digest are one state for the search, which continues from the one that it met first.

Epochs need no ranking: the model's clock counts attaches, so that they are ranks already; generations and keys follow
from them. Section versions and incarnations count from 0 in every life of a router.
"""

import copyreg
import marshal
import pickle
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from hashlib import blake2b
from itertools import count
from types import MethodType, NoneType
from typing import Any

from linkstate.plan.plan import Plan
from topic.delivery.record import HomeStream, Stream
from topic.delivery.records import RecordTable
from topic.delivery.window import CreditWindow
from topic.directory.members import Members
from topic.edge.subscriber import LocalSubscriber
from topic.identity import KeyMaker
from topic.node import Node
from topic.outlet import Outlet

DIGEST = 16
ATOMS = frozenset((int, str, bytes, bool, float, NoneType))

IGNORED: dict[type, frozenset[str]] = {
    RecordTable: frozenset(("accepted", "delivered", "received")),  # statistics
    Members: frozenset(("_clock",)),
    Outlet: frozenset(("clock", "_journal", "time_us")),
    Node: frozenset(("_look",)),  # no event asks for the deadline
    Stream: frozenset(("label",)),  # derived
    HomeStream: frozenset(("alone", "keys", "label", "received")),  # derived twice, and statistics
    CreditWindow: frozenset(("_allowance", "_expected", "_is_guess", "credit", "held")),  # bytes never run out here
    Plan: frozenset(("digest", "listed", "members")),  # derived
    LocalSubscriber: frozenset(("accepted", "delivered", "room")),  # statistics, and what never runs out here
}

Rule = Callable[["_Walk", Any], Any]


class _Walk:
    """One walk through the objects of one router; `met` numbers the objects with an identity."""

    __slots__ = ("met",)

    def __init__(self) -> None:
        self.met: dict[int, int] = {}

    def freeze(self, values: Iterable[Any]) -> tuple[Any, ...]:
        """The canonical form of each value. Most values are atoms, which need no rule: that saves most of a digest's
        time.
        """
        return tuple([value if type(value) in ATOMS else _RULES[type(value)](self, value) for value in values])


_codes = count(240)
"""Numbers for types. Python reserves lower numbers for its own library and for packages."""


class _Rules(dict[type, Rule]):
    """The codec of each type, made when the type is met first. From then on a pickle names the type by a number,
    because looking up names took half the time of loading a state."""

    def __missing__(self, kind: type) -> Rule:
        copyreg.add_extension(kind.__module__, kind.__qualname__, next(_codes))
        rule = self[kind] = _rule(kind)
        return rule


def _sequence(walk: _Walk, value: Any) -> Any:
    return walk.freeze(value)


def _mapping(walk: _Walk, value: Any) -> Any:
    """Keeps the mapping's order, as behaviour depends on it."""
    return (walk.freeze(value), walk.freeze(value.values())) if value else ()


def _set(walk: _Walk, value: Any) -> Any:
    return tuple(sorted(walk.freeze(value)))


def _number(walk: _Walk, value: Any) -> Any:
    return value.value if isinstance(value, Enum) else int(value)


def _method(walk: _Walk, value: Any) -> Any:
    return value.__name__, walk.freeze((value.__self__,))


def _partial(walk: _Walk, value: Any) -> Any:
    return walk.freeze((value.func, value.args, value.keywords))


def _fields(kind: type) -> list[str]:
    named = [name for base in kind.__mro__ for name in getattr(base, "__slots__", ())]
    ignored = IGNORED.get(kind, frozenset())
    return sorted(name for name in named if not name.startswith("__") and name not in ignored)


def _object(kind: type) -> Rule:
    """An object by its fields. An object that compares by identity is named by its number when it is met again."""
    ignored = IGNORED.get(kind, frozenset())
    fields = _fields(kind)
    unique = "__eq__" not in vars(kind)
    has_more = kind.__dictoffset__ != 0
    orders: dict[tuple[str, ...], tuple[str, ...]] = {}
    """Names of a `__dict__`, in order of insertion -> the names that count, in alphabetical order."""

    def rule(walk: _Walk, value: Any) -> Any:
        if unique:
            number = walk.met.get(id(value))
            if number is not None:
                return (number,)
            walk.met[id(value)] = len(walk.met)
        parts: list[Any] = [kind.__name__]
        for name in fields:  # as `freeze` does: without its calls this takes half as long
            part = getattr(value, name, None)
            parts.append(part if type(part) in ATOMS else _RULES[type(part)](walk, part))
        if has_more and (more := value.__dict__):
            given = tuple(more)
            order = orders.get(given)
            if order is None:
                order = orders[given] = tuple(sorted(name for name in given if name not in ignored))
            parts.append(order)
            for name in order:
                part = more[name]
                parts.append(part if type(part) in ATOMS else _RULES[type(part)](walk, part))
        return tuple(parts)

    return rule


def _rule(kind: type) -> Rule:
    if issubclass(kind, tuple | list | deque):
        return _sequence
    if issubclass(kind, dict):
        return _mapping
    if issubclass(kind, set | frozenset):
        return _set
    if issubclass(kind, Enum | int):
        return _number
    if kind is MethodType:
        return _method
    if kind is partial:
        return _partial
    return _object(kind)


_RULES = _Rules()


def digest(value: Any) -> bytes:
    """128 bits that distinguish this state of a router from all others."""
    return blake2b(marshal.dumps(_Walk().freeze((value,)), 2), digest_size=DIGEST).digest()


_key_makers: dict[tuple[bytes, bytes], KeyMaker] = {}
"""The key makers, which a pickle names and does not contain: they never change, and their hash objects cannot be
pickled."""


def _reduce_key_maker(maker: KeyMaker) -> tuple[Callable[..., KeyMaker], tuple[bytes, bytes]]:
    name = maker._prefix, maker._seed.digest()
    _key_makers.setdefault(name, maker)
    return _find_key_maker, name


def _find_key_maker(prefix: bytes, seed: bytes) -> KeyMaker:
    return _key_makers[prefix, seed]


copyreg.pickle(KeyMaker, _reduce_key_maker)


def save(value: Any) -> bytes:
    return pickle.dumps(value, 5)


def load(data: bytes) -> Any:
    return pickle.loads(data)
