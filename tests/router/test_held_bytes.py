"""What peers can have a router hold, in bytes (docs/security.md, Limits): measured, with the bounds made small.

guests - a ~~~ b        good publisher at a, good subscriber at b
"""

import sys
from collections.abc import Callable, Iterator

import attrs
import pytest

from router.amqp.connection import Connection
from router.amqp.format.errors import TRANSFER_LIMIT
from router.amqp.format.message import data_message
from router.amqp.format.values import ErrorCondition
from router.amqp.proton.link import Link
from router.mesh.config import Limits
from tests.fuzz.mesh import MAX_MESSAGE, SETTINGS, FuzzMesh, GoodClient, Guest
from tests.router.amqp.frames import DETACH, attach, frame, opening, transfer
from topic.delivery import window

WINDOW = 50_000
LENIENCE = 40_000
LEAST = 1000
LIMITS = Limits(connection_bytes=300_000, user_bytes=1_200_000, router_bytes=1_200_000)
FRAME = 4000
LARGE = data_message(bytes(FRAME - 500))
"""It fits a frame."""


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "LENIENCE", LENIENCE)
    monkeypatch.setattr(window, "LEAST", LEAST)


@pytest.fixture
def mesh() -> Iterator[FuzzMesh]:
    """Nobody takes anything at `topic/x`: a subscriber is attached, and grants no credit."""
    mesh = FuzzMesh("a", "b", settings=attrs.evolve(SETTINGS, window=200, window_bytes=WINDOW), limits=LIMITS)
    mesh.guest("a").say(opening() + attach("idle", 0, receiver=True))
    yield mesh
    mesh.check()
    mesh.end()


def held(mesh: FuzzMesh) -> int:
    return mesh.routers["a"].guard.held.held


def exceeded(mesh: FuzzMesh) -> dict[str, int]:
    return {limit: count for limit, count in mesh.routers["a"].guard.exceeded.items() if count}


@attrs.define
class Stranger:
    """A guest that heeds nothing."""

    guest: Guest
    sent: int = 0
    heard: bytes = b""

    @classmethod
    def at(cls, mesh: FuzzMesh, links: int = 1) -> "Stranger":
        guest = mesh.guest("a")
        stranger = cls(guest)
        guest.hears = stranger.hear  # type: ignore[method-assign]
        number = len(mesh.routers["a"].guests)  # all have one container-id, and would steal each other's links
        guest.say(opening() + b"".join(attach(f"{number}-{n}", n, receiver=False) for n in range(links)))
        return stranger

    def hear(self, data: bytes) -> None:
        self.heard += data

    def send(self, link: int = 0) -> None:
        self.guest.say(transfer(link, self.sent, b"%d" % self.sent, payload=LARGE))
        self.sent += 1

    def begin(self, link: int, frames: int) -> None:
        """A message that it does not end."""
        part = b"".join(transfer(link, self.sent, b"t", more=True, payload=LARGE) for _ in range(frames))
        self.guest.say(part)
        self.sent += 1

    @property
    def is_cut(self) -> bool:
        return self.guest.connection.closed


def until_refused(act: Callable[[], None], stranger: Stranger, condition: str, most: int = 200) -> None:
    for _ in range(most):
        act()
        if condition.encode() in stranger.heard or stranger.is_cut:
            return
    raise AssertionError("it is never refused")


def test_who_heeds_no_credit_is_detached_beyond_the_bytes_of_its_window(mesh: FuzzMesh) -> None:
    stranger = Stranger.at(mesh)
    until_refused(stranger.send, stranger, TRANSFER_LIMIT)
    assert not stranger.is_cut
    assert stranger.sent < (WINDOW + LENIENCE) // len(LARGE) + 3
    assert WINDOW < held(mesh) < WINDOW + LENIENCE + 2 * len(LARGE), "the engine keeps it until the link is freed"
    assert exceeded(mesh) == {"window_bytes": 1}
    stranger.guest.say(frame(DETACH, 0, True))
    assert held(mesh) == 0
    stranger.guest.leave()


def test_what_is_held_is_bounded_while_it_is_held(mesh: FuzzMesh) -> None:
    stranger = Stranger.at(mesh)
    while TRANSFER_LIMIT.encode() not in stranger.heard:
        stranger.send()
        assert held(mesh) < WINDOW + LENIENCE + 2 * len(LARGE)


def test_unfinished_messages_of_many_links_are_bounded_by_their_connection(mesh: FuzzMesh) -> None:
    stranger = Stranger.at(mesh, links=100)
    for link in range(100):
        if not stranger.is_cut:
            stranger.begin(link, 2)
        assert held(mesh) <= LIMITS.connection_bytes + 2 * FRAME
    assert stranger.is_cut
    assert exceeded(mesh) == {"connection_bytes": 1}
    assert held(mesh) == 0
    stranger.guest.leave()


def test_a_message_that_goes_on_without_end_is_given_back_when_it_is_aborted(mesh: FuzzMesh) -> None:
    stranger = Stranger.at(mesh)
    stranger.begin(0, 2)
    assert held(mesh) == 2 * len(LARGE)
    stranger.guest.say(transfer(0, 0, b"t", aborted=True))
    assert held(mesh) == 0
    stranger.begin(0, 1)
    assert held(mesh) == len(LARGE)
    stranger.guest.leave()
    assert held(mesh) == 0


@pytest.mark.parametrize("receiver", [False, True])
def test_of_an_answered_attach_no_map_is_held(mesh: FuzzMesh, receiver: bool) -> None:
    guest = mesh.guest("a")
    unsettled = {b"%d" % number: None for number in range(200)}
    guest.say(opening() + attach("x", 0, receiver=receiver, unsettled=unsettled))
    (link,) = guest.connection.links
    assert link.answered and link.remote_unsettled is None
    if receiver:
        assert sys.getsizeof(link.context.named) < 200
    guest.leave()


def test_connections_of_a_user_share_what_it_may_have(mesh: FuzzMesh) -> None:
    """Anonymous ones are one user's. Who has little is served when who has much is refused."""
    strangers = []
    for _ in range(20):
        stranger = Stranger.at(mesh, links=40)
        strangers.append(stranger)
        for link in range(40):
            if not stranger.is_cut:
                stranger.begin(link, 2)
        mesh.check()
        assert held(mesh) <= LIMITS.user_bytes + 2 * FRAME
    assert exceeded(mesh).keys() == {"user_bytes"}
    for stranger in strangers:
        stranger.guest.leave()
    assert held(mesh) == 0


def test_links_that_come_and_go_count_until_they_are_forgotten(mesh: FuzzMesh) -> None:
    """Each is filled, and detached but not closed: then the engine keeps what is unsettled."""
    stranger = Stranger.at(mesh, links=100)
    for link in range(100):
        for _ in range(10):
            if not stranger.is_cut:
                stranger.send(link)
        if not stranger.is_cut:
            stranger.guest.say(frame(DETACH, link, False))
        assert held(mesh) <= LIMITS.connection_bytes + 2 * FRAME
    assert stranger.is_cut
    assert exceeded(mesh) == {"connection_bytes": 1}
    stranger.guest.leave()
    assert held(mesh) == 0


def test_what_is_sent_to_a_link_that_has_ended_counts(mesh: FuzzMesh) -> None:
    stranger = Stranger.at(mesh)
    while not stranger.is_cut:
        stranger.send()
        assert held(mesh) <= LIMITS.connection_bytes + 2 * FRAME
    assert stranger.sent <= LIMITS.connection_bytes // len(LARGE) + 3
    stranger.guest.leave()


class LargerAndLarger(GoodClient):
    """Sends what it has credit for: small messages first, then large ones. Few clients answer echoes."""

    def __init__(self, mesh: FuzzMesh, links: int, *, answers: bool) -> None:
        super().__init__(mesh.routers["a"], "larger")
        self.router.guests.append(self)
        self.detached: list[ErrorCondition | None] = []
        self.sent = 0
        if not answers:
            self.engine.release()
            self.engine = Connection(self, container="larger", server=False, asked=lambda _: None)
            self.engine.open()
        self.links = [self.engine.sender(f"l{n}", "topic/x") for n in range(links)]
        self.router.mesh.flow()

    def on_detach(self, link: Link, closed: bool, condition: ErrorCondition | None) -> None:
        self.detached.append(condition)

    def send_all(self, size: int, most: int) -> None:
        for _ in range(most):
            for link in self.links:
                if link.credit:
                    self.sent += 1
                    link.send(b"%d" % self.sent, data_message(bytes(size)))
            self.router.mesh.flow()


@pytest.mark.parametrize("links", [1, 10])
def test_who_heeds_his_credit_is_never_refused(mesh: FuzzMesh, links: int) -> None:
    """Though he had it for small messages, and begins with large ones; and though links have enough together."""
    client = LargerAndLarger(mesh, links, answers=False)
    client.send_all(10, 20)
    assert client.sent == 20 * links
    client.send_all(MAX_MESSAGE - 1000, 40)
    assert client.detached == [] and exceeded(mesh) == {}
    assert held(mesh) < links * (WINDOW + MAX_MESSAGE)
    assert held(mesh) < LIMITS.connection_bytes
    client.leave()
    assert held(mesh) == 0


def test_from_who_answers_echoes_no_credit_is_taken_back(mesh: FuzzMesh) -> None:
    """Its answers would tell nothing any more. If it sends more than may be held, it is refused, and can resume."""
    client = LargerAndLarger(mesh, 1, answers=True)
    client.send_all(10, 20)
    client.send_all(MAX_MESSAGE - 1000, 1)
    assert client.links[0].credit == SETTINGS.window * 10 - 21
    client.send_all(MAX_MESSAGE - 1000, 20)
    (condition,) = client.detached
    assert condition is not None and condition.name == TRANSFER_LIMIT
    client.leave()
    assert held(mesh) == 0
