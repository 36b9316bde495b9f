"""The table with all entities. Write a new entity beside the related ones, and list it here."""

from typing import Any, Final

from router.entities import dispatch, routers
from router.entities.deliveries import DELIVERY, WAIT
from router.entities.links import LAPSED, ORPHAN, PUBLISHER, SUBSCRIBER, UNTOLD
from router.entities.queues import DECLARED_QUEUE, LED_QUEUE
from router.entities.replicas import SET
from router.entities.table import Entity

ENTITIES: Final[tuple[Entity[Any], ...]] = (
    routers.ROUTER,
    routers.NEIGHBOUR,
    routers.ROUTE,
    routers.CONTACT,
    routers.PLAN_ROUTER,
    PUBLISHER,
    SUBSCRIBER,
    ORPHAN,
    LAPSED,
    UNTOLD,
    DELIVERY,
    WAIT,
    SET,
    DECLARED_QUEUE,
    LED_QUEUE,
    dispatch.ROUTER,
    dispatch.NODE,
    dispatch.LISTENER,
    dispatch.CONNECTOR,
    dispatch.CONNECTION,
    dispatch.LINK,
    dispatch.ADDRESS,
)
