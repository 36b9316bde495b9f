"""A router's report of itself: the JSON of `oncemesh status` (docs/status.md), from the table of entities.

It is computed on demand, from the cores' own state.
"""

import json
from typing import Any, Final

from router.entities.catalogue import ENTITIES
from router.entities.observed import ObservedRouter
from router.entities.queues import LED_QUEUE
from router.entities.routers import ROUTER

LISTED: Final = [entity for entity in ENTITIES if entity.status]
OF_USERS: Final = [entity.status for entity in LISTED if any(one.name == "user" for one in entity.attributes)]


def status(at: ObservedRouter) -> dict[str, Any]:
    at.survey.take(at.node)
    lists = {entity.status: [entity.in_status(at, one) for one in entity.found(at)] for entity in LISTED}
    return ROUTER.in_status(at, at) | lists


def report(at: ObservedRouter) -> bytes:
    return json.dumps(status(at)).encode()


def only_of(user: str, told: bytes) -> bytes:
    """The report that this user may see. It has only the user's own links. It has no queues, because other users may
    have chosen their names."""
    said = json.loads(told)
    for name in OF_USERS:
        own = [link for link in said[name] if user and link.get("user") == user]
        said[name] = [{**link, "held_for": []} if "held_for" in link else link for link in own]
    said["waits"] = said[LED_QUEUE.status] = []
    return json.dumps(said).encode()
