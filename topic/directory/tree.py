"""Addresses, or patterns, in a tree of their words: which patterns cover an address, and which addresses a pattern
covers, is found without looking at each (protocol 2, Address).

A node stands for the words that lead to it. What only one way leads through is one node, however many words that is:
so there are at most two nodes for each address, of any length. A wildcard has a node of its own.

Never here: what is at an address (`addresses`).
"""

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Final, Generic, TypeVar

from topic.directory.words import LEVEL, REST, SEPARATORS, WORD, read

V = TypeVar("V")
_NEXT: Final = re.compile("[./][^./]*")
"""A word, with the separator before it."""


class _Node(Generic[V]):
    """One wildcard, written as `*.`, or a run of words, each with the separator before it; what is there, if there is
    something; and what comes next, by its first word, or as the wildcard that it is."""

    __slots__ = ("label", "next", "value")

    def __init__(self, label: str) -> None:
        self.label = label
        self.next: dict[str, _Node[V]] = {}
        self.value: V | None = None

    def put(self, step: str) -> "_Node[V]":
        """The node behind that step, new if there is none."""
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
        """Another way leaves the one to that child, so far behind its begin."""
        child = self.next[first]
        between = self.next[first] = _Node(child.label[:at])
        child.label = child.label[at:]
        between.next[_first(child.label)] = child
        return between

    def path(self, step: str) -> list["_Node[V]"]:
        """To the node behind that step, which is there."""
        node, path = self, []
        while step:
            node = node.next[_first(step)]
            path.append(node)
            step = step[len(node.label) :]
        return path

    def join(self) -> None:
        """Nothing is here, and only one way leads on: both are one node, if they are words."""
        if self.value is None and len(self.next) == 1:
            (child,) = self.next.values()
            if _is_run(self.label) and _is_run(child.label):
                self.label += child.label
                self.next, self.value = child.next, child.value

    def all(self) -> Iterator[V]:
        """What is here and below."""
        nodes = [self]
        while nodes:
            node = nodes.pop()
            if node.value is not None:
                yield node.value
            nodes += node.next.values()


class Tree(Generic[V]):
    """Something at each of some addresses and patterns."""

    __slots__ = ("_begin",)

    def __init__(self) -> None:
        self._begin: dict[str, _Node[V]] = {}
        """By the first word, which has no separator before it."""

    def put(self, address: str, value: V) -> None:
        first, steps = _steps(address)
        node = self._begin.get(first)
        if node is None:
            node = self._begin[first] = _Node("")
        for step in steps:
            node = node.put(step)
        node.value = value

    def remove(self, address: str) -> None:
        """It is there."""
        first, steps = _steps(address)
        path = [self._begin[first]]
        for step in steps:
            path += path[-1].path(step)
        path[-1].value = None
        while len(path) > 1 and path[-1].value is None and not path[-1].next:
            gone = path.pop()
            del path[-1].next[_first(gone.label)]
        if len(path) > 1:
            path[-1].join()
        elif path[0].value is None and not path[0].next:
            del self._begin[first]

    def covering(self, address: str) -> list[V]:
        """What is at the address itself, and at patterns that cover it; in no order."""
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

    def covered(self, pattern: str) -> list[V]:
        """What is at the addresses that the pattern covers; in no order. There are no patterns in this tree."""
        words, wildcards = read(pattern)
        begin = self._begin.get(words[0])
        return [] if begin is None else list(_covered(begin, words, wildcards))


def _on(node: _Node[V], address: str, at: int, found: list[V | None]) -> Iterator[tuple[_Node[V], int]]:
    """Where it goes on from the node for the rest of the address; `found` takes what is at a `#` there."""
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


def _covered(begin: _Node[V], words: list[str], wildcards: dict[int, str]) -> Iterator[V]:
    """A way: a node, how much of it is behind us, which word of the pattern is next, and whether we are in the middle
    of a level that the `+` before that stands for."""
    todo = [(begin, 0, 1, False)]
    while todo:
        node, at, place, is_in_level = todo.pop()
        label = node.label
        if is_in_level:
            at = _end_of_level(label, at)
            if at == len(label):
                todo += [(child, 0, place, True) for key, child in node.next.items() if key[0] != "/"]
        if place == len(words):
            if at == len(label) and node.value is not None:
                yield node.value
            continue
        separator, wildcard = words[place][0], wildcards.get(place)
        if at == len(label):
            if wildcard == REST and node.value is not None:
                yield node.value
            next_, word = node.next, words[place]
            if wildcard is None:
                todo += [(next_[word], len(word), place + 1, False)] if word in next_ else []
            elif wildcard == WORD:
                ways = ((key, child) for key, child in next_.items() if key[0] == separator and len(key) > 1)
                todo += [(child, len(key), place + 1, False) for key, child in ways]
            elif wildcard == LEVEL:
                todo += [(child, 1, place + 1, True) for key, child in next_.items() if key[0] == separator]
            else:
                for child in [child for key, child in next_.items() if key[0] == separator]:
                    yield from child.all()
        elif wildcard is None:
            end = at + len(words[place])
            if label.startswith(words[place], at) and _is_end(label, end):
                todo.append((node, end, place + 1, False))
        elif label[at] == separator:
            if wildcard == REST:
                yield from node.all()
            elif wildcard == LEVEL:
                todo.append((node, at + 1, place + 1, True))
            elif (end := _end(label, at)) > at + 1:
                todo.append((node, end, place + 1, False))


_WILDCARDS: Final = {kind + separator for kind in (WORD, LEVEL, REST) for separator in SEPARATORS}
_RESTS: Final = [REST + separator for separator in SEPARATORS]


def _steps(address: str) -> tuple[str, list[str]]:
    """Its first word; then, in order, its wildcards and the runs of words between them. A run begins with a separator,
    a wildcard does not."""
    words, wildcards = read(address)
    steps, run = [], 1
    for place in wildcards:
        steps += ["".join(words[run:place]), words[place][::-1]]
        run = place + 1
    return words[0], [step for step in (*steps, "".join(words[run:])) if step]


def _is_run(step: str) -> bool:
    return step[:1] in SEPARATORS and step != ""


def _first(step: str) -> str:
    """The word that a run begins with; or the wildcard."""
    return step[: _end(step, 0)] if _is_run(step) else step


def _same(one: str, other: str) -> int:
    """How long the words are that both begin with; these are runs that begin with the same, or one wildcard."""
    if one == other:
        return len(one)
    pairs = zip(_NEXT.findall(one), _NEXT.findall(other), strict=False)
    return sum(len(word) for word, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _begin_of(address: str) -> str:
    found = _FIRST.match(address)
    return found.group() if found is not None else ""


_FIRST: Final = re.compile("[^./]*")


def _end(run: str, at: int) -> int:
    """Of the word that begins there."""
    found = _NEXT.match(run, at)
    assert found is not None
    return found.end()


def _is_end(run: str, at: int) -> bool:
    return at == len(run) or run[at] in SEPARATORS


def _end_of_level(run: str, at: int) -> int:
    end = run.find("/", at)
    return len(run) if end < 0 else end
