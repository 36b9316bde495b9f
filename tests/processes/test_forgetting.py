"""Links whose clients are gone for good: their own word, and an operator's, end them at once for all who wait.

a ── b ── c, and a ── c
"""

import signal
import subprocess
from pathlib import Path

import attrs
import pytest
import trio

from failover.client import Lost, Outcome, Publisher, SqliteStore, Subscriber
from failover.client.management import Management, RefusedError
from tests.forks import COMMAND_LINE
from tests.processes.mesh import RunningMesh, eventually

NEWS = "topic/forgotten"
PATIENCE_S = 30
"""Seconds that all is over in; a terminus lives for 60."""


def url(mesh: RunningMesh, router: str) -> str:
    return f"amqp://{mesh.address(router)}"


@attrs.frozen
class Told:
    exit_code: int
    output: str


async def oncemesh(*words: str) -> Told:
    ran = await trio.run_process([*COMMAND_LINE, *words], capture_stdout=True, stderr=subprocess.STDOUT, check=False)
    return Told(ran.returncode, ran.stdout.decode())


async def leave(mesh: RunningMesh, router: str, container: str, folder: Path) -> None:
    """A subscription that stays when its client has gone."""
    with SqliteStore(folder / f"{container}.db") as store:
        async with Subscriber([url(mesh, router)], NEWS, container=container, link="subscribe", store=store):
            pass


async def held_up(mesh: RunningMesh, publisher: Publisher) -> trio.Event:
    """Set when its message is accepted, for which it has to be waited now."""
    handle = await publisher.send(b"news")

    async def is_awaited() -> bool:
        return bool((await mesh.status("a"))["waits"])

    await eventually(is_awaited)
    accepted = trio.Event()

    async def wait() -> None:
        assert await handle.outcome() is Outcome.ACCEPTED
        accepted.set()

    publisher._nursery.start_soon(wait)
    return accepted


@pytest.mark.parametrize("router", ["a", "c"])
async def test_an_operator_ends_a_subscription_whose_client_has_gone(
    triangle: RunningMesh, tmp_path: Path, router: str
) -> None:
    await leave(triangle, router, "gone", tmp_path)
    async with Publisher([url(triangle, "a")], NEWS, container="p", link="publish") as publisher:
        accepted = await held_up(triangle, publisher)
        told = await oncemesh("forget", "gone/subscribe", "--url", url(triangle, "b"))
        assert (told.exit_code, told.output) == (
            0, f"subscriber gone/subscribe on {NEWS} was ended; publishers no longer wait for it\n"
        )  # fmt: skip
        with trio.fail_after(PATIENCE_S):
            await accepted.wait()
    events = await oncemesh("events", "--router", router, "--url", url(triangle, "b"))
    assert f"subscriber gone/subscribe on {NEWS} was ended at the request of an operator" in events.output


async def test_an_operator_ends_an_orphan_at_whatever_router(own_triangle: RunningMesh, tmp_path: Path) -> None:
    await leave(own_triangle, "c", "gone", tmp_path)
    own_triangle.signal("c", signal.SIGKILL)
    await own_triangle.ending("c")
    async with Publisher([url(own_triangle, "a")], NEWS, container="p", link="publish") as publisher:
        accepted = await held_up(own_triangle, publisher)
        told = await oncemesh("forget", f"gone/subscribe on {NEWS}", "--url", url(own_triangle, "b"))
        assert told.exit_code == 0, told.output
        with trio.fail_after(PATIENCE_S):
            await accepted.wait()
        await own_triangle.start("c")

        async def is_forgotten() -> bool:
            statuses = [await own_triangle.status(router) for router in "abc"]
            return not any(status["orphans"] or status["subscribers"] for status in statuses)

        await eventually(is_forgotten)


async def test_a_link_with_a_client_is_not_ended(triangle: RunningMesh) -> None:
    losses = list[Lost]()
    reader = Subscriber(
        [url(triangle, "c")], NEWS, container="here", link="subscribe",
        events=lambda event: losses.append(event) if isinstance(event, Lost) else None,
    )  # fmt: skip
    async with reader, Management([url(triangle, "a")]) as management:
        told = await oncemesh("forget", "here/subscribe", "--url", url(triangle, "a"))
        assert told.exit_code == 1
        assert f"subscriber here/subscribe on {NEWS} is in use: its client is attached at router c; stop" in told.output
        rows = await management.query("io.oncemesh.subscriber", ["identity", "container"], "c")
        [identity] = [row["identity"] for row in rows if row["container"] == "here"]
        with pytest.raises(RefusedError, match="is attached here"):
            await management.ask("DELETE", "c", type="io.oncemesh.subscriber", identity=identity)
        nobody = await oncemesh("forget", "nobody/subscribe", "--url", url(triangle, "a"))
        assert (
            nobody.exit_code == 1
            and "knows a link nobody/subscribe; the clients of all links are attached" in nobody.output
        )
        assert losses == []


async def test_a_publisher_that_is_gone_is_ended_too(triangle: RunningMesh, tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "p.db") as store:
        with pytest.raises(KeyError):
            async with Publisher([url(triangle, "b")], NEWS, container="p2", link="publish", store=store):
                raise KeyError  # it is not left in order
        told = await oncemesh("forget", "p2", "--role", "publisher", "--url", url(triangle, "a"))
        assert (told.exit_code, told.output) == (
            0,
            f"publisher p2/publish on {NEWS} was ended; publishers no longer wait for it\n",
        )
        assert not [one for one in (await triangle.status("b"))["publishers"] if one["container"] == "p2"]


async def test_unsubscribing_ends_what_subscribing_with_a_state_has_left(triangle: RunningMesh, tmp_path: Path) -> None:
    state, at = tmp_path / "reader.db", ("--url", url(triangle, "c"))
    named = (NEWS, "--id", "reader", "--state", str(state), *at)
    async with Publisher([url(triangle, "a")], NEWS, container="p3", link="publish") as publisher:
        async with trio.open_nursery() as nursery:
            results = list[Told]()

            async def subscribe() -> None:
                results.append(await oncemesh("subscribe", *named, "--count", "1"))

            nursery.start_soon(subscribe)
            while await publisher.subscribers() < 1:
                await trio.sleep(0.01)
            handle = await publisher.send(b"news")
            assert await handle.outcome() is Outcome.ACCEPTED
        assert results[0].exit_code == 0
        assert f"reader stays subscribed: publishers to {NEWS} wait for it until it is back" in results[0].output
        assert f", 1m at most; to end it: oncemesh unsubscribe {NEWS} --id reader --state" in results[0].output
        accepted = await held_up(triangle, publisher)
        told = await oncemesh("unsubscribe", *named)
        assert (told.exit_code, told.output) == (0, f"reader is no longer subscribed to {NEWS}\n")
        with trio.fail_after(PATIENCE_S):
            await accepted.wait()
    again = await oncemesh("unsubscribe", *named)
    assert again.exit_code == 1 and "has no subscription of reader to topic/forgotten" in again.output
    for wrong, said in (
        ((NEWS, *at), "expected --id and --state"),
        ((NEWS, "--id", "reader", "--state", str(tmp_path / "none"), *at), "the file does not exist"),
    ):
        refused = await oncemesh("unsubscribe", *wrong)
        assert refused.exit_code and said in refused.output
