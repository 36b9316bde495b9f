"""Three whole routers in contact, without sockets."""

from collections.abc import Iterator

import pytest

from tests.router.mqtt.bench import MqttBench


@pytest.fixture
def bench() -> Iterator[MqttBench]:
    bench = MqttBench("a", "b", "c")
    yield bench
    if not bench.ended:
        bench.finish(*bench.mqtt_guests())
