"""What one link costs does not depend on how many others there are: load never makes an attach slow.

Work is counted in bytecodes of the topic core, which are the same on every machine.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import topic
from tests.topic.bench import LASTING, Bench
from tests.topic.clients import Pen, Reader
from topic.identity import LinkIdentity

HERE = topic.__path__[0]
FEW, MANY = 40, 400


def crowded(links: int) -> Bench:
    """Three routers with so many links, each of its own address, publishers and subscribers in turn."""
    bench = Bench("a", "b", "c")
    for number in range(links):
        router = "abc"[number % 3]
        attach: Callable[..., Any] = bench.cores[router].attach_publisher
        if number % 2:
            attach = bench.cores[router].attach_subscriber
        identity = LinkIdentity(f"client {number}", "link", f"topic/{number}")
        attach(identity, Pen.__new__(Pen), bench.now, lifetime=LASTING)
    bench.flow()
    return bench


def work(act: Callable[[], object]) -> int:
    """Bytecodes of the topic core that it takes."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(HERE):
            return None
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    former = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(former)
    return count


def attach_subscriber(bench: Bench) -> int:
    return work(lambda: bench.subscriber("a", lifetime=LASTING))


def attach_publisher(bench: Bench) -> int:
    return work(lambda: bench.publisher("a", lifetime=LASTING))


def detach_subscriber(bench: Bench) -> int:
    return work(bench.subscriber("a", lifetime=LASTING).close)


def detach_publisher(bench: Bench) -> int:
    return work(bench.publisher("a", lifetime=LASTING).close)


def suspend(bench: Bench) -> int:
    reader = bench.subscriber("a", lifetime=LASTING)
    bench.time(1)  # which links are without a client is looked for twice a second, whatever happens

    def act() -> None:
        bench.tick("a").suspend_subscriber(reader.end, reader, bench.now)
        bench.flow()

    return work(act)


def move(bench: Bench) -> int:
    bench.subscriber("a", lifetime=LASTING)
    return work(lambda: Reader(bench, "b", "s", 100, lifetime=LASTING, unsettled={}))


@pytest.mark.parametrize(
    "act", [attach_subscriber, attach_publisher, detach_subscriber, detach_publisher, suspend, move]
)
def test_what_a_link_costs_does_not_grow_with_the_others(act: Callable[[Bench], int]) -> None:
    few, many = act(crowded(FEW)), act(crowded(MANY))
    assert 0 < many <= 1.1 * few
