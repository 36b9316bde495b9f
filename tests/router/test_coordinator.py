"""Messages to the coordinator of transactions, and outcomes within transactions, as strangers write them (AMQP 1.0
4.5)."""

from collections import deque
from typing import Any
from unittest.mock import Mock, create_autospec

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.amqp.batches import Dispositions, PostedMessage, Transfers
from router.amqp.format.codec import Described, Symbol, encode
from router.amqp.format.errors import (
    DECODE_ERROR,
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT,
    ROLLBACK,
    TRANSACTION_TIMEOUT,
    UNKNOWN_ID,
)
from router.amqp.format.message import VALUE
from router.amqp.format.states import outcome_of
from router.amqp.format.values import ACCEPTED, MODIFIED, REJECTED, RELEASED, TRANSACTIONAL, OutcomeDetails
from router.amqp.proton.link import Host, Link
from router.edge.clients import ClientEdge
from router.edge.ends import AddressNode, End
from router.edge.guard import Guard
from router.edge.subscriber_link import SubscriberLink
from router.edge.transactions.coordinator import CoordinatorLink
from router.edge.transactions.parts import lose_part
from topic.actions import TransactionEnd
from topic.delivery.allowance import unbounded
from topic.node import Node
from topic.queues.sets import ReplicaSets
from topic.queues.transactions import transactions
from topic.queues.transactions.transactions import Transactions


class Controller:
    """A client with a link to the coordinator."""

    def __init__(self, *, takes_rejections: bool = True) -> None:
        self.link: Any = create_autospec(Link, instance=True)
        self.link.connection, self.link.ended = create_autospec(Host, instance=True), False
        self.link.takes_rejections = takes_rejections
        self.node: Any = create_autospec(Node, instance=True)
        self.all = Transactions("a", 1, create_autospec(ReplicaSets, instance=True), 1000)
        self.end = CoordinatorLink(self.link, self.node, self.all, unbounded())
        self._handles = deque(range(1, 1000))

    def send(self, *messages: bytes, settled: bool = False) -> None:
        handles = [None if settled else self._handles.popleft() for _ in messages]
        self.end.on_transfers(Transfers(handles, [b""] * len(messages), [*messages], [settled] * len(messages)))
        for action in self.all.flush(0.0):
            self.end.perform(action)

    def declare(self) -> bytes:
        self.send(asked(0x31, []))
        name: bytes = self.link.declare.call_args.args[1]
        return name

    @property
    def refused(self) -> list[str]:
        return [call.args[1] for call in self.link.reject.call_args_list]

    @property
    def accepted(self) -> list[int]:
        return [call.args[0] for call in self.link.update.call_args_list]


def asked(descriptor: Any, fields: Any) -> bytes:
    return encode(Described(VALUE, Described(descriptor, fields)))


@pytest.mark.parametrize("descriptor", [0x31, Symbol("amqp:declare:list")])
@pytest.mark.parametrize("fields", [[], [None]])
def test_a_transaction_is_declared_and_discharged(descriptor: Any, fields: list[Any]) -> None:
    controller = Controller()
    controller.send(asked(descriptor, fields))
    name = controller.link.declare.call_args.args[1]
    for discharge in (asked(0x32, [name, False]), asked(Symbol("amqp:discharge:list"), [name])):
        controller.send(discharge)
    assert controller.accepted == [2] and controller.refused == [UNKNOWN_ID], "it is over"


@pytest.mark.parametrize(
    ("message", "condition"),
    [
        (asked(0x31, [b"global"]), NOT_IMPLEMENTED),
        (asked(0x32, [b"there is none", False]), UNKNOWN_ID),
        (asked(0x32, []), DECODE_ERROR),
        (asked(0x32, ["text", False]), DECODE_ERROR),
        (asked(0x33, []), DECODE_ERROR),
        (asked(0x31, {}), DECODE_ERROR),
        (encode(Described(VALUE, [])), DECODE_ERROR),
        (b"", DECODE_ERROR),
        (b"\xff", DECODE_ERROR),
    ],
)
def test_what_is_no_request_is_refused(message: bytes, condition: str) -> None:
    controller = Controller()
    controller.send(message)
    assert controller.refused == [condition] and not controller.link.declare.called
    controller.send(message, settled=True)


@pytest.mark.parametrize("settled", [True, False])
def test_a_client_that_takes_no_rejection_is_detached(settled: bool) -> None:
    controller = Controller(takes_rejections=False)

    def expel(*_: object) -> None:
        controller.link.ended = True

    controller.link.connection.expel.side_effect = expel
    controller.send(asked(0x32, [b"there is none", False]), asked(0x31, []), settled=settled)
    controller.link.connection.expel.assert_called_once()
    assert controller.link.connection.expel.call_args.args[1] == UNKNOWN_ID
    assert controller.refused == [] and not controller.link.declare.called, "nothing is taken of a link that has ended"


@given(st.binary(max_size=60), st.integers(0, 40))
def test_any_bytes_have_an_answer(noise: bytes, at: int) -> None:
    controller = Controller()
    name = controller.declare()
    good = asked(0x32, [name, True])
    controller.send(noise, good[:at] + noise + good[at:], good[:at])
    answered = len(controller.refused) + len(controller.accepted) + controller.link.declare.call_count
    assert answered == 4
    assert controller.declare() != name


def test_too_many_open_transactions_are_refused() -> None:
    controller = Controller()
    for _ in range(transactions.MOST_OPEN):
        controller.declare()
    controller.send(asked(0x31, []))
    assert controller.refused == [RESOURCE_LIMIT]


@pytest.mark.parametrize(
    ("end", "condition"),
    [
        (TransactionEnd.ROLLED_BACK, ROLLBACK),
        (TransactionEnd.TIMED_OUT, TRANSACTION_TIMEOUT),
        (TransactionEnd.TOO_LARGE, RESOURCE_LIMIT),
        (TransactionEnd.NOT_IMPLEMENTED, NOT_IMPLEMENTED),
    ],
)
def test_a_commit_that_failed_says_why(end: TransactionEnd, condition: str) -> None:
    controller = Controller()
    name = controller.declare()
    controller.all.fail(controller.all.find(controller.link.connection, name), end, "it is too large")
    controller.send(asked(0x32, [name, False]))
    assert controller.refused == [condition] and controller.accepted == []


def test_a_transaction_is_discharged_on_the_link_that_declared_it() -> None:
    controller, other = Controller(), Controller()
    other.link.connection, other.all = controller.link.connection, controller.all
    other.end = CoordinatorLink(other.link, other.node, controller.all, unbounded())
    name = controller.declare()
    other.send(asked(0x32, [name, False]))
    assert other.refused == [UNKNOWN_ID]
    controller.send(asked(0x32, [name, False]))
    assert controller.accepted == [2]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_transaction_that_has_lost_a_part_is_rolled_back(is_there: bool) -> None:
    controller = Controller()
    controller.node.transactions = controller.all if is_there else None
    name = controller.declare()
    for connection, lost in ((object(), name), (controller.link.connection, b"another")):
        lose_part(connection, controller.node, lost)
    other = controller.declare()
    lose_part(controller.link.connection, controller.node, name)
    controller.send(asked(0x32, [name, False]), asked(0x32, [other, False]))
    assert controller.refused == ([ROLLBACK] if is_there else [])
    assert len(controller.accepted) == (1 if is_there else 2)


def test_an_outcome_of_a_delivery_without_a_record_rolls_back() -> None:
    """The engine still knows the delivery: the core has not resumed it, or has just settled it."""
    controller = Controller()
    controller.node.transactions = controller.all
    controller.node.topic = Mock()
    end = create_autospec(SubscriberLink, instance=True)
    end.link, end.node, end.records, end.retired, end.subscriber = controller.link, controller.node, {}, {}, None
    names = controller.declare(), controller.declare()
    end.link.remote_transaction.return_value = names[0], OutcomeDetails(state=ACCEPTED)
    SubscriberLink.on_dispositions(end, Dispositions([1, 2], [ACCEPTED, TRANSACTIONAL], [False, False]))
    controller.send(*(asked(0x32, [name, False]) for name in names))
    assert controller.refused == [ROLLBACK] and len(controller.accepted) == 1


def test_a_message_on_a_link_that_takes_none_rolls_back() -> None:
    """The link is detached, and the discharge behind the message must not succeed."""
    controller = Controller()
    controller.node.transactions = controller.all
    edge = ClientEdge(controller.node, create_autospec(AddressNode, instance=True), create_autospec(Guard))
    names = controller.declare(), controller.declare(), controller.declare()
    link = create_autospec(Link, instance=True)
    link.connection, link.context = controller.link.connection, create_autospec(End, instance=True)
    for link.ended, name in zip((False, True), names[:2], strict=True):
        edge.on_posted(link, PostedMessage(None, b"message", name, b""))
    edge.on_part_lost(link.connection, names[2])
    controller.send(*(asked(0x32, [name, False]) for name in names))
    assert controller.refused == [ROLLBACK] * 2 and len(controller.accepted) == 1


@pytest.mark.parametrize(
    ("value", "state"),
    [
        (Described(0x24, []), ACCEPTED),
        (Described(Symbol("amqp:rejected:list"), []), REJECTED),
        (Described(0x26, []), RELEASED),
        (Described(0x27, [True, False, {Symbol("x"): 1}]), MODIFIED),
        (Described(0x27, [None]), MODIFIED),
        (Described(0x23, [0, 0]), 0),
        (Described(0x34, [b"x"]), 0),
        (Described("amqp:nothing:list", []), 0),
        (Described(0x24, {}), 0),
        (None, 0),
        (7, 0),
    ],
)
def test_an_outcome_within_a_transaction_is_read(value: Any, state: int) -> None:
    told = outcome_of(value)
    assert told.state == state and told.failed is (value == Described(0x27, [True, False, {Symbol("x"): 1}]))


@pytest.mark.parametrize(
    ("error", "condition", "description"),
    [
        ([Described(0x1D, [Symbol("app:broken"), "no such customer"])], "app:broken", "no such customer"),
        ([Described(Symbol("amqp:error:list"), [Symbol("app:broken"), None, {}])], "app:broken", ""),
        ([Described(0x1D, [7, "no such customer"])], None, ""),
        ([Described(0x1D, [])], None, ""),
        ([Described(0x1E, [Symbol("app:broken")])], None, ""),
        ([None], None, ""),
    ],
)
def test_the_error_of_a_rejection_within_a_transaction_is_read(
    error: list[Any], condition: str | None, description: str
) -> None:
    told = outcome_of(Described(0x25, error))
    assert (told.state, told.condition, told.description) == (REJECTED, condition, description)
