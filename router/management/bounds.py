"""Limits the size of answers, because clients choose names, and entities and events may have any size."""

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

LONGEST: Final = 256
MOST_ITEMS: Final = 100


def bounded(value: Any) -> Any:
    """The value, with texts cut to `LONGEST` characters, and lists and maps cut to `MOST_ITEMS`."""
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, str):
        return value if len(value) <= LONGEST else value[: LONGEST - 1] + "…"
    if isinstance(value, Mapping):
        return {bounded(key): bounded(item) for key, item in islice(value.items(), MOST_ITEMS)}
    return [bounded(item) for item in islice(value, MOST_ITEMS)]
