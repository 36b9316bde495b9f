"""The compiled loop of the search: the worlds that were seen, the next ones, and the learnt effects of events.

Most events look at a few of dozens of columns. So the kernel learns the result of a function once for all worlds that
the function cannot distinguish, as a tree. A function always looks at the same column first. Which column it looks at
next depends only on the columns that it has seen. Nothing has to be declared, and nothing can be missed, as a function
sees only its draft.
"""

import ctypes
import subprocess
import tempfile
from collections.abc import Sequence
from enum import IntEnum
from functools import cache
from pathlib import Path

from tests.exhaustive.world import Values, World

SOURCE = Path(__file__).with_suffix(".c")


class Halt(IntEnum):
    """Why the loop has halted."""

    MISSED = 0
    """A function was not learnt for the present world."""
    REST = 1
    """Only faults can happen in the present world; the search has to check it as a world at rest."""
    LAYER = 2
    """All worlds of one depth have been visited, and there are more."""
    DONE = 3
    """All worlds have been visited."""


class _Head(ctypes.Structure):
    """The first fields of the search in `kernel.c`."""

    _fields_ = (
        ("states", ctypes.c_uint64),
        ("transitions", ctypes.c_uint64),
        ("limits", ctypes.c_uint64),
        ("number", ctypes.c_uint64),
        ("missed", ctypes.c_int32),
        ("rested", ctypes.c_int32),
    )


class Kernel:
    """Identifies states by 128 bits. For each it stores how it was found, in six more bytes, for the path."""

    def __init__(self, columns: int, faults: int) -> None:
        """`columns`: the number of columns of a world. If the column `faults` is 0 in a world, no fault happens
        there."""
        self._columns = columns
        self._library = _library()
        self._search = self._library.search_new(columns, faults)
        self.head: _Head = ctypes.cast(self._search, ctypes.POINTER(_Head)).contents

    def __del__(self) -> None:
        self._library.search_free(self._search)

    # functions

    def tree(self) -> int:
        """The tree of a function of which nothing was learnt. An event has the tree of its effect."""
        return int(self._library.search_tree(self._search))

    def add_source(self, tree: int, is_fault: bool) -> None:
        """Add a source, which results in events that may be next. Faults are added last."""
        self._library.search_source(self._search, tree, is_fault)

    def choices(self, events: Sequence[int]) -> int:
        """The leaf of a source: the trees of its events."""
        return self._leaf([len(events), *events])

    def effect(self, changes: dict[int, int], limits: int, is_violation: bool) -> int:
        """The leaf of an event: the new values of the changed columns."""
        return self._leaf(
            [len(changes), limits, is_violation, *(number for pair in changes.items() for number in pair)]
        )

    def _leaf(self, numbers: Sequence[int]) -> int:
        return int(self._library.search_leaf(self._search, len(numbers), _numbers(numbers)))

    def learn(self, tree: int, looked_at: Sequence[int], values: Values, leaf: int) -> None:
        """Learn the result of a function for all worlds with these values in the columns that it looked at, in this
        order.
        """
        seen = [values[column] for column in looked_at]
        arguments = tree, len(looked_at), _numbers(looked_at), _numbers(seen), leaf
        assert self._library.search_learn(self._search, *arguments), "it looks at something that no draft has"

    # the search

    def begin(self, values: Values) -> None:
        self._library.search_begin(self._search, _numbers(values))

    def run(self) -> Halt:
        """Continue where the loop halted."""
        return Halt(self._library.search_run(self._search))

    @property
    def world(self) -> World:
        """The present world."""
        return ctypes.string_at(self._library.search_world(self._search), 4 * self._columns)

    def found_by(self, number: int) -> tuple[int, int]:
        """The number of the world from which this one was first found, and which of that world's choices led to it."""
        place = ctypes.c_uint16()
        parent = self._library.search_found_by(self._search, number, ctypes.byref(place))
        return int(parent), place.value


def _numbers(values: Sequence[int]) -> ctypes.Array[ctypes.c_int32]:
    return (ctypes.c_int32 * len(values))(*values)


@cache
def _library() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder, "kernel.so")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", built, SOURCE], check=True)
        library = ctypes.CDLL(str(built))
    pointer, number, leaf = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
    numbers = ctypes.POINTER(number)
    for name, result, *arguments in (
        ("search_new", pointer, number, number),
        ("search_free", None, pointer),
        ("search_tree", number, pointer),
        ("search_source", None, pointer, number, number),
        ("search_leaf", leaf, pointer, number, numbers),
        ("search_learn", number, pointer, number, number, numbers, numbers, leaf),
        ("search_begin", None, pointer, numbers),
        ("search_run", number, pointer),
        ("search_world", pointer, pointer),
        ("search_found_by", ctypes.c_uint32, pointer, ctypes.c_uint32, ctypes.POINTER(ctypes.c_uint16)),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
