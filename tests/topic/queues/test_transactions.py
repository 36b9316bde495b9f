"""Transactions on the queues of one set: all of it or nothing, once (protocol 14.20).

a, b, c   voters of the set; a leads first
d, e      have no replica
"""

from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.failures import marked
from tests.topic.clients import Party, Reader
from tests.topic.queues.bench import ELECTED_S, QUEUE, SET, QueueBench
from tests.topic.queues.test_egress import filled, lasting, plain
from tests.topic.raft.mutants import Broken, must_notice
from topic.actions import Discharged, LinkAction, RetirementsOver, TransactionEnd
from topic.delivery.allowance import Allowance, unbounded
from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import State
from topic.identity import egress_address, ingress_address, queue_of
from topic.node import Node
from topic.queues.leader.commits import Commits
from topic.queues.leader.egress import Egress
from topic.queues.leader.ingress import Ingress
from topic.queues.messages import QueuedMessages
from topic.queues.operations import (
    Commit,
    Declare,
    Done,
    Post,
    QueueId,
    Refused,
    RefusedFor,
    Retirement,
    decode,
    encode,
    unpack,
)
from topic.queues.positions import runs_of
from topic.queues.proposals import Enqueue, Retire, Transact, Transacted, encode_proposal, read_proposal
from topic.queues.requests import Requests
from topic.queues.set_map import SetPlan
from topic.queues.state import SetState, entry, messages_of
from topic.queues.transactions import transactions
from topic.queues.transactions.decided import MOST_UNANSWERED, DecidedTransactions
from topic.queues.transactions.transactions import (
    Retired,
    TooManyTransactionsError,
    Transactions,
    UnknownTransactionError,
)
from topic.raft.life import SetLife

ACCEPTED, REJECTED, RELEASED, MODIFIED = DeliveryOutcome
OTHER = "queue/2"
SECOND = "q1"
COMMITTED, ROLLED_BACK = TransactionEnd.COMMITTED, TransactionEnd.ROLLED_BACK


class Client(Party):
    """A client with a transaction. It is its own connection, its link to the coordinator, and the consumer's link."""

    bench: QueueBench

    def __init__(self, bench: QueueBench, router: str, account: Allowance | None = None) -> None:
        self.bench, self.router = bench, router
        self.account = account or unbounded()
        self.is_away = False
        """Whether the consumer's link has ended: its router tells the core nothing of it any more."""
        self.ends: list[tuple[TransactionEnd, str]] = []
        self.open: dict[Any, tuple[Reader, Retired]] = {}
        self.declare()

    @property
    def node(self) -> Node:
        return self.bench.at(self.router).node

    @property
    def all(self) -> Transactions:
        found = self.node.transactions
        assert found is not None
        return found

    def declare(self) -> None:
        self.name = self.all.declare(self, self, self.account)
        self.now = self.all.find(self, self.name)

    def post(self, *messages: bytes, queue: str = OTHER, set_: str = SET) -> None:
        for message in messages:
            self.all.post(self.now, set_, queue, message, self.bench.now)
        self.flow()

    def retire(
        self,
        reader: Reader,
        *messages: bytes,
        outcome: DeliveryOutcome = ACCEPTED,
        settled: bool = False,
        annotations: bytes = b"",
    ) -> None:
        """Tell the outcome of the latest delivery of each message."""
        delivered = {message: record for record, message in reader.handed if message in messages}
        for record in delivered.values():
            set_, queue = queue_of(reader.end.identity.address)
            who, key = reader.end.name, record.key
            retired = Retired(self.now, self, record, queue, who, key, outcome, False, False, annotations, settled)
            self.open[record] = reader, retired
            self.all.retire(retired, set_, self.bench.now)
        self.flow()

    def discharge(self, *, fail: bool = False) -> None:
        self.all.discharge(self.now, fail=fail)
        self.flow()

    def commit(self) -> tuple[TransactionEnd, str]:
        """Commit, and return how it has ended."""
        self.discharge()
        return self.ends[-1]

    def leave(self) -> None:
        self.all.leave(self)
        self.flow()

    def flow(self) -> None:
        self.node.transacts()
        self.bench.collect(self.router)
        self.bench.flow()

    def hear(self, action: LinkAction) -> None:
        if isinstance(action, Discharged):
            assert action.transaction == self.name
            self.ends.append((action.end, action.why))
        elif isinstance(action, RetirementsOver) and not self.is_away:
            for one in action.outcomes:
                reader, _ = self.open.pop(one.record)
                topic = self.node.topic
                if action.committed:
                    topic.outcomes(reader.end, [one.record], one.outcome)
                elif one.is_settled:
                    topic.outcomes(reader.end, [one.record], MODIFIED, failed=True)


def there(bench: QueueBench, queue: str = OTHER) -> list[bytes]:
    """The messages of a queue. All replicas have the same."""
    found = list[list[bytes]]()
    for name in [name for name in bench.names if name in "abc"]:
        state = bench.sets(name).state(SET)
        state.check()
        known = state.get(queue)
        found.append([bench.texts[at] for at in state.messages.of(known.id)] if known is not None else [])
    assert all(one == found[0] for one in found)
    return found[0]


def taken(router: str = "d", *messages: bytes, keeps: bool = False) -> tuple[QueueBench, Reader, Client]:
    """A queue with these messages, which a consumer has; and a client at its router."""
    bench, _ = filled(*(messages or (b"1", b"2")))
    reader = (lasting if keeps else plain)(bench, router)
    return bench, reader, Client(bench, router)


@pytest.mark.parametrize("router", ["a", "b", "d"])
def test_a_commit_takes_messages_from_one_queue_and_puts_others_into_another(router: str) -> None:
    bench, reader, client = taken(router)
    client.retire(reader, b"1", b"2", settled=True)
    client.post(b"3", b"4")
    assert (there(bench, QUEUE), there(bench)) == ([b"1", b"2"], []), "nothing leaves before the discharge"
    assert client.commit() == (COMMITTED, "")
    assert (there(bench, QUEUE), there(bench)) == ([], [b"3", b"4"])
    other = bench.subscriber("e", "other", address=egress_address(SET, OTHER))
    assert other.delivered == [b"3", b"4"] and reader.delivered == [b"1", b"2"]
    other.accept(b"3", b"4")
    bench.wait(1)
    assert there(bench) == [] and bench.records() == {}


@pytest.mark.parametrize("router", ["a", "b", "d"])
def test_a_consumer_that_waits_gets_what_a_transaction_brings(router: str) -> None:
    bench, _ = filled()
    reader = plain(bench, "e")
    client = Client(bench, router)
    client.post(b"1", b"2", queue=QUEUE)
    assert reader.delivered == []
    assert client.commit() == (COMMITTED, "") and reader.delivered == [b"1", b"2"]
    reader.accept(b"1", b"2")
    assert there(bench, QUEUE) == []


@pytest.mark.parametrize("is_rolled_back", [False, True])
def test_a_message_behind_a_transaction_waits_until_it_is_decided(is_rolled_back: bool) -> None:
    """The leader knows of both when neither is decided. A consumer gets messages in the order of their queue."""
    bench, _ = filled()
    if is_rolled_back:
        bench.configure(QUEUE, limit_messages=2)
    reader, publisher = plain(bench, "e"), bench.publisher("d", "p", address=ingress_address(SET, QUEUE))
    client = Client(bench, "d")
    client.post(*(b"1", b"2", b"3")[: 2 + is_rolled_back], queue=QUEUE)
    bench.hanging |= {*"abc"}
    client.discharge()
    publisher.send(b"4")
    bench.flow()
    bench.hanging.clear()
    bench.flow()
    assert client.ends[-1][0] is (ROLLED_BACK if is_rolled_back else COMMITTED)
    assert reader.delivered == ([b"4"] if is_rolled_back else [b"1", b"2", b"4"])


@pytest.mark.parametrize("router", ["a", "d"])
@pytest.mark.parametrize("is_settled", [False, True])
def test_after_a_rollback_the_client_has_what_it_had_not_settled(router: str, is_settled: bool) -> None:
    bench, reader, client = taken(router)
    client.retire(reader, b"1", b"2", settled=is_settled)
    client.post(b"3")
    client.discharge(fail=True)
    assert client.ends == [(ROLLED_BACK, "")]
    assert (there(bench, QUEUE), there(bench)) == ([b"1", b"2"], [])
    again = [marked(b"1", 1), marked(b"2", 1)] if is_settled else []
    assert reader.delivered == [b"1", b"2", *again], "what it has settled comes again, as failed"
    reader.accept(*again or (b"1", b"2"))
    assert there(bench, QUEUE) == []


def test_a_message_that_the_client_has_no_longer_rolls_all_back() -> None:
    bench, reader, client = taken()
    client.retire(reader, b"1", b"2")
    client.post(b"3")
    reader.answer(RELEASED, b"2")
    end, why = client.commit()
    assert end is ROLLED_BACK and "no longer" in why
    assert (there(bench, QUEUE), there(bench)) == ([b"1", b"2"], [])
    reader.accept(b"1", b"2")
    assert there(bench, QUEUE) == []


def test_a_message_that_is_on_its_way_back_rolls_all_back() -> None:
    """The leader has proposed its return already."""
    bench, reader, client = taken()
    client.retire(reader, b"1", b"2")
    client.post(b"3")
    bench.hanging |= {*"abc"}
    reader.answer(RELEASED, b"2")
    client.discharge()
    bench.hanging.clear()
    bench.flow()
    assert client.ends[-1][0] is ROLLED_BACK
    assert (there(bench, QUEUE), there(bench)) == ([b"1", b"2"], [])


def test_a_consumer_that_has_ended_rolls_all_back() -> None:
    bench, reader, client = taken()
    client.retire(reader, b"1", b"2")
    client.post(b"3")
    reader.close()
    assert client.commit()[0] is ROLLED_BACK and there(bench) == []
    again = plain(bench, "e", "again")
    assert again.delivered == [marked(b"1", 1), marked(b"2", 1)]


def test_a_message_that_came_back_and_is_the_clients_again_is_another_delivery() -> None:
    bench, reader, client = taken("d", b"1")
    client.retire(reader, b"1")
    reader.answer(RELEASED, b"1")
    assert reader.delivered == [b"1", b"1"]
    assert client.commit()[0] is ROLLED_BACK and there(bench, QUEUE) == [b"1"]


def test_a_client_that_goes_rolls_back() -> None:
    bench, reader, client = taken()
    client.retire(reader, b"1", settled=True)
    client.post(b"3")
    client.leave()
    assert there(bench) == [] and reader.delivered == [b"1", b"2", marked(b"1", 1)]
    with pytest.raises(UnknownTransactionError):
        client.all.find(client, client.name)


def test_outcomes_that_give_back_count_with_the_commit() -> None:
    bench, reader, client = taken()
    client.retire(reader, b"1", outcome=RELEASED)
    client.retire(reader, b"2", outcome=ACCEPTED)
    assert client.commit() == (COMMITTED, "")
    assert there(bench, QUEUE) == [b"1"] and reader.delivered == [b"1", b"2", b"1"]
    client.declare()
    client.retire(reader, b"1", outcome=RELEASED)
    assert client.commit() == (COMMITTED, ""), "no set has to decide this"
    assert reader.delivered == [b"1", b"2", b"1", b"1"]


def test_message_rejected_in_a_transaction_is_a_dead_letter() -> None:
    bench, reader, client = taken()
    bench.configure(QUEUE, dead_letter=OTHER)
    client.retire(reader, b"1", outcome=REJECTED)
    client.post(b"3", queue="queue/3")
    assert client.commit() == (COMMITTED, "")
    bench.wait(1)
    assert there(bench, QUEUE) == [b"2"] and there(bench, "queue/3") == [b"3"]
    assert [bench.sets("a").state(SET).messages.total, len(there(bench))] == [3, 1]


@pytest.mark.parametrize("router", ["a", "d"])
def test_a_dead_letter_of_a_transaction_has_the_error_of_its_consumer(router: str) -> None:
    """It is that of each message, with what earlier consumers have added. The next leader has it, too."""
    bench, reader, client = taken(router, b"1", b"2", b"3")
    bench.configure(QUEUE, dead_letter=OTHER)
    reader.answer(MODIFIED, b"1", annotations=b"x")
    client.retire(reader, b"1 with x", outcome=REJECTED, annotations=b"y")
    client.retire(reader, b"2", outcome=REJECTED, annotations=b"z")
    client.retire(reader, b"3", outcome=REJECTED)
    bench.hanging |= {"b", "c"}
    client.discharge()
    bench.hanging.clear()
    bench.stop("a") if router == "d" else bench.flow()
    bench.wait(ELECTED_S)
    assert client.ends == [(COMMITTED, "")]
    dead = bench.subscriber("e", "dead", address=egress_address(SET, OTHER))
    assert dead.delivered == [b"1 with xy died 1", b"2 with z died 1", b"3 died 1"]


def test_message_rejected_in_a_transaction_is_gone_without_an_address_for_dead_letters() -> None:
    bench, reader, client = taken()
    client.retire(reader, b"1", b"2", outcome=REJECTED)
    assert client.commit() == (COMMITTED, "")
    bench.wait(1)
    assert there(bench, QUEUE) == [] and bench.records() == {}


# bounds


def test_queues_of_two_sets_are_refused() -> None:
    others = [SetPlan(SECOND, tuple("abc"), prefix="other/")]
    bench = QueueBench(*"abcde", others=others)
    client = Client(bench, "d")
    client.post(b"1")
    client.post(b"2", queue="other/2", set_=SECOND)
    end, why = client.commit()
    assert end is TransactionEnd.NOT_IMPLEMENTED and f"{SET} and {SECOND}" in why and there(bench) == []


def test_a_leader_carries_out_nothing_for_a_queue_of_another_set() -> None:
    others = [SetPlan(SECOND, tuple("abc"), prefix="other/")]
    bench = QueueBench(*"abcde", others=others)
    asked = Commit(QUEUE, "d", 1, 0, 0, (Post(QUEUE, (b"1",)), Post("other/2", (b"2",))), ())
    number = bench.at("d").node.ask(asked)
    bench.collect("d")
    bench.flow()
    answer = bench.at("d").answers[number]
    assert isinstance(answer, Refused) and answer.reason is RefusedFor.ROLLED_BACK
    assert there(bench, QUEUE) == []


def test_a_transaction_has_so_many_parts_and_bytes_at_most() -> None:
    bench, _ = filled()
    client = Client(bench, "d")
    with patch.object(transactions, "MOST_PARTS", 2):
        client.post(b"1", b"2", b"3")
    assert client.commit()[0] is TransactionEnd.TOO_LARGE
    client.declare()
    client.post(bytes(client.all._most_bytes), b"1")
    assert client.commit()[0] is TransactionEnd.TOO_LARGE
    client.declare()
    client.post(bytes(client.all._most_bytes))
    assert client.commit()[0] is COMMITTED and len(there(bench)) == 1


def test_messages_of_a_transaction_count_for_its_client() -> None:
    bench, _ = filled()
    whole = Allowance("connection_bytes", 100)
    client = Client(bench, "d", whole)
    client.post(bytes(60))
    assert whole.held == 60
    client.post(bytes(60), b"1")
    assert whole.held == 0 and "connection_bytes" in client.commit()[1]
    client.declare()
    client.post(bytes(60))
    assert client.commit()[0] is COMMITTED and whole.held == 0


def test_a_connection_has_so_many_open_transactions_at_most() -> None:
    bench, _ = filled()
    client = Client(bench, "d")
    with patch.object(transactions, "MOST_OPEN", 2):
        client.declare()
        with pytest.raises(TooManyTransactionsError):
            client.declare()
        client.discharge(fail=True)
        client.declare()


def test_a_transaction_is_of_its_connection() -> None:
    bench, _ = filled()
    client, other = Client(bench, "d"), Client(bench, "d")
    with pytest.raises(UnknownTransactionError):
        client.all.find(other, client.name)


def test_a_transaction_lasts_so_long_at_most() -> None:
    bench, reader, client = taken()
    bench.wait(1)
    client.retire(reader, b"1", settled=True)
    client.post(b"3")
    bench.now += transactions.TIMEOUT_S - 1
    bench.wait(0)
    assert reader.delivered == [b"1", b"2"]
    bench.wait(3)
    assert reader.delivered == [b"1", b"2", marked(b"1", 1)]
    client.retire(reader, b"2", settled=True)
    assert reader.delivered[-1] == marked(b"2", 1), "it is over, so what it is told now comes back at once"
    client.post(b"4")
    assert client.commit()[0] is TransactionEnd.TIMED_OUT and there(bench) == []


def test_an_empty_transaction_lasts_and_asks_no_set() -> None:
    bench, _ = filled()
    client = Client(bench, "d")
    bench.now += 2 * transactions.TIMEOUT_S
    bench.wait(1)
    before = bench.sets("a").applied(SET)
    assert client.commit() == (COMMITTED, "") and bench.sets("a").applied(SET) == before


def test_a_full_queue_rolls_all_back() -> None:
    bench, reader, client = taken()
    bench.declare(OTHER, limit_messages=1)
    client.retire(reader, b"1", b"2")
    client.post(b"3", b"4")
    assert client.commit() == (ROLLED_BACK, f'queue "{OTHER}" is full')
    assert (there(bench, QUEUE), there(bench)) == ([b"1", b"2"], [])


def test_messages_retired_in_a_transaction_make_room_in_a_full_queue() -> None:
    bench, reader, client = taken()
    bench.configure(QUEUE, limit_messages=2, limit_bytes=2)
    client.retire(reader, b"1")
    client.post(b"3", queue=QUEUE)
    assert client.commit() == (COMMITTED, "") and there(bench, QUEUE) == [b"2", b"3"]


def test_a_full_set_rolls_back_what_posts() -> None:
    _, reader, client = taken()
    with patch.object(Ingress, "is_at_its_limit", True):
        client.post(b"3")
        assert client.commit() == (ROLLED_BACK, f"set {SET} is full")
        client.declare()
        client.retire(reader, b"1")
        assert client.commit() == (COMMITTED, "")


def test_messages_of_a_transaction_expire() -> None:
    bench, _ = filled()
    client = Client(bench, "d")
    client.post(b"1!3", b"2")
    assert client.commit() == (COMMITTED, "")
    bench.wait(5)
    assert there(bench) == [b"2"]


# leaders


@pytest.mark.parametrize("router", ["b", "d"])
def test_the_next_leader_is_asked_again_and_decides_once(router: str) -> None:
    """The leader has the entry decided. The answer is lost with it."""
    bench, reader, client = taken(router, keeps=True)
    client.retire(reader, b"1", b"2")
    client.post(b"3")
    bench.hold("a", router)
    client.discharge()
    assert bench.sets("c").state(SET).messages.count == 1 and client.ends == []
    bench.stop("a")
    bench.wait(ELECTED_S)
    assert client.ends == [(COMMITTED, "")]
    assert (there(bench, QUEUE), there(bench)) == ([], [b"3"])
    bench.wait(1)
    assert reader.delivered == [b"1", b"2"]


@pytest.mark.parametrize("router", ["b", "d"])
def test_what_a_leader_takes_with_it_the_next_one_decides(router: str) -> None:
    """No other disk has the entry."""
    bench, reader, client = taken(router, keeps=True)
    client.retire(reader, b"1", b"2")
    client.post(b"3")
    bench.hanging |= {*"abc"}
    client.discharge()
    bench.stop("a")
    bench.hanging.clear()
    bench.wait(ELECTED_S)
    assert client.ends == [(COMMITTED, "")]
    assert (there(bench, QUEUE), there(bench)) == ([], [b"3"])
    bench.wait(1)
    assert reader.delivered == [b"1", b"2"]


def test_a_rollback_that_was_decided_stays_one() -> None:
    """The leader has rolled it back, as the queue was full, and dies. Then there is room."""
    bench, _ = filled()
    bench.declare(OTHER, limit_messages=1)
    client = Client(bench, "d")
    client.post(b"1", b"2")
    bench.hold("a", "d")
    client.discharge()
    with patch.object(Requests, "next_batch", return_value=[]):
        bench.stop("a")
        bench.wait(ELECTED_S)
    state = bench.sets(bench.leader).state(SET)
    with patch.object(SetState, "_why_not", return_value=""):
        bench.wait(1)
        bench.sets("d")._touched[SET] = None
        bench.wait(1)
    assert client.ends == [(ROLLED_BACK, f'queue "{OTHER}" is full')] and there(bench) == [] and len(state) == 2


def test_a_transaction_waits_for_a_leader_without_end() -> None:
    bench, _ = filled()
    client = Client(bench, "d")
    client.post(b"1")
    bench.stop("b")
    bench.stop("c")
    client.discharge()
    bench.wait(30)
    assert client.ends == [], "nobody knows how it will end"
    bench.start("b", 2)
    bench.wait(ELECTED_S)
    assert client.ends == [(COMMITTED, "")] and there(bench) == [b"1"]


def test_a_client_that_goes_while_the_set_decides_leaves_all_or_nothing() -> None:
    bench, reader, client = taken()
    client.retire(reader, b"1", b"2")
    client.post(b"3")
    bench.hanging |= {*"abc"}
    client.discharge()
    client.leave()
    reader.close()
    bench.hanging.clear()
    bench.flow()
    bench.wait(1)
    assert (there(bench, QUEUE), there(bench)) == ([], [b"3"])


def test_a_transaction_that_is_discharged_goes_on_when_a_link_ends() -> None:
    bench, reader, client = taken()
    client.retire(reader, b"1", b"2", settled=True)
    client.post(b"3")
    with patch.object(transactions, "MOST_DECIDING", 0):  # it waits for earlier ones
        client.discharge()
        client.all.fail(client.now, ROLLED_BACK, "a link has ended")
        client.flow()
    client.flow()
    assert client.ends == [(COMMITTED, "")] and (there(bench, QUEUE), there(bench)) == ([], [b"3"])
    bench.wait(1)
    assert reader.delivered == [b"1", b"2"]


@pytest.mark.parametrize("router", ["b", "d"])
def test_what_the_next_leader_has_not_published_again_is_there(router: str) -> None:
    """The leader has not read the bodies of the messages, and needs none."""
    bench, reader, client = taken(router, keeps=True)
    client.retire(reader, b"1", b"2")
    with patch.object(Egress, "_publish"):
        bench.stop("a")
        bench.wait(ELECTED_S)
        assert client.commit() == (COMMITTED, "")
    client.declare()
    client.post(b"3", queue=QUEUE)
    assert client.commit() == (COMMITTED, "") and reader.delivered == [b"1", b"2", b"3"]
    bench.wait(1)
    assert there(bench, QUEUE) == [b"3"]
    records = [one for name in bench.names for one in bench.at(name).node.topic.records.by_key.values()]
    in_doubt = {one.message for one in records if one.state is State.IN_DOUBT}
    assert in_doubt == {b"3"}, "the router of the consumer had asked about the deliveries, and knows that they are over"


def test_a_router_has_so_many_transactions_decided_at_a_time() -> None:
    bench, _ = filled()
    clients = [Client(bench, "d") for _ in range(2 * transactions.MOST_DECIDING)]
    bench.hold("d", "a")
    for number, client in enumerate(clients):
        client.post(b"%d" % number)
        client.discharge()
    assert len(bench.sets("d")._requests[SET]) == transactions.MOST_DECIDING
    clients[-1].leave()
    bench.let_go()
    assert [client.ends for client in clients] == [[(COMMITTED, "")]] * (len(clients) - 1) + [[]]
    assert there(bench) == [b"%d" % number for number in range(len(clients) - 1)]


def test_the_state_keeps_few_answers() -> None:
    bench, _ = filled()
    client = Client(bench, "d")
    for number in range(20):
        client.post(b"%d" % number)
        client.commit()
        client.declare()
    askers = bench.sets("a").state(SET)._transactions._askers
    assert [*askers] == ["d"] and len(askers["d"].answers) == 1


def test_a_queue_that_a_transaction_names_is_declared() -> None:
    bench, _ = filled()
    client = Client(bench, "d")
    client.post(b"1", queue="queue/new")
    client.post(b"2", queue="queue/newer")
    assert client.commit() == (COMMITTED, "")
    assert there(bench, "queue/new") == [b"1"] and there(bench, "queue/newer") == [b"2"]


@pytest.mark.parametrize("router", ["b", "e"])
def test_a_consumer_that_was_away_at_the_commit_is_not_sent_the_message_again(router: str) -> None:
    """Its router cannot tell home of the outcome, as the link has ended."""
    bench, reader, client = taken("d", keeps=True)
    client.retire(reader, b"1", b"2")
    bench.hanging |= {*"abc"}
    client.discharge()
    reader.vanish()
    client.is_away = True
    bench.hanging.clear()
    bench.flow()
    assert there(bench, QUEUE) == []
    keys = {record.key: 0 for record, _ in reader.handed}
    again = lasting(bench, router, unsettled=keys)
    bench.wait(1)
    assert again.delivered == [] and all(told[0] is None and told[2] for told in again.resumed)


def ask(bench: QueueBench, asked: Commit) -> Any:
    number = bench.at("d").node.ask(asked)
    bench.collect("d")
    bench.flow()
    return bench.at("d").answers[number]


def test_a_leader_carries_out_only_what_the_consumer_has() -> None:
    bench, reader, _ = taken()
    bench.declare(OTHER)
    key, other = (record.key for record, _ in reader.handed)
    for number, retired in enumerate(
        [
            [Retirement(QUEUE, b"x" * 12, (key,), False)],
            [Retirement(QUEUE, reader.end.name, (b"x" * 32,), False)],
            [Retirement(QUEUE, reader.end.name, (key, b"x" * 32), False)],
            [Retirement(OTHER, reader.end.name, (key,), False)],
            [Retirement("queue/3", reader.end.name, (key,), False)],
            2 * [Retirement(QUEUE, reader.end.name, (key,), False)],
        ]
    ):
        answer = ask(bench, Commit(QUEUE, "d", 1, number, number, (Post(OTHER, (b"3",)),), tuple(retired)))
        assert isinstance(answer, Refused) and "no longer" in answer.why, number
    assert (there(bench, QUEUE), there(bench)) == ([b"1", b"2"], [])
    both = Retirement(QUEUE, reader.end.name, (other, key), False)
    assert isinstance(ask(bench, Commit(QUEUE, "d", 1, 9, 9, (), (both,))), Done) and there(bench, QUEUE) == []


# the state

SOME = Transact("d", 1, 0, 0, "", [Enqueue("queue/a", [], [], [b"1"])], [])


def declared(*queues: str) -> SetState:
    state = SetState()
    for index, queue in enumerate(queues or ("queue/a",), 1):
        state.apply(index, entry(SetLife(1, "a"), encode(Declare(queue))))
    return state


def decide(state: SetState, index: int, asked: Transact) -> Transacted:
    answer = state.apply(index, entry(SetLife(1, "a"), encode_proposal(asked)))
    state.check()
    assert isinstance(answer, Transacted)
    again = SetState(state.rows)
    again.check()
    return answer


def count(state: SetState, queue: str = "queue/a") -> int:
    known = state.get(queue)
    return len(state.messages.of(known.id)) if known is not None else 0


def variant(number: int = 0, *, router: str = "d", incarnation: int = 1, floor: int = 0, why: str = "") -> Transact:
    return Transact(router, incarnation, number, floor, why, SOME.enqueues, SOME.retires)


def test_a_second_decision_has_the_first_answer_and_no_effect() -> None:
    state = declared()
    assert decide(state, 5, variant()).answer == Done(QueueId(SetLife(1, "a"), 5), QueueId(SetLife(1, "a"), 5))
    again = decide(state, 6, variant())
    assert isinstance(again.answer, Done) and not again.enqueued and count(state) == 1


def test_a_second_decision_of_a_rollback_is_a_rollback() -> None:
    state = declared()
    assert isinstance(decide(state, 5, variant(why="it is full")).answer, Refused)
    assert isinstance(decide(state, 6, variant()).answer, Refused) and count(state) == 0


@pytest.mark.parametrize(
    "second", [variant(1), variant(router="e"), variant(incarnation=2)], ids=["number", "router", "incarnation"]
)
def test_another_transaction_is_another(second: Transact) -> None:
    state = declared()
    decide(state, 5, variant())
    assert isinstance(decide(state, 6, second).answer, Done) and count(state) == 2


@pytest.mark.parametrize(
    "late", [variant(3, floor=0), variant(7, incarnation=0)], ids=["answered before", "of an earlier incarnation"]
)
def test_what_its_router_waits_for_no_more_has_no_effect(late: Transact) -> None:
    state = declared()
    decide(state, 5, variant(3))
    decide(state, 6, variant(4, floor=4))
    assert isinstance(decide(state, 7, late).answer, Refused) and count(state) == 2


def test_a_router_waits_for_few_answers() -> None:
    state = declared()
    for number in range(MOST_UNANSWERED + 5):
        decide(state, 5 + number, variant(number))
    assert count(state) == MOST_UNANSWERED


def test_the_messages_of_an_entry_have_places_over_all_its_queues() -> None:
    state = declared("queue/a", "queue/b")
    posts = [Enqueue("queue/a", [], [], [b"1", b"2"]), Enqueue("queue/b", [], [], [b"3"], [5])]
    asked = Transact("d", 1, 0, 0, "", posts, [])
    answer = decide(state, 5, asked)
    positions = [position for one in answer.enqueued for position in one.positions]
    assert positions == sorted({*positions}) and messages_of(entry(SetLife(1, "a"), encode_proposal(asked))) == [
        b"1",
        b"2",
        b"3",
    ]
    known = state.get("queue/b")
    assert known is not None and state.messages.expiring[positions[2]] == (known.id, 5)


def test_a_request_for_a_transaction_does_nothing_in_a_log() -> None:
    state = declared()
    before = state.rows.digest
    asked = Commit("queue/a", "d", 1, 0, 0, (Post("queue/a", (b"1",)),), ())
    assert isinstance(state.apply(9, entry(SetLife(1, "a"), encode(asked))), Refused) and state.rows.digest == before


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
NUMBERS = st.integers(0, 2**63 - 1)
LIVES = st.builds(SetLife, st.integers(1, 2**63 - 1), st.sampled_from("ab"))
RUNS = st.sets(st.integers(0, 2**40), max_size=4).map(lambda positions: runs_of(sorted(positions)))
COMMITS = st.builds(
    Commit,
    NAMES,
    NAMES,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    st.lists(
        st.builds(Post, NAMES, st.lists(st.binary(max_size=5), min_size=1, max_size=3).map(tuple)),
        max_size=3,
        unique_by=lambda post: post.queue,
    ).map(tuple),
    st.lists(
        st.builds(
            lambda queue, who, keys, rejected: Retirement(queue, who, tuple(keys), rejected, tuple(keys.values())),
            NAMES,
            st.binary(min_size=12, max_size=12),
            st.dictionaries(st.binary(min_size=32, max_size=32), st.binary(max_size=5), min_size=1, max_size=3),
            st.booleans(),
        ),
        max_size=3,
    ).map(tuple),
)
TRANSACTS = st.builds(
    Transact,
    NAMES,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    st.text(max_size=5),
    st.lists(
        st.builds(Enqueue, NAMES, st.just([]), st.just([]), st.lists(st.binary(max_size=5), min_size=1, max_size=3)),
        max_size=3,
    ),
    st.lists(
        st.builds(
            Retire,
            st.builds(QueueId, LIVES, NUMBERS),
            st.binary(min_size=12, max_size=12),
            st.booleans(),
            RUNS,
            st.dictionaries(st.integers(0, 2**40), st.binary(max_size=5), max_size=2),
        ),
        max_size=3,
    ),
)


@given(COMMITS)
def test_a_request_is_read_as_it_was_written(asked: Commit) -> None:
    assert decode(encode(asked)) == asked


@given(TRANSACTS)
def test_an_entry_is_read_as_it_was_written(asked: Transact) -> None:
    data = encode_proposal(asked)
    state = declared()
    state.apply(5, entry(SetLife(1, "a"), data))
    state.check()
    assert encode_proposal(read_proposal(unpack(data, "it"))) == data


@given(st.one_of(TRANSACTS.map(encode_proposal), COMMITS.map(encode)), st.data())
def test_malformed_transaction_changes_nothing_or_is_refused(data: bytes, draw: st.DataObject) -> None:
    at = draw.draw(st.integers(0, len(data) - 1))
    state = declared()
    state.apply(5, entry(SetLife(1, "a"), data[:at] + bytes((draw.draw(st.integers(0, 255)),)) + data[at + 1 :]))
    state.check()


BROKEN: list[Broken] = [
    # half a commit
    (SetState, "_commit", "in asked.retires", "in asked.retires[1:]",
     partial(test_a_commit_takes_messages_from_one_queue_and_puts_others_into_another, "d")),
    (SetState, "_commit", "in asked.enqueues", "in asked.enqueues[1:]",
     partial(test_a_commit_takes_messages_from_one_queue_and_puts_others_into_another, "d")),
    (SetState, "_commit", "place += len(post.messages)", "pass",
     test_the_messages_of_an_entry_have_places_over_all_its_queues),
    (SetState, "_why_not", "not has or", "",
     test_a_message_that_is_on_its_way_back_rolls_all_back),
    (SetState, "_why_not", " or len(set(taken)) < len(taken)", "",
     test_a_leader_carries_out_only_what_the_consumer_has),
    (SetState, "_why_not", "not queue.settings.has_room(count, size)", "False", test_a_full_queue_rolls_all_back),
    (SetState, "_why_not", "- len(left)", "", test_messages_retired_in_a_transaction_make_room_in_a_full_queue),
    (QueuedMessages, "has_for", " and reserved.at(at) == consumer", "",
     test_a_leader_carries_out_only_what_the_consumer_has),
    (QueuedMessages, "retire", "rejected and ", "False and ", test_message_rejected_in_a_transaction_is_a_dead_letter),
    (QueuedMessages, "retire", "settings, annotations)", "settings, {})",
     partial(test_a_dead_letter_of_a_transaction_has_the_error_of_its_consumer, "d")),
    (Egress, "annotations_of", "self._annotations(position, more)", "more",
     partial(test_a_dead_letter_of_a_transaction_has_the_error_of_its_consumer, "a")),
    # a rollback that forgets
    (Transactions, "_drop", "self._tell(retired, committed=committed)", "pass",
     partial(test_after_a_rollback_the_client_has_what_it_had_not_settled, "d", is_settled=True)),
    (Transactions, "_drop", "committed=committed", "committed=True",
     partial(test_after_a_rollback_the_client_has_what_it_had_not_settled, "d", is_settled=False)),
    (Transactions, "leave", "self._drop(one)\n    for", "pass\n    for", test_a_client_that_goes_rolls_back),
    (Transactions, "leave", "waiting.remove(one)", "pass",
     test_a_router_has_so_many_transactions_decided_at_a_time),
    (Transactions, "retire", "self._tell([retired], committed=False)", "pass",
     test_a_transaction_lasts_so_long_at_most),
    (Transactions, "find", "or found.connection is not connection", "", test_a_transaction_is_of_its_connection),
    (Transactions, "_takes", "to.set and to.set != set_", "False", test_queues_of_two_sets_are_refused),
    (Transactions, "fail", " and self._open.get(to.id) is to", "",
     test_a_transaction_that_is_discharged_goes_on_when_a_link_ends),
    (Commits, "_why_not", "plan is None or plan.name != self._name", "False",
     test_a_leader_carries_out_nothing_for_a_queue_of_another_set),
    # a discharge that comes twice
    (SetState, "_transact", "self._transactions.answer(asked), False", "None, False",
     test_a_second_decision_has_the_first_answer_and_no_effect),
    (SetState, "_transact", "self._transactions.decide(asked, why)", "pass",
     partial(test_the_next_leader_is_asked_again_and_decides_once, "d")),
    (DecidedTransactions, "answer", "known.incarnation > asked.incarnation or ", "",
     partial(test_what_its_router_waits_for_no_more_has_no_effect, variant(7, incarnation=0))),
    (DecidedTransactions, "answer", " or asked.number < known.floor", "",
     partial(test_what_its_router_waits_for_no_more_has_no_effect, variant(3))),
    (DecidedTransactions, "answer", "asked.floor <= asked.number < asked.floor + MOST_UNANSWERED", "True",
     test_a_router_waits_for_few_answers),
    (DecidedTransactions, "decide", " if number >= floor", "", test_the_state_keeps_few_answers),
    (Requests, "add", "math.inf if lasts else ", "", test_a_transaction_waits_for_a_leader_without_end),
    (Egress, "came", "heappush(self._free, position)", "pass",
     partial(test_a_consumer_that_waits_gets_what_a_transaction_brings, "d")),
    (Egress, "left", "self._withdraw(gone)", "pass",
     partial(test_a_consumer_that_was_away_at_the_commit_is_not_sent_the_message_again, "e")),
    (Egress, "transacted", "self._transactions.remove(index)", "pass",
     partial(test_a_message_behind_a_transaction_waits_until_it_is_decided, is_rolled_back=True)),
    (Egress, "_take", "self.node.topic.abort(self.stream, tag)", "pass",
     partial(test_what_the_next_leader_has_not_published_again_is_there, "d")),
    (Egress, "positions_of", "if None in positions.values():", "if False:",
     partial(test_what_the_next_leader_has_not_published_again_is_there, "d")),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_a_rule_that_is_broken_is_noticed(number: int) -> None:
    must_notice(BROKEN[number])
