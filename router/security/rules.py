"""The permissions of users: a file of rules, each of one user.

    alice: {send: [topic/orders/*], receive: [topic/orders/eu, topic/prices/*], status: all, connections: 5, durable: 9}
    $anonymous: {receive: [topic/prices/*]}

A user with a rule may do what it says and nothing else; a user without one may do everything. A rule is applied once:
when a link is attached, a connection opened, or a status sent. Existing links stay.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from router.mesh.config import Limits
from router.mesh.errors import FileError
from router.mesh.marked import MarkedList, MarkedText, Value
from router.mesh.reading import Reader, converter, document, expected, shown, text, whole
from router.security.operator import OPERATOR
from router.security.users import EXPECTED, USER

ANONYMOUS: Final = "$anonymous"
ALL, OWN = "all", "own"
_REST: Final = "*"


@attrs.frozen
class Rule:
    """The rule of one user. It lists addresses in full, or prefixes followed by *."""

    send: tuple[str, ...] = ()
    receive: tuple[str, ...] = ()
    status: str = OWN
    """The links that `$status` shows to the user: `all` links, or its `own`."""
    connections: int | None = None
    """The highest number of connections to one router; None: the topology's limit."""
    durable: int | None = None
    """The highest number of links in the mesh that outlive their connections; None: the topology's limit."""

    def may_send(self, address: str) -> bool:
        return any(_fits(pattern, address) for pattern in self.send)

    def may_receive(self, address: str) -> bool:
        return any(_fits(pattern, address) for pattern in self.receive)

    def may_receive_all(self, begin: str) -> bool:
        """Whether the user may receive from all addresses with this prefix."""
        return any(pattern.endswith(_REST) and _fits(pattern, begin) for pattern in self.receive)

    @property
    def sees_all(self) -> bool:
        return self.status == ALL


def _fits(pattern: str, address: str) -> bool:
    return address.startswith(pattern[:-1]) if pattern.endswith(_REST) else address == pattern


EVERYTHING: Final = Rule((_REST,), (_REST,), ALL)


class RulesError(FileError):
    """A file of rules has a fault; the text says which."""


class Rules:
    """The rules of a mesh, with the limits of its topology. The mesh's own routers, and its operator, may do
    everything."""

    def __init__(self, rules: Mapping[str, Rule], limits: Limits, routers: Collection[str]) -> None:
        self._rules = rules
        self._limits = limits
        self.routers = routers

    def rule_of(self, user: str) -> Rule:
        """The user's rule with all limits filled in. Routers and the operator have no limits."""
        is_own = user == OPERATOR or user in self.routers
        rule = EVERYTHING if is_own else self._rules.get(user or ANONYMOUS, EVERYTHING)
        if is_own:
            return rule
        limits = self._limits
        connections = limits.user_connections if user else None
        durable = limits.user_durable if user else limits.anonymous_durable
        return attrs.evolve(
            rule,
            connections=connections if rule.connections is None else rule.connections,
            durable=durable if rule.durable is None else rule.durable,
        )


def read_rules(path: Path) -> dict[str, Rule]:
    """The rules in a file, keyed by user. Raises RulesError."""
    reader, root = _RulesReader(), document(path, "rules", ["the names of users"], RulesError)
    rules = {}
    for name, value in root.items():
        if name != ANONYMOUS and not USER.fullmatch(name):
            reader.fail(name.line, f'"{name}" is not a valid user name, {EXPECTED}; or {ANONYMOUS}')
        elif (rule := reader.structure(value, Rule, name)) is not None:
            rules[str(name)] = rule
    reader.check(path, RulesError)
    return rules


def _addresses(value: Value, _: Any) -> tuple[str, ...]:
    names = [str(name) for name in value if isinstance(name, MarkedText)] if isinstance(value, MarkedList) else []
    if not isinstance(value, MarkedList) or len(names) != len(value) or any(_REST in name[:-1] for name in names):
        raise ValueError(f"{shown(value)}, expected addresses such as [topic/prices, topic/orders/*]")
    return tuple(names)


def _status(word: str) -> str:
    if word not in (ALL, OWN):
        raise ValueError(f'"{word}", {expected(word, (ALL, OWN))}')
    return word


class _RulesReader(Reader):
    CONVERTER = converter(
        {
            Rule: {
                "send": _addresses,
                "receive": _addresses,
                "status": text(_status),
                "connections": text(whole(0, 1_000_000)),
                "durable": text(whole(0, 1_000_000)),
            }
        }
    )
