"""What an MQTT client may publish and subscribe to, and why not: in reason codes, and in words for the log."""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Final

from router.edge.attach import LONGEST_ADDRESS, Refusal, why_no_address
from router.edge.guard import Guard
from router.edge.topics import durable_of
from router.mesh.config import Limits
from router.mqtt.connection import MqttConnection
from router.mqtt.packets import FilterRequest
from router.mqtt.session import MqttSession
from router.mqtt.values import REFUSED, Reason
from topic.node import Node

log = logging.getLogger("oncemesh.mqtt")

LONGEST_SHOWN: Final = 100
"""Characters of a topic in the log."""


class Permissions:
    """At one router."""

    def __init__(self, node: Node, guard: Guard, prefixes: Sequence[str], limits: Limits) -> None:
        self._node = node
        self._guard = guard
        self._prefixes = tuple(prefixes)
        self._limits = limits

    def grant(
        self, connection: MqttConnection, session: MqttSession, filters: Iterable[FilterRequest]
    ) -> list[tuple[str, int]]:
        """Of one SUBSCRIBE: each with its QoS, or with why not. What asks all the mesh is asked once."""
        granted, fresh, kept = list[tuple[str, int]](), set[str](), set[str]()
        durable = cache(partial(durable_of, self._node, connection.user))
        for asked in filters:
            qos = self._grant(connection, session, asked, len(fresh), lambda: durable() + len(kept))
            granted.append((asked.filter, qos))
            if qos < REFUSED and asked.filter not in session.subscribers:
                fresh.add(asked.filter)
            if qos < REFUSED and _begins_to_last(session, asked):
                kept.add(asked.filter)
        return granted

    def _grant(
        self, connection: MqttConnection, session: MqttSession, asked: FilterRequest, fresh: int,
        durable: Callable[[], int],
    ) -> int:  # fmt: skip
        """The QoS, or why not. So many new ones are granted already."""
        address, why = asked.filter, None
        if address.startswith("$share/"):
            why = Reason.NO_SHARED, "shared subscriptions are not supported"
        elif any(len(level) > 1 and ("+" in level or "#" in level) for level in address.split("/")):
            why = Reason.BAD_FILTER, "a wildcard is a level by itself"
        elif asked.no_local:
            why = Reason.IMPLEMENTATION, "no-local is not supported"
        elif (known := session.subscribers.get(address)) is None:
            why = self.refusal(connection, session, address, fresh, receives=True)
        elif known.qos != asked.qos:  # its link is attached again
            why = self._cannot_begin(connection)
        if why is None and _begins_to_last(session, asked):
            why = self._cannot_be_kept(connection, durable)
        if why is None:
            return asked.qos
        reason, what = why
        log.warning("%s: a subscription to %r is refused: %s", session, address[:LONGEST_SHOWN], what)
        return reason

    def refusal(
        self, connection: MqttConnection, session: MqttSession, address: str, fresh: int = 0, *, receives: bool
    ) -> tuple[Reason, str] | None:
        """Why this topic is not for this client; None if it is. A topic more may take the place of an idle one."""
        if not address.startswith(self._prefixes) or len(address) > LONGEST_ADDRESS:
            known = ", ".join(prefix + "…" for prefix in self._prefixes)
            reason = Reason.BAD_FILTER if receives else Reason.BAD_TOPIC
            return reason, f"no topic {address[:LONGEST_SHOWN]!r}: expected one of {known}"
        if what := why_no_address(address, receives=receives):
            return Reason.BAD_FILTER if receives else Reason.BAD_TOPIC, what
        try:
            self._guard.attaches(connection, address, receives=receives)
        except Refusal as refusal:
            return Reason.NOT_AUTHORIZED, str(refusal)
        if why := self._cannot_begin(connection):
            return why
        if session.is_full(self._limits.links - fresh, self._node.now()):
            what = f"more than {self._limits.links} topics"
            return Reason.QUOTA, self._guard.exceed("links", str(session), what)
        return None

    def allow(self, connection: MqttConnection, address: str, *, receives: bool) -> bool:
        """Whether the rules of the client's user do."""
        try:
            self._guard.attaches(connection, address, receives=receives)
        except Refusal:
            return False
        return True

    def _cannot_begin(self, connection: MqttConnection) -> tuple[Reason, str] | None:
        try:
            self._guard.begins(connection, self._node.now())
        except Refusal as refusal:
            return Reason.QUOTA, str(refusal)
        return None

    def _cannot_be_kept(self, connection: MqttConnection, durable: Callable[[], int]) -> tuple[Reason, str] | None:
        try:
            self._guard.keeps(connection, durable)
        except Refusal as refusal:
            return Reason.QUOTA, str(refusal)
        return (Reason.QUOTA, self._node.unkept) if self._node.unkept else None


def _begins_to_last(session: MqttSession, asked: FilterRequest) -> bool:
    """Whether the subscription outlives its router, and did not before."""
    known = session.subscribers.get(asked.filter)
    return session.timeout > 0 and asked.qos > 0 and (known is None or known.qos == 0)
