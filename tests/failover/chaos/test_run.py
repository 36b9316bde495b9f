"""Short runs of chaos on real processes: what was planned is done, all comes to its end, and nothing is left."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import psutil
import pytest
import trio

from failover.audit import Verdict
from failover.audit import run as audit
from failover.chaos.run import Ending, perform, prepare
from failover.chaos.script.reader import load
from failover.chaos.script.script import Script
from failover.chaos.view import PlainView
from router.cli.base import console
from router.groups import leaves
from router.mesh.errors import RunError
from router.mesh.rundir import RunDirectory
from router.mesh.shown.sets import shown_queues
from tests.failover.chaos.scripts import script, write
from tests.hangs import HANGS_S
from tests.left import assert_none_left, processes_of
from topic.blocks import read_blocks

ROOT = Path(__file__).parents[3]
PATIENCE_S = HANGS_S


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path) -> Iterator[None]:
    yield
    assert_none_left(tmp_path)


class Listening(PlainView):
    """Keeps what is told, and cries for help when a run goes as a test wants it."""

    def __init__(self) -> None:
        super().__init__(console())
        self.told: list[str] = []
        self.loaded = trio.Event()
        """The clients are attached, load and faults begin."""

    def tell(self, text: str) -> None:
        super().tell(text)
        self.told.append(text)
        if "of load" in text:
            self.loaded.set()


async def disturbed(script: Script, directory: RunDirectory, view: Listening, disturb: Callable[[], None]) -> Ending:
    """A run that something befalls as its load begins, behind the nemesis's back."""

    async def strike() -> None:
        await view.loaded.wait()
        disturb()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(strike)
        with trio.fail_after(PATIENCE_S):
            ending = await perform(script, 1, directory, view)
    return ending


async def played(
    folder: Path, *faults: str, topology: str = "pair", duration: str = "3s", address: str = "topic/chaos"
) -> tuple[Ending, Any, list[str]]:
    """How it ended, what chaos.json says, what was told. `address`: of all clients."""
    made = script(folder, *faults, topology=topology, duration=duration)
    made = attrs.evolve(made, clients=tuple(attrs.evolve(client, address=address) for client in made.clients))
    directory = prepare(folder / "run", made)
    view = Listening()
    with trio.fail_after(PATIENCE_S):
        ending = await perform(made, 7, directory, view)
    record = json.loads((directory.path / "chaos.json").read_text())
    return ending, record, view.told


async def test_a_home_that_is_killed_is_named_and_back_at_its_time(tmp_path: Path) -> None:
    ending, record, told = await played(tmp_path, "kill: {home-of: news}, at: 1s, for: 1s")
    assert ending.clean and ending.counts["sent"] == ending.counts["accepted"] > 0
    assert ending.counts["sent"] <= 600, "more than was offered"
    assert ending.counts["received"] == 2 * ending.counts["accepted"]
    [fault] = record["faults"]
    assert (fault["fault"], fault["targets"], fault["text"]) == ("kill", ["a"], "kill a (the router of publisher news)")
    assert "kill a (the router of publisher news), for 1.0s" in told
    assert record["began_us"] < fault["at_us"] < fault["until_us"] < record["ended_us"]
    assert fault["until_us"] - fault["at_us"] > 0.9e6
    assert "kill a: ended" in told
    assert record["clients"]["news"] == {
        "role": "publisher",
        "sent": ending.counts["sent"],
        "accepted": ending.counts["sent"],
        "otherwise": 0,
        "unknown": 0,
        "pause_ms": record["clients"]["news"]["pause_ms"],
    }
    assert record["clients"]["reader1"] == {
        "role": "subscriber",
        "received": ending.counts["sent"],
        "missing": 0,
        "doubled": 0,
        "overtaken": 0,
    }
    assert (record["seed"], record["offered"], record["mesh"]) == (7, 200.0, "pair")


async def test_every_kind_of_fault_strikes_and_is_over_at_the_end(tmp_path: Path) -> None:
    ending, record, _ = await played(
        tmp_path,
        "crash-client: [news, reader1], at: 0.5s, for: 500ms",
        "pause: b, at: 1s, for: 1.5s",
        "partition: [west, east], at: 3s, for: 1s",
        "slow: one, latency: 5ms, jitter: 5ms, at: 0.2s",
        "flaky: all, resets: 2/s, at: 3.2s, for: 1s",
        "cut: a-c, how: reset, at: 3.4s, for: 500ms",
        "drain: c, at: 3.5s, for: 200ms",
        topology="triangle",
        duration="5s",
    )
    assert ending.clean, ending
    assert (
        ending.counts["sent"] == ending.counts["accepted"]
        and ending.counts["received"] == 2 * ending.counts["accepted"]
    )
    assert record["faults"][0]["text"].endswith(" (one), latency 5ms, jitter 5ms")
    assert [fault["fault"] for fault in record["faults"]] == [
        "slow",
        "crash-client",
        "pause",
        "partition",
        "flaky",
        "cut",
        "drain",
    ]
    assert all(fault["until_us"] > fault["at_us"] for fault in record["faults"])


@pytest.mark.parametrize(
    "faults",
    [
        (
            "kill: {custodian-of: reader1}, at: 500ms, for: 300ms",
            "kill: [{home-of: news}, {custodian-of: reader1}], at: 2s, for: 300ms",
            "lose-state: one, at: 3500ms, for: 300ms",
        ),
        ("pause: {home-of: news}, at: 500ms, for: 2500ms", "pause: {custodian-of: reader1}, at: 4s, for: 2500ms"),
        ("partition: [{home-of: news}, {custodian-of: reader1}], at: 500ms, for: 2500ms",),
        tuple(f"crash-client: [news, reader1], at: {at}ms, for: 200ms" for at in (500, 1500, 2500)),
    ],
    ids=["killed", "hung", "cut-off", "crashed"],
)
async def test_nothing_is_lost_doubled_or_overtaken(faults: tuple[str, ...], tmp_path: Path) -> None:
    """By the clients' own accounts and by the audit; a router that is silent for so long is given up by all."""
    ending, record, _ = await played(tmp_path, *faults, topology="triangle", duration="5s")
    assert len(record["faults"]) == len(faults)
    assert ending.clean and ending.counts["sent"] == ending.counts["accepted"], ending
    assert (ending.counts["missing"], ending.counts["doubled"], ending.counts["overtaken"]) == (0, 0, 0)
    found = audit([str(tmp_path / "run")])
    assert found.verdict is Verdict.HOLDS, found.as_json()
    assert [log.name for log in found.logs if not log.whole] == []  # whoever was killed has saved what it told
    assert [pair for pair in found.pairs if pair.unknown] == []


async def test_what_is_accepted_while_no_router_knows_a_subscriber_is_told_and_nothing_is_doubled(
    tmp_path: Path,
) -> None:
    ending, record, _ = await played(
        tmp_path,
        "lose-state: all, at: 500ms, for: 200ms",
        "crash-client: reader1, at: 600ms",
        topology="triangle",
        duration="6s",
    )
    assert ending.clean and (ending.counts["doubled"], ending.counts["overtaken"]) == (0, 0), ending
    found = audit([str(tmp_path / "run")])
    assert found.violations == {} and not found.problems, found.as_json()
    assert record["clients"]["reader1"]["missing"] == sum(pair.without for pair in found.pairs) > 0


async def test_words_that_end_faults_end_them(tmp_path: Path) -> None:
    ending, record, told = await played(
        tmp_path,
        "kill-all: , at: 500ms",
        "start: all, at: 1s",
        "pause: a, at: 2s",
        "resume: a, at: 2.5s",
        "start: b, at: 2.6s",
        "cut: all, at: 2.7s",
        "restore: a-b, at: 3s",
        "kill: a, at: 3.5s",
        duration="4s",
    )
    assert ending.clean, ending
    assert [told.index(f"{one}: ended") for one in ("kill-all a, b", "pause a", "cut a-b")]
    assert "start b: skipped, no fault of this kind is in force" in told
    assert [fault["fault"] for fault in record["faults"]] == ["kill-all", "pause", "cut", "kill"]
    assert all(fault["at_us"] < fault["until_us"] < record["ended_us"] for fault in record["faults"])


async def test_replicas_of_a_set_are_found_when_a_fault_strikes(tmp_path: Path) -> None:
    """The second leader is another router than the first, which is dead by then. On a busy machine a set may have its
    first leader late, and faults wait for that: so there is time between the two kills."""
    ending, record, _ = await played(
        tmp_path,
        "kill: {leader-of: queue/orders}, at: 500ms",
        "kill: {leader-of: q7}, at: 3s, for: 100ms",
        "cut: {follower-of: q7}, at: 5s, for: 500ms",
        topology="queues",
        duration="7s",
    )
    assert ending.clean and ending.counts["sent"] == ending.counts["accepted"], ending
    assert record["faults"][0]["text"].endswith(" (the leader of queue/orders)")
    [first], [second], links = (fault["targets"] for fault in record["faults"])
    assert first != second and len(links) == 2


async def test_disks_of_replica_sets_are_full_and_lose_power(tmp_path: Path) -> None:
    """Publishers wait while two disks are full. What a majority has synced is there when all come back."""
    ending, record, told = await played(
        tmp_path,
        "disk-full: [a, b], at: 500ms",
        "free: a, at: 2s",
        "free: [a, b], at: 2.3s",
        "power-cut: {leader-of: queue/orders}, at: 2.5s, for: 500ms",
        "power-cut: all, at: 4.5s, for: 200ms",
        topology="queues",
        duration="6s",
        address="queue/orders",
    )
    assert ending.clean and ending.counts["sent"] == ending.counts["accepted"], ending
    assert [told.index(f"disk-full {name}: ended") for name in "ab"]
    assert [fault["fault"] for fault in record["faults"]] == ["disk-full", "power-cut", "power-cut"]
    logs = [(tmp_path / "run" / name / "router.log").read_text() for name in "abc"]
    assert ["wait until there is room" in log for log in logs] == [True, True, False]
    assert all("replica set q7 begins anew" not in log for log in logs), "no store has lost what it has acknowledged"
    assert audit([str(tmp_path / "run")]).verdict is Verdict.HOLDS


async def test_queues_in_memory_outlive_the_power_of_one_machine(tmp_path: Path) -> None:
    """Its router has lost all of its sets, and gets each accepted message from the other two."""
    ending, record, told = await played(
        tmp_path,
        "power-cut: {leader-of: queue/orders}, at: 1s, for: 300ms",
        topology="queues-memory",
        duration="4s",
        address="queue/orders",
    )
    assert ending.clean and ending.counts["sent"] == ending.counts["accepted"], ending
    [[victim]] = (fault["targets"] for fault in record["faults"])
    assert f"power-cut {victim}: its store of replica sets has lost what was not on the disk" in told
    assert audit([str(tmp_path / "run")]).verdict is Verdict.HOLDS


async def test_a_set_without_a_leader_ends_the_run_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("failover.chaos.nemesis.LED_S", 1.0)
    faults = "kill: [a, b], at: 200ms", "pause: {follower-of: queue/orders}, at: 500ms"
    path = write(tmp_path, *faults, topology="queues", duration="60s")
    made = load(path)
    directory = prepare(tmp_path / "run", made)
    view = Listening()
    with trio.fail_after(PATIENCE_S), pytest.raises(RunError) as caught:
        try:
            await perform(made, 7, directory, view)
        except* RunError as group:
            [error] = leaves(group)
            raise error from None
    assert str(caught.value) == (
        f"{path}:11: pause a follower of queue/orders: no router has led set q7 for 1.0s, expected a leader, which "
        "needs a majority of its voters in contact"
    )
    assert "pause a follower of queue/orders: waits until a router leads set q7" in view.told


async def test_a_run_goes_on_until_its_queues_are_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []

    def shown(*mesh: Any) -> Any:
        [(router, row)], more = shown_queues(*mesh)
        left.append(row["messages"])
        return [(router, {**row, "messages": 1} if len(left) == 1 else row)], more

    monkeypatch.setattr("failover.chaos.run.shown_queues", shown)
    path = write(tmp_path, topology="queues", duration="1s")
    path.write_text(re.sub(r"(name: \w+)", r"\1, address: queue/orders", path.read_text()))
    directory = prepare(tmp_path / "run", load(path))
    with trio.fail_after(PATIENCE_S):
        ending = await perform(load(path), 7, directory, Listening())
    assert ending.clean and ending.counts["received"] == ending.counts["accepted"] > 0, ending
    assert ending.counts["missing"] == ending.counts["doubled"] == 0
    assert len(left) > 1 and left[-1] == 0


async def test_a_clock_that_is_wrong_shows_in_the_routers_log(tmp_path: Path) -> None:
    ending, record, _ = await played(tmp_path, "skew: b, by: 1h, at: 500ms")
    assert ending.clean and ending.counts["sent"] == ending.counts["accepted"]
    log = RunDirectory(tmp_path / "run").log_path("b").read_text()
    hours = [int(found) for found in re.findall(r"^\S+ (\d\d):", log, re.MULTILINE)]
    assert (hours[0] + 1) % 24 in hours
    [fault] = record["faults"]
    assert fault["text"] == "skew b, by 1h"
    segments = sorted((tmp_path / "run" / "b" / "log").iterdir())
    right, wrong = (read_blocks(path.read_bytes())[0][0].host for path in segments)
    assert wrong == f"{right}+3600s"  # who shares a host shares its clock


async def test_a_rolling_restart_takes_one_router_after_the_other(tmp_path: Path) -> None:
    ending, _, _ = await played(tmp_path, "rolling-restart: , at: 500ms", duration="6s")
    assert ending.clean and ending.counts["sent"] == ending.counts["accepted"]
    logs = [RunDirectory(tmp_path / "run").log_path(name).read_text() for name in "ab"]
    restarts = [log.count(" serves ") - 1 for log in logs]
    assert [log.count("draining") for log in logs] == restarts
    assert restarts in ([1, 1], [1, 0]), "on a busy machine the load is over before it is b's turn"


async def test_a_router_that_ends_by_itself_is_told_and_counts(tmp_path: Path) -> None:
    made = script(tmp_path, topology="pair", duration="2s")
    directory = prepare(tmp_path / "run", made)
    view = Listening()
    ending = await disturbed(made, directory, view, lambda: directory.running()["b"].kill())
    assert (ending.crashes, ending.clean) == (1, False)
    assert ending.counts["sent"] == ending.counts["accepted"] and not ending.unfinished
    assert "router b ended by itself: ended by SIGKILL" in view.told


async def test_what_does_not_come_to_its_end_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A router that is stopped behind the nemesis's back, and never goes on."""
    monkeypatch.setattr("failover.chaos.run.END_S", 1.0)
    path = write(tmp_path, topology="pair", duration="2s")
    path.write_text(path.read_text().replace("terminus: 15s, boot_wait: 3s", "terminus: 1s, boot_wait: 1s"))
    made = load(path)
    directory = prepare(tmp_path / "run", made)
    view = Listening()
    ending = await disturbed(made, directory, view, lambda: directory.running()["b"].suspend())
    assert "router b does not answer" in ending.unfinished and not ending.clean


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_everything_without_a_verdict(tmp_path: Path, number: signal.Signals) -> None:
    path = write(tmp_path, "pause: b, at: 100ms", topology="pair", duration="60s")
    command = [sys.executable, "-P", "-c", "from router.cli.main import main; main()", "chaos", str(path)]
    command += ["--run-dir", str(tmp_path / "run")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "pause b" in line:
                process.send_signal(number)
                break
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, errors
    assert errors == "Error: interrupted: the mesh was stopped, and there is no verdict\n"
    assert processes_of(tmp_path) == []


def test_clients_whose_nemesis_is_killed_end_by_themselves(tmp_path: Path) -> None:
    path = write(tmp_path, topology="pair", duration="60s")
    command = [sys.executable, "-P", "-c", "from router.cli.main import main; main()", "chaos", str(path)]
    command += ["--run-dir", str(tmp_path / "run")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "of load" in line:
                break
        process.kill()
    clients = [one for one in processes_of(tmp_path) if _is_client(one)]
    _, alive = psutil.wait_procs(clients, timeout=PATIENCE_S)
    for router in processes_of(tmp_path):
        router.kill()
        router.wait()
    assert not alive


def _is_client(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):  # it may have ended by now
        return "failover.chaos.client" in process.cmdline()
    return False


def test_only_the_directory_of_a_run_is_made_anew(tmp_path: Path) -> None:
    made = script(tmp_path)
    first = prepare(tmp_path / "run", made)
    (first.path / "chaos.json").write_text("{}")
    assert [path.name for path in prepare(tmp_path / "run", made).path.iterdir()] == ["chaos-script.yaml"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious").touch()
    with pytest.raises(RunError, match="not the directory of a chaos run, choose another with --run-dir"):
        prepare(tmp_path / "other", made)
    assert (tmp_path / "other" / "precious").exists()
    (tmp_path / "chaos-script.yaml").touch()
    with pytest.raises(RunError, match="not the directory of a chaos run"):
        prepare(tmp_path, made)  # where the script itself is
