"""The hybrid logical clock orders stamps of different routers, and survives bad clocks."""

from hypothesis import given
from hypothesis import strategies as st

from linkstate.clock import COUNTER_BITS, ECHO_MS, TRUST_MS, HybridClock


def test_a_stamp_is_the_time_of_day_with_a_counter() -> None:
    clock = HybridClock()
    clock.advance(5_000)
    assert [clock.stamp() - (5_000 << COUNTER_BITS) for _ in range(3)] == [1, 2, 3]


def test_a_wall_clock_set_back_does_not_set_the_clock_back() -> None:
    clock = HybridClock()
    clock.advance(5_000)
    before = clock.stamp()
    clock.advance(1_000)
    assert clock.stamp() > before


def test_a_stamp_after_a_merge_is_higher_than_what_was_merged() -> None:
    ahead, behind = HybridClock(), HybridClock()
    ahead.advance(9_000)
    behind.advance(5_000)
    behind.merge(ahead.stamp())
    assert behind.stamp() > ahead.read()


def test_a_peer_too_far_ahead_is_counted_and_not_believed() -> None:
    clock = HybridClock()
    clock.advance(5_000)
    before = clock.read()
    clock.merge((5_001 + TRUST_MS) << COUNTER_BITS)
    assert (clock.read(), clock.refused) == (before, 1)


def test_clock_echoed_by_a_client_is_believed_within_seconds() -> None:
    clock = HybridClock()
    clock.advance(5_000)
    before = clock.read()
    clock.merge((5_001 + ECHO_MS) << COUNTER_BITS, ECHO_MS)
    assert (clock.read(), clock.refused) == (before, 1)
    clock.merge((5_000 + ECHO_MS) << COUNTER_BITS, ECHO_MS)
    assert clock.read() == (5_000 + ECHO_MS) << COUNTER_BITS


def test_a_clock_starts_no_lower_than_its_store_reserved() -> None:
    clock = HybridClock(floor=7_000 << COUNTER_BITS)
    clock.advance(5_000)
    assert clock.stamp() > 7_000 << COUNTER_BITS


@given(st.lists(st.tuples(st.sampled_from(["advance", "merge"]), st.integers(-10, 2**42))))
def test_stamps_only_grow(events: list[tuple[str, int]]) -> None:
    clock = HybridClock()
    last = clock.stamp()
    for event, value in events:
        getattr(clock, event)(value)
        stamp = clock.stamp()
        assert stamp > last
        last = stamp
