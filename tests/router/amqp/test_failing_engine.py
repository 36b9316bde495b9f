"""Proton can go on no more, and does not say so: that ends the connection at once."""

import pytest
import trio

from router.amqp import transport
from router.amqp.connection import Connection
from router.amqp.format.errors import INTERNAL_ERROR, AmqpError
from router.amqp.proton.library import lib
from router.amqp.proton.link import Link
from tests.hangs import HANGS_S
from tests.router.amqp.frames import BEGIN, CLOSE, HEADER, OPEN, Raw, attach, frame
from tests.router.amqp.pair import Pair, Recorder
from tests.router.amqp.server import server
from tests.router.amqp.test_sessions import written
from tests.router.amqp.test_transport import sockets

ONE_CHANNEL = HEADER + frame(OPEN, "crowded", None, 65536, Raw(b"\x60\0\0")) + frame(BEGIN, None, 0, 1000, 1000)


class Crowded(Recorder):
    """Begins a session of its own, for which its peer leaves no channel."""

    def on_attach(self, link: Link) -> None:
        super().on_attach(link)
        assert isinstance(link.connection, Connection)
        link.connection.sender("ours", "elsewhere")


def test_an_engine_that_fails_ends_its_connection_and_says_why() -> None:
    handler = Crowded()
    connection = server(handler)
    connection.receive(ONE_CHANNEL + attach("p", 0, receiver=False), 0.0)
    connection.data_to_send()
    failed = [connection.has_failed]
    with pytest.raises(AmqpError) as caught:
        connection.tick(0.0)
    assert caught.value.condition == INTERNAL_ERROR
    assert handler.events[-1] == ("close", INTERNAL_ERROR)
    assert [*failed, connection.has_failed] == [True, False]
    ((_, error),) = written(connection.data_to_send(), CLOSE)
    assert error.value[0] == INTERNAL_ERROR
    connection.release()


async def test_its_socket_is_closed_and_the_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    handler = Crowded()
    one, other = sockets()
    with trio.fail_after(HANGS_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.serve, other, server(handler))
            await one.send_all(ONE_CHANNEL + attach("p", 0, receiver=False))
            while await one.receive_some():
                pass
            await one.aclose()
    assert handler.events[-1] == ("close", INTERNAL_ERROR)
    (said,) = caplog.messages
    assert said.startswith("connection of 'crowded'") and INTERNAL_ERROR in said


def test_a_coordinator_is_attached_to_without_a_failure() -> None:
    """Proton says no properties in such an attach, and so not whose it is."""
    pair = Pair()
    links = [pair.client.sender(name, "topic/x") for name in ("plain", "transactions")]
    lib.pn_terminus_set_type(lib.pn_link_target(links[1].pointer), lib.PN_COORDINATOR)
    pair.pump()
    assert not pair.client.has_failed and pair.errors == []
    assert sorted(link.name for link in pair.there.attached) == ["plain", "transactions"]
    assert all(link.wire[0] for link in links)
