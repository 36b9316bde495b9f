"""The permissions of clients: the rules of users, and the limits of each client (docs/security.md).

If a client exceeds a limit, the router refuses with an AMQP condition, logs it, and counts it in `exceeded` for
`$status`. The engine has limits of its own, for the state that one connection makes it keep
(`router.amqp.format.values.Bounds`). The guard counts these when they have ended a connection. `router.security.rules`
reads the rules.
"""

import logging
from collections import Counter
from typing import Final, Protocol

import attrs

from router.amqp.format.errors import (
    INVALID_FIELD,
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT,
    UNAUTHORIZED,
    LimitError,
    PeerFaultError,
)
from router.amqp.format.values import ErrorCondition, HeldBytes
from router.amqp.proton.link import Link
from router.edge.attach import Refusal
from router.events.kind import EventKind, event
from router.mesh.config import COUNTED, Limits
from router.security.rules import Rule
from topic.delivery.allowance import Allowance
from topic.directory.addresses import is_pattern, parts
from topic.settings import is_dynamic

log = logging.getLogger("oncemesh.clients")

LIMITED: Final = (
    *COUNTED,
    "opening",
    "max_frame",
    "max_message",
    "window_bytes",
    "connection_bytes",
    "user_bytes",
    "router_bytes",
)
"""The limits that the guard counts, by their names in the topology."""
CONDITIONS: Final = (NOT_FOUND, UNAUTHORIZED, RESOURCE_LIMIT, INVALID_FIELD, NOT_IMPLEMENTED, NOT_ALLOWED)
"""The AMQP conditions with which attaches are refused."""


class Visiting(Protocol):
    """A client's connection, of AMQP or of MQTT."""

    user: str
    origin: str
    account: HeldBytes

    @property
    def error(self) -> PeerFaultError | None: ...


@attrs.define
class _Pace:
    """The pace of one connection's attaches. At time `at`, the connection could begin `left` attaches at once."""

    left: float
    at: float


class RuleBook(Protocol):
    """An object that knows the users' rules: `router.security.doors`."""

    def rule_of(self, user: str) -> Rule: ...


class Guard:
    def __init__(self, rules: RuleBook, limits: Limits) -> None:
        self._rules = rules
        self._limits = limits
        self.exceeded: Counter[str] = Counter(dict.fromkeys(LIMITED, 0))
        self.refused: Counter[str] = Counter(dict.fromkeys(CONDITIONS, 0))
        """The number of refused attaches, by condition."""
        self._connections: Counter[str] = Counter()  # the number of open connections, by user
        self._paces: dict[Visiting, _Pace] = {}
        self.held = Allowance("router_bytes", limits.router_bytes)
        """The limit for the messages that this router holds for all clients, in bytes, and the bytes held now."""
        self._held_of: dict[str, Allowance] = {}  # the limits for the messages of the clients of one user, by user

    def exceed(self, limit: str, who: str, what: str) -> str:
        """Count and log that the client `who` exceeds a limit. Returns `what`."""
        self.exceeded[limit] += 1
        told = event(EventKind.LIMIT, limit=limit, origin=who, why=what)
        log.warning(f"%s: limit {limit}: %s", who, what, extra=told)
        return what

    # The methods from here on are about connections.

    def opens(self, connection: Visiting) -> str:
        """The reason for which the connection may not open. If it may, counts the connection and returns
        an empty text."""
        user, most = connection.user, self._rules.rule_of(connection.user).connections
        if most is not None and self._connections[user] >= most:
            return self.exceed(
                "user_connections", _named(connection), f"the user has more than {most} connections to this router"
            )
        self._connections[user] += 1
        self._paces[connection] = _Pace(self._limits.links, 0.0)
        of_user = self._held_of.setdefault(user, Allowance("user_bytes", self._limits.user_bytes, self.held))
        connection.account = Allowance("connection_bytes", self._limits.connection_bytes, of_user)
        return ""

    def closed(self, connection: Visiting) -> None:
        """A connection is closed and its links have ended."""
        # The engine has already logged that the client exceeded the limit, so it is only counted.
        if isinstance(connection.error, LimitError):
            self.exceeded[connection.error.limit] += 1
        if self._paces.pop(connection, None) is not None:
            self.allowance(connection).close()
            self._connections[connection.user] -= 1
            if not self._connections[connection.user]:
                del self._connections[connection.user], self._held_of[connection.user]

    @staticmethod
    def allowance(connection: Visiting) -> Allowance:
        """The limit of the connection for the unsettled messages of its publishers, with the bytes held now."""
        assert isinstance(connection.account, Allowance), "it is open"
        return connection.account

    # The methods from here on are about links.

    def begins(self, connection: Visiting, now: float) -> None:
        """Count an attach of the connection. Raises Refusal if it attaches too fast."""
        pace = self._paces.get(connection)
        if pace is None:
            return
        pace.left = min(self._limits.links, pace.left + (now - pace.at) * self._limits.attaches)
        pace.at = now
        if pace.left < 1:
            what = f"the connection attaches more than {self._limits.attaches} links a second"
            raise Refusal(RESOURCE_LIMIT, self.exceed("attaches", _named(connection), what), told=True)
        pace.left -= 1

    def attaches(self, connection: Visiting, address: str, *, receives: bool) -> None:
        """Check an attach to a topic. Raises Refusal if the user may not."""
        rule = self._rules.rule_of(connection.user)
        # The router invents the address of a dynamic node, so no rule can list it.
        # Only the client of the node knows the address and tells it to others.
        # Therefore any right to send or receive is enough.
        if is_dynamic(address):
            allowed, what = bool(rule.receive if receives else rule.send), "use"
        elif receives:
            allowed, what = may_receive(rule, address), "receive from"
        else:
            allowed, what = rule.may_send(address), "send to"
        if not allowed:
            _tell_refused(connection, f"may not {what} {address!r}")
            raise Refusal(UNAUTHORIZED, f"this user may not {what} {address!r}", told=True)

    def looks(self, connection: Visiting) -> None:
        """Check an attach to a node that shows the links of all clients. Raises Refusal if the user may see only its
        own.
        """
        if not self.may_look(connection):
            _tell_refused(connection, "may not see the links of others")
            raise Refusal(UNAUTHORIZED, "this user may not see the links of others", told=True)

    def may_look(self, connection: Visiting) -> bool:
        return self._rules.rule_of(connection.user).sees_all

    def keeps(self, connection: Visiting, durable: int) -> None:
        """Check one more durable link of a user that has `durable` of them already. Raises Refusal if this exceeds the
        limit."""
        most = self._rules.rule_of(connection.user).durable
        if most is not None and durable >= most:
            whose, limit = ("a user", "user_durable") if connection.user else ("strangers", "anonymous_durable")
            what = f"{whose} may have at most {most} durable links"
            raise Refusal(RESOURCE_LIMIT, self.exceed(limit, _named(connection), what), told=True)

    def selects(self, connection: Visiting, cost: int) -> None:
        """Check a subscriber whose selector makes the user's selectors cost `cost` steps in all. Raises Refusal if this
        exceeds the limit."""
        if cost > self._limits.selectors:
            what = f"the different selectors of a user at this router have more than {self._limits.selectors} steps"
            raise Refusal(RESOURCE_LIMIT, self.exceed("selectors", _named(connection), what), told=True)

    def resumes(self, connection: Visiting, has_room: bool) -> None:
        """Check the unsettled map of a subscriber. Raises Refusal if the maps at this router name too many unknown
        publishers."""
        if not has_room:
            what = "the unsettled maps at this router name too many unknown publishers"
            raise Refusal(RESOURCE_LIMIT, self.exceed("unsettled", _named(connection), what), told=True)

    def refuses(self, link: Link, address: str, refusal: Refusal) -> None:
        """Count and log a refused attach."""
        self.refused[refusal.condition] += 1
        if refusal.told:
            return
        role, who = "subscriber" if link.is_sender else "publisher", _named(link.connection)
        container, why = link.connection.remote_container, str(refusal)
        told = event(
            EventKind.REFUSED,
            origin=who,
            condition=refusal.condition,
            why=why,
            role=role,
            container=container,
            link=link.name,
            address=address,
        )
        log.warning(
            "%s: %s %s/%s is refused: %s: %s", who, role, container, link.name, refusal.condition, why, extra=told
        )

    def detached(self, condition: ErrorCondition) -> None:
        """Count a link that either end detached because of a limit."""
        if condition.limit:
            self.exceeded[condition.limit] += 1

    def sees_all(self, user: str) -> bool:
        """Whether the user may see the links of other users."""
        return self._rules.rule_of(user).sees_all


def may_receive(rule: Rule, address: str) -> bool:
    """Whether the user may receive from the address. A pattern needs the right to all that it covers, unless the rule
    names the pattern itself.
    """
    if address in rule.receive or not is_pattern(address):
        return rule.may_receive(address)
    begin, besides = parts(address)
    return rule.may_receive_all(begin) and (besides is None or rule.may_receive(besides))


def _tell_refused(connection: Visiting, why: str) -> None:
    who = _named(connection)
    log.warning("%s: refused: %s", who, why, extra=event(EventKind.REFUSED, origin=who, why=why))


def _named(connection: Visiting) -> str:
    return f"user {connection.user!r}, {connection.origin}" if connection.user else connection.origin
