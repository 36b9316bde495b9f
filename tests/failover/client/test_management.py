"""A client of `$management` and routers that answer late, never, or refuse."""

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from attrs import frozen

from failover.client import Connected, Event, Lost
from failover.client import management as client
from failover.client.attachment.attachment import LIVED_S
from failover.client.management import CREDIT, Management
from router.amqp.batches import Transfers
from router.amqp.format.sections import read_message, write_message
from router.amqp.format.values import EXPIRE_LINK
from router.amqp.proton.link import Link
from tests.failover.client.scripted import Peer
from tests.hangs import HANGS_S
from topic.properties import ROUTERS


@frozen
class Asked:
    link: Link
    sections: dict[str, Any]


class Managed(Peer):
    """Its node for management answers when the test says so."""

    answers: Link

    def on_attach(self, link: Link) -> None:
        if link.remote_source is not None and link.remote_source.address == ROUTERS:
            super().on_attach(link)
        elif link.is_sender:
            self.answers = link
            link.answer(expiry_policy=EXPIRE_LINK, address=f"_dynamic/{self.name}/1")
        else:
            link.answer()
            link.flow(1)

    def on_transfers(self, link: Link, transfers: Transfers) -> None:
        for message in transfers.messages:
            self._news.send_nowait(Asked(link, read_message(message)))

    def reply(self, asked: Asked, value: str) -> None:
        sections = {
            "properties": {"correlation-id": asked.sections["properties"]["correlation-id"]},
            "application-properties": {"statusCode": 200, "statusDescription": "OK"},
            "value": value,
        }
        self.answers.send(b"answer", write_message(sections), settled=True)
        asked.link.flow(1)
        asked.link.connection.wake()


@asynccontextmanager
async def managed(*names: str) -> AsyncIterator[list[Managed]]:
    with trio.fail_after(HANGS_S):
        async with trio.open_nursery() as nursery:
            peers = [Managed(name) for name in names]
            for peer in peers:
                await nursery.start(peer.serve)
            yield peers
            nursery.cancel_scope.cancel()


async def test_a_router_that_does_not_answer_is_left_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ANSWER_S", 1.2)  # a link that lived for less than a second was none
    events: list[Event] = []
    async with managed("a", "b") as [a, b], Management([a.url, b.url], timeout=60, events=events.append) as management:

        async def answered() -> None:
            await a.next(Asked)
            b.reply(await b.next(Asked), "late")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(answered)
            assert await management.ask("GET-LOG") == "late"
    [first, lost, second] = events
    assert isinstance(first, Connected) and isinstance(second, Connected) and isinstance(lost, Lost)
    assert (first.router, lost.reason, second.router) == (
        "a", f"the connection was lost: the router at {a.url} answered no request for 1.2 s", "b",
    )  # fmt: skip


async def test_no_more_requests_are_under_way_than_a_router_lets_wait() -> None:
    async with managed("a") as [a], Management([a.url]) as management, trio.open_nursery() as nursery:
        for number in range(CREDIT + 4):
            nursery.start_soon(management.ask, "GET-LOG", f"r{number}")
        asked = [await a.next(Asked) for _ in range(CREDIT)]
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert a.has_nothing()
        for each in asked:
            a.reply(each, "")
        for _ in range(4):
            a.reply(await a.next(Asked), "")


async def test_a_refusal_that_came_while_nobody_asked_does_not_meet_the_next_request() -> None:
    async with managed("a") as [a], Management([a.url]) as management, trio.open_nursery() as nursery:

        async def answer() -> Link:
            asked = await a.next(Asked)
            a.reply(asked, "")
            return asked.link

        nursery.start_soon(management.ask, "GET-LOG")
        link = await answer()
        await trio.testing.wait_all_tasks_blocked(0.05)
        link.detach("amqp:link:detach-forced", "the node has gone")
        link.connection.wake()
        await trio.testing.wait_all_tasks_blocked(0.05)
        nursery.start_soon(management.ask, "GET-LOG")
        await answer()


async def test_it_goes_where_its_router_asks_it_to_go() -> None:
    """The list of routers is no answer."""
    async with managed("a", "b") as [a, b], Management([a.url], timeout=60) as management:
        server = {"network-host": "127.0.0.1", "port": b.port, "scheme": "amqp"}
        await a.tell([server], move=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(management.ask, "GET-LOG")
            b.reply(await b.next(Asked), "")


async def test_a_command_says_that_it_looks_for_a_router() -> None:
    """It may do so for a minute, and is not to seem to hang."""
    command = [sys.executable, "-c", "from router.cli.main import main; main(prog_name='oncemesh')", "events", "--url"]
    async with managed("a") as [a]:
        process = await trio.lowlevel.open_process([*command, a.url], stderr=subprocess.PIPE)
        try:
            assert process.stderr is not None
            await a.next(Asked)
            await trio.sleep(LIVED_S)
            a.cut()
            told = await process.stderr.receive_some()
            while b"\nattached to a as oncemesh events\n" not in told:
                told += await process.stderr.receive_some()
            assert told.startswith(b"oncemesh events reconnects: the connection was lost\n")
        finally:
            process.kill()
            await process.wait()
