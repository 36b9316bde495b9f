"""Reads times, and the numbers with a unit, that a chaos script contains: durations, windows, rates, bandwidths.

A value may name a range from which a run chooses at random. Each parser raises ValueError; the text of the error has
the wrong value and what is expected.
"""

import re
from random import Random
from typing import Self

import attrs

from router.mesh.quantities import parse_duration

MOST_PER_S = 10.0
LONGEST_S = 24 * 3600.0
LEAST_BANDWIDTH = 1000
_BYTES = {"kB": 1e3, "MB": 1e6}
_PER = {"s": 1.0, "m": 60.0, "h": 3600.0}


@attrs.frozen
class Span:
    """A duration in seconds: a single one (`2s`), or any between two (`1s..3s`)."""

    least: float
    most: float

    @classmethod
    def parse(cls, text: str) -> Self:
        least, dots, most = text.partition("..")
        found = cls(parse_duration(least), parse_duration(most if dots else least))
        if found.most < found.least:
            raise ValueError(f'"{text}", expected the shorter time first')
        return found

    def draw(self, random: Random) -> float:
        return self.least if self.least == self.most else random.uniform(self.least, self.most)


@attrs.frozen
class Window:
    """A part of the run, from one second to another (`10s..50s`)."""

    start: float
    end: float

    @classmethod
    def parse(cls, text: str) -> Self:
        start, dots, end = text.partition("..")
        if not dots:
            raise ValueError(f'"{text}" is not a window, expected its start and end such as 10s..50s')
        found = cls(0.0 if start == "0s" else parse_duration(start), parse_duration(end))
        if found.end <= found.start:
            raise ValueError(f'"{text}", expected a window that ends after its start')
        return found

    @property
    def length(self) -> float:
        return self.end - self.start


def parse_rate(text: str) -> float:
    """Parse how often something happens per second, from `0.5/s`, `6/m` or `20/h`."""
    found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)/([smh])", text)
    rate = float(found[1]) / _PER[found[2]] if found else 0.0
    if not 0 < rate <= MOST_PER_S:
        raise ValueError(f'"{text}" is not a rate, expected a number per time such as 0.5/s, 6/m or 20/h, at most 10/s')
    return rate


def parse_bandwidth(text: str) -> float:
    """Parse a number of bytes per second, from `8MB/s` or `100kB/s`."""
    found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)(kB|MB)/s", text)
    rate = float(found[1]) * _BYTES[found[2]] if found else 0.0
    if rate < LEAST_BANDWIDTH:
        raise ValueError(f'"{text}" is not a bandwidth, expected such as 8MB/s or 100kB/s, at least 1kB/s')
    return rate


def parse_share(text: str) -> float:
    """Parse a percentage to a share from 0 to 1, from `1%` or `0.5%`."""
    found = re.fullmatch(r"([0-9]{1,2}(?:\.[0-9]{1,6})?)%", text)
    share = float(found[1]) / 100 if found else 0.0
    if not share:
        raise ValueError(f'"{text}" is not a share, expected such as 1% or 0.5%, above 0% and below 100%')
    return share


def parse_period(text: str) -> float:
    seconds = parse_duration(text)
    if seconds < 1 / MOST_PER_S:
        raise ValueError(f'"{text}", expected a period of at least {1000 / MOST_PER_S:.0f}ms')
    return seconds


def parse_length(text: str) -> float:
    """Parse the duration of a run, and return it in seconds."""
    seconds = parse_duration(text)
    if seconds > LONGEST_S:
        raise ValueError(f'"{text}", expected at most 24h')
    return seconds


def parse_offset(text: str) -> float:
    """Parse by how many seconds a clock is ahead (`5s`), or behind (`-5s`)."""
    return -parse_duration(text[1:]) if text.startswith("-") else parse_duration(text)
