"""publish and subscribe with a state file: a later run goes on where an earlier one ended."""

import sys
import threading
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import trio
from click.testing import CliRunner

from failover.cli import clients as cli_clients
from failover.cli import publish as cli_publish
from failover.cli import subscribe as cli_subscribe
from failover.cli.json_message import as_raw
from failover.cli.source import Limit, Source, numbered
from failover.client import ClientError, SqliteStore
from failover.client.log import ClientLog
from router.amqp.format.values import ACCEPTED, NO_STATE
from router.cli.main import main
from tests.failover.client.scripted import Detached, Gone, Peer, Stated, Transferred, running_peers, states
from topic.identity import LinkIdentity

KEY = b"key %028d" % 1


def target(peer: Peer, state: Path) -> cli_clients.Target:
    return cli_clients.Target((peer.url,), None, state)


def numbers(count: int) -> Source:
    return numbered(20, count, b"", Limit.of(None))


async def test_publish_resumes_what_an_interrupted_run_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with running_peers("a") as [a]:
        at_a = target(a, tmp_path / "state")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cli_publish._publish, at_a, "p", "topic/x", numbers(1))
            await a.answer()
            transferred = await a.next(Transferred)
            nursery.cancel_scope.cancel()
        await a.next(Gone)
        async with trio.open_nursery() as nursery:

            async def again() -> None:
                account = await cli_publish._publish(at_a, "p", "topic/x", numbers(0))
                assert account.is_well and account.outcomes == {"accepted": 1}

            nursery.start_soon(again)
            link = await a.answer({transferred.tag: NO_STATE})
            assert link.remote_unsettled == states({transferred.tag: NO_STATE})
            resumed = await a.next(Transferred)
            assert (resumed.tag, resumed.body, resumed.resume) == (transferred.tag, transferred.body, True)
            a.outcome(link, resumed.handle)
    assert capsys.readouterr().err.endswith("1 accepted\n")


async def test_subscribe_takes_its_subscription_up_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with running_peers("a") as [a]:
        at_a = target(a, tmp_path / "state")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cli_subscribe._subscribe, at_a, "s", "topic/x", 1, as_raw)
            link = await a.answer()
            await a.send(link, KEY, b"once")
            assert (await a.next(Stated)).state == ACCEPTED
        await a.next(Gone)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cli_subscribe._subscribe, at_a, "s", "topic/x", 1, as_raw)
            link = await a.answer({KEY: NO_STATE})
            assert link.remote_unsettled == states({KEY: ACCEPTED})
            await a.send(link, KEY, b"once", resume=True)
            await a.next(Stated)
            await a.send(link, b"other key", b"and on")
    assert capsys.readouterr().out == "once\nand on\n"


async def test_a_subscription_that_has_had_nothing_is_known_to_be_one_and_can_be_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at, written, write = LinkIdentity("s", "subscribe", "topic/x"), threading.Event(), SqliteStore.write

    def write_and_tell(store: SqliteStore, *what: Any) -> None:
        write(store, *what)
        written.set()

    async with running_peers("a") as [a]:
        at_a = target(a, tmp_path / "state")
        with patch.object(SqliteStore, "write", write_and_tell):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cli_subscribe._subscribe, at_a, "s", "topic/x", None, as_raw)
                await a.answer()
                assert await trio.to_thread.run_sync(written.wait, 60)
                nursery.cancel_scope.cancel()
        await a.next(Gone)
        stays = (
            "s stays subscribed: publishers to topic/x wait for it until it is back, 1m at most; to end it: oncemesh"
        )
        assert stays in capsys.readouterr().err
        with SqliteStore(tmp_path / "state") as store:
            assert store.load("subscriber", at).attached
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cli_subscribe._unsubscribe, at_a, "s", "topic/x")
            assert (await a.answer({})).remote_unsettled == {}
            assert (await a.next(Detached)).closed
        with SqliteStore(tmp_path / "state") as store:
            assert not store.load("subscriber", at).attached


async def test_who_uses_a_state_file_of_another_client_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running_peers("a") as [a]:
        at_a = target(a, tmp_path / "state")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cli_publish._publish, at_a, "p", "topic/x", numbers(1))
            await a.answer()
            await a.next(Transferred)
            nursery.cancel_scope.cancel()
        await a.next(Gone)
        capsys.readouterr()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cli_subscribe._subscribe, at_a, "P", "topic/x", 1, as_raw)
            link = await a.answer()
            await a.send(link, KEY, b"once")
            await a.next(Stated)
    link_left = "publisher p/publish on topic/x, 1 unsettled"
    told = f"the state file also has another link, which this run does not change: {link_left}\n"
    assert capsys.readouterr().err.startswith(told)


LIMITED = """if True:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    from router.cli.main import main
    main()
    """


async def test_a_state_file_that_cannot_grow_ends_the_command_with_one_line(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with running_peers("a") as [a], trio.open_nursery() as nursery:
        nursery.start_soon(a.answer)
        arguments = ["publish", "topic/x", "--url", a.url, "--id", "p", "--state", str(state), "--size", "200KiB"]
        ended = await trio.run_process(
            [sys.executable, "-c", LIMITED, *arguments, "--count", "9"], capture_stderr=True, check=False
        )
        await a.next(Gone)
    attached, unsent, error, *others = ended.stderr.decode().splitlines()
    assert (ended.returncode, attached, unsent, others) == (1, "attached to a as p", "9 never sent", [])
    assert error.startswith(f"Error: {state}: the state cannot be stored: ")
    with SqliteStore(state) as store:
        assert store.load("publisher", LinkIdentity("p", "publish", "topic/x")).unsettled == {}


async def test_a_publisher_that_ends_by_an_error_tells_what_was_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def publish() -> None:
        with pytest.RaisesGroup(ClientError, flatten_subgroups=True):
            await cli_publish._publish(target(a, tmp_path / "state"), "p", "topic/x", numbers(3))

    async with running_peers("a") as [a], trio.open_nursery() as nursery:
        nursery.start_soon(publish)
        link = await a.answer()
        first, *_ = [await a.next(Transferred) for _ in range(3)]
        a.outcome(link, first.handle)
        assert (await a.next(Stated)).settled
        link.refuse("amqp:link:stolen", "by another")
        link.connection.wake()
    told = capsys.readouterr().err.splitlines()
    kept = f"2 kept in {tmp_path / 'state'} for the next run"
    assert told == ["attached to a as p", "1 accepted, 2 sent but not answered", kept]


async def test_a_router_that_does_not_tell_who_is_subscribed_is_not_waited_for(tmp_path: Path) -> None:
    async def publish() -> None:
        refused = pytest.RaisesExc(ClientError, match="does not report the number of subscribers")
        with pytest.RaisesGroup(refused, flatten_subgroups=True):
            await cli_publish._publish(target(a, tmp_path / "state"), "p", "topic/x", numbers(3), wanted=1)

    async with running_peers("a") as [a], trio.open_nursery() as nursery:
        nursery.start_soon(publish)
        await a.answer()


def test_a_log_that_cannot_be_written_is_named_and_stops_no_client(tmp_path: Path) -> None:
    ours = ClientLog(tmp_path, "subscriber", LinkIdentity("s", "subscribe", "topic/x"))
    [segment] = tmp_path.iterdir()
    ours._file._segment._file.close()
    with segment.open("rb", buffering=0) as unwritable:
        ours._file._segment._file = unwritable
        ours.closed()
        ours.flush()
    assert ours._file.why == f"{segment}: Bad file descriptor"


def test_a_log_whose_folder_is_moved_is_written_there(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ours = ClientLog(log, "subscriber", LinkIdentity("s", "subscribe", "topic/x"))
    log.rename(tmp_path / "moved")
    [segment] = (tmp_path / "moved").iterdir()
    before = segment.stat().st_size
    ours.closed()
    ours.flush()
    assert not ours._file.why and segment.stat().st_size > before


async def test_a_message_that_has_no_text_is_shown_as_it_came(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running_peers("a") as [a], trio.open_nursery() as nursery:
        at_a = target(a, tmp_path / "state")
        nursery.start_soon(cli_subscribe._subscribe, at_a, "s", "topic/x", 1, as_raw)
        link = await a.answer()
        await a.send(link, KEY, None)
        assert (await a.next(Stated)).state == ACCEPTED
    assert capsys.readouterr().out == "\n"


def test_a_state_file_needs_a_name_to_resume_by(tmp_path: Path) -> None:
    for command in ("publish", "subscribe"):
        result = CliRunner().invoke(main, [command, "topic/x", "--state", str(tmp_path / "state")])
        assert result.exit_code == 2
        assert "--state needs --id" in result.output


def test_a_file_that_is_no_state_is_told(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"not a database" * 100)
    arguments = ["publish", "topic/x", "--url", "amqp://127.0.0.1:1", "--id", "p", "--state", str(path), "--count", "0"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1
    assert result.output.startswith(f"Error: {path}: cannot be used as a state file: ")
