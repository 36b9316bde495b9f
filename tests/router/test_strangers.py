"""Who makes way (`router.admission.Strangers`): what that costs. Who it is stands in `test_admission.py`."""

import sys
from types import FrameType
from typing import Any

import attrs
import pytest

from router.admission import Strangers

PLACES = 4096
FULL = 3 * PLACES // 4


@attrs.define(eq=False)
class Visitor:
    host: str
    spoke: bool
    asked: int = 0

    @property
    def has_spoken(self) -> bool:
        self.asked += 1
        return self.spoke


def calls(strangers: Strangers[Visitor], one: Visitor) -> int:
    """Of functions, also those in C, until it has come in, and another has made way if it must."""
    count = 0

    def counting(frame: FrameType, what: str, function: Any) -> None:
        nonlocal count
        count += what in ("call", "c_call")

    sys.setprofile(counting)
    try:
        if (other := strangers.next_to_go()) is not None:
            strangers.forget(other)
        strangers.enter(one)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("spoke", [False, True])
@pytest.mark.parametrize("hosts", [1, 100, 10**6])
def test_an_accept_costs_the_same_however_many_there_are(hosts: int, spoke: bool) -> None:
    """A crowd that is silent, or has spoken before anybody could look, from one address or from many."""
    strangers = Strangers[Visitor](PLACES)
    visitors = [Visitor(f"host {number % hosts}", spoke) for number in range(3 * FULL)]
    costs = [calls(strangers, visitor) for visitor in visitors]
    costs.remove(max(costs))  # in one, all who have spoken may be found to have
    assert max(costs) < 100
    assert max(visitor.asked for visitor in visitors) <= 2  # the second time as the oldest


def test_who_has_spoken_is_asked_once() -> None:
    strangers = Strangers[Visitor](PLACES)
    visitors = [Visitor("host", True) for _ in range(FULL)]
    for visitor in visitors:
        strangers.enter(visitor)
    assert strangers.next_to_go() is visitors[0]
    assert strangers.next_to_go() is visitors[0]
    assert [visitor.asked for visitor in visitors] == [1] * FULL
