"""`/metrics` for Prometheus: all series in the text format of Prometheus, written by the library of Prometheus.

The cost to the router is bounded, however many clients ask: all requests that wait get the same text. The router makes
the text at most ten times a second, and spends at most a tenth of its time on it. The text is never older than the
request.
"""

import math
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import trio
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from router.http.census import MeasuredSeries
from router.http.exchange import WebAnswer, WebCaller, WebRequest

SHARE: Final = 9
PAUSE_S: Final = 0.1


class SeriesCollector(Collector):
    """Passes the series that were measured last to the library."""

    def __init__(self) -> None:
        self.measured: list[MeasuredSeries] = []

    def collect(self) -> Iterator[Metric]:
        for one in self.measured:
            kind = CounterMetricFamily if one.counts else GaugeMetricFamily
            family = kind(one.name, one.says, labels=one.labels)
            for labels, value in one.samples:
                family.add_metric(labels, value)
            yield family


class Metrics:
    def __init__(self, take: Callable[[], Awaitable[list[MeasuredSeries]]]) -> None:
        """`take` measures all series and returns them."""
        self._series = SeriesCollector()
        self._registry = CollectorRegistry()
        self._registry.register(self._series)
        ProcessCollector(registry=self._registry)
        self._take = take
        self._lock = trio.Lock()
        self._text = b""
        self._began = -math.inf
        self._next = -math.inf

    async def show(self, request: WebRequest, caller: WebCaller) -> WebAnswer:
        asked = trio.current_time()
        async with self._lock:
            if self._began < asked:
                await trio.sleep_until(self._next)
                self._began = trio.current_time()
                await self._look()
        return WebAnswer(200, self._text, CONTENT_TYPE_PLAIN_0_0_4)

    async def _look(self) -> None:
        self._series.measured = await self._take()
        began = trio.current_time()
        self._text = generate_latest(self._registry)
        now = trio.current_time()
        self._next = now + max(PAUSE_S, SHARE * (now - began))
