"""Finds processes that were started below a test's folder. None may outlive its test."""

import contextlib
from pathlib import Path

import psutil


def processes_of(folder: Path) -> list[psutil.Process]:
    """The processes that run in the folder, or whose command line names it."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cwd() == str(folder) or any(str(folder) in word for word in process.cmdline()):
                found.append(process)
    return found


def assert_none_left(folder: Path) -> None:
    left = processes_of(folder)
    for process in left:
        process.kill()
    assert not left
