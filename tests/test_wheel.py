"""Tests of the wheel, installed without the source tree: a router needs little space, and the audit can be added.

No test asks a package index: the packages that the wheel requires come from the environment of the tests.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from router.mesh.rundir import RunDirectory
from tests.hangs import HANGS_S

ROOT = Path(__file__).parent.parent
MOST_BYTES = 80_000_000
PATIENCE_S = HANGS_S
TOPOLOGY = """
mesh: single
routers:
  a: {amqp: 127.0.0.1:0}
addresses:
  - {prefix: topic/, kind: topic}
"""


def required(wheel: Distribution, extra: str) -> Iterator[Distribution]:
    """Yield the packages that are installed with the wheel and this extra; "" for none."""
    waiting, known = [(wheel, extra)], {wheel.name}
    while waiting:
        found, extra = waiting.pop()
        for requirement in map(Requirement, found.requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                needed = distribution(requirement.name)
                if needed.name not in known:
                    known.add(needed.name)
                    waiting.append((needed, ""))
                    yield needed


class Installed:
    """A virtual environment with the wheel and the packages that it requires. A folder beside it has the packages of
    the extra `audit`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.audit = folder, folder / "audit"
        self._run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder, cwd=ROOT)
        self._run(sys.executable, "-m", "venv", "--without-pip", "venv")
        pip = (sys.executable, "-m", "pip", "--quiet", "--python", "venv/bin/python")
        [wheel] = folder.glob("*.whl")
        self._run(*pip, "install", "--no-index", "--no-deps", wheel)
        [self.packages] = folder.glob("venv/lib/python*/site-packages")
        [metadata] = self.packages.glob("oncemesh-*.dist-info")
        for needed in required(Distribution.at(metadata), ""):
            self._copy(needed)
        self.audit.mkdir()
        for needed in required(Distribution.at(metadata), "audit"):
            self._link(needed)

    def _copy(self, needed: Distribution) -> None:
        for file in needed.files or ():
            if ".." not in file.parts:  # files elsewhere are commands
                (self.packages / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(str(needed.locate_file(file)), self.packages / file)

    def _link(self, needed: Distribution) -> None:
        """Link the package instead of copying it, because the packages of the audit take a gigabyte."""
        for name in {file.parts[0] for file in needed.files or ()} - {"..", "__pycache__"}:
            (self.audit / name).symlink_to(str(needed.locate_file(name)))

    def _run(self, *command: str | Path, cwd: Path | None = None) -> None:
        ran = subprocess.run(command, cwd=cwd or self.folder, capture_output=True, text=True, timeout=PATIENCE_S)
        assert ran.returncode == 0, ran.stdout + ran.stderr

    def start(self, *arguments: str, audit: bool = False) -> subprocess.Popen[str]:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        if audit:
            environment["PYTHONPATH"] = str(self.audit)
        return subprocess.Popen(
            [self.folder / "venv" / "bin" / "oncemesh", *arguments],
            cwd=self.folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def oncemesh(self, *arguments: str, status: int = 0, audit: bool = False) -> str:
        """The output of the command."""
        with self.start(*arguments, audit=audit) as process:
            try:
                printed, complained = process.communicate(timeout=PATIENCE_S)
            finally:
                process.kill()
        assert process.returncode == status, printed + complained
        return printed + complained

    def kill_routers(self) -> None:
        """Kill the routers that a test has left behind."""
        directory = RunDirectory(self.folder / "run" / "single")
        for router in directory.running().values() if directory.exists() else ():
            router.kill()


def test_nobody_is_told_to_install_what_the_package_index_has_under_our_name() -> None:
    """The package of that name on the package index belongs to a stranger."""
    said = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "router").rglob("*.py")]
    theirs = re.compile(r"pip install\b[^`\n]*[\s']oncemesh\b")
    assert [path.name for path in said if theirs.search(path.read_text())] == []


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("wheel"))


def test_a_router_is_small(installed: Installed) -> None:
    size = sum(path.stat().st_size for path in installed.packages.rglob("*") if path.is_file())
    assert size <= MOST_BYTES


@pytest.mark.parametrize("command", ["audit run/single", "story run/single KEY", "chaos script.yaml", "demo"])
def test_what_judges_says_what_to_install(installed: Installed, command: str) -> None:
    told = installed.oncemesh(*command.split(), status=2)
    assert told.startswith(f"Error: {command.split()[0]} needs jinja2, matplotlib, numpy, pandas, pyarrow, pyspark: ")
    assert told.endswith("pip install '.[audit]' in a clone\n")
    assert told.count("\n") == 1


def test_a_run_of_the_wheel_alone_and_the_verdict_with_the_extra(installed: Installed) -> None:
    (installed.folder / "single.yaml").write_text(TOPOLOGY)
    try:
        installed.oncemesh("up", "single.yaml", "--detach")
        with installed.start("subscribe", "topic/news", "--id", "reader", "--count", "3") as subscriber:
            try:
                assert subscriber.stderr is not None
                assert subscriber.stderr.readline() == "attached to a as reader\n"
                assert "3 accepted" in installed.oncemesh("publish", "topic/news", "--id", "writer", "--count", "3")
                printed, _ = subscriber.communicate(timeout=PATIENCE_S)
            finally:
                subscriber.kill()
        assert [line.split()[0] for line in printed.splitlines()] == ["0", "1", "2"]
        assert "1 of 1 router" in installed.oncemesh("status")
        installed.oncemesh("down")
    finally:
        installed.kill_routers()
    assert "exactly-once holds: 3 accepted" in installed.oncemesh("audit", "run/single", audit=True)
