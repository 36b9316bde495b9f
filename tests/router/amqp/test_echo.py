"""Echoes of a link's flow state: asked for, answered, and told from flows that are on their way anyhow."""

import pytest

from router.amqp.batches import Transfers
from router.amqp.format.performative import NULL
from router.amqp.format.values import ACCEPTED
from router.amqp.frames.bounds import LARGE
from router.amqp.proton.link import Link
from tests.router.amqp.frames import ATTACH, FLOW, SOURCE, TARGET, Described, frame, opening
from tests.router.amqp.pair import Pair
from tests.router.amqp.server import Answering, server


def linked(pair: Pair, at_client: str) -> tuple[Link, Link]:
    """A link with 10 of credit, some used: (the client's end, the server's)."""
    client, server = pair.client, pair.there
    ours = client.sender("link", "topic/x") if at_client == "sender" else client.receiver("link", "topic/x")
    pair.pump()
    theirs = server.attached[-1]
    theirs.answer()
    sender, receiver = (ours, theirs) if at_client == "sender" else (theirs, ours)
    receiver.flow(10)
    pair.pump()
    for n in range(3):
        sender.send(b"%d" % n, b"message")
    pair.pump()
    return ours, theirs


@pytest.mark.parametrize("at_client", ["sender", "receiver"])
def test_an_echo_is_answered_and_changes_nothing(at_client: str) -> None:
    pair = Pair()
    other = pair.client.receiver("another", "topic/x")  # the first receiver of the session
    other.flow(4)
    ours, theirs = linked(pair, at_client)
    for _ in range(3):
        ours.echo()
        pair.pump()
        theirs.echo()
        pair.pump()
    assert pair.here.echoes == [ours] * 3
    assert pair.there.echoes == [theirs] * 3
    assert ours.credit == theirs.credit == 7
    sender, receiver = (ours, theirs) if at_client == "sender" else (theirs, ours)
    for n in range(7):
        sender.send(b"%d" % n, b"message")
    pair.pump()
    assert ours.credit == theirs.credit == 0
    receiver.flow(5)
    ours.echo()
    pair.pump()
    assert ours.credit == theirs.credit == 5
    assert pair.errors == [] and not ours.ended


def test_an_echo_is_answered_although_what_came_before_it_made_us_write(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair()
    _, theirs = linked(pair, "receiver")

    def accept(link: Link, transfers: Transfers) -> None:
        for delivery in transfers.handles:
            link.update(delivery, ACCEPTED)

    monkeypatch.setattr(pair.here, "on_transfers", accept)
    theirs.send(b"4", b"message")
    theirs.echo()
    pair.pump()
    assert pair.there.echoes == [theirs]


def test_echoes_that_cross_are_no_answers_to_each_other() -> None:
    pair = Pair()
    ours, theirs = linked(pair, "sender")
    ours.echo()
    theirs.echo()
    here, there = pair.client.data_to_send(), pair.server.data_to_send()
    pair.client.receive(there, 0.0)
    pair.server.receive(here, 0.0)
    assert pair.here.echoes == pair.there.echoes == []
    pair.pump()
    assert (pair.here.echoes, pair.there.echoes) == ([ours], [theirs])


def test_credit_that_was_on_its_way_is_no_answer() -> None:
    pair = Pair()
    ours, theirs = linked(pair, "sender")
    theirs.flow(5)
    underway = pair.server.data_to_send()
    ours.echo()
    asked = pair.client.data_to_send()
    pair.client.receive(underway, 0.0)
    assert pair.here.echoes == [] and ours.credit == 12
    pair.server.receive(asked, 0.0)
    pair.pump()
    assert pair.here.echoes == [ours]


def test_an_echo_while_draining() -> None:
    pair = Pair()
    ours, theirs = linked(pair, "receiver")
    ours.drain(0)
    ours.echo()
    pair.pump()
    assert (theirs.draining, theirs.credit) == (True, 7)
    assert pair.here.echoes == [ours]
    theirs.drained()
    theirs.echo()
    pair.pump()
    assert ours.credit == theirs.credit == 0
    assert pair.there.echoes == [theirs]
    ours.flow(3)
    pair.pump()
    assert (theirs.draining, theirs.credit) == (False, 3)
    theirs.echo()
    ours.echo()
    pair.pump()
    assert (ours.credit, theirs.credit, theirs.draining) == (3, 3, False)


def test_an_answer_comes_after_what_was_sent_before_it() -> None:
    pair = Pair()
    ours, theirs = linked(pair, "receiver")
    seen: list[str] = []
    pair.here.on_transfers = lambda link, *columns: seen.append("transfers")  # type: ignore[method-assign]
    pair.here.on_echo = lambda link: seen.append("echo")  # type: ignore[method-assign]
    ours.echo()
    theirs.send(b"9", b"message")
    pair.pump()
    assert seen == ["transfers", "echo"]


def test_an_echo_on_a_link_that_ends_is_forgotten() -> None:
    pair = Pair()
    ours, theirs = linked(pair, "sender")
    theirs.detach()
    ours.echo()
    pair.pump()
    ours.echo()
    pair.pump()
    assert pair.here.echoes == [] and pair.errors == []
    assert not pair.client.closed


def test_a_stranger_is_answered_once_a_flush_and_on_no_link_too() -> None:
    handler = Answering()
    connection = server(handler)
    source, target = Described(SOURCE, "topic/x"), Described(TARGET, "topic/x")
    attach = frame(ATTACH, "a", 0, False, None, None, source, target, None, None, 0)
    connection.receive(opening() + attach, 0.0)
    connection.data_to_send()
    asking = frame(FLOW, 0, 1000, 0, 1000, 0, 0, 0, None, False, True)
    connection.receive(asking * 100, 0.0)
    answer = connection.data_to_send()
    assert len(answer) == int.from_bytes(answer[:4], "big")
    assert connection.data_to_send() == b""
    connection.receive(frame(FLOW, 0, 1000, 0, 1000, None, None, None, None, False, True), 0.0)
    assert not connection.closed
    connection.release()


def test_an_answer_tells_what_the_owner_has_to_say_of_the_link() -> None:
    pair = Pair()
    ours, theirs = linked(pair, "sender")
    assert ours.remote_state_properties == {}
    pair.there.states[theirs] = {"oncemesh:alone": 3}
    ours.echo()
    pair.pump()
    assert pair.here.echoes == [ours]
    assert ours.remote_state_properties == {"oncemesh:alone": 3}
    pair.there.states[theirs] = {"oncemesh:alone": 2**40}
    theirs.answer_echo()  # unasked
    pair.pump()
    assert pair.here.echoes == [ours], "nothing was asked"
    assert ours.remote_state_properties == {"oncemesh:alone": 2**40}
    assert ours.credit == theirs.credit == 7 and pair.errors == []


def test_what_is_told_in_many_bytes_is_not_kept() -> None:
    pair = Pair()
    ours, theirs = linked(pair, "sender")
    pair.there.states[theirs] = {"x" * LARGE: 3}
    ours.echo()
    pair.pump()
    assert pair.here.echoes == [ours] and ours.told == NULL


@pytest.mark.parametrize("told", [b"\x40", b"\xa1\x02hi", b"\xd1\x00\x00\x00\xff", b"\xc1\x04\x02\xa3\x01x"])
def test_what_is_told_and_makes_no_sense_is_nothing(told: bytes) -> None:
    ours, _ = linked(Pair(), "sender")
    ours.told = told
    assert ours.remote_state_properties == {}
