"""Our end of a connection, to which a test feeds bytes."""

from typing import Any

import pytest
from hypothesis import strategies as st

from router.amqp.batches import Dispositions, Transfers
from router.amqp.connection import Connection
from router.amqp.format.errors import AmqpError
from router.amqp.format.values import ACCEPTED
from router.amqp.proton.link import Link
from tests.router.amqp.pair import Recorder


class Answering(Recorder):
    """Answers attaches at once, with some credit or some messages. Accepts and settles what it can."""

    credit = 10

    def on_attach(self, link: Link) -> None:
        super().on_attach(link)
        link.answer()
        if not link.is_sender:
            link.flow(self.credit)

    def on_credit(self, link: Link) -> None:
        super().on_credit(link)
        for _ in range(min(link.credit, 20)):
            link.send(b"out", b"message")

    def on_transfers(self, link: Link, transfers: Transfers) -> None:
        super().on_transfers(link, transfers)
        link.update_many([handle for handle in transfers.handles if handle], ACCEPTED, settle=True)

    def on_dispositions(self, link: Link, dispositions: Dispositions) -> None:
        super().on_dispositions(link, dispositions)
        link.settle_many(dispositions.handles)


def server(handler: Recorder | None = None, **limits: Any) -> Connection:
    return Connection(handler or Answering(), container="server", server=True, **limits)


def hear_damaged(data: st.DataObject, conversation: bytes, handler: Recorder) -> None:
    """Feed the conversation in pieces, with a few bytes changed: at worst this ends its connection."""
    damaged = bytearray(conversation)
    for _ in range(data.draw(st.integers(1, 6))):
        damaged[data.draw(st.integers(8, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    size = data.draw(st.integers(1, 400))
    connection = server(handler, max_frame=4096)
    try:
        for at in range(0, len(damaged), size):
            connection.receive(bytes(damaged[at : at + size]), 0.0)
            connection.data_to_send()
    except AmqpError:
        assert connection.closed
        connection.data_to_send()
    connection.receive_eof()
    connection.release()
    assert [event[0] for event in handler.events].count("close") == 1


def condition_of(connection: Connection, *inputs: bytes) -> str:
    """The error with which the last of these inputs ends the connection."""
    for data in inputs[:-1]:
        connection.receive(data, 0.0)
        connection.data_to_send()
    with pytest.raises(AmqpError) as caught:
        connection.receive(inputs[-1], 0.0)
    assert connection.closed
    connection.data_to_send()
    connection.receive(b"more of it", 0.0)  # later input is ignored
    return caught.value.condition
