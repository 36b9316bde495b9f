"""The words for faults that a chaos script can use, as a table. Jepsen's nemeses use the same words.

A fault is in force until its duration (`for`) is over, until a strike whose word ends this fault, or until the run
ends.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final

import attrs

from failover.chaos.script.times import parse_bandwidth, parse_offset, parse_rate, parse_share
from router.mesh.quantities import parse_duration


class Aim(Enum):
    """The kind of targets that a word has."""

    ROUTERS = auto()
    LINKS = auto()
    """Links. A script names a link by its two routers (a-b), or all links of a router by the router's name."""
    CLIENTS = auto()
    SIDES = auto()
    """The sides of a partition, which are groups of routers. Routers of different sides do not reach each other."""
    MESH = auto()


@attrs.frozen
class Verb:
    name: str
    aim: Aim
    lasts: bool = True
    """Whether a fault with this word may have a duration."""
    ends: tuple[str, ...] = ()
    """The faults that a strike with this word ends, given by their words."""
    options: Mapping[str, Callable[[str], object]] = attrs.field(factory=dict)
    needs: tuple[str, ...] = ()
    """The options that the word requires, because they have no default."""
    queues: bool = False
    """Whether the word strikes the stores of replica sets."""
    packets: bool = False
    """Whether the word strikes packets. A proxy does not see packets, so it cannot carry out the word."""


def _how(text: str) -> str:
    if text not in ("silent", "reset"):
        raise ValueError(f'"{text}", expected silent (a pulled cable) or reset (connections are refused)')
    return text


_ALL = (
    Verb("kill", Aim.ROUTERS),
    Verb("restart", Aim.ROUTERS),
    Verb("pause", Aim.ROUTERS),
    Verb("drain", Aim.ROUTERS),
    Verb("rolling-restart", Aim.ROUTERS, lasts=False),
    Verb("kill-all", Aim.MESH),
    Verb("lose-state", Aim.ROUTERS),
    Verb("power-cut", Aim.ROUTERS, queues=True),
    Verb("disk-full", Aim.ROUTERS, queues=True),
    Verb("skew", Aim.ROUTERS, options={"by": parse_offset}, needs=("by",)),
    Verb("partition", Aim.SIDES),
    Verb("cut", Aim.LINKS, options={"how": _how}),
    Verb("slow", Aim.LINKS, options={"latency": parse_duration, "jitter": parse_duration}, needs=("latency",)),
    Verb("narrow", Aim.LINKS, options={"rate": parse_bandwidth}, needs=("rate",)),
    Verb("lossy", Aim.LINKS, options={"loss": parse_share}, needs=("loss",), packets=True),
    Verb("flaky", Aim.LINKS, options={"resets": parse_rate}, needs=("resets",)),
    Verb("crash-client", Aim.CLIENTS),
    Verb("start", Aim.ROUTERS, lasts=False, ends=("kill", "restart", "drain", "kill-all", "lose-state", "power-cut")),
    Verb("free", Aim.ROUTERS, lasts=False, ends=("disk-full",)),
    Verb("resume", Aim.ROUTERS, lasts=False, ends=("pause",)),
    Verb("heal", Aim.MESH, lasts=False, ends=("partition",)),
    Verb("restore", Aim.LINKS, lasts=False, ends=("cut", "slow", "narrow", "lossy", "flaky")),
)
VERBS: Final[Mapping[str, Verb]] = {verb.name: verb for verb in _ALL}
