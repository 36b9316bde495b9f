"""Plain publishers that use their tags again at once, in runs of everything else that goes wrong, with subscribers that
answer no echo (protocol 5, Reused tags)."""

import pytest

from tests.simulation.report import attempt, tell

CHUNK = 4
COMPANIONS = ((), ("plain cuts",), ("hasty",), ("pieces",), ("balanced",), ("few bytes", "detach"))


@pytest.mark.parametrize("companions", COMPANIONS, ids=lambda names: " ".join(names) or "alone")
def test_their_deliveries_are_told_apart(companions: tuple[str, ...]) -> None:
    numbered = 0
    for seed in range(CHUNK):
        world, failure = attempt(seed, odd=("reuse", *companions))
        if failure is not None:
            raise AssertionError(tell(failure, tail=60)) from failure.error
        streams = [stream for router in world.routers.values() for stream in router.topic.home.streams.values()]
        numbered += sum(stream.numbered for stream in streams)
    assert numbered
