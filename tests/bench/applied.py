"""`python -m tests.bench.applied`: a mesh is changed under load, 3 -> 6 routers, other costs, 4 routers.

a ── b          a ── b ── d          a ── b ── d          a ── d
 \\  /     ▶      \\  /     |     ▶      \\  / 5    | 3   ▶    \\    |
  c               c ─ f ─ e            c ─ f ─ e            f ── e

Pairs of clients, which begin at a, b and c. For each stretch, first for one without a change, the bench prints the
longest time in which a publisher read no acceptance, and in which a subscriber got no message; then the number of links
of each router. At the end it prints the messages that were lost, doubled, refused or out of order. Exit 1: there were
any, a pause was longer than `LONGEST_MS`, or a router has more than twice the links of another. On a busy machine the
mesh does not cause all pauses: compare with the stretch without a change.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import trio

from tests.processes.mesh import RunningMesh

ROOT: Final = Path(__file__).parent.parent.parent
LONGEST_MS: Final = 300.0
EVEN_S: Final = 90.0
"""Seconds for which links may stay uneven: a router asks a client again after a minute."""
STEPS: Final = (
    ("6 routers", "abcdef", ("ab", "ac", "bc", "bd", "de", "ef", "cf")),
    ("other costs", "abcdef", ("ab", "ac", "bc5", "bd", "de3", "ef", "cf")),
    ("4 routers", "adef", ("ad", "de", "ef", "af")),
)


def links(names: tuple[str, ...]) -> list[object]:
    return [{"between": [name[0], name[1]], "cost": int(name[2:] or 1)} for name in names]


class Clients:
    """The process of `tests.bench.pairs`."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._said = b""

    async def stretch(self) -> dict[str, Any]:
        """The figures of the stretch since the last call."""
        assert self._process.stdin is not None
        await self._process.stdin.send_all(b"\n")
        return await self._line()

    async def end(self) -> dict[str, Any]:
        assert self._process.stdin is not None
        await self._process.stdin.aclose()
        return await self._line()

    async def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        while b"\n" not in self._said:
            data = await self._process.stdout.receive_some()
            assert data, "the clients have ended"
            self._said += data
        line, _, self._said = self._said.partition(b"\n")
        said: dict[str, Any] = json.loads(line)
        return said


async def loads(mesh: RunningMesh) -> dict[str, int]:
    """Router -> number of attached links."""
    reports = {name: await mesh.status(name) for name in mesh.routers}
    return {name: len(report["publishers"]) + len(report["subscribers"]) for name, report in reports.items()}


def are_even(found: dict[str, int]) -> bool:
    return max(found.values()) <= 2 * min(found.values())


async def spread(mesh: RunningMesh) -> dict[str, int]:
    """The links of each router, once they are even or the time is over."""
    with trio.move_on_after(EVEN_S):
        while not are_even(await loads(mesh)):
            await trio.sleep(1)
    return await loads(mesh)


async def run(mesh: RunningMesh, pairs: int, rate: float, still_s: float) -> bool:
    """Whether everything was as it should be."""
    urls = [f"amqp://{mesh.address(name)}" for name in mesh.routers]
    command = [sys.executable, "-m", "tests.bench.pairs", *urls, "--pairs", str(pairs), "--rate", str(rate)]
    process = await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
    try:
        return await change(mesh, Clients(process), still_s)
    finally:
        process.kill()


async def change(mesh: RunningMesh, clients: Clients, still_s: float) -> bool:
    await trio.sleep(still_s)
    await clients.stretch()  # the clients started in this stretch
    await trio.sleep(still_s)
    good = _tell("no change", await clients.stretch(), await loads(mesh))
    for title, routers, joined in STEPS:
        began = time.perf_counter()
        await mesh.apply(routers, links(joined))
        took = time.perf_counter() - began
        good &= _tell(f"{title}, applied in {took:.1f} s", await clients.stretch(), await loads(mesh))
        found = await spread(mesh)
        good &= _tell("until links are even", await clients.stretch(), found) and are_even(found)
    ending = await clients.end()
    print(f"{ending['sent']:,} messages; {ending['wrong']} lost, doubled, refused or out of order")
    return good and ending["wrong"] == 0


def _tell(title: str, stretch: dict[str, Any], found: dict[str, int]) -> bool:
    accepted, delivered = stretch["accepted_ms"], stretch["delivered_ms"]
    where = ", ".join(f"{name} {count}" for name, count in found.items())
    print(f"{title}: longest pause {accepted:.0f} ms to accepted, {delivered:.0f} ms to delivered; {where}", flush=True)
    longest: float = max(accepted, delivered)
    return longest <= LONGEST_MS


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.applied", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--rate", type=float, default=2000, help="Messages a second, of all pairs.")
    parser.add_argument("--still", type=float, default=10, help="Seconds without a change, before the first.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mesh = RunningMesh("triangle", Path(folder), {})
        try:
            trio.run(mesh.up)
            good = trio.run(run, mesh, options.pairs, options.rate, options.still)
        finally:
            mesh.end()
    raise SystemExit(not good)


if __name__ == "__main__":
    main()
