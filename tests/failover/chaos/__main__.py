"""Runs chaos scripts for one seed after the other, and prints a table of the results.

    python -m tests.failover.chaos [--seeds FIRST-LAST] DIR SCRIPT...
    python -m tests.failover.chaos DIR                                  # only the table

Runs whose results are in DIR are not repeated, so the command can be interrupted. A run that holds leaves chaos.json
and audit.json; every other run leaves all its files.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

VERDICTS = {0: "holds", 1: "violated", 2: "none", 3: "undecided", 4: "qualified"}
KEPT = ("chaos.json", "audit.json", "audit.html", "output.txt", "result.json")
COUNTS = ("accepted", "missing", "doubled", "overtaken")
COLUMNS = ("script", "seed", "faults", "offered", "accepted", "share", *COUNTS[1:], "pause", "crashes", "verdict")


def play(script: Path, seed: int, folder: Path) -> dict[str, Any]:
    """Play one run with the command itself."""
    command = [sys.executable, "-P", "-c", "from router.cli.main import main; main()", "chaos", str(script)]
    command += ["--seed", str(seed), "--run-dir", str(folder)]
    started = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "output.txt").write_text(done.stdout)
    result = {"script": script.stem, "seed": seed, "seconds": round(time.monotonic() - started)}
    result["verdict"] = VERDICTS.get(done.returncode, f"exit status {done.returncode}")
    result.update(told(folder / "chaos.json"))
    (folder / "result.json").write_text(json.dumps(result))
    if done.returncode == 0:
        tidy(folder)
    return result


def told(path: Path) -> dict[str, Any]:
    """The figures in chaos.json; empty if there is none."""
    if not path.exists():
        return {}
    record = json.loads(path.read_text())
    clients = record["clients"].values()
    found: dict[str, Any] = {what: sum(client.get(what, 0) for client in clients) for what in COUNTS}
    offered = round(record["offered"] * record["duration_s"])
    found.update(offered=offered, share=f"{found['accepted'] / offered:.0%}", crashes=record["crashes"])
    found["pause"] = f"{max(client.get('pause_ms', 0) for client in clients)} ms"
    return {**found, "faults": len(record["faults"])}


def tidy(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in KEPT:
            path.unlink()


def table(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The lines of the table in Markdown."""
    yield f"| {' | '.join(COLUMNS)} |"
    yield f"|{' --- |' * len(COLUMNS)}"
    for result in results:
        yield f"| {' | '.join(str(result.get(column, '')) for column in COLUMNS)} |"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.failover.chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", default="1", help="FIRST-LAST, or one; default 1")
    parser.add_argument("directory", type=Path)
    parser.add_argument("scripts", nargs="*", type=Path)
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    for script in options.scripts:
        for seed in range(int(first), int(last or first) + 1):
            folder = options.directory / f"{script.stem}-{seed}"
            if not (folder / "result.json").exists():
                print(json.dumps(play(script, seed, folder)), flush=True)
    paths = sorted(options.directory.glob("*/result.json"), key=lambda path: path.stat().st_mtime)
    results = [json.loads(path.read_text()) for path in paths]
    print("\n".join(table(results)))
    return 0 if all(result["verdict"] == "holds" for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
