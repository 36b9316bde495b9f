"""Makes the series of `/metrics` from the table of entities (`router.entities`). A sample is the value of one entity, a
number of entities, or a sum over entities.

Each request measures all series, at the pace of management (`router.management.pace`). The series use the attributes
that `$status` and `$management` show, so `/metrics` agrees with both. The code that handles single messages does no
work for metrics, except that it counts totals."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

import trio
from attrs import frozen

from router.entities.catalogue import ENTITIES
from router.entities.observed import ObservedRouter
from router.entities.table import Attribute, Entity, How
from router.management.pace import LOOKS, WorkPace

MOST_REMEMBERED: Final = 1000
"""A series of `How.OLDEST` remembers, for at most this number of entities, since when the attribute has been true."""

Samples = list[tuple[tuple[str, ...], float]]
"""The samples of a series: for each sample the values of the labels, and the measured value."""


class SeriesTally:
    """Collects the samples of one series. One measurement calls `add` for each entity, and then `take`, which returns
    the samples and begins the next measurement."""

    def __init__(self, entity: Entity[Any], attribute: Attribute[Any]) -> None:
        assert attribute.series is not None
        self.series = attribute.series
        self.attribute = attribute
        reads = {one.name: one.read for one in entity.attributes}
        self._named = reads.get("identity") or reads.get("name") or (lambda at, one: "")
        self._since: dict[str, float] = {}
        self._begin()

    def _begin(self) -> None:
        self._samples: Samples = []
        self._sum = 0.0
        self._counts: Counter[str] = Counter(dict.fromkeys(self.series.values, 0))
        self._seen: list[str] = []

    def add(self, at: ObservedRouter, one: Any) -> None:
        value = self.attribute.read(at, one)
        match self.series.how:
            case _ if value is None:
                pass
            case How.EACH:
                labels = (self._named(at, one),) if self.series.labels else ()
                self._samples.append((labels, float(value)))
            case How.KEYS:
                self._samples += [((key,), float(number)) for key, number in value.items()]
            case How.FACTS:
                self._samples.append((tuple(value.values()), 1.0))
            case How.SUM:
                self._sum += value
            case How.NUMBER:
                self._sum += 1
            case How.BY_VALUE:
                self._counts[value] += 1
            case How.OLDEST if value and len(self._seen) < MOST_REMEMBERED:
                self._seen.append(self._named(at, one))

    def take(self) -> Samples:
        how, samples = self.series.how, self._samples
        if how in (How.SUM, How.NUMBER):
            samples = [((), self._sum)]
        elif how is How.BY_VALUE:
            samples = [((value,), float(number)) for value, number in self._counts.items()]
        elif how is How.OLDEST:
            now = trio.current_time()
            self._since = {name: self._since.get(name, now) for name in self._seen}
            samples = [((), now - min(self._since.values(), default=now))]
        self._begin()
        return samples


@frozen
class MeasuredSeries:
    """A series of metrics, with the samples of one moment."""

    name: str
    says: str
    labels: tuple[str, ...]
    counts: bool
    """Whether the series is a counter, which never falls."""
    samples: Samples


class Census:
    """The series of one router. Each `take` measures them again."""

    def __init__(self, at: ObservedRouter, pace: WorkPace) -> None:
        self._at = at
        self._pace = pace
        measured = ((entity, [one for one in entity.attributes if one.series is not None]) for entity in ENTITIES)
        self._tallies = [
            (entity.found, [SeriesTally(entity, one) for one in some]) for entity, some in measured if some
        ]

    async def take(self) -> list[MeasuredSeries]:
        await self._pace.begin()
        taken: list[MeasuredSeries] = []
        for found, tallies in self._tallies:
            for some in _in_turns(found(self._at)):
                for one in some:
                    for tally in tallies:
                        tally.add(self._at, one)
                await self._pace.breathe()
            taken += map(_measured, tallies)
        await self._pace.rest()
        return taken


def _measured(tally: SeriesTally) -> MeasuredSeries:
    series, attribute = tally.series, tally.attribute
    return MeasuredSeries(series.name, attribute.measured, series.labels, attribute.is_counter, tally.take())


def _in_turns(entities: Iterable[Any]) -> Iterator[list[Any]]:
    """The present entities, in groups of at most `LOOKS`. The list is a copy, because entities come and go while the
    caller pauses between two groups."""
    there = iter(list(entities))
    return iter(lambda: list(islice(there, LOOKS)), [])
