"""Clients of other makes find another router by themselves when theirs is killed, and miss nothing.

Only our client has an unsettled map: with the others, messages under way may come twice (docs/clients.md).
"""

import pytest

from tests.interop.killed_routers import play
from tests.processes.mesh import RunningMesh


@pytest.mark.parametrize(
    ("address", "subscriber", "publisher"),
    [
        ("topic/x", "jms", "go"),
        ("topic/x", "go", "jms"),
        ("topic/x", "jms", "jms"),
        ("queue/x", "jms", "jms"),
        ("queue/x", "go", "go"),
        ("topic/x", "proton", "rhea"),
        ("queue/x", "rhea", "proton-c++"),
        ("topic/x", "proton-c++", "ours"),
        ("queue/x", "ours", "proton"),
        ("topic/x", "protonj2", "azure"),
        ("queue/x", "azure", "protonj2"),
    ],
)
async def test_the_router_of_the_subscriber_is_killed_then_that_of_the_publisher(
    address: str, subscriber: str, publisher: str, own_queues: RunningMesh
) -> None:
    seen = await play(own_queues, address, subscriber, publisher)
    assert seen.wrong(subscriber, publisher) == []
