"""What an attach may say of itself, and what is refused with the name of what is wrong."""

from typing import Any

import pytest

from router.amqp.format.values import EXPIRE_CONNECTION, EXPIRE_NEVER, EXPIRE_SESSION
from router.amqp.proton.link import Link
from router.edge.attach import Refusal, begins_life, generation_of, lifetime_of, seen_of
from tests.router.amqp.pair import Pair
from tests.topic.bench import Bench, pen_at
from topic.directory.entry import Lifetime
from topic.identity import NOWHERE, Epoch
from topic.properties import EPOCH, GENERATION


def attach(*, receiving: bool = True, **options: Any) -> Link:
    """The router's end of a client's link."""
    pair = Pair()
    make = pair.client.sender if receiving else pair.client.receiver
    make("link", "topic/x", **options)
    pair.pump()
    return pair.there.attached[0]


@pytest.mark.parametrize("receiving", [True, False])
@pytest.mark.parametrize(
    ("policy", "timeout", "granted"),
    [
        (EXPIRE_SESSION, 0, (0, EXPIRE_SESSION)),
        (EXPIRE_CONNECTION, 30, (30, EXPIRE_CONNECTION)),
        (EXPIRE_CONNECTION, 3600, (60, EXPIRE_CONNECTION)),
        (EXPIRE_NEVER, 0, (60, EXPIRE_CONNECTION)),
    ],
)
def test_a_terminus_lives_as_long_as_asked_but_no_longer_than_the_mesh_grants(
    receiving: bool, policy: str, timeout: int, granted: tuple[int, str]
) -> None:
    link = attach(receiving=receiving, durable=2, expiry_policy=policy, timeout=timeout)
    assert lifetime_of(link, 60) == Lifetime(*granted, durable=2)


def test_a_durability_that_amqp_does_not_know_is_refused() -> None:
    with pytest.raises(Refusal, match="durable: expected 0, 1 or 2, got 7") as caught:
        lifetime_of(attach(durable=7), 60)
    assert caught.value.condition == "amqp:invalid-field"


def test_the_epoch_of_an_earlier_attach_is_read() -> None:
    epoch = Epoch(2**64 - 1, "a-b_c", 1700000000000)
    assert seen_of(attach(properties={EPOCH: str(epoch)})) == epoch
    assert seen_of(attach()) == NOWHERE


@pytest.mark.parametrize(
    "epoch", ["", "1.a", "x.a.1", "-1.a.1", "1..1", "1.a.1 ", "1.a b.1", 7, b"1.a.1", "9" * 21 + ".a.1"]
)
def test_what_no_router_gave_for_an_epoch_is_refused(epoch: object) -> None:
    with pytest.raises(Refusal, match="link property oncemesh:epoch") as caught:
        seen_of(attach(properties={EPOCH: epoch}))
    assert caught.value.condition == "amqp:invalid-field"


@pytest.mark.parametrize("generation", ["12345678", b"1234567", 7])
def test_what_no_router_gave_for_a_generation_is_refused(generation: object) -> None:
    with pytest.raises(Refusal, match="link property oncemesh:generation: expected 8 bytes"):
        generation_of(attach(properties={GENERATION: generation}))


@pytest.mark.parametrize(
    ("options", "begins"),
    [
        ({}, True),
        ({"unsettled": {}}, False),
        ({"unsettled": {}, "properties": {GENERATION: b"present!"}}, False),
        ({"unsettled": {}, "properties": {GENERATION: b"another!"}}, True),
        ({"unsettled": {}, "timeout": 0}, False),
        ({"unsettled": {}, "receiving": False}, False),
    ],
)
def test_an_attach_by_which_another_life_may_end_has_to_be_proven(options: dict[str, Any], begins: bool) -> None:
    pen = pen_at(Bench("a"), "a", name="client", address="topic/x")
    properties = options.get("properties", {})
    if properties.get(GENERATION) == b"present!":
        properties[GENERATION] = pen.stream.generation
    asked: dict[str, Any] = {"expiry_policy": EXPIRE_CONNECTION, "timeout": 30} | options
    link = attach(**asked)
    assert begins_life(link, "topic/x", pen.bench.cores["a"].generations) is begins
