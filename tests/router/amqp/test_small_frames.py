"""Peers that take small frames: nothing that we say is larger."""

import pytest

from router.amqp.batches import Transfers
from router.amqp.format.errors import FRAME_SIZE_TOO_SMALL, AmqpError
from router.amqp.format.performative import frames_of
from router.amqp.frames.room import fitted
from router.amqp.proton.link import Link
from tests.router.amqp.frames import (
    ATTACH,
    BEGIN,
    DETACH,
    DISPOSITION,
    HEADER,
    OPEN,
    Described,
    Symbol,
    attach,
    frame,
    transfer,
)
from tests.router.amqp.pair import Recorder
from tests.router.amqp.server import Answering, server
from tests.router.amqp.test_sessions import written

BEGINS = frame(BEGIN, None, 0, 1000, 1000)


class Talkative(Answering):
    """Says much of itself, and why it rejects."""

    def on_attach(self, link: Link) -> None:
        Recorder.on_attach(self, link)
        if link.name == "refused":
            link.refuse("amqp:not-found", "no " + "such node " * 200)
            return
        link.answer(properties={"short": "said", "long": "x" * 400, "longer": "y" * 500})
        link.flow(10)

    def on_transfers(self, link: Link, transfers: Transfers) -> None:
        link.reject(transfers.handles[0], "amqp:precondition-failed", "z" * 900, settle=True)


@pytest.mark.parametrize("most", [512, 700, 2000, 65536])
def test_nothing_is_larger_than_the_peer_takes(most: int) -> None:
    properties = {f"p{n}": "v" * 100 for n in range(20)}
    connection = server(Talkative(), properties=properties)
    connection.receive(HEADER + frame(OPEN, "small", None, most) + BEGINS, 0.0)
    said = connection.data_to_send()[8:]
    connection.receive(attach("p", 0, receiver=False) + attach("refused", 1, receiver=False), 0.0)
    said += connection.data_to_send()
    connection.receive(transfer(0, 0), 0.0)
    said += connection.data_to_send()
    assert max(map(len, frames_of(said))) <= most
    (opened,), (attached, _), (detached,) = written(said, OPEN), written(said, ATTACH), written(said, DETACH)
    assert len(opened[10]) == 20 if most > 4096 else 0 < len(opened[10]) < 20
    assert attached[14]["short"] == "said" and ("longer" in attached[14]) == (most > 1000)
    assert detached[3].value[0] == "amqp:not-found" and detached[3].value[1].startswith("no such node")
    (rejected,) = written(said, DISPOSITION)
    assert rejected[5].value[0].value[0] == "amqp:precondition-failed"
    connection.release()


def test_what_must_be_said_and_has_no_room_ends_the_connection_by_name() -> None:
    connection = server(Answering())
    connection.receive(HEADER + frame(OPEN, "small", None, 512) + BEGINS, 0.0)
    connection.data_to_send()
    connection.receive(attach("n" * 600, 0, receiver=False), 0.0)
    assert max(map(len, frames_of(connection.data_to_send())), default=0) <= 512
    with pytest.raises(AmqpError) as caught:
        connection.tick(0.0)
    assert caught.value.condition == FRAME_SIZE_TOO_SMALL
    assert max(map(len, frames_of(connection.data_to_send()))) <= 512
    connection.release()


def test_a_description_is_cut_at_a_character() -> None:
    whole = frame(DETACH, 0, True, Described(0x1D, Symbol("amqp:not-found"), "ä" * 600))
    fields = written(fitted(whole, 512), DETACH)
    assert set(fields[0][3].value[1]) == {"ä"}
