"""Bytes and values that are almost right."""

from random import Random
from typing import Any

ODD_NUMBERS = (0, 1, 2, 127, 128, 255, 256, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1, -1, -(2**63))
ODD_TEXTS = ("", "a", "b", "c", "\0", "é" * 100, "x" * 5000)


def damaged(rng: Random, data: bytes) -> bytes:
    """The data with a few bytes changed, dropped, doubled or inserted."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at, size = rng.randrange(len(changed) + 1), rng.choice((1, 1, 2, 4, 30))
        match rng.randrange(5):
            case 0:
                changed[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del changed[at : at + size]
            case 2:
                changed[at:at] = changed[at : at + size]
            case 3:
                changed[at:at] = rng.randbytes(size)
            case 4:
                changed[at : at + size] = rng.choice((b"\xff", b"\0", b"\x7f")) * size
    return bytes(changed)


def altered(rng: Random, value: Any) -> Any:
    """The value with one inner value changed, mostly in the same shape."""
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        match rng.randrange(12):
            case 0:
                return value[:at] + value[at + 1 :]
            case 1:
                return [*value[:at], value[at], *value[at:]]
            case _:
                return [*value[:at], altered(rng, value[at]), *value[at + 1 :]]
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        return {**value, key: altered(rng, value[key])}
    return _another(rng, value)


def _another(rng: Random, value: Any) -> Any:
    if rng.random() < 0.1:
        return rng.choice((None, True, b"", [], {}, "", 0, -1.5))
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice((value + 1, value - 1, rng.choice(ODD_NUMBERS)))
    if isinstance(value, bytes):
        return damaged(rng, value) if rng.random() < 0.5 else rng.randbytes(len(value))
    if isinstance(value, str):
        return rng.choice((*ODD_TEXTS, value[:-1], value + "x"))
    return rng.choice(ODD_NUMBERS)
