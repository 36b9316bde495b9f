"""What clients count themselves, in memory and over the lives of their processes."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from failover.chaos.accounts import (
    Published,
    consumer_counts,
    overtaken,
    shared_counts,
    subscriber_counts,
    unexplained,
)
from failover.chaos.ledger import Ledger, body, open_database, published, received
from failover.client import Delivery, Outcome, SqliteStore
from failover.client.state.store import Added, Decided, Removed, tag_of
from router.amqp.format.message import data_message
from router.amqp.format.values import ACCEPTED
from topic.identity import LinkIdentity

ALL = Published(5, frozenset(), frozenset())
LINK = LinkIdentity("news", "chaos", "topic/x")


@pytest.mark.parametrize(
    ("numbers", "counts"),
    [
        ((0, 1, 2, 3, 4), {"received": 5, "missing": 0, "doubled": 0, "overtaken": 0}),
        ((0, 1, 3, 4), {"received": 4, "missing": 1, "doubled": 0, "overtaken": 0}),
        ((0, 1, 2, 3, 4, 1), {"received": 6, "missing": 0, "doubled": 1, "overtaken": 0}),
        ((2, 0, 1, 3, 4), {"received": 5, "missing": 0, "doubled": 0, "overtaken": 2}),
        ((), {"received": 0, "missing": 5, "doubled": 0, "overtaken": 0}),
    ],
)
def test_a_subscriber_is_owed_everything_once_and_in_order(numbers: tuple[int, ...], counts: dict[str, int]) -> None:
    assert subscriber_counts({"news": numbers}, {"news": ALL}) == counts


def test_only_what_was_accepted_can_be_missing() -> None:
    account = Published(5, otherwise=frozenset([1]), unknown=frozenset([4]))
    assert account.counts() == {"sent": 5, "accepted": 3, "otherwise": 1, "unknown": 1, "pause_ms": 0}
    assert account.missing([0, 2]) == 1
    assert account.missing([0, 1, 2, 3]) == 0


def test_of_one_of_many_all_together_are_owed_what_was_accepted() -> None:
    assert consumer_counts({"news": (3, 1)}) == {"received": 2, "missing": 0, "doubled": 0, "overtaken": 0}
    assert shared_counts(ALL, [(0, 3), (2, 1), (4,)]) == {"missing": 0, "doubled": 0}
    assert shared_counts(ALL, [(0, 3), (2, 3), (2,)]) == {"missing": 2, "doubled": 2}


@pytest.mark.parametrize(("known", "told"), [(1, 1), (2, 0)])
def test_what_several_have_had_the_audit_has_to_know(known: int, told: int) -> None:
    clients: dict[str, dict[str, Any]] = {
        "jobs": {"role": "publisher", "missing": 0, "doubled": 2},
        "worker": {"role": "subscriber"},
    }
    assert len([*unexplained(clients, [], {"processed by several": known})]) == told


def test_what_was_delivered_again_overtakes_nothing() -> None:
    assert overtaken([0, 1, 2, 0, 3]) == 0


def delivery_of(publisher: str, number: int) -> Delivery:
    async def never(delivery: Delivery, outcome: Outcome) -> None:
        raise AssertionError

    return Delivery(never, b"key", data_message(body(publisher, number, 20)))


def test_a_publishers_account_outlives_its_process(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    for life in range(2):
        with closing(open_database(path)) as connection:
            store, ledger = SqliteStore(connection), Ledger(connection)
            for number in range(3 * life, 3 * life + 3):
                store.write("publisher", LINK, [Added(number, b"x")])
                ledger.sent(number, 0)
            ledger.told(3 * life, 0, Outcome.IN_DOUBT)
            store.write("publisher", LINK, [Removed(tag_of(3 * life)), Decided(tag_of(3 * life + 1), ACCEPTED)])
            ledger.told(3 * life + 1, 0, Outcome.ACCEPTED)
            assert (ledger.counts["sent"], ledger.counts["accepted"]) == (3, 1)
    assert published(path) == Published(6, otherwise=frozenset([0, 3]), unknown=frozenset([2, 5]))


def test_the_longest_pause_is_between_acceptances_of_one_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.db"
    for life in ([1.0, 1.5, 4.0, 4.25], [100.0, 100.5]):
        with closing(open_database(path)) as connection:
            ledger = Ledger(connection)
            for number, now in enumerate(life):
                monkeypatch.setattr("failover.chaos.ledger.time.monotonic", lambda now=now: now)
                ledger.told(number, 0, Outcome.ACCEPTED)
            connection.commit()
    assert published(path).pause_ms == 2500


def test_a_subscribers_account_is_what_it_committed_with_its_acceptances(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with closing(open_database(path)) as connection:
        store, ledger = SqliteStore(connection), Ledger(connection)
        for publisher, number in (("p", 0), ("q", 0), ("p", 1)):
            ledger.received(delivery_of(publisher, number))
            store.write("subscriber", LINK, [Decided(b"%b%d" % (publisher.encode(), number), ACCEPTED)])
        ledger.received(delivery_of("p", 2))  # killed before it was accepted
    assert received(path) == {"p": [0, 1], "q": [0]}


def test_a_client_that_never_began_has_an_account_of_nothing(tmp_path: Path) -> None:
    assert published(tmp_path / "p.db") == Published(0, frozenset(), frozenset())
    assert received(tmp_path / "s.db") == {}
