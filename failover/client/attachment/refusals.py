"""Reads the conditions with which AMQP peers end links and connections: why a link has ended, and whether another
router may do better."""

from typing import Final

from failover.client.attachment.routers import RouterAddress
from failover.client.errors import ClientError
from failover.client.link_events import MISSED
from router.amqp.format.errors import UNAUTHORIZED
from router.amqp.format.values import ErrorCondition

STOLEN: Final = "amqp:link:stolen"

OF_ROUTER: Final = (
    "amqp:connection:forced",
    "amqp:link:detach-forced",
    "amqp:internal-error",
    "amqp:resource-limit-exceeded",
    MISSED,
)
"""The conditions of detaches and closes that concern the router and not the client, so that another router may take the
link.

After MISSED, the link begins afresh. A subscriber has then missed messages while it was out of reach, and reports this
to its user. A publisher's deliveries in doubt stay in doubt.
"""


def error_of(condition: ErrorCondition | None, thief: str = "") -> ClientError:
    """Return the error for the client's user. `thief` is the container-id under which another process may have stolen
    the link. It is empty if no other process can have stolen it."""
    if condition is None:
        return ClientError(None)
    stolen = f": another process has also attached as {thief}" if thief and condition.name == STOLEN else ""
    return ClientError(condition.name, condition.description + stolen)


def no_router(router: RouterAddress, condition: ErrorCondition | None) -> ClientError:
    """Return the error for a peer that refused the login, or that closed the connection before its open.
    In the second case, the text says that the peer did not answer like a router."""
    if condition and condition.name == UNAUTHORIZED:
        return ClientError(UNAUTHORIZED, f"{router.url}: {condition.description}")
    silent = "" if router.tls else ": it may speak MQTT, or TLS (use amqps:// for TLS)"
    why = f": {condition.description}" if condition and condition.description else silent
    return ClientError(None, f"{router.url} did not answer like a router{why}")
