"""Processes that were started below a test's folder, whoever started them: none outlives the test."""

import contextlib
from pathlib import Path

import psutil


def processes_of(folder: Path) -> list[psutil.Process]:
    """Those that run there, or whose command line names the folder."""
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
