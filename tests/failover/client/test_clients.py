"""Publishers and subscribers at a router."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
import trio

from failover.client import ClientError, Outcome, Publisher, Subscriber
from failover.client.status import fetch_status
from router.mesh.quantities import Address
from tests.failover.client.real_routers import real_routers
from topic.blocks import LogEntry, read_blocks
from topic.identity import LinkIdentity, link_name
from topic.journal import Event


def publisher(url: str, log: Path | None = None, in_flight: int = 1000, timeout: int = 60) -> Publisher:
    return Publisher([url], "topic/x", container="p", link="out", log=log, in_flight=in_flight, timeout=timeout)


def subscriber(
    url: str,
    log: Path | None = None,
    credit: int = 100,
    settle: Literal["first", "second"] = "second",
    timeout: int = 60,
) -> Subscriber:
    return Subscriber(
        [url], "topic/x", container="s", link="in", credit=credit, settle=settle, log=log, timeout=timeout
    )


def entries(log: Path) -> list[LogEntry]:
    found: list[LogEntry] = []
    for segment in sorted(log.iterdir()):
        blocks, damage = read_blocks(segment.read_bytes())
        assert damage is None
        found += [entry for block in blocks for entry in block.entries()]
    return found


def keys_of(log: Sequence[LogEntry], event: Event) -> list[bytes]:
    return [key for entry in log if entry.event is event for key in entry.keys]


@pytest.mark.parametrize("settle", ["first", "second"])
async def test_what_is_published_is_processed_and_logged(tmp_path: Path, settle: Literal["first", "second"]) -> None:
    count = 300
    bodies: list[bytes] = []
    keys: list[bytes] = []
    async with (
        real_routers("single") as mesh,
        subscriber(mesh.urls[0], tmp_path / "s", credit=7, settle=settle) as s,
        publisher(mesh.urls[0], tmp_path / "p") as p,
        trio.open_nursery() as nursery,
    ):

        async def consume() -> None:
            async for delivery in s:
                bodies.append(delivery.body)
                keys.append(delivery.key)
                assert delivery.properties == {"n": "x"}
                await delivery.accept()
                if len(bodies) == count:
                    return

        nursery.start_soon(consume)
        handles = [await p.send(b"%d" % n, {"n": "x"}) for n in range(count)]
        assert [await handle.outcome() for handle in handles] == [Outcome.ACCEPTED] * count
    assert bodies == [b"%d" % n for n in range(count)]
    published, processed = entries(tmp_path / "p"), entries(tmp_path / "s")
    for log, events in (
        (published, (Event.PUBLISHED, Event.OUTCOME, Event.SETTLED)),
        (processed, (Event.DELIVERED, Event.PROCESSED, Event.SETTLED)),
    ):
        assert (log[0].event, log[-1].event) == (Event.BOOT, Event.STOPPED)
        for event in events:
            if event in (Event.OUTCOME, Event.SETTLED):  # dispositions need not keep the order of the transfers
                assert sorted(keys_of(log, event)) == sorted(keys)
            else:
                assert keys_of(log, event) == keys
    assert {entry.publisher for entry in published} == {link_name(LinkIdentity("p", "out", "topic/x")).decode()}


async def test_an_acceptance_held_back_holds_the_outcome_back() -> None:
    async with real_routers("single") as mesh, subscriber(mesh.urls[0]) as s, publisher(mesh.urls[0]) as p:
        handle = await p.send(b"body")
        delivery = await anext(s)
        with trio.move_on_after(0.05) as waited:
            await handle.outcome()
        assert waited.cancelled_caught
        await delivery.accept()
        assert await handle.outcome() is Outcome.ACCEPTED


async def test_a_rejection_comes_through_with_its_reason() -> None:
    async with real_routers("single") as mesh, subscriber(mesh.urls[0]) as s, publisher(mesh.urls[0]) as p:
        handle = await p.send(b"body")
        await (await anext(s)).reject("amqp:not-allowed", "no")
        assert await handle.outcome() is Outcome.REJECTED


async def test_no_more_is_under_way_than_asked_for() -> None:
    async with real_routers("single") as mesh, subscriber(mesh.urls[0]) as s, publisher(mesh.urls[0], in_flight=2) as p:
        await p.send(b"1")
        await p.send(b"2")
        with trio.move_on_after(0.05) as waited:
            await p.send(b"3")
        assert waited.cancelled_caught
        for _ in range(2):
            await (await anext(s)).accept()
        await p.send(b"3")
        await (await anext(s)).accept()


async def test_large_messages() -> None:
    body = bytes(range(256)) * 8192
    async with real_routers("single") as mesh, subscriber(mesh.urls[0]) as s, publisher(mesh.urls[0]) as p:
        handles = [await p.send(body) for _ in range(3)]
        for _ in handles:
            delivery = await anext(s)
            assert delivery.body == body
            await delivery.accept()


async def test_an_address_that_does_not_exist() -> None:
    async with real_routers("single") as mesh:
        with pytest.raises(ClientError) as caught:
            async with Publisher([mesh.urls[0]], "nowhere", container="p", link="out"):
                pass
    assert caught.value.condition == "amqp:not-found"


async def test_the_next_router_of_the_list_when_the_first_is_not_there() -> None:
    async with real_routers("single") as mesh:
        unused = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = unused[0].socket.getsockname()[1]
        await unused[0].aclose()
        async with Publisher([f"127.0.0.1:{port}", mesh.urls[0]], "topic/x", container="p", link="out") as p:
            assert await (await p.send(b"body")).outcome() is Outcome.ACCEPTED
        with pytest.raises(OSError, match=str(port)):
            async with Publisher([f"127.0.0.1:{port}"], "topic/x", container="p", link="out"):
                pass


async def test_whoever_waits_learns_that_a_link_not_to_be_resumed_is_lost() -> None:
    async with real_routers("single") as mesh:
        with pytest.raises(ClientError) as caught:
            async with subscriber(mesh.urls[0], timeout=0) as s, publisher(mesh.urls[0], timeout=0) as p:
                handle = await p.send(b"body")
                await anext(s)
                mesh.force_out()
                with pytest.raises(ClientError):
                    await anext(s)
                await handle.outcome()
    assert caught.value.condition == "amqp:connection:forced"


async def test_an_error_in_the_block_comes_out_as_it_is() -> None:
    async with real_routers("single") as mesh:
        with pytest.raises(KeyError):
            async with subscriber(mesh.urls[0]), publisher(mesh.urls[0]) as p:
                await p.send(b"body")
                raise KeyError("mine")


async def test_the_status_of_a_router() -> None:
    async with real_routers("single") as mesh:
        address = Address.parse(mesh.urls[0].removeprefix("amqp://"))
        assert (await fetch_status(address.host, address.port, 5.0))["router"] == "a"
    with pytest.raises(OSError):
        await fetch_status(address.host, address.port, 5.0)


async def test_who_has_not_said_hello_is_told_no_goodbye(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for an answer beyond his deadline."""
    for module in ("failover.client.endpoint", "router.amqp.transport"):
        monkeypatch.setattr(f"{module}.GOODBYE_S", 30.0)
    [silent] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    began = trio.current_time()
    async with silent:
        with pytest.raises(trio.TooSlowError):
            await fetch_status("127.0.0.1", silent.socket.getsockname()[1], 0.1)
    assert trio.current_time() < began + 30


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"urls": "amqp://127.0.0.1:5672"}, "a list of URLs is expected"),
        ({"urls": []}, "at least one URL"),
        ({"timeout": -1}, "timeout: expected whole seconds"),
        ({"timeout": 1.5}, "timeout: expected whole seconds"),
        ({"idle": 0.0}, "idle: expected seconds above 0"),
        ({"in_flight": 0}, "in_flight: expected at least 1"),
    ],
)
def test_wrong_options_of_a_publisher_are_refused_at_once(wrong: dict[str, Any], says: str) -> None:
    options = {"urls": ["amqp://127.0.0.1:5672"], "address": "topic/x", "container": "p", "link": "out", **wrong}
    with pytest.raises(ValueError, match=says):
        Publisher(**options)


def test_a_subscriber_without_credit_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="credit: expected at least 1"):
        subscriber("amqp://127.0.0.1:5672", credit=0)


async def test_a_message_has_one_answer() -> None:
    """A refused answer to several messages answers none of them."""
    async with (
        real_routers("single") as mesh,
        subscriber(mesh.urls[0]) as s,
        publisher(mesh.urls[0]) as p,
    ):
        first, second = [await p.send(b"x") for _ in range(2)]
        one, other = await anext(s), await anext(s)
        await one.accept()
        for answered in ([other, one], [other, other]):
            with pytest.raises(RuntimeError, match="answered already"):
                await s.accept_all(answered)
        with pytest.raises(RuntimeError, match="answered already"):
            await one.reject()
        await other.reject()
        assert (await first.outcome(), await second.outcome()) == (Outcome.ACCEPTED, Outcome.REJECTED)
