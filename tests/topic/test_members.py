"""Who is waited for follows the plan of the mesh (protocol 11)."""

import pytest

from tests.topic.bench import SETTINGS, Bench, pen_at, reader_at
from topic.actions import EXPIRED, Detach
from topic.delivery.outcomes import DeliveryOutcome
from topic.directory.entry import Lifetime


def without_c() -> Bench:
    """a and b, who have lost c: each other is all that they have."""
    bench = Bench("a", "b", "c")
    for other in ("a", "b"):
        bench.part(other, "c")
    return bench


def test_a_closed_link_is_listed_until_a_router_that_is_missing_has_heard_of_it_or_is_removed() -> None:
    bench = without_c()
    reader_at(bench, "a").close()
    bench.flow()
    assert list(bench.cores["a"].directory.entries())
    bench.replan("ab")
    assert not list(bench.cores["a"].directory.entries())
    assert not list(bench.cores["b"].directory.entries())


def test_nobody_waits_at_its_boot_for_who_is_removed() -> None:
    bench = Bench("a", "b", "c", meet=False)
    bench.meet("a", "b")
    bench.flow()
    assert bench.cores["a"].boot.waiting_for == ["c"]
    bench.replan("ab")
    assert bench.cores["a"].booted
    assert bench.cores["b"].boot.has_joined


def test_who_has_booted_alone_has_not_joined() -> None:
    bench = Bench("a", "b", meet=False)
    bench.time(SETTINGS.boot_wait + 1)
    assert bench.cores["a"].booted
    assert not bench.cores["a"].boot.has_joined
    bench.meet("a", "b")
    assert not bench.cores["a"].boot.has_joined, "b has not told its section"
    bench.flow()
    assert bench.cores["a"].boot.has_joined


def test_a_router_that_is_new_is_waited_for_and_has_acknowledged_nothing() -> None:
    bench = Bench("a", "b", "c", meet=False)
    for name in "ab":
        bench.cores[name].directory.members.follow("ab", ())
    bench.meet("a", "b")
    bench.flow()
    before = bench.cores["a"].directory.complete
    bench.replan("abc")
    assert (before, bench.cores["a"].directory.complete) == (True, False)
    assert bench.cores["a"].directory.members.acked == {"b": 0, "c": 0}


def test_a_subscriber_whose_router_was_removed_unseen_is_told_what_it_missed() -> None:
    """It is at c, behind a partition. When c is removed the others let it expire after its timeout, and go on."""
    bench = Bench("a", "b", "c")
    pen = pen_at(bench, "a")
    reader_at(bench, "c")
    for other in ("a", "b"):
        bench.part(other, "c")
    bench.replan("ab")
    bench.wait(65)
    pen.send(b"1")
    bench.flow()
    assert pen.outcomes == {b"1": DeliveryOutcome.ACCEPTED}
    reader_at(bench, "b", unsettled={})
    told = [action for action in bench.actions["b"] if isinstance(action, Detach) and action.condition == EXPIRED]
    assert [detach.description for detach in told] == [
        "router c has left the mesh, and its client attached at no other router"
    ]


@pytest.mark.parametrize("members", ["ab", "abc"])
def test_a_plain_subscriber_ends_with_its_router_when_that_is_removed(members: str) -> None:
    bench = Bench("a", "b", "c")
    bench.subscriber("c", lifetime=Lifetime())
    bench.kill("c")
    bench.replan(members)
    left = [entry.router for entry in bench.cores["a"].directory.entries()]
    assert left == (["c"] if "c" in members else [])
