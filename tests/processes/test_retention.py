"""Routers that keep only the latest of their logs, and the audit of what is left."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import yaml

from failover.audit import Verdict, run
from tests.processes.clients import Clients
from tests.processes.mesh import RunningMesh

TOPIC = "topic/kept"
SMALL_SEGMENTS = """\
import runpy, router.journal
router.journal.SEGMENT_LIMIT = 1 << 18
runpy.run_module("router", run_name="__main__")
"""
KEEP_S = 2.0
LONG_S = 4 * KEEP_S
IN_FLIGHT = 100


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[RunningMesh]:
    made = RunningMesh("triangle", tmp_path, {})
    made.plan.write_text(yaml.safe_dump(yaml.safe_load(made.plan.read_text()) | {"log": {"keep": f"{KEEP_S:g}s"}}))
    made.use((sys.executable, "-P", "-c", SMALL_SEGMENTS))
    try:
        trio.run(made.up)
        yield made
        assert made.crashes() == []
    finally:
        made.end()
        made.tell()


async def test_what_is_left_of_long_logs_holds_and_the_audit_says_since_when(
    mesh: RunningMesh, clients: Clients
) -> None:
    """Links are as old as the mesh: all that is known of them at the end is what segments begin with."""
    subscriber = await clients.subscriber(mesh.address("c"), TOPIC, timeout=60)
    publisher = await clients.publisher(mesh.address("a"), TOPIC, second=True, timeout=60)
    began = trio.current_time()
    while trio.current_time() - began < LONG_S:
        count = publisher.sent + IN_FLIGHT
        publisher.feed = iter(b"%d" % number for number in range(publisher.sent, count))
        publisher.pump()
        await clients.until(lambda: len(publisher.accepted) == count)  # noqa: B023
    assert subscriber.numbers == list(range(publisher.sent))
    for router in mesh.routers:
        await mesh.stop(router)
    report = run([str(mesh.directory.path)])
    accepted = sum(row.accepted for row in report.publishers)
    assert report.verdict is Verdict.HOLDS, (report.sentence, report.doubts, report.problems, report.findings)
    assert report.since > 0 and 0 < accepted < publisher.sent
    assert sum(row.owed for row in report.pairs) == accepted
