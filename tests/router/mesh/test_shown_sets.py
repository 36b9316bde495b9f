"""Replica sets as a mesh shows them: which routers they can spare."""

from collections.abc import Sequence
from typing import Any

import pytest

from router.mesh.shown.sets import ShownSet, replacement_commands, sets_in, why_kept


def shown(name: str = "q0", *, may_stop: Sequence[str] = "abc", role: str = "leader", **row: Any) -> ShownSet:
    """A set of a, b and c, as its leader a tells it."""
    told = {"name": name, "prefix": "", "life": "64-a", "term": 1, "commit": 5, "role": role, "leader": "a",
        "ring": list("abc"), "voters": list("abc"), "learners": [], "async": [],
        "may_stop": list(may_stop)} | row  # fmt: skip
    [one] = sets_in([("a", told)])
    return one


def test_a_voter_does_not_leave_and_the_error_says_what_to_do() -> None:
    why = why_kept([shown(), shown("q1")], "c", "abd", forced=False)
    what = "router c is a voter of replica sets q0, q1: choose others first"
    assert why == f"{what}, for example with oncemesh queue replace c d"
    assert why_kept([shown()], "c", "ab", forced=False).endswith("oncemesh queue voters q0 a b")


def test_who_takes_the_place_of_a_voter_is_none_yet_in_each_set() -> None:
    sets = [shown(), shown("q1", ring=list("bcd")), shown("q2", ring=list("cda"))]
    assert replacement_commands(sets, "c", "abd") == "oncemesh queue replace c d a b"
    assert replacement_commands(sets[:1], "c", "bade") == "oncemesh queue replace c d"
    assert replacement_commands([*sets, shown("q3", ring=list("abcd"))], "c", "abd") == "oncemesh queue voters q3 a b d"


@pytest.mark.parametrize("row", [{"ring": list("abd")}, {"learners": ["d"]}, {"async": ["d"]}])
def test_a_router_that_is_to_be_a_voter_does_not_leave(row: dict[str, Any]) -> None:
    assert why_kept([shown(**row)], "d", "abc", forced=False)


def test_a_proxy_leaves_and_so_does_anybody_before_the_set_has_begun() -> None:
    assert not why_kept([shown()], "d", "abc", forced=False)
    assert not why_kept([shown(life=None, voters=[])], "c", "ab", forced=False)


def test_a_voter_that_does_not_run_leaves_by_force_if_a_majority_stays() -> None:
    assert not why_kept([shown(may_stop="c")], "c", "ab", forced=True)
    why = why_kept([shown(may_stop="")], "c", "ab", forced=True)
    assert why.startswith("router c is a voter of replica set q0, and no majority is left without it: start the other")
    assert why_kept([shown(role="follower")], "c", "ab", forced=True), "who follows does not know"
