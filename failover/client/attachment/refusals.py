"""Why a link or a connection has ended, and whether another router may do better: AMQP's conditions told apart."""

from typing import Final

from failover.client.attachment.routers import RouterAddress
from failover.client.errors import ClientError
from failover.client.events import MISSED
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
"""Detaches and closes with these say something about the router, not about us: the next one may do better. After the
last the link begins anew: a subscriber has missed something while it was out of reach, and is told so; of a publisher,
what was in doubt stays so."""


def error_of(condition: ErrorCondition | None, thief: str = "") -> ClientError:
    """`thief`: what another process must be called that has stolen the link."""
    if condition is None:
        return ClientError(None)
    stolen = f": another process has also attached as {thief}" if thief and condition.name == STOLEN else ""
    return ClientError(condition.name, condition.description + stolen)


def no_router(router: RouterAddress, condition: ErrorCondition | None) -> ClientError:
    """What is there has not answered the open, or does not let us in."""
    if condition and condition.name == UNAUTHORIZED:
        return ClientError(UNAUTHORIZED, f"{router.url}: {condition.description}")
    silent = "" if router.tls else ": it may speak MQTT, or TLS (use amqps:// for TLS)"
    why = f": {condition.description}" if condition and condition.description else silent
    return ClientError(None, f"{router.url} did not answer like a router{why}")
