"""What is found by words is what a comparison with each address and each pattern finds (protocol 2, Address)."""

import sys
from collections.abc import Callable
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topic.directory.addresses import ByAddress, Found, is_pattern, meets

WORDS = st.sampled_from(["a", "b", "ab", "", "*", "+", "#", "*a"])
ADDRESSES = st.builds(
    lambda first, others: first + "".join(map("".join, others)),
    WORDS,
    st.lists(st.tuples(st.sampled_from("./"), WORDS), max_size=4),
)


@given(st.lists(st.tuples(ADDRESSES, st.booleans()), max_size=40), ADDRESSES)
def test_search_finds_meeting_addresses_as_addresses_come_and_go(steps: list[tuple[str, bool]], asked: str) -> None:
    by_address = ByAddress[str, str]()
    there: dict[str, None] = {}  # in the order in which they came
    for address, is_to_stay in steps:
        by_address.at(address)[address] = address
        there.setdefault(address)
        compare(by_address, there, asked)
        if not is_to_stay:
            by_address.discard(address, address)
            del there[address]
        compare(by_address, there, address)


def compare(by_address: ByAddress[str, str], there: dict[str, None], asked: str) -> None:
    met = [address for address in there if meets(asked, address)]
    if not is_pattern(asked):  # the address itself before patterns
        met.sort(key=lambda address: address != asked)
    assert list(by_address.meeting(asked)) == met


@given(st.lists(ADDRESSES), st.lists(ADDRESSES))
def test_changed_pattern_makes_results_of_covered_addresses_stale(found: list[str], changed: list[str]) -> None:
    known = Found[int]()
    left = found = [address for address in found if not is_pattern(address)]
    for address in found:
        known.keep(address, 1)
    for address in changed:
        known.forget(address)
        left = [other for other in left if not meets(address, other)]
        assert [other for other in found if known.get(other)] == left


@pytest.mark.parametrize("ask", ["topic/q.r", "topic/a.b.c", "topic/x.x.y"])
def test_patterns_that_do_not_match_cost_nothing(ask: str) -> None:
    def cost(patterns: int) -> int:
        by_address = ByAddress[int, int]()
        for i in range(patterns):
            by_address.at("topic/" + ".".join("*" if i >> bit & 1 else f"x{i >> 6}" for bit in range(6)))[i] = i
        return calls(lambda: by_address.meeting(ask))

    assert cost(4096) <= 2 * cost(64)


def test_addresses_that_a_pattern_does_not_cover_cost_nothing() -> None:
    def cost(addresses: int) -> int:
        by_address = ByAddress[int, int]()
        for i in range(addresses):
            by_address.at(f"topic/{i}.a.b")[i] = i
        by_address.meeting("topic/x.*")  # which makes the tree
        return calls(lambda: by_address.meeting("topic/1.*.b"))

    assert cost(4096) <= 2 * cost(64)


def calls(act: Callable[[], object]) -> int:
    """How many functions it calls."""
    count = 0

    def called(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count
