"""Requests and their answers, over two hops: proton's and rhea's own ways to ask, and to answer where a request says.

asking - a --- b --- c - answering
"""

import pytest

from tests.interop.foreign import foreign
from tests.processes.mesh import RunningMesh

COUNT = 20
MAKERS = ("proton requests", "rhea requests")


@pytest.mark.parametrize("answering", MAKERS)
@pytest.mark.parametrize("asking", MAKERS)
async def test_each_request_is_answered_and_a_late_answer_is_refused_by_name(
    asking: str, answering: str, line: RunningMesh
) -> None:
    topic = f"topic/{asking}/{answering}"
    async with (
        foreign(answering, "answer", line.address("c"), topic, COUNT, 0) as server,
        foreign(asking, "ask", line.address("a"), topic, COUNT, 0) as client,
    ):
        await client.event("complete")
        await server.event("complete")
        asked, answered = await client.finish(), await server.finish()
    assert asked["answers"] == [f"REQUEST {number}" for number in range(COUNT)]
    assert (answered["accepted"], answered["refused"]) == (COUNT, ["amqp:not-found"])
