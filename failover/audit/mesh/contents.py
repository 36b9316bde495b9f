"""The contents of queues, which replicas of a set log at certain indices of the set's log (protocol 13, 14).

All replicas log their content at the same indices, and also when they begin with a state. The module reads the control
rows in plain Python.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from failover.audit.read.inventory import ControlRow
from topic.journal import Event


@attrs.frozen(slots=True)
class ToldContent:
    """The content of a set's queues, as one CONTENT entry states it."""

    place: int
    """The place of the CONTENT entry in the router's log."""
    life: str
    """The life of the set, as text."""
    index: int
    messages: int
    positions: int
    """The sum of the positions of all messages in the queues."""
    begins: bool
    """Whether the replica has begun with this state. If so, its log does not show how the state came about."""


Contents = Mapping[tuple[str, str], Sequence[ToldContent]]
"""Maps each log and set to the logged contents, in the order of the log."""


def find_contents(rows: Iterable[ControlRow]) -> Contents:
    """Find the CONTENT entries. Incomplete ones are left out."""
    found = defaultdict[tuple[str, str], list[ToldContent]](list)
    for row in sorted(rows, key=lambda row: row.place):
        match row.details if row.event == Event.CONTENT else {}:
            case {
                "set": str(set_),
                "life": str(life),
                "index": int(index),
                "messages": int(messages),
                "positions": int(positions),
                "begins": bool(begins),
            }:
                content = ToldContent(row.place, life, index, messages, positions, begins)
                found[row.log_name, set_].append(content)
    return dict(found)


def recovered_sets(contents: Contents) -> frozenset[str]:
    """The sets that have begun a new life, because an operator has recovered them. They may have lost messages."""
    lives = defaultdict[str, set[str]](set)
    for (_, set_), told in contents.items():
        lives[set_].update(content.life for content in told)
    return frozenset(set_ for set_, of in lives.items() if len(of) > 1)


def disagreeing(contents: Contents) -> Iterator[tuple[str, str]]:
    """Yields two texts for each index at which the contents of two replicas differ. The first has the set and the
    index, the second the two logs."""
    known: dict[tuple[str, str, int], tuple[str, ToldContent]] = {}
    for (log, set_), told in contents.items():
        for content in told:
            other, first = known.setdefault((set_, content.life, content.index), (log, content))
            if (first.messages, first.positions) != (content.messages, content.positions):
                yield f"{set_}, entry {content.index}", f"{other}, {log}"
