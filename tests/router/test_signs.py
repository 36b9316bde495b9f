"""What counts as a sign of life of a publisher's client (protocol 6.6), and what no longer does."""

from typing import Any

import pytest
import trio
import trio.testing

from router.amqp.connection import Connection
from router.amqp.proton.link import Link
from router.amqp.transport import serve
from router.edge.signs import SignsOfLife
from tests.router.amqp.pair import Pair, Recorder


class FakeConnection:
    def __init__(self) -> None:
        self.proofs: list[Any] = []

    def prove(self, told: Any) -> None:
        self.proofs.append(told)


class FakeLink:
    def __init__(self) -> None:
        self.connection = FakeConnection()
        self.echoes = 0

    def echo(self) -> None:
        self.echoes += 1


class Client:
    """The client behind a link: a test says when it answers, or its machine acknowledges."""

    def __init__(self, *, says_so: bool = False) -> None:
        self.link = FakeLink()
        self.told: list[bool] = []
        self.echoed = self.link
        self.signs = SignsOfLife(self, answers=says_so)
        self.signs.begin()

    def alive(self, answered: bool) -> None:
        self.told.append(answered)

    def answers(self) -> None:
        self.signs.answered()

    def acknowledges(self) -> None:
        self.link.connection.proofs.pop()()


def test_a_client_is_asked_before_it_matters() -> None:
    client = Client()
    assert client.link.echoes == 1
    client.answers()
    assert (client.told, client.signs.answers) == ([], True)


def test_the_machine_of_a_client_that_has_answered_nothing_speaks_for_it() -> None:
    client = Client()
    client.signs.ask()
    client.acknowledges()
    client.signs.ask()
    client.acknowledges()
    assert client.told == [False, False]
    assert client.link.echoes == 1, "another answer could be one to an older question"


def test_a_client_that_has_answered_once_must_go_on_answering() -> None:
    client = Client()
    client.answers()
    client.signs.ask()
    assert client.link.connection.proofs == []
    client.answers()
    assert client.told == [True]


def test_the_machine_of_a_client_that_says_that_it_answers_is_never_asked() -> None:
    """Its attach may be late, and it gone elsewhere long since, with a socket that is open still."""
    client = Client(says_so=True)
    assert client.link.echoes == 0
    client.signs.ask()
    assert (client.link.echoes, client.link.connection.proofs) == (1, [])
    client.answers()
    assert client.told == [True]


def test_an_answer_to_what_was_asked_before_the_question_proves_nothing() -> None:
    client = Client()
    client.signs.ask()
    client.answers()  # to the first echo
    assert (client.told, client.link.echoes) == ([], 2)
    client.acknowledges()
    assert client.told == [], "it answers, so its machine does not speak for it any more"
    client.answers()
    assert client.told == [True]


def test_an_answer_that_comes_after_the_acknowledgement_is_not_taken_for_the_next_one() -> None:
    client = Client()
    client.signs.ask()
    client.acknowledges()
    client.signs.ask()
    client.answers()
    assert client.told == [False]
    client.answers()
    assert client.told == [False, True]


@pytest.mark.parametrize("answers", [True, False])
async def test_a_stream_that_cannot_tell_what_was_acknowledged_leaves_the_answer(answers: bool) -> None:
    """As one that encrypts: only the client's own word counts, and who says nothing is not believed to be there."""

    class Home(Recorder):
        def on_attach(self, link: Link) -> None:
            link.answer()
            link.flow(10)
            self.echoed = link
            self.signs = SignsOfLife(self, answers=False)
            self.signs.begin()
            self.signs.ask()

        def on_echo(self, link: Link) -> None:
            self.signs.answered()

        def alive(self, answered: bool) -> None:
            told.append(answered)

    told: list[bool] = []
    one, other = trio.testing.memory_stream_pair()
    asked = None if answers else lambda link: None
    client = Connection(Recorder(), container="client", server=False, asked=asked)
    client.open()
    client.sender("link", "topic/x")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, one, client)
        nursery.start_soon(serve, other, Connection(Home(), container="home", server=True))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert told == ([True] if answers else [])


def test_a_flow_that_was_on_its_way_when_we_asked_is_no_answer() -> None:
    """It does not know of the credit that we had given by then."""
    pair = Pair()
    sender, receiver = pair.sending(credit=10)
    sender.answer_echo()  # unasked
    under_way = pair.client.data_to_send()
    receiver.flow(5)
    receiver.echo()
    asked = pair.server.data_to_send()
    pair.server.receive(under_way, 0.0)
    assert pair.there.echoes == []
    pair.client.receive(asked, 0.0)
    pair.pump()
    assert pair.there.echoes == [receiver]


def test_the_owner_answers_in_its_own_time_if_it_wants_to() -> None:
    asked: list[Link] = []
    pair = Pair(asked=asked.append)
    sender, receiver = pair.sending()
    receiver.echo()
    pair.pump()
    assert (asked, pair.there.echoes) == ([sender], [])
    sender.answer_echo()
    pair.pump()
    assert pair.there.echoes == [receiver]


def test_flows_of_other_links_are_looked_at_once_while_an_echo_is_awaited() -> None:
    pair = Pair(asked=lambda link: None)
    _, receiver = pair.sending()
    other = pair.client.receiver("other", "topic/x")
    pair.pump()
    theirs = pair.there.attached[-1]
    theirs.answer()
    receiver.echo()
    pair.pump()
    for credit in range(1, 4):
        other.flow(1)
        pair.pump()
        assert theirs.credit == credit
    assert len(pair.server.tap.quiet) == 1
    assert pair.there.echoes == []
