"""For whom `publish` says that it waits, out of what routers say."""

from typing import Any

from failover.cli.waiting import awaited

P, S = "writer/publish on topic/news", "reader/subscribe on topic/news"


def status(router: str, *waits: str, away: bool = False) -> dict[str, Any]:
    reader = {"container": "reader", "link": "subscribe", "address": "topic/news"}
    return {
        "router": router,
        "waits": [{"for": wait, "publishers": [P]} for wait in waits],
        "subscribers": [{**reader, "status": "suspended" if away else "attached", "timeout_s": 90}],
        "orphans": [{**reader, "role": "subscriber", "timeout_s": 3600}],
    }


def test_a_router_is_named_only_if_it_does_not_name_its_subscriber() -> None:
    told = [status("a", "router b", "router c"), status("c", f"subscriber {S}")]
    assert awaited(P, told) == [f"subscriber {S}", "router b"]


def test_who_has_no_connection_is_away() -> None:
    away = f"subscriber {S}, which is away"
    assert awaited(P, [status("a", f"subscriber {S}", away=True)]) == [f"{away}, until its timeout of 1m 30s is over"]
    assert awaited(P, [status("a", f"orphan {S}")]) == [f"{away}, until its timeout of 1h is over"]
    assert awaited(P, [status("a", "orphan of old")]) == ["subscriber of old, which is away"]


def test_any_subscriber_with_credit_is_named_as_that() -> None:
    wait = "any subscriber of work/q with credit"
    assert awaited(P, [status("a", wait), status("b")]) == [wait]


def test_who_waits_for_another_publisher_is_not_named() -> None:
    assert awaited("another", [status("a", f"subscriber {S}")]) == []


def test_nobody_is_told_to_wait_for_himself() -> None:
    """A subscriber's router may have heard of a delivery before its publisher is back."""
    assert awaited(P, [status("c", f"publisher {P}")]) == []


def test_a_publisher_that_has_something_to_do_is_named() -> None:
    wait = f"publisher {P}, to settle, for subscriber {S}"
    assert awaited(P, [status("a", wait)]) == [wait]
