"""Ranges of numbers that other routers name: what they cost, and that it is the right records that are found."""

from hypothesis import given
from hypothesis import strategies as st

from topic.delivery.records import in_ranges, ranges_without


class Held:
    """A stream, as far as is looked at."""

    def __init__(self, numbers: list[int]) -> None:
        self.records = {n: n for n in numbers}


def found(numbers: list[int], ranges: list[int]) -> list[int]:
    return in_ranges(Held(numbers), ranges)  # type: ignore[arg-type,return-value]


bounds = st.integers(0, 60)
spans = st.lists(st.tuples(bounds, bounds | st.just(2**62)), max_size=8)
many_ranges = spans.map(lambda spans: [n for span in spans for n in span])


@given(st.sets(bounds), many_ranges)
def test_each_record_in_the_ranges_is_found_once(numbers: set[int], ranges: list[int]) -> None:
    spans = list(zip(ranges[::2], ranges[1::2], strict=True))
    expected = [n for n in numbers if any(low <= n <= high for low, high in spans)]
    assert sorted(found(list(numbers), ranges)) == sorted(expected)


@given(st.sets(bounds), many_ranges)
def test_ranges_lack_the_numbers_left_out(left_out: set[int], ranges: list[int]) -> None:
    left = ranges_without(ranges, left_out)
    assert found(list(left_out), left) == []
    others = [n for n in range(61) if n not in left_out]
    assert sorted(found(others, left)) == sorted(found(others, ranges))


def test_wide_ranges_cost_no_look_at_every_record_each() -> None:
    """100,000 ranges of 1,000 records would be 100,000,000 looks."""

    class Counted(int):
        looks = 0

        def __le__(self, other: int) -> bool:
            Counted.looks += 1
            return int(self) <= other

        def __ge__(self, other: int) -> bool:
            Counted.looks += 1
            return int(self) >= other

    assert len(found([Counted(n) for n in range(1000)], [0, 2**62] * 1000)) == 1000
    assert Counted.looks <= 2000
    assert ranges_without([0, 2**62] * 1000, set(range(1000))) == [1000, 2**62]
