"""Chaos scripts for tests: a mesh of two or three routers, a few clients, and the faults of the test."""

from pathlib import Path

from failover.chaos.script.reader import load
from failover.chaos.script.script import Script

TOPOLOGIES = Path(__file__).parents[3] / "topologies"

WORKLOAD = """\
topology: {topology}
timing: {{terminus: 15s, boot_wait: 3s}}
duration: {duration}
publishers:
  - {{name: news, rate: 200, at: a}}
subscribers:
  - {{name: reader, count: 2, at: [b, a]}}
sets: {{west: [a], east: [b]}}
"""


def write(folder: Path, *faults: str, topology: str = "triangle", duration: str = "10s", more: str = "") -> Path:
    """Write a script. Each fault is the inside of a flow mapping."""
    text = WORKLOAD.format(topology=TOPOLOGIES / f"{topology}.yaml", duration=duration) + more
    if faults:
        text += "faults:\n" + "".join(f"  - {{{fault}}}\n" for fault in faults)
    path = folder / "script.yaml"
    path.write_text(text)
    return path


def script(folder: Path, *faults: str, topology: str = "triangle", duration: str = "10s") -> Script:
    return load(write(folder, *faults, topology=topology, duration=duration))
