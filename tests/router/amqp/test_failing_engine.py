"""Proton can go on no more, and does not say so: that ends the connection at once."""

from collections.abc import Iterator
from operator import attrgetter
from unittest.mock import Mock

import pytest
import trio

from router.amqp import transport
from router.amqp.connection import Connection
from router.amqp.format.errors import INTERNAL_ERROR, AmqpError
from router.amqp.proton.library import lib
from router.amqp.proton.link import Link
from router.amqp.sasl.layer import SASL_HEADER
from router.amqp.sasl.server import SaslServer
from tests import engine
from tests.hangs import HANGS_S
from tests.router.amqp.frames import BEGIN, CLOSE, FLOW, HEADER, OPEN, TRANSFER, Raw, attach, frame, opening, transfer
from tests.router.amqp.pair import Pair, Recorder
from tests.router.amqp.server import server
from tests.router.amqp.test_sessions import frames_of, written
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


@pytest.fixture
def as_in_production() -> Iterator[None]:
    engine.end_connections()
    yield
    engine.let_faults_through()


@pytest.mark.usefixtures("as_in_production")
def test_a_fault_of_the_engine_ends_the_connection_and_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handler = Recorder()
    connection = server(handler)

    monkeypatch.setattr(connection._intake, "take", int)  # the input is no number
    with pytest.raises(AmqpError, match="the AMQP engine failed: ValueError: invalid literal") as caught:
        connection.receive(ONE_CHANNEL, 0.0)
    assert caught.value.condition == INTERNAL_ERROR
    assert handler.events[-1] == ("close", INTERNAL_ERROR)
    assert "the AMQP engine failed" in caplog.text and "invalid literal" in caplog.text
    connection.release()


def failing() -> Mock:
    """A function of this module would be an owner's."""
    return Mock(side_effect=ValueError("no frame"))


@pytest.mark.usefixtures("as_in_production")
@pytest.mark.parametrize("place", ["tap.additions.rewrite", "echoes.flows", "_sessions.written"])
async def test_a_fault_of_the_engine_as_it_writes_ends_its_connection_alone(
    place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handler = Recorder()
    connection = server(handler)
    one, other = sockets()
    with trio.fail_after(HANGS_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.serve, other, connection)
            await one.send_all(opening() + frame(FLOW, 0, 100, 0, 100))
            assert await one.receive_some()
            *holders, name = place.split(".")
            monkeypatch.setattr(attrgetter(".".join(holders))(connection), name, failing())
            await one.send_all(attach("p", 0, receiver=False))
            heard = b""
            while said := await one.receive_some():
                heard += said
            await one.aclose()
    assert handler.events[-1] == ("close", INTERNAL_ERROR)
    ((_, error),) = written(heard, CLOSE)
    assert error.value[0] == INTERNAL_ERROR
    failed, ended = caplog.records
    assert failed.exc_info is not None and "no frame" in str(failed.exc_info[1])
    assert "the AMQP engine failed: ValueError: no frame" in ended.getMessage()


@pytest.mark.usefixtures("as_in_production")
def test_nothing_but_the_close_is_written_behind_what_an_engine_has_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """What came behind the gap would be taken for what comes next."""
    connection = server()
    connection.receive(opening(), 0.0)
    connection.data_to_send()
    with monkeypatch.context() as patch:
        patch.setattr(connection.tap.additions, "rewrite", failing())
        connection.receive(attach("p", 0, receiver=False), 0.0)
        assert connection.data_to_send() == b""
    assert connection.data_to_send() == b""
    with pytest.raises(AmqpError, match="the AMQP engine failed: ValueError: no frame"):
        connection.receive(attach("q", 1, receiver=False), 0.0)
    data = connection.data_to_send()
    assert [kind for kind, _ in frames_of(data)] == [CLOSE]
    connection.release()


@pytest.mark.usefixtures("as_in_production")
def test_a_fault_of_an_owner_is_not_hidden() -> None:
    """Its state may be half changed."""

    class Faulty(Recorder):
        def on_attach(self, link: Link) -> None:
            raise KeyError(link.name)

    connection = server(Faulty())
    with pytest.raises(KeyError, match="p"):
        connection.receive(ONE_CHANNEL + attach("p", 0, receiver=False), 0.0)
    connection.release()


@pytest.mark.parametrize("descriptor", [b"\x45", b"\xc0\1\0", b"\xc1\1\0", b"\xe0\2\0\x40"])
def test_a_sasl_frame_whose_descriptor_is_a_list_or_map_ends_its_connection(descriptor: bytes) -> None:
    connection = server(Recorder(), sasl=SaslServer())
    body = b"\0" + descriptor + b"\x45"
    with pytest.raises(AmqpError, match="the descriptor of a value is not a simple value"):
        connection.receive(SASL_HEADER + (8 + len(body)).to_bytes(4, "big") + b"\2\1\0\0" + body, 0.0)
    connection.release()


def test_a_sender_that_claims_to_have_used_more_credit_than_there_is_ends_its_link_at_worst() -> None:
    connection = server()
    connection.receive(opening() + attach("p", 0, receiver=False), 0.0)
    for count in (2**31 - 1, 2**31 + 1):
        connection.receive(frame(FLOW, 0, 100, 0, 100, 0, count, 0), 0.0)
    connection.receive(transfer(0, 0, more=True), 0.0)
    connection.receive(frame(TRANSFER, 0, payload=b"m"), 0.0)
    assert not connection.closed
    connection.release()


def test_a_connection_that_was_released_has_no_links() -> None:
    """An owner that waited for somebody else may ask then."""
    connection = server()
    connection.receive(opening() + attach("p", 0, receiver=False), 0.0)
    assert len(connection.links) == 1
    connection.release()
    assert connection.links == []
