"""What a link to the anonymous terminus keeps of addresses that its messages name no more, and who is answered when."""

import gc
from collections.abc import Mapping
from typing import Any

from router.amqp.batches import Dispositions
from router.amqp.connection import Connection
from router.amqp.format.sections import write_message
from router.amqp.format.values import ErrorCondition
from router.amqp.proton.library import lib, write_symbols
from router.amqp.proton.link import Link
from router.edge.anonymous import MOST_ADDRESSES, TAG, AddressPublisher
from tests.fuzz.mesh import SETTINGS, FuzzMesh, GoodClient


class RelayingClient(GoodClient):
    """It sends to any address, settles what it is told of, and answers an echo when a test says so."""

    def __init__(self, *outcomes: str) -> None:
        mesh = FuzzMesh("a", "b")
        super().__init__(mesh.routers["a"], "relaying")
        self.router.guests.append(self)
        self.asked: list[Link] = []
        self.told: list[Mapping[str, Any]] = []
        self.engine = Connection(self, container="relaying", server=False, asked=self.asked.append)
        self.engine.open()
        self.link = self.engine.sender("l", "", rcv_settle_mode=1)
        write_symbols(outcomes, lib.pn_terminus_outcomes(lib.pn_link_source(self.link.pointer)))
        self.flow()

    def on_dispositions(self, link: Link, dispositions: Dispositions) -> None:
        self.told += [details.info for details in map(link.remote_outcome, dispositions.handles) if details.info]
        super().on_dispositions(link, dispositions)

    def on_detach(self, link: Link, closed: bool, condition: ErrorCondition | None) -> None:
        self.told += [condition.info] if condition is not None else []

    def publishers(self) -> list[AddressPublisher]:
        """What its router has of it, be it by mistake."""
        gc.collect()
        found = [each for each in gc.get_objects() if isinstance(each, AddressPublisher)]
        return [publisher for publisher in found if publisher.node is self.router.node]

    def flow(self) -> None:
        self.router.mesh.flow()

    def send(self, *addresses: str) -> None:
        for address in addresses:
            self.link.send(address.encode(), write_message({"properties": {"to": address}, "data": b""}))
        self.flow()

    def answer(self) -> None:
        """The one echo that it has been asked for."""
        (link,) = self.asked
        self.asked.clear()
        link.answer_echo()
        self.flow()


def test_who_is_turned_away_reads_which_message_it_is_about() -> None:
    client = RelayingClient()
    client.send("nowhere")
    client.link.send(b"settled", write_message({"properties": {"to": "nowhere"}, "data": b""}), settled=True)
    client.flow()
    assert client.told == [{TAG: b"nowhere"}, {TAG: b"settled"}]


def test_a_link_ends_whose_source_supports_no_rejection() -> None:
    client = RelayingClient("amqp:accepted:list")
    client.send("nowhere")
    assert client.link.ended and client.told == [{TAG: b"nowhere"}]


def test_nothing_is_left_of_old_addresses_of_a_client_that_answers_no_echo() -> None:
    client = RelayingClient()
    for number in range(3 * MOST_ADDRESSES):
        client.send(f"topic/{number}")
    assert client.accepted == 3 * MOST_ADDRESSES
    assert client.link.credit == SETTINGS.window
    assert len(client.publishers()) == MOST_ADDRESSES
    assert len(client.asked) == 1


def test_an_answer_is_that_of_who_had_asked_before_the_echo_was_sent() -> None:
    client = RelayingClient()
    client.send("topic/x", "topic/y", "topic/z")
    signs = {publisher.identity.address[-1]: publisher.signs for publisher in client.publishers()}
    client.answer()
    assert [signs[name].answers for name in "xyz"] == [True, False, False]
    client.answer()
    assert [signs[name].answers for name in "xyz"] == [True, True, True]
    assert not client.asked
