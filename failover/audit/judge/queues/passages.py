"""Counts, by the log of each replica, the messages that came into the queues of a set and the messages that left them.
Then compares the counts with the content that the replica logs."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import attrs
import numpy as np

from failover.audit.mesh.at_rest import AtRest
from failover.audit.mesh.contents import Contents
from failover.audit.read.columns import NONE, Rows
from topic.identity import is_egress, queue_of
from topic.journal import Event

WRAP: Final = 1 << 64
"""Sums of positions are computed modulo this number."""


@attrs.define(slots=True)
class Passage:
    """The messages that came into the queues of a set, minus the messages that left them, by one log. The log's CONTENT
    entries cut the log into parts. The first element of each list is for the part before the first CONTENT entry."""

    messages: list[int]
    """The growth of the number of messages in the queues, for each part of the log."""
    positions: list[int]
    """The growth of the sum of the messages' positions, modulo `WRAP`, for each part of the log."""

    def add(self, other: "Passage") -> None:
        self.messages = [one + more for one, more in zip(self.messages, other.messages, strict=True)]
        self.positions = [(one + more) % WRAP for one, more in zip(self.positions, other.positions, strict=True)]


def passages(told: Rows, contents: Contents) -> dict[tuple[str, str], Passage]:
    """Maps each log and set to the growth of the set's queues by this log: the messages that came, minus the messages
    that left."""
    signs = np.where(told.event == Event.ENQUEUED, 1, np.where(told.event == Event.LEFT, -1, 0))
    sets = np.array([*(queue_of(text)[0] if is_egress(text) else "" for text in told.strings), ""])[told.address]
    logs = {log.name: code for code, log in enumerate(told.logs)}
    found = {}
    for (log, set_), listed in contents.items():
        of = np.flatnonzero((told.log == logs.get(log, NONE)) & (sets == set_))
        interval = np.searchsorted([content.place for content in listed], told.place[of])
        messages, positions = (np.zeros(len(listed) + 1, np.int64) for _ in range(2))
        np.add.at(messages, interval, signs[of])
        np.add.at(positions, interval, signs[of] * told.n[of])
        found[log, set_] = Passage(messages.tolist(), [one % WRAP for one in positions.tolist()])
    return found


def unstored(told: Rows, at_rest: AtRest) -> Counter[tuple[str, str]]:
    """Return three sums for each set, keyed by the set and the name of the sum.

    `messages`: the number of messages that were enqueued and have not left, and that no store of the set has.
    `positions`: the sum of the positions of these messages. `former`: the number of entries of an earlier life of the
    set. The sums are right only after the sums of all buckets are added.
    """
    sets = np.array([*(queue_of(text)[0] if is_egress(text) else "" for text in told.strings), ""])[told.address]
    found = Counter[tuple[str, str]]()
    for set_ in at_rest.replicas:
        found[set_, "former"] = int(((sets == set_) & (told.hlc < at_rest.began(set_))).sum())
        for event, sign in ((Event.ENQUEUED, 1), (Event.LEFT, -1)):
            positions = np.unique(told.n[(told.event == event) & (sets == set_)])
            lacking = positions[at_rest.lacking(set_, positions)].tolist()
            found[set_, "messages"] += sign * len(lacking)
            found[set_, "positions"] += sign * sum(lacking)
    return found


def disputed(contents: Contents, passed: Mapping[tuple[str, str], Passage]) -> Iterator[tuple[str, str]]:
    """Yields each CONTENT entry that does not fit the CONTENT entry before it: the contents differ by other messages
    than the replica logged in between. Yields two texts: the set with the index of the entry, and the replica's log."""
    for (log, set_), through in passed.items():
        listed = contents[log, set_]
        for before, content, more, sum_ in zip(
            listed, listed[1:], through.messages[1:], through.positions[1:], strict=False
        ):
            is_right = before.messages + more == content.messages
            is_right &= (before.positions + sum_ - content.positions) % WRAP == 0
            if not content.begins and not is_right:
                yield f"{set_}, entry {content.index}", log
