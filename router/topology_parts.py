"""The parts of a topology file: which keys each has and which parser reads each value.

A parser takes the text as it stands in the file and raises ValueError with a sentence that says what was
found and what was expected. cattrs applies them, so that one pass over a part reports all that is wrong
with it. What holds between parts is router/topology.py's work.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import attrs
from cattrs import BaseConverter, Converter
from cattrs.gen import make_dict_structure_fn, override

from router.config import AddressRule, Limits, Timing
from router.marked import MarkedList, MarkedMap, MarkedText, Value
from router.quantities import Address, parse_duration, parse_size

Hook = Callable[[Value, Any], Any]

MOST_MESSAGE = 1 << 30
"""The largest `limits.max_message`."""


@attrs.frozen
class RouterPart:
    amqp: Address
    inter: Address | None = None


@attrs.frozen
class LinkPart:
    between: tuple[str, str]
    cost: int = 1
    address: Address | None = None


def shown(value: Value) -> str:
    if isinstance(value, MarkedText):
        return f'"{value}"' if value else "an empty value"
    return "a mapping" if isinstance(value, MarkedMap) else "a list"


def _text(parse: Callable[[str], Any]) -> Hook:
    def hook(value: Value, _: Any) -> Any:
        if not isinstance(value, MarkedText):
            raise ValueError(f"{shown(value)}, expected a single value")
        return parse(str(value))

    return hook


def _whole(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,12}", text) or not least <= int(text) <= most:
            raise ValueError(f'"{text}", expected a whole number from {least} to {most}')
        return int(text)

    return parse


def _size(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        size = parse_size(text)
        if not least <= size <= most:
            raise ValueError(f'"{text}", expected a size from {least} to {most} bytes')
        return size

    return parse


def _prefix(text: str) -> str:
    if not text or not text.isprintable() or " " in text:
        raise ValueError(f'"{text}" is not a prefix, expected the start of an address such as topic/')
    return text


def _kind(text: str) -> str:
    if text != "topic":
        raise ValueError(f'unknown kind "{text}", expected topic')
    return text


def _pair(value: Value, _: Any) -> tuple[str, str]:
    ends = [str(end) for end in value if isinstance(end, MarkedText)] if isinstance(value, MarkedList) else []
    if not isinstance(value, MarkedList) or len(value) != 2 or len(ends) != 2:
        raise ValueError(f"{shown(value)}, expected the names of two routers such as [a, b]")
    return ends[0], ends[1]


def _converter(hooks: Mapping[type, Mapping[str, Hook]]) -> BaseConverter:
    converter = Converter(forbid_extra_keys=True, detailed_validation=True)
    for cls, fields in hooks.items():
        overrides = {name: override(struct_hook=hook) for name, hook in fields.items()}
        converter.register_structure_hook(cls, make_dict_structure_fn(cls, converter, **overrides))  # type: ignore[arg-type]
    return converter


_ADDRESS = _text(Address.parse)
CONVERTER = _converter(
    {
        RouterPart: {"amqp": _ADDRESS, "inter": _ADDRESS},
        LinkPart: {"between": _pair, "cost": _text(_whole(1, 65535)), "address": _ADDRESS},
        AddressRule: {"prefix": _text(_prefix), "kind": _text(_kind)},
        Timing: {field.name: _text(parse_duration) for field in attrs.fields(Timing)},
        Limits: {
            "window": _text(_whole(1, 1_000_000)),
            "max_message": _text(_size(1 << 10, MOST_MESSAGE)),
            "max_frame": _text(_size(512, 1 << 24)),
            "redeliveries": _text(_whole(0, 1000)),
        },
    }
)
