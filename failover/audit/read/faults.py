"""The faults of a chaos run, as the file `DIR/chaos.json` lists them.

The verdict rests on the logs alone. Faults only say at which times to look, so if the audit cannot read a chaos.json,
it reports this and continues without.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import cattrs

FILE = "chaos.json"


@attrs.frozen(slots=True)
class Fault:
    """One fault. Times are µs of wall clock, as in the logs."""

    fault: str
    """The kind of fault, such as kill."""
    targets: tuple[str, ...]
    at_us: int
    until_us: int | None
    """When the fault ended; None if it lasted until the end of the run."""
    text: str


@attrs.frozen(slots=True)
class Chaos:
    script: str
    seed: int
    mesh: str
    began_us: int
    ended_us: int | None
    faults: tuple[Fault, ...]
    offered: float | None = None
    """How many messages all publishers together were to publish in a second."""
    clients: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    """Maps each client to the figures that the client has counted itself, such as its messages."""
    crashes: int = 0
    """The routers and clients that ended by themselves."""
    unfinished: tuple[str, ...] = ()
    """The parts of the run that were still incomplete at its end."""


@attrs.frozen(slots=True)
class ChaosFile:
    chaos: Chaos | None
    problem: str | None
    """The reason for which chaos.json could not be read; None if it was read, or if there is none."""


def find_chaos(run_dirs: Sequence[str], read: Callable[[str], str | None]) -> ChaosFile:
    """Read chaos.json in the first run directory that has one. `read`: returns the text of a file; None if the file
    does not exist. If a file cannot be read, the result has a problem."""
    for run_dir in run_dirs:
        path = f"{run_dir.rstrip('/')}/{FILE}"
        try:
            text = read(path)
            if text is not None:
                return ChaosFile(_parse(text), None)
        except (ValueError, cattrs.BaseValidationError, OSError) as error:
            return ChaosFile(None, f"{path}: {_what(error)}: the faults of this run are unknown")
    return ChaosFile(None, None)


def _parse(text: str) -> Chaos:
    chaos = cattrs.structure(json.loads(text), Chaos)
    return attrs.evolve(chaos, faults=tuple(sorted(chaos.faults, key=lambda fault: fault.at_us)))


def _what(error: Exception) -> str:
    if isinstance(error, cattrs.BaseValidationError):
        return "; ".join(cattrs.transform_error(error))
    return str(error)
