"""What a router holds, counted: its records by state, its publishers and subscribers, and who has waited for longest.

Counted when somebody asks, at the pace of management (`router.management.pace`) and by the attributes that management
shows, so that no two instruments say different things. Nothing is counted on the way of a message but totals.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

import trio

from router.management.entity import OURS, EntityType
from router.management.pace import LOOKS, WorkPace

MOST_REMEMBERED: Final = 1000
"""Deliveries in doubt that are told apart from look to look, the oldest ones."""
IN_DOUBT: Final = ("in_doubt", "unconfirmed", "placeholder")

Kinds = dict[str, EntityType[Any]]


class Census:
    """Of one router. `take` counts anew."""

    def __init__(self, kinds: Kinds, pace: WorkPace) -> None:
        self._publisher, self._subscriber, self._delivery = (
            kinds[f"{OURS}{name}"] for name in ("publisher", "subscriber", "delivery")
        )
        self._pace = pace
        self._since: dict[str, float] = {}
        self.records: Counter[str] = Counter()
        """By state."""
        self.bytes = 0
        """Of messages that are here."""
        self.oldest_s = 0.0
        """How long a delivery in doubt has been seen to be that."""
        self.publishers: Counter[str] = Counter()
        """By status."""
        self.subscribers: Counter[str] = Counter()
        self.blocked = 0
        """Publishers that are attached and have no credit."""
        self.unsettled = 0
        """Deliveries of publishers at home here."""
        self.queued = 0
        """Deliveries that wait for credit of a subscriber here, or behind a gate."""

    async def take(self) -> None:
        await self._pace.begin()
        await self._count_records()
        await self._count_publishers()
        await self._count_subscribers()
        await self._pace.rest()

    async def _count_records(self) -> None:
        records: Counter[str] = Counter()
        says, held = self._delivery.attributes, 0
        state_of, size_of, key_of = says["state"], says["bytes"], says["identity"]
        oldest: list[str] = []
        for some in _in_turns(self._delivery.entities()):
            for record in some:
                state = state_of(record)
                records[state] += 1
                held += size_of(record)
                if state in IN_DOUBT and len(oldest) < MOST_REMEMBERED:
                    oldest.append(key_of(record))
            await self._pace.breathe()
        now = trio.current_time()
        self._since = {key: self._since.get(key, now) for key in oldest}
        self.oldest_s = now - min(self._since.values(), default=now)
        self.records, self.bytes = records, held

    async def _count_publishers(self) -> None:
        statuses: Counter[str] = Counter()
        says, blocked, unsettled = self._publisher.attributes, 0, 0
        for some in _in_turns(self._publisher.entities()):
            for publisher in some:
                status = says["status"](publisher)
                statuses[status] += 1
                unsettled += says["unsettled"](publisher)
                blocked += status == "attached" and not says["credit"](publisher)
            await self._pace.breathe()
        self.publishers, self.blocked, self.unsettled = statuses, blocked, unsettled

    async def _count_subscribers(self) -> None:
        statuses: Counter[str] = Counter()
        says, queued = self._subscriber.attributes, 0
        for some in _in_turns(self._subscriber.entities()):
            for subscriber in some:
                statuses[says["status"](subscriber)] += 1
                queued += says["queued"](subscriber)
            await self._pace.breathe()
        self.subscribers, self.queued = statuses, queued


def _in_turns(entities: Iterable[Any]) -> Iterable[list[Any]]:
    """All that there are now: they may be others by the time that the last are looked at."""
    there = iter(list(entities))
    return iter(lambda: list(islice(there, LOOKS)), [])
