"""How many links routers are to have, and who gives away how many to whom, and when."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.plan.balance import AT_ONCE, LITTLE, Balance, moves

LOADS = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 60), min_size=1)
PATIENCE_S = 5.0


def test_new_routers_get_as_many_as_all_others() -> None:
    wanted = moves({"a": 4, "b": 4, "c": 4, "d": 0, "e": 0, "f": 0})
    assert Counter(wanted) == {("a", "f"): 2, ("b", "e"): 2, ("c", "d"): 2}


@pytest.mark.parametrize("loads", [{}, {"a": 7}, {"a": 2, "b": 0}, {"a": 3, "b": 1}, {"a": 20, "b": 10, "c": 20}])
def test_nobody_moves_for_little(loads: dict[str, int]) -> None:
    assert list(moves(loads)) == []


@given(LOADS)
def test_in_the_end_nobody_has_more_than_twice_what_another_has(loads: dict[str, int]) -> None:
    """Routers ask each for its own part, and go by what all have then. Those who are asked go."""
    before, now = Counter(loads), 0.0
    balances = {name: Balance(name, PATIENCE_S, now) for name in loads}
    for _ in range(50):
        now += 1
        asked = [(name, taker) for name in loads for taker in balances[name].takers(loads, now)]
        most = max(loads.values())
        for giver, taker in asked:
            loads[giver] -= 1
            loads[taker] += 1
        assert max(loads.values()) <= most
    assert sum(loads.values()) == before.total()
    assert max(loads.values()) <= max(2 * min(loads.values()), min(loads.values()) + LITTLE)


def asked_at(balance: Balance, loads: dict[str, int], start: int, end: int) -> list[tuple[int, int]]:
    """When how many were, of those who do not go."""
    looks = [(now, len(balance.takers(loads, now))) for now in range(start, end)]
    return [(now, links) for now, links in looks if links]


def test_links_have_to_be_uneven_for_a_while_in_a_mesh_that_is_whole() -> None:
    balance = Balance("a", PATIENCE_S, 0.0)
    for now in range(0, 60, 5):
        assert asked_at(balance, {"a": 9, "b": 0}, now, now + 4) == []
        assert asked_at(balance, {}, now + 4, now + 5) == []
    assert asked_at(balance, {"a": 9, "b": 0}, 60, 65) == [(64, 4)]


def test_no_more_are_asked_before_those_have_gone_or_have_not_for_a_while() -> None:
    balance = Balance("a", PATIENCE_S, 0.0)
    assert asked_at(balance, {"a": 60, "b": 0}, 0, 17) == [(5, AT_ONCE), (10, AT_ONCE), (15, AT_ONCE)]
    assert asked_at(balance, {"a": 51, "b": 9}, 17, 18) == []
    assert asked_at(balance, {"a": 50, "b": 10}, 18, 22) == [(18, AT_ONCE)]


def test_who_has_few_is_not_asked() -> None:
    balance = Balance("b", PATIENCE_S, 0.0)
    assert asked_at(balance, {"a": 60, "b": 5, "c": 0}, 0, 20) == []
