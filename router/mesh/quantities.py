"""Durations, sizes and network addresses, as users write them in a topology or on the command line.

Each parser raises ValueError, whose text quotes the wrong value and says what is expected. Nothing here uses the
network.
"""

import re

import attrs

from linkstate.plan.names import host_and_port

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_MOST_DIGITS, _MOST_SIZE_DIGITS = 9, 12


def parse_duration(text: str) -> float:
    """Parse a duration such as `200ms`, `1.5s`, `2m` or `1h` into seconds. A number without a unit is refused."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)", text)
    if found and max(map(len, found[1].split("."))) > _MOST_DIGITS:
        raise ValueError(f'"{text}" has too many digits, expected at most {_MOST_DIGITS} before and after the point')
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if seconds <= 0:
        expected = "a number above 0 and a unit, such as 200ms, 2s, 5m or 1h"
        raise ValueError(f'"{text}" is not a duration, expected {expected}')
    return seconds


def parse_size(text: str) -> int:
    """Parse a size such as `512`, `100B`, `64KiB`, `16MiB` or `1GiB` into bytes."""
    found = re.fullmatch(r"([0-9]+)(B|KiB|MiB|GiB|)", text)
    if not found:
        raise ValueError(f'"{text}" is not a size, expected a number and a unit, such as 100B, 64KiB or 16MiB')
    if len(found[1]) > _MOST_SIZE_DIGITS:
        raise ValueError(f'"{text}" has too many digits, expected at most {_MOST_SIZE_DIGITS}')
    return int(found[1]) * _BYTES[found[2]]


@attrs.frozen
class Address:
    """The address at which a router listens or is dialled. Port 0 means any free port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        return cls(*host_and_port(text))

    @property
    def is_anywhere(self) -> bool:
        """Whether the host stands for every address, as 0.0.0.0 and :: do. A router can listen there, but cannot be
        dialled."""
        return not self.host.strip("0.:x")

    @property
    def here(self) -> "Address":
        """The address at which a process of the same host reaches a listener at this address."""
        return Address("::1" if ":" in self.host else "127.0.0.1", self.port) if self.is_anywhere else self

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def format_duration(seconds: float) -> str:
    """Format seconds with at most two significant units: `350ms`, `4.2s`, `3m 20s`, `2h 5m`, `1h`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    units = [(hours, "h"), (minutes, "m"), (0 if hours else rest, "s")]
    return " ".join(f"{count}{unit}" for count, unit in units if count)


def format_size(size: int) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} B"
