"""The words of a chaos script for faults, as in Jepsen's nemeses: a table, which the script's reader reads.

A fault is in force until its time (`for`) is over, a word that ends it strikes, or the run ends.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final

import attrs

from failover.chaos.script.times import parse_bandwidth, parse_offset, parse_rate, parse_share
from router.mesh.quantities import parse_duration


class Aim(Enum):
    """The kind of targets of a word."""

    ROUTERS = auto()
    LINKS = auto()
    """Links, by their own names, a-b, or by a router's name: all links of this router."""
    CLIENTS = auto()
    SIDES = auto()
    """The sides of a partition: groups of routers that do not reach each other."""
    MESH = auto()


@attrs.frozen
class Verb:
    name: str
    aim: Aim
    lasts: bool = True
    """Whether the word may have a duration."""
    ends: tuple[str, ...] = ()
    """The faults that the word ends."""
    options: Mapping[str, Callable[[str], object]] = attrs.field(factory=dict)
    needs: tuple[str, ...] = ()
    """Options that the word needs, without a default."""
    queues: bool = False
    """Whether the word strikes stores of replica sets."""
    packets: bool = False
    """Whether the word strikes packets, which proxies do not see."""


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
