"""`python -m tests.bench.watched WHO`: what monitoring costs a mesh, and whether the monitor keeps up.

`prometheus`, the real one, scrapes each router of `line` once a second. `consoles` are five that read the feed which a
browser reads, each at another router of `mesh6`. Runs at full load without and with them alternate. The bench prints,
for each pair and as medians, the remaining share of the throughput and the ratio of the routers' processor time.

`audit` is a continuous audit beside a chaos script. The bench prints how far its verdict lagged, and how its result
differs from that of the batch audit at the end of the script. Exit 1: it differs.
"""

import argparse
import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

import attrs

from tests.bench.load import ROOT, Load, Routers, build, measure, mesh

ONCEMESH: Final = str(Path(sys.executable).with_name("oncemesh"))
WARM_UP: Final = 20_000
"""The messages with which the rate is measured."""
READY_S: Final = 30.0
END_S: Final = 15
"""Seconds that a continuous audit has to judge the last entries."""
COMPARED: Final = ("verdict", "sentence", "violations", "pairs", "publishers", "findings", "doubts", "exceptions")

Looking = Callable[[Routers], AbstractContextManager[None]]
"""Monitors the mesh within its context."""


@contextmanager
def prometheus(routers: Routers) -> Iterator[None]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        here = f"127.0.0.1:{free.getsockname()[1]}"
    targets = [router["http"] for router in routers.values()]
    each = {"job_name": "oncemesh", "static_configs": [{"targets": targets}]}
    config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": [each]}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "prometheus.yml").write_text(json.dumps(config))
        files = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb"]
        command = ["prometheus", *files, f"--web.listen-address={here}", "--log.level=error"]
        with subprocess.Popen(command) as process:
            try:
                _until(lambda: _scraped(here) == len(targets))
                yield
            finally:
                process.terminate()


def _scraped(prometheus: str) -> int:
    """The number of routers that Prometheus has scraped."""
    try:
        with urllib.request.urlopen(f"http://{prometheus}/api/v1/targets", timeout=5) as answer:
            active = json.load(answer)["data"]["activeTargets"]
    except OSError:
        return 0
    return sum(target["health"] == "up" for target in active)


@contextmanager
def consoles(routers: Routers) -> Iterator[None]:
    with ExitStack() as stack:
        readers = [Reader(router["http"]) for router in list(routers.values())[:5]]
        for reader in readers:
            stack.callback(reader.close)
        _until(lambda: all(reader.events for reader in readers))
        yield
        assert all(reader.is_alive() for reader in readers), "a console was cut off"


class Reader(threading.Thread):
    """A reader of one router's feed."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        host, _, port = address.rpartition(":")
        self._stream = socket.create_connection((host, int(port)))
        self._stream.sendall(f"GET /feed HTTP/1.1\r\nHost: {address}\r\nAccept: text/event-stream\r\n\r\n".encode())
        self.events = 0
        self.start()

    def run(self) -> None:
        for line in self._stream.makefile("rb"):
            self.events += line.startswith(b"event: ")

    def close(self) -> None:
        self._stream.shutdown(socket.SHUT_RDWR)
        self.join()
        self._stream.close()


LOOKING: Final[dict[str, tuple[Looking, str, str]]] = {
    "prometheus": (prometheus, "line", "c"),
    "consoles": (consoles, "mesh6", "f"),
}
"""Name -> the monitor, its mesh, and the router of the subscriber."""


def _until(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + READY_S
    while not ready():
        assert time.monotonic() < deadline, "not all routers were seen"
        time.sleep(0.1)


def compare(looking: Looking, routers: Routers, load: Load, pairs: int) -> None:
    """Compare runs with and without the monitor. The order within the pairs alternates."""
    rates, costs = list[float](), list[float]()
    for number in range(pairs):
        found = dict[bool, tuple[float, float]]()
        for watched in sorted((False, True), reverse=bool(number % 2)):
            with looking(routers) if watched else ExitStack():
                found[watched] = _run(load, routers)
        alone, beside = found[False], found[True]
        rates.append(beside[0] / alone[0])
        costs.append(beside[1] / alone[1])
        print(
            f"alone {_shown(alone)}; watched {_shown(beside)}; rate {rates[-1]:.3f}, processor time {costs[-1]:.3f}",
            flush=True,
        )
    print(f"medians: rate {median(rates):.3f}, processor time {median(costs):.3f}")


def _run(load: Load, routers: Routers) -> tuple[float, float]:
    """Messages a second, and processor microseconds a message over all routers."""
    result = measure(load, routers)
    return result["msg_s"], sum(result[f"cpu_{name}"] for name in routers)


def _shown(found: tuple[float, float]) -> str:
    return f"{found[0]:,.0f} messages/s, {found[1]:.1f} µs"


def follow(folder: Path, script: str, seconds: float, seed: int) -> bool:
    """Whether the continuous audit ends with the result of the batch audit."""
    written, run_dir = _lasting(folder, script, seconds), folder / "run"
    command = [ONCEMESH, "chaos", str(written), "--seed", str(seed), "--run-dir", str(run_dir)]
    following = [ONCEMESH, "audit", str(run_dir), "--follow", "--json", "--checkpoint", str(folder / "kept")]
    with (folder / "told.jsonl").open("w") as told, subprocess.Popen(command, stdout=subprocess.DEVNULL) as chaos:
        _until(lambda: (run_dir / "mesh.json").exists())
        with subprocess.Popen(following, stdout=told) as audit:
            chaos.wait()
            batch = json.loads((run_dir / "audit.json").read_text())
            time.sleep(END_S)
            audit.send_signal(signal.SIGINT)
    *lines, _ = map(json.loads, (folder / "told.jsonl").read_text().splitlines())
    trails = [line["trails_s"] for line in lines]
    print(f"{lines[-1]['events']:,} events; {len(lines)} verdicts, which trailed by {median(trails):.1f} s, "
          f"by {max(trails):.1f} s at most")  # fmt: skip
    return _is_same(batch, json.loads((run_dir / "audit.json").read_text()))


def _lasting(folder: Path, script: str, seconds: float) -> Path:
    """The script with this duration."""
    text = (ROOT / "topologies" / "chaos" / f"{script}.yaml").read_text()
    text = re.sub(r"^topology: \.\./", f"topology: {ROOT}/topologies/", text, flags=re.MULTILINE)
    path = folder / f"{script}.yaml"
    path.write_text(re.sub(r"^duration: .*$", f"duration: {seconds:g}s", text, flags=re.MULTILINE))
    return path


def _is_same(batch: dict[str, Any], followed: dict[str, Any]) -> bool:
    differ = [name for name in COMPARED if batch.get(name) != followed.get(name)]
    for name in differ:
        print(f"{name}: {followed.get(name)}; of the batch audit: {batch.get(name)}")
    print(f"verdict {followed['verdict']}, {'not ' if differ else ''}as the batch audit's")
    return not differ


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.watched", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("who", choices=(*LOOKING, "audit"))
    parser.add_argument("--seconds", type=float, default=60, help="Of each run, or of the script.")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--script", default="mayhem", help="Of topologies/chaos.")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.who == "audit":
        with tempfile.TemporaryDirectory() as folder:
            raise SystemExit(not follow(Path(folder), options.script, options.seconds, options.seed))
    build()
    looking, name, subscriber = LOOKING[options.who]
    with mesh(name, http=True) as routers:
        rate, _ = _run(attrs.evolve(load := Load((subscriber,)), count=WARM_UP), routers)
        compare(looking, routers, attrs.evolve(load, count=int(rate * options.seconds)), options.pairs)


if __name__ == "__main__":
    main()
