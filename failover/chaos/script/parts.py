"""The parts of a chaos script. Names the keys of each part, and the parser of each value. `router.mesh.reading` reads a
file with them."""

import re
from typing import Any, Literal

import attrs

from failover.chaos.script.times import Span, parse_rate
from router.mesh.config import Timing
from router.mesh.marked import MarkedList, MarkedText, Value
from router.mesh.quantities import parse_duration
from router.mesh.reading import converter, shown, size, text, whole
from router.mesh.topology_parts import MOST_MESSAGE

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
MOST_CLIENTS = 100
"""The highest number of clients in one group. Each client is a process."""


AWAY = Span(0.5, 2.0)


@attrs.frozen
class PublisherPart:
    name: str
    rate: float
    address: str = "topic/chaos"
    count: int = 1
    size: int = 100
    at: tuple[str, ...] = ()
    crash: float | None = None
    away: Span = AWAY


@attrs.frozen
class SubscriberPart:
    name: str
    address: str = "topic/chaos"
    count: int = 1
    settle: Literal["first", "second"] = "second"
    think: float = 0.0
    at: tuple[str, ...] = ()
    crash: float | None = None
    away: Span = AWAY


def name_of_client(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError(f'"{name}" cannot name a client, expected letters, digits, dots, - and _')
    return name


def _per_second(number: str) -> float:
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", number) or float(number) <= 0:
        raise ValueError(f'"{number}", expected messages per second such as 500')
    return float(number)


def _settle(mode: str) -> str:
    if mode not in ("first", "second"):
        raise ValueError(f'"{mode}", expected first (at least once) or second (exactly once)')
    return mode


def names(value: Value, _: Any = None) -> tuple[str, ...]:
    """Read one name, or a list of names."""
    values = value if isinstance(value, MarkedList) else [value]
    found = tuple(str(one) for one in values if isinstance(one, MarkedText) and one)
    if not found or len(found) != len(values):
        raise ValueError(f"{shown(value)}, expected a name or a list of names")
    return found


_EITHER = {
    "name": text(name_of_client),
    "address": text(str),
    "count": text(whole(1, MOST_CLIENTS)),
    "at": names,
    "crash": text(parse_rate),
    "away": text(Span.parse),
}
CONVERTER = converter(
    {
        PublisherPart: {**_EITHER, "rate": text(_per_second), "size": text(size(32, MOST_MESSAGE))},
        SubscriberPart: {**_EITHER, "settle": text(_settle), "think": text(parse_duration)},
        Timing: {field.name: text(parse_duration) for field in attrs.fields(Timing)},
    }
)
