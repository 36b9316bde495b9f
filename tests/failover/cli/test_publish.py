"""What publish publishes, and what it tells of it, with real routers and commands."""

import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
import trio
from rich.console import Console

from failover.cli.account import Bar
from failover.client import Publisher, Subscriber
from router.mesh.rundir import RunDirectory
from tests.forks import COMMAND_LINE
from tests.hangs import HANGS_S
from tests.processes.mesh import RunningMesh, eventually, running

PATIENCE_S = HANGS_S


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    with running("work", tmp_path_factory.mktemp("work"), terminus="5s") as mesh:  # a subscriber is killed
        yield mesh


def oncemesh(directory: RunDirectory, *arguments: str, given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    command = [*COMMAND_LINE, *arguments, "--run-dir", str(directory.path)]
    return subprocess.run(command, input=given, capture_output=True, timeout=PATIENCE_S)


def begin(directory: RunDirectory, *arguments: str) -> "subprocess.Popen[bytes]":
    command = [*COMMAND_LINE, *arguments, "--run-dir", str(directory.path)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def said(process: "subprocess.Popen[bytes]", line: bytes) -> None:
    """Wait until the process has said that. A process that never says it is killed."""
    assert process.stderr is not None
    hangs = threading.Timer(PATIENCE_S, process.kill)
    hangs.start()
    try:
        assert any(line in told for told in process.stderr), f"{line!r} was not said"
    finally:
        hangs.cancel()


def test_who_waits_for_subscribers_sends_nothing_before_they_are_there(mesh: RunningMesh) -> None:
    publishing = begin(mesh.directory, "publish", "topic/w", "--count", "50", "--wait-for-subscribers", "2")
    said(publishing, b"waiting for subscribers, 0 of 2")
    readers = [begin(mesh.directory, "subscribe", "topic/w", "--count", "50", "--router", at) for at in ("b", "c")]
    bodies = [reader.communicate(timeout=PATIENCE_S)[0].splitlines() for reader in readers]
    told = publishing.communicate(timeout=PATIENCE_S)[1].decode().splitlines()
    assert [len(lines) for lines in bodies] == [50, 50]
    assert (publishing.returncode, told[-1]) == (0, "50 accepted")


def test_ctrl_c_ends_the_waiting(mesh: RunningMesh) -> None:
    publishing = begin(mesh.directory, "publish", "topic/c", "--count", "50", "--wait-for-subscribers", "1")
    said(publishing, b"waiting for subscribers, 0 of 1")
    publishing.send_signal(signal.SIGINT)
    _, told = publishing.communicate(timeout=PATIENCE_S)
    assert (publishing.returncode, told) == (1, b"50 never sent\n")


async def test_who_waits_for_an_outcome_is_told_for_whom(mesh: RunningMesh) -> None:
    """A subscriber at another router, which takes its time."""
    c = f"amqp://{mesh.address('c')}"
    async with Subscriber([c], "topic/s", container="slow", link="reader") as slow:
        publishing = begin(mesh.directory, "publish", "topic/s", "--body", "b", "--router", "a")
        delivery = await anext(aiter(slow))
        waiting = b"waiting for subscriber slow/reader on topic/s\n"
        await trio.to_thread.run_sync(said, publishing, waiting)
        await delivery.accept()
        _, told = await trio.to_thread.run_sync(publishing.communicate)
    assert (publishing.returncode, told) == (0, b"1 accepted\n")


def test_who_waits_for_any_subscriber_of_a_balanced_address_is_told(mesh: RunningMesh) -> None:
    publishing = begin(mesh.directory, "publish", "work/s", "--body", "b")
    said(publishing, b"waiting for any subscriber of work/s with credit\n")
    assert oncemesh(mesh.directory, "subscribe", "work/s", "--count", "1").stdout == b"b\n"
    _, told = publishing.communicate(timeout=PATIENCE_S)
    assert (publishing.returncode, told) == (0, b"1 accepted\n")


def test_why_messages_are_rejected_is_told(mesh: RunningMesh) -> None:
    result = oncemesh(mesh.directory, "publish", "work/z", "--count", "2", "--ttl", "1ms", "--json")
    why = "amqp:precondition-failed: the message's time to live ended before any subscriber got it"
    told = json.loads(result.stdout)
    assert (result.returncode, told["outcomes"], told["rejected"]) == (1, {"rejected": 2}, {why: 2})
    assert result.stderr.decode().splitlines()[-2:] == ["2 rejected", f"2 rejected: {why}"]


async def test_ctrl_c_tells_what_was_sent_from_what_never_was(mesh: RunningMesh) -> None:
    """A subscriber that takes three, and then nothing more; its window is 100."""
    reading = begin(mesh.directory, "subscribe", "topic/t", "--id", "slow", "--router", "b")
    said(reading, b"attached to b")
    publishing = begin(mesh.directory, "publish", "topic/t", "--count", "5000", "--id", "t", "--router", "a")
    assert reading.stdout is not None
    for _ in range(3):
        reading.stdout.readline()
    reading.send_signal(signal.SIGSTOP)

    async def is_stuck() -> bool:
        [publisher] = [one for one in (await mesh.status("a"))["publishers"] if one["container"] == "t"]
        return bool(publisher["unsettled"] == 1000)  # the window

    try:
        await eventually(is_stuck)
        publishing.send_signal(signal.SIGINT)
        _, told = publishing.communicate(timeout=PATIENCE_S)
    finally:
        reading.kill()
        reading.communicate()
    found = re.search(rb"(?:(\d+) accepted, )?(\d+) sent but not answered, (\d+) never sent\n", told)
    assert found is not None, told  # what it took it may not have answered before it was stopped
    accepted, sent, unsent = (int(number or 0) for number in found.groups())
    assert accepted + sent + unsent == 5000
    assert sent == 1000 and publishing.returncode == 1


def test_lines_are_bodies_and_come_out_as_they_went_in(mesh: RunningMesh) -> None:
    lines = b"hello\n\n\xff\x00 not text\r\nlast, without an end"
    reading = begin(mesh.directory, "subscribe", "topic/l", "--count", "4")
    said(reading, b"attached")
    published = oncemesh(mesh.directory, "publish", "topic/l", given=lines)
    assert (published.returncode, published.stderr.splitlines()[-1]) == (0, b"4 accepted")
    assert reading.communicate(timeout=PATIENCE_S)[0] == lines + b"\n"


def test_what_one_subscriber_prints_as_json_another_publisher_takes(mesh: RunningMesh, tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_bytes(b"\xff\x00\n")
    readers = [begin(mesh.directory, "subscribe", f"topic/j{n}", "--count", "2", "--format", "json") for n in (1, 2)]
    for reader in readers:
        said(reader, b"attached")
    options = ["--subject", "s", "--property", "a=b=c", "--ttl", "30s", "--priority", "7"]
    for source in (["--body", "text"], ["--body-file", str(body)]):
        assert oncemesh(mesh.directory, "publish", "topic/j1", *source, *options).returncode == 0
    first, _ = readers[0].communicate(timeout=PATIENCE_S)
    lines = tmp_path / "lines"
    lines.write_bytes(first)
    taking = ["publish", "topic/j2", "--from", str(lines), "--format", "json", "--subject", "unless it says", "--json"]
    again = oncemesh(mesh.directory, *taking)
    assert (again.returncode, again.stderr.splitlines()[-1]) == (0, b"2 accepted")
    told = json.loads(again.stdout)
    assert (told["begun"], told["outcomes"], told["sent_but_not_answered"]) == (2, {"accepted": 2}, 0)
    second, _ = readers[1].communicate(timeout=PATIENCE_S)
    came = [[json.loads(line) for line in lines.splitlines()] for lines in (first, second)]
    keys = {message.pop("key") for messages in came for message in messages}
    assert len(keys) == 4
    assert came[0] == came[1]
    common = {
        "header": {"priority": 7, "ttl": 30000},
        "properties": {"subject": "s"},
        "application-properties": {"a": "b=c"},
    }
    assert came[0] == [{**common, "body": "text"}, {**common, "base64": "/wAK"}]


def test_a_bad_line_is_told_by_its_number_and_those_before_it_are_well(mesh: RunningMesh) -> None:
    lines = b'{"body": "1"}\n\n{"body": "2", "subject": "s"}\n{"body": "3"}\n'
    result = oncemesh(mesh.directory, "publish", "topic/b", "--format", "json", given=lines)
    told = result.stderr.decode().splitlines()[1:]
    assert result.returncode == 1
    assert told == [
        "1 accepted, without a subscriber at topic/b",
        'Error: line 3: "subject" belongs into "properties": {"properties": {"subject": …}}',
    ]


def test_the_part_that_nobody_was_subscribed_to_is_told(mesh: RunningMesh) -> None:
    reading = begin(mesh.directory, "subscribe", "topic/p", "--count", "3", "--id", "p3")
    said(reading, b"attached")
    publishing = begin(mesh.directory, "publish", "topic/p")
    assert publishing.stdin is not None
    publishing.stdin.write(b"1\n2\n3\n")
    publishing.stdin.flush()
    assert reading.communicate(timeout=PATIENCE_S)[0] == b"1\n2\n3\n"
    _, told = publishing.communicate(b"4\n5\n", timeout=PATIENCE_S)
    assert told.endswith(b"5 accepted, 2 of them without a subscriber at topic/p\n")
    assert publishing.returncode == 0


def test_a_reader_that_goes_ends_the_subscriber_without_a_traceback(mesh: RunningMesh) -> None:
    reading = begin(mesh.directory, "subscribe", "topic/head")
    said(reading, b"attached")
    assert reading.stdout is not None and reading.stderr is not None
    publishing = begin(mesh.directory, "publish", "topic/head", "--count", "2000", "--rate", "2000")
    reading.stdout.readline()
    reading.stdout.close()
    assert reading.wait(PATIENCE_S) == 1
    assert b"Traceback" not in reading.stderr.read()
    assert b"2000 accepted" in publishing.communicate(timeout=PATIENCE_S)[1]


async def test_what_a_home_told_before_it_died_is_counted_on(tmp_path_factory: pytest.TempPathFactory) -> None:
    """3 accepted by nobody at a, which is killed; 2 at its next home."""
    mesh = RunningMesh("line", tmp_path_factory.mktemp("line"), {})
    try:
        await mesh.up()
        urls = [f"amqp://{mesh.address(name)}" for name in ("a", "c")]
        async with Publisher(urls, "topic/alone", container="p", link="l") as publisher:
            for handle in [await publisher.send(b"%d" % n) for n in range(3)]:
                await handle.outcome()
            assert await publisher.subscribers() == 0
            assert publisher.alone == 3
            mesh.signal("a", signal.SIGKILL)
            for handle in [await publisher.send(b"%d" % n) for n in range(2)]:
                await handle.outcome()
        assert publisher.alone == 5
    finally:
        mesh.end()


@pytest.mark.parametrize("words", [["status"], ["--help"], ["--version"], ["drain", "--help"]])
def test_an_output_that_is_full_is_told(words: list[str], mesh: RunningMesh) -> None:
    where = ["--run-dir", str(mesh.directory.path)] if words == ["status"] else []
    with open("/dev/full", "wb") as full:
        command = [*COMMAND_LINE, *words, *where]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=PATIENCE_S)
    assert (result.returncode, result.stderr) == (1, b"Error: standard output: No space left on device\n")


def test_story_explains_itself_to_those_who_are_short_of_breath() -> None:
    told = [subprocess.run([*COMMAND_LINE, "story", option], capture_output=True) for option in ("-h", "--help")]
    assert [one.returncode for one in told] == [0, 0]
    assert told[0].stdout == told[1].stdout != b""


def test_a_closed_standard_input_is_told(mesh: RunningMesh) -> None:
    command = [*COMMAND_LINE, "publish", "topic/x", "--run-dir", str(mesh.directory.path)]
    closed = subprocess.run(command, capture_output=True, preexec_fn=lambda: os.close(0), timeout=PATIENCE_S)
    assert closed.returncode == 1
    assert closed.stderr.startswith(b"Error: there is no standard input to read messages from, expected --body or")


@pytest.mark.parametrize("words", [["subscribe", "topic/x", "--count", "1"], ["status"]])
def test_a_closed_standard_output_is_told(mesh: RunningMesh, words: list[str]) -> None:
    command = [*COMMAND_LINE, *words, "--run-dir", str(mesh.directory.path)]
    closed = subprocess.run(command, stderr=subprocess.PIPE, preexec_fn=lambda: os.close(1), timeout=PATIENCE_S)
    assert (closed.returncode, closed.stderr) == (1, b"Error: there is no standard output\n")


def test_on_a_phone_numbers_and_words_are_whole() -> None:
    shown = StringIO()
    out = Console(file=shown, force_terminal=True, width=45)
    with Bar(out, "topic/news", 100_000) as bar:
        bar.say("waiting, 0 of 2 subscribers")
    assert "waiting, 0 of 2 subscribers" in shown.getvalue() and "…" not in shown.getvalue()
