"""`python -m tests.bench.secured`: what TLS on both links of the line costs.

Two lines, one with certificates and one without, are loaded in turn by the load generator in C, from a to c; each pair
begins with the other one. Clients speak in the clear to both, so it is the links between routers that are measured: a
router here takes clients without TLS beside those with it. The bench prints the figures of each pair, and at the end
two medians: the share of the messages/s that TLS takes at full load, and the time that it adds to the p50 at a quiet
rate. Exit 1: one is more than `MOST_TAKEN` or `MOST_ADDED_US`.
"""

import argparse
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

import trio

from router.cli.commands import Commands
from router.cli.router import router
from router.mesh.topology import load
from router.security.attempts import Attempts, Checks, Guesses
from router.security.certs import issue_all
from router.security.doors import Doors, Secured
from tests.bench.load import Load, Routers, build, measure
from tests.processes.mesh import TOPOLOGIES, RunningMesh

MOST_TAKEN: Final = 0.35
MOST_ADDED_US: Final = 150.0
FILES: Final = {"certificate": "{router}.pem", "key": "{router}.key", "ca": "ca.pem"}
ROUTER: Final = (sys.executable, "-P", "-c", "from tests.bench.secured import lenient_router; lenient_router()")
HANDSHAKE: Final = b"\x16"  # the first byte of TLS (RFC 8446, 5.1)


def lenient_router() -> None:
    """A router process to which clients may connect without TLS, whatever its topology requires."""
    strict, free = Doors.let_in, Guesses(Attempts(trio.current_time), "", Checks())

    async def let_in(self: Doors, stream: trio.SocketStream) -> Secured:
        begins = await stream.socket.recv(1, socket.MSG_PEEK)
        return await strict(self, stream) if begins == HANDSHAKE else (stream, "", free)

    Doors.let_in = let_in  # type: ignore[method-assign]
    Commands(commands=[router])(["router", *sys.argv[1:]], prog_name="python -m")


@contextmanager
def line(folder: Path, security: Mapping[str, str] | None) -> Iterator[Routers]:
    folder.mkdir()
    if security is not None:
        issue_all(load(TOPOLOGIES / "line.yaml"), folder, [])
    mesh = RunningMesh("line", folder, {}, ROUTER, security)
    try:
        trio.run(mesh.up)
        yield {name: {"amqp": mesh.address(name), "pid": mesh.pid(name)} for name in mesh.routers}
    finally:
        mesh.end()


def compare(lines: Mapping[str, Routers], pairs: int, full: Load, quiet: Load) -> bool:
    """Whether TLS costs no more than allowed."""
    for routers in lines.values():
        measure(full, routers)  # the first run is slower
    taken, added = list[float](), list[float]()
    for number in range(pairs):
        rates, p50s = dict[str, float](), dict[str, float]()
        for name in sorted(lines, reverse=number % 2 == 1):
            rates[name] = measure(full, lines[name])["msg_s"]
            p50s[name] = measure(quiet, lines[name])["lat_us"]["p50"]
        taken.append(1 - rates["tls"] / rates["clear"])
        added.append(p50s["tls"] - p50s["clear"])
        print(
            f"in the clear {rates['clear']:,.0f} messages/s, p50 {p50s['clear']:,.0f} µs; "
            f"TLS {rates['tls']:,.0f}, {p50s['tls']:,.0f}: takes {taken[-1]:.1%}, adds {added[-1]:,.0f} µs",
            flush=True,
        )
    print(f"medians: TLS takes {median(taken):.1%} of the messages/s, and adds {median(added):,.0f} µs to the p50")
    return median(taken) <= MOST_TAKEN and median(added) <= MOST_ADDED_US


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.secured", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--count", type=int, default=100_000, help="Messages of a run at full load.")
    parser.add_argument("--rate", type=int, default=500, help="Messages a second where it is quiet, for 5 s.")
    options = parser.parse_args()
    build()
    full = Load(("c",), count=options.count)
    quiet = Load(("c",), ("--second", "--rate", str(options.rate)), 5 * options.rate)
    with (
        tempfile.TemporaryDirectory() as folder,
        line(Path(folder) / "clear", None) as clear,
        line(Path(folder) / "tls", FILES) as tls,
    ):
        good = compare({"clear": clear, "tls": tls}, options.pairs, full, quiet)
    raise SystemExit(not good)


if __name__ == "__main__":
    main()
