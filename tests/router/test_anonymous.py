"""What a link to the anonymous terminus keeps of addresses that its messages name no more."""

import gc
import weakref
from typing import Any
from unittest.mock import Mock

from router.amqp.batches import Transfers
from router.amqp.format.sections import write_message
from router.edge.anonymous import MOST_ADDRESSES, AnonymousLink
from topic.settings import Settings


class AskingPublisher:
    """Asks, as those do whose clients have not said that they answer; and holds nothing."""

    holds = False

    def __init__(self, end: AnonymousLink) -> None:
        self.signs = Mock()
        self.gone_closed: list[bool] = []
        self._end = end

    def take(self, run: list[Any]) -> None:
        self._end.ask(self)  # type: ignore[arg-type]  # as much of one as is asked for

    def gone(self, now: float, *, closed: bool) -> None:
        self.gone_closed.append(closed)


def linked() -> tuple[AnonymousLink, Mock, "list[weakref.ref[AskingPublisher]]"]:
    begun: list[weakref.ref[AskingPublisher]] = []

    def begin(end: AnonymousLink, address: str) -> Any:
        publisher = AskingPublisher(end)
        begun.append(weakref.ref(publisher))
        return publisher

    link = Mock(ended=False)
    node = Mock(now=lambda: 0.0)
    node.topic.settings = Settings()
    return AnonymousLink(link, node, 1 << 20, begin), link, begun


def send(end: AnonymousLink, address: str) -> None:
    message = write_message({"properties": {"to": address}, "data": b""})
    end.on_transfers(Transfers([object()], [b"tag"], [message], [False]))


def test_nothing_is_left_of_old_addresses_of_a_client_that_answers_no_echo() -> None:
    end, link, begun = linked()
    for number in range(3 * MOST_ADDRESSES):
        send(end, f"topic/{number}")
        end.settled([len(write_message({"properties": {"to": f"topic/{number}"}, "data": b""}))])
        end.answered(list(end._home))
    gc.collect()
    assert len(begun) == 3 * MOST_ADDRESSES
    assert sum(publisher() is not None for publisher in begun) == MOST_ADDRESSES
    assert link.echo.call_count == 1


def test_an_answer_is_that_of_who_had_asked_before_the_echo_was_sent() -> None:
    end, link, begun = linked()
    for name in "xyz":
        send(end, f"topic/{name}")
    x, y, z = (publisher() for publisher in begun)
    assert x is not None and y is not None and z is not None
    end.on_echo()
    assert [each.signs.answered.call_count for each in (x, y, z)] == [1, 0, 0]
    end.on_echo()
    assert [each.signs.answered.call_count for each in (x, y, z)] == [1, 1, 1]
    assert link.echo.call_count == 2
