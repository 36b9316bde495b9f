"""Unsettled maps that name publishers nobody knows: each is remembered for a while, so there are so many at most."""

import pytest

from router.amqp.format.errors import RESOURCE_LIMIT
from router.amqp.format.values import ErrorCondition
from router.amqp.proton.link import Link
from tests.fuzz.mesh import FuzzMesh, GoodClient
from topic.identity import KeyMaker, LinkIdentity, link_name

MOST = 20


class Resuming(GoodClient):
    """It subscribes with maps, and hears which of its links are refused."""

    def __init__(self) -> None:
        super().__init__(FuzzMesh("a", "b").routers["a"], "resuming")
        self.router.guests.append(self)
        self.refused: list[tuple[str, str]] = []

    def subscribe(self, name: str, publishers: range) -> None:
        makers = [KeyMaker(publisher(number), b"madeupby") for number in publishers]
        self.engine.receiver(name, "topic/x", unsettled={maker.key(b"1"): 0 for maker in makers}, timeout=60)
        self.router.mesh.flow()

    def on_detach(self, link: Link, closed: bool, condition: ErrorCondition | None) -> None:
        if condition is not None:
            self.refused.append((link.name, condition.name))


def publisher(number: int) -> bytes:
    return link_name(LinkIdentity(f"nobody {number}", "link", "topic/x"))


def test_publishers_that_nobody_knows_are_remembered_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topic.termini.generations.MOST_NOWHERE", MOST)
    client = Resuming()
    client.subscribe("first", range(MOST - 5))
    client.subscribe("the same", range(MOST - 5))
    client.subscribe("second", range(MOST - 10, MOST))
    assert client.refused == []
    client.subscribe("third", range(MOST, MOST + 1))
    assert client.refused == [("third", RESOURCE_LIMIT)]
