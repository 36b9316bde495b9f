"""A tree of patterns by their words. It finds the patterns that cover an address without looking at each pattern
(protocol 2, Address).

A node stands for all words on the way to it. A run of words without a branch is one node, however long it is, so there
are at most two nodes for each run of words. A wildcard has a node of its own.

The tree does not know what is stored at a pattern; `addresses` does.
"""

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Final, Generic, TypeVar

from topic.directory.words import LEVEL, REST, SEPARATORS, WORD, read

V = TypeVar("V")
_NEXT: Final = re.compile("[./][^./]*")
"""Matches a word with the separator before it."""


class _Node(Generic[V]):
    """One wildcard, written as `*.`, or a run of words, each with the separator before it.

    `value`: the value of the pattern that ends here, or None. `next`: the following nodes, keyed by their first word or
    by the wildcard.
    """

    __slots__ = ("label", "next", "value")

    def __init__(self, label: str) -> None:
        self.label = label
        self.next: dict[str, _Node[V]] = {}
        self.value: V | None = None

    def put(self, step: str) -> "_Node[V]":
        """Return the node to which this step (a run of words, or a wildcard) leads from this node. Create the node if
        there is none."""
        node = self
        while step:
            first = _first(step)
            child = node.next.get(first)
            if child is None:
                child = node.next[first] = _Node(step)
            same = _same(child.label, step)
            if same < len(child.label):
                child = node._part(first, same)
            node, step = child, step[same:]
        return node

    def _part(self, first: str, at: int) -> "_Node[V]":
        """Split the child with this first word after `at` characters, so that another branch can begin there."""
        child = self.next[first]
        between = self.next[first] = _Node(child.label[:at])
        child.label = child.label[at:]
        between.next[_first(child.label)] = child
        return between

    def way(self, step: str) -> list["_Node[V]"] | None:
        """The nodes from this node to the end of the step; None if the tree lacks the step."""
        node, way = self, []
        while step:
            child = node.next.get(_first(step))
            if child is None or not (step.startswith(child.label) and _is_end(step, len(child.label))):
                return None
            way.append(child)
            node, step = child, step[len(child.label) :]
        return way

    def join(self) -> None:
        """Merge this node with its only child, if both are runs of words and this node has no value."""
        if self.value is None and len(self.next) == 1:
            (child,) = self.next.values()
            if _is_run(self.label) and _is_run(child.label):
                self.label += child.label
                self.next, self.value = child.next, child.value


class Tree(Generic[V]):
    """Maps addresses and patterns to values."""

    __slots__ = ("_begin",)

    def __init__(self) -> None:
        self._begin: dict[str, _Node[V]] = {}
        """The first nodes, keyed by the first word of an address. No separator precedes it."""

    def put(self, address: str, value: V) -> None:
        first, steps = _steps(address)
        node = self._begin.get(first)
        if node is None:
            node = self._begin[first] = _Node("")
        for step in steps:
            node = node.put(step)
        node.value = value

    def remove(self, address: str) -> None:
        """Remove the value of the address, if it has one."""
        way = self._way(address)
        if not way:
            return
        way[-1].value = None
        while len(way) > 1 and way[-1].value is None and not way[-1].next:
            gone = way.pop()
            del way[-1].next[_first(gone.label)]
        if len(way) > 1:
            way[-1].join()
        elif way[0].value is None and not way[0].next:
            del self._begin[_begin_of(address)]

    def _way(self, address: str) -> list[_Node[V]]:
        """The nodes on the way to the address; empty if the address has no value."""
        first, steps = _steps(address)
        begin = self._begin.get(first)
        way = [] if begin is None else [begin]
        for step in steps if way else ():
            behind = way[-1].way(step)
            if behind is None:
                return []
            way += behind
        return way if way and way[-1].value is not None else []

    def covering(self, address: str) -> list[V]:
        """The values of the address itself and of all patterns that cover it, in no particular order."""
        first = _begin_of(address)
        begin = self._begin.get(first)
        found: list[V | None] = []
        todo = [] if begin is None else [(begin, len(first))]
        while todo:
            node, at = todo.pop()
            if at == len(address):
                rests = [rest for rest in map(node.next.get, _RESTS) if rest is not None]
                found += [node.value, *(rest.value for rest in rests)]
            else:
                todo += _on(node, address, at, found)
        return [value for value in found if value is not None]


def _on(node: _Node[V], address: str, at: int, found: list[V | None]) -> Iterator[tuple[_Node[V], int]]:
    """The children of the node that may lead to patterns covering the address, each with the place in the address where
    the remaining words begin. `at`: the place where the words after `node` begin. If a `#` covers all remaining words,
    the function appends its value to `found`."""
    separator, end = address[at], _end(address, at)
    child = node.next.get(address[at:end])
    if child is not None and address.startswith(child.label, at) and _is_end(address, at + len(child.label)):
        yield child, at + len(child.label)
    if not node.next.keys().isdisjoint(_WILDCARDS):
        if end > at + 1 and (word := node.next.get(WORD + separator)) is not None:
            yield word, end
        if separator == "/" and (level := node.next.get(LEVEL + separator)) is not None:
            yield level, _end_of_level(address, at + 1)
        if (rest := node.next.get(REST + separator)) is not None:
            found.append(rest.value)


_WILDCARDS: Final = {kind + separator for kind in (WORD, LEVEL, REST) for separator in SEPARATORS}
_RESTS: Final = [REST + separator for separator in SEPARATORS]


def _steps(address: str) -> tuple[str, list[str]]:
    """Split an address into its first word and its steps. The steps are, in order, the wildcards and the runs of words
    between them. A run begins with a separator, a wildcard does not."""
    words, wildcards = read(address)
    steps, run = [], 1
    for place in wildcards:
        steps += ["".join(words[run:place]), words[place][::-1]]
        run = place + 1
    return words[0], [step for step in (*steps, "".join(words[run:])) if step]


def _is_run(step: str) -> bool:
    return step[:1] in SEPARATORS and step != ""


def _first(step: str) -> str:
    """The first word of a run; a wildcard is returned as it is."""
    return step[: _end(step, 0)] if _is_run(step) else step


def _same(one: str, other: str) -> int:
    """The length, in characters, of the words that both arguments have in common at their beginning. Both arguments are
    runs with the same first word, or the same wildcard."""
    if one == other:
        return len(one)
    pairs = zip(_NEXT.findall(one), _NEXT.findall(other), strict=False)
    return sum(len(word) for word, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _begin_of(address: str) -> str:
    found = _FIRST.match(address)
    return found.group() if found is not None else ""


_FIRST: Final = re.compile("[^./]*")


def _end(run: str, at: int) -> int:
    """The place where the word that begins at `at` ends."""
    found = _NEXT.match(run, at)
    assert found is not None
    return found.end()


def _is_end(run: str, at: int) -> bool:
    return at == len(run) or run[at] in SEPARATORS


def _end_of_level(run: str, at: int) -> int:
    end = run.find("/", at)
    return len(run) if end < 0 else end
