"""Makes looks for consoles: reports of this router with its totals and neighbours.

Consoles that ask at about the same time get the same look. A look costs much more to make than to send, because its
report counts all deliveries at this router."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import trio

from router.amqp.format.codec import Raw, encode
from router.entities.dispatch import ROUTER
from router.entities.observed import CountedEvents
from router.entities.routers import NEIGHBOUR
from router.management.entity import EntityType

SHOWN: Final = {"totals": ROUTER.managed, "neighbours": NEIGHBOUR.managed}
"""A look has all attributes of these entities."""
Kind = EntityType[Any]


class Looks:
    """Makes looks at one router for its consoles. Calling the object returns a look."""

    def __init__(self, kinds: Iterable[Kind], report: Callable[[], bytes], events: CountedEvents) -> None:
        self._report = report
        self._events = events
        self._shown = {name: kind for kind in kinds for name, shown in SHOWN.items() if kind.name == shown}
        self._made = -1.0
        self._look = Raw(b"")

    def __call__(self, age_s: float) -> Raw:
        """A look that is at most `age_s` old, encoded: `time` (in seconds since 1970), `status` (JSON, docs/status.md),
        `totals`, `neighbours`, and `lastEvent`, a number."""
        now = trio.current_time()
        if self._made < 0 or now - self._made > age_s:
            self._made, self._look = now, Raw(encode(self._now()))
        return self._look

    def _now(self) -> Mapping[str, Any]:
        entities = {name: [kind.told(entity) for entity in kind.entities()] for name, kind in self._shown.items()}
        report = self._report().decode()
        return {"time": time.time(), "status": report, "lastEvent": self._events.last, **entities}
