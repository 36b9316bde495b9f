"""The watch over the loop: it ends a router whose loop does not come back, and no other."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from router.watchdog import BLOCKED, COMPUTES, LOOKS, STUCK, Health, Stops, Turn
from tests.hangs import HANGS_S

DEAD_S = 1.0


def looks(seconds: float) -> range:
    return range(round(seconds * LOOKS / DEAD_S))


def test_a_turn_that_computes_is_told_once_and_ends_the_process() -> None:
    turn = Turn(DEAD_S)
    found = [turn.look(1, at * DEAD_S / LOOKS) for at in looks(COMPUTES + 1)]
    assert found.count(Health.LATE) == 1
    assert found.index(Health.LATE) == LOOKS, "as soon as neighbours may have given the router up"
    assert found.index(Health.STUCK) == COMPUTES * LOOKS


def test_a_turn_that_is_blocked_has_longer() -> None:
    turn = Turn(DEAD_S)
    found = [turn.look(1, 7.0) for _ in looks(BLOCKED + 1)]
    assert found.count(Health.LATE) == 1
    assert found.index(Health.STUCK) == BLOCKED * LOOKS


def test_turns_that_come_and_go_are_well_however_many_and_so_is_a_wait() -> None:
    turn = Turn(DEAD_S)
    found = [turn.look(at // LOOKS, float(at)) for at in looks(100)]
    found += [turn.look(0, 100.0) for _ in looks(100)]
    assert set(found) == {Health.WELL}


def test_a_turn_on_a_machine_that_has_too_much_to_do_has_the_time_of_a_blocked_one() -> None:
    turn = Turn(DEAD_S)
    found = [turn.look(1, at * DEAD_S / LOOKS / 10) for at in looks(BLOCKED - 1)]
    assert Health.STUCK not in found


PROGRAM = """
import logging, sys, trio
from router.watchdog import watched
logging.basicConfig(level=logging.INFO)

def turn_without_end():
    while True:
        pass

def blocked():
    print("blocked", flush=True)
    sys.stdin.readline()

async def main():
    with watched({dead}):
        await trio.sleep(0)
        {what}
        await trio.sleep(0)

trio.run(main)
"""


@pytest.fixture
def started() -> Iterator[list["subprocess.Popen[str]"]]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def start(started: list["subprocess.Popen[str]"], what: str, dead: float) -> "subprocess.Popen[str]":
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    program = PROGRAM.format(what=what, dead=dead)
    started.append(subprocess.Popen([sys.executable, "-c", program], text=True, **pipes))  # type: ignore[call-overload]
    return started[-1]


def test_a_loop_that_does_not_come_back_ends_its_process_and_the_log_says_where_it_was(
    started: list["subprocess.Popen[str]"],
) -> None:
    process = start(started, "turn_without_end()", 0.05)
    _, told = process.communicate(timeout=HANGS_S)
    assert process.returncode == STUCK
    assert "is blocked for more than 0.05 s" in told
    assert "in turn_without_end" in told


def test_a_process_that_was_stopped_in_a_turn_goes_on_when_it_is_woken(started: list["subprocess.Popen[str]"]) -> None:
    dead_s = 0.1
    process = start(started, "blocked()", dead_s)
    assert process.stdout is not None
    assert process.stdout.readline() == "blocked\n"
    process.send_signal(signal.SIGSTOP)
    time.sleep((BLOCKED + 5) * dead_s)  # what is tested
    process.send_signal(signal.SIGCONT)
    process.communicate("\n", timeout=HANGS_S)
    assert process.returncode == 0


def test_a_watch_that_did_not_run_tells_for_how_long_and_whether_the_process_computed() -> None:
    stops = Stops(DEAD_S, 10.0, 1.0)
    assert stops.look(10.25, 1.1) == "", "looks come on time"
    assert (
        stops.look(12.75, 1.2)
        == "the watchdog did not run for 2.5 s, in which the process used 0.1 s of processor time"
    )
    assert stops.look(13.0, 1.3) == "", "a stop is told once"
