"""The plan of a mesh (protocol 11): it merges to the same everywhere, and says who is waited for."""

import functools

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkstate.clock import COUNTER_BITS
from linkstate.plan.plan import START, Plan, PlanError, PlannedLink, PlannedRouter, Standing, plan_of
from tests.plans import file

NAMES = st.sampled_from("abcde")
VERSIONS = st.just(START) | st.tuples(st.integers(1, 5), NAMES)
ROUTERS = st.builds(PlannedRouter, st.integers(0, 2), st.sampled_from(Standing), VERSIONS, st.sampled_from(["", "h:1"]))
LINKS = st.builds(PlannedLink, VERSIONS, st.integers(0, 2))
PAIRS = st.sampled_from([(a, b) for a in "abcde" for b in "abcde" if a < b])
PLANS = st.builds(Plan, st.dictionaries(NAMES, ROUTERS), st.dictionaries(PAIRS, LINKS))


def at(ms: int) -> tuple[int, str]:
    return ms << COUNTER_BITS, "a"


LINE = file("abc", "ab", "bc")


@given(st.lists(PLANS, min_size=2, max_size=5), st.randoms())
def test_plans_merge_to_the_same_in_any_order_and_however_often(plans: list[Plan], random) -> None:  # type: ignore[no-untyped-def]
    merged = functools.reduce(Plan.merge, plans)
    again = plans + random.choices(plans, k=len(plans))
    random.shuffle(again)
    assert functools.reduce(Plan.merge, again) == merged
    assert merged.merge(functools.reduce(Plan.merge, again)) == merged


@given(PLANS, PLANS, PLANS)
def test_it_does_not_matter_what_is_merged_first(one: Plan, two: Plan, three: Plan) -> None:
    assert one.merge(two).merge(three) == one.merge(two.merge(three))


@given(PLANS, PLANS)
def test_removed_router_is_no_member_since_the_same_time(one: Plan, two: Plan) -> None:
    merged = one.merge(two)
    for plan in (one, two):
        for name, router in plan.routers.items():
            if router.standing is Standing.REMOVED:
                now = merged.routers[name]
                assert now.standing is Standing.REMOVED or now.since > router.since


@given(PLANS)
def test_plan_tells_only_changed_entries(plan: Plan) -> None:
    told = plan_of(msgpack.unpackb(msgpack.packb(plan.changed())))
    assert plan.merge(told) == plan
    assert told.digest == plan.digest
    assert all(router.version > START for router in told.routers.values())
    assert all(link.version > START for link in told.links.values())


@pytest.mark.parametrize(
    "rows",
    [
        None, [], [[]], [[], [], []], [[["a"]], []], [[["a", 0, 3, [1, "a"], "", ""]], []],
        [[["a", -1, 0, [1, "a"], "", ""]], []], [[["a", 0, 0, [0, ""], "", ""]], []],
        [[], [["b", "a", [1, "a"], 1, ""]]], [[], [["a", "b", [1, "a"], -1, ""]]], [[], [["a", "b", [0, ""], 1, ""]]],
        [[["two words", 0, 0, [1, "a"], "", ""]], []], [[["a", 0, 0, [1, "a\n"], "", ""]], []],
        [[["a", True, 0, [1, "a"], "", ""]], []], [[["a", 0, 0, [True, "a"], "", ""]], []],
        [[["a", 0, 0, [1, "a"], "nowhere", ""]], []], [[["a", 0, 0, [1, "a"], "", "nowhere:65536"]], []],
        [[], [["a", "b", [1, "a"], 65536, ""]]], [[], [["a", "b", [1, "a"], 1, "two words:1"]]],
        [[], [["a", "", [1, "a"], 1, ""]]], [[], [["a", "b", [1, "a"], True, ""]]],
        [[], [["a", "b", [1, "a"], 1, "é:1"]]], [[["a", 0, 0, [1, "a"], "", "ab" * 127 + ":1"]], []],
    ],
)  # fmt: skip
def test_malformed_plan_is_refused(rows: object) -> None:
    with pytest.raises(ValueError, match="plan"):
        plan_of(rows)


def test_a_file_says_the_same_as_nothing() -> None:
    assert LINE.digest == 0
    assert LINE.revised(LINE, at(1)) == LINE
    assert LINE.members == set("abc")
    assert LINE.costs_of("b") == {"a": 1, "c": 1}


def test_costs_and_links_change() -> None:
    plan = LINE.revised(file("abc", "ab5", "ac"), at(1))
    assert plan.costs_of("a") == {"b": 5, "c": 1}
    assert plan.costs_of("c") == {"a": 1}
    assert plan.digest


def test_leaving_router_keeps_its_links_and_is_not_waited_for() -> None:
    plan = LINE.revised(file("ab", "ab"), at(1))
    assert plan.members == set("ab")
    assert plan.listed == set("abc")
    assert plan.costs_of("c") == {"b": 1}
    gone = plan.without("c", at(2))
    assert gone.listed == set("ab")
    assert gone.costs_of("b") == {"a": 1}
    assert gone.is_out("c", 100)


def test_router_that_comes_back_is_another_member() -> None:
    gone = LINE.revised(file("ab", "ab"), at(1), forced="c")
    assert gone.listed == set("ab")
    back = gone.revised(LINE, at(7))
    assert back.members == set("abc")
    assert back.is_out("c", 1), "it was started before it was removed"
    assert back.admits("c", 8)
    assert back.merge(gone) == gone.merge(back) == back


@pytest.mark.parametrize("since", [1, 50])
def test_router_that_comes_back_wins_over_its_removal(since: int) -> None:
    """It may be of the same millisecond, or be forged."""
    gone = LINE.merge(Plan({"c": PlannedRouter(since, Standing.REMOVED, at(1))}, {}))
    back = gone.revised(LINE, at(7))
    assert back.merge(gone).members == set("abc")
    assert back.admits("c", since + 2)


def test_leaving_router_does_not_come_back_before_it_is_gone() -> None:
    with pytest.raises(PlanError, match="router c is still leaving"):
        LINE.revised(file("ab", "ab"), at(1)).revised(LINE, at(2))


def test_a_mesh_that_stopped_while_one_was_leaving_starts_with_all_that_its_file_has() -> None:
    stopped = LINE.revised(file("ab", "ab"), at(1))
    assert stopped.without_leaving().revised(LINE, at(2)).members == set("abc")
    assert stopped.without_leaving().revised(file("ab", "ab"), at(2)).listed == set("ab")


FILES = st.builds(
    lambda routers, links: file(sorted(routers), *(link for link in sorted(links) if routers >= set(link))),
    st.sets(NAMES, min_size=1),
    st.sets(st.sampled_from(["ab", "ac", "bc", "bd", "cd", "de", "ae"])),
)


@given(st.lists(FILES, min_size=1, max_size=6))
def test_latest_file_and_changes_give_the_same_plan(files: list[Plan]) -> None:
    """Whatever the others have started with. Each change is made when all who were to leave have gone."""
    plan = files[0]
    for ms, wanted in enumerate(files, 1):
        plan = plan.revised(wanted, at(2 * ms)).without_leaving()
        newcomer = wanted.merge(plan_of(msgpack.unpackb(msgpack.packb(plan.changed()))))
        assert newcomer.members == newcomer.listed == plan.listed == wanted.members
        for name in wanted.routers:
            assert newcomer.costs_of(name) == plan.costs_of(name) == wanted.costs_of(name)


def test_removal_on_one_side_of_a_partition_wins_over_a_later_change_on_the_other() -> None:
    here, there = LINE.revised(file("ab", "ab"), at(1)), LINE.revised(file("abcd", "ab", "bc", "cd"), at(2))
    assert here.merge(there).members == set("abd")
    assert here.merge(there).listed == set("abcd")
