"""The order of deliveries, judged while they come: of what lies behind only the highest place is kept.

Whatever was handed over before anything that may still come is judged by `judge.order`, and folded into one entry. What
shows up behind that has no place any more: nobody can tell whether it was in order, and it is counted as *unplaced*.
"""

from collections.abc import Mapping

import attrs
import numpy as np

from failover.audit.judge.order import judge_order, packed, unpacked
from failover.audit.judge.tally import Tally
from failover.audit.read.columns import KEY_TYPE, Flags, Ints

Place = tuple[int, int]
"""Major and minor."""
NOWHERE: Place = (-1, -1)
Who = tuple[bytes, int]
"""A delivery: its key, and which use of that it is."""


@attrs.define(slots=True)
class _Pair:
    """A publisher and a subscriber."""

    highest: Place = NOWHERE
    """In the publisher's order, of all that is folded."""
    folded: Place = NOWHERE
    """The last that was, in the order in which the subscriber was handed it."""
    waiting: list[bytes] = attrs.field(factory=list)


class OrderFold:
    def __init__(self) -> None:
        self.tally = Tally()
        self._pairs: dict[str, _Pair] = {}
        self._told: dict[str, set[Who]] = {}
        """What is waiting or folded, of deliveries that are still pending: they are told of again."""

    def add(self, names: str, part: bytes) -> None:
        """What `pack_order` tells of a publisher and subscriber; what it has told before is left out."""
        pair, known = self._pairs.setdefault(names, _Pair()), self._told.setdefault(names, set())
        columns = unpacked([part])
        who = list(zip(columns["key"].tolist(), columns["life"].tolist(), strict=True))
        new = np.array([one not in known for one in who], np.bool_)
        behind = new & ~_after(columns["handed"], columns["handed_minor"], pair.folded)
        if behind.any():
            publisher, subscriber = names.split(" ")
            self.tally.pairs[publisher, subscriber, "unplaced"] += int(behind.sum())
        if (ahead := new & ~behind).any():
            pair.waiting.append(packed({name: column[ahead] for name, column in columns.items()}))
        known.update(who)

    def forget(self, left: set[Who]) -> None:
        """Nothing more is told of these."""
        for known in self._told.values():
            known -= left

    def fold(self, before: Mapping[str, Place]) -> None:
        """Judge what was handed over before these places, which something may still come for; without one, all."""
        for names, pair in self._pairs.items():
            if pair.waiting:
                self._fold(names, pair, before.get(names))

    def _fold(self, names: str, pair: _Pair, before: Place | None) -> None:
        columns = unpacked(pair.waiting)
        handed = columns["handed"], columns["handed_minor"]
        kept = np.zeros(len(handed[0]), np.bool_)
        if before is not None:
            kept = _after(*handed, before) | ((handed[0] == before[0]) & (handed[1] == before[1]))
        now = {name: column[~kept] for name, column in columns.items()}
        pair.waiting = [packed({name: column[kept] for name, column in columns.items()})] if kept.any() else []
        if not len(now["key"]):
            return
        self.tally.add(judge_order(names, [_folded(pair.highest), packed(now)]))
        pair.highest = max(pair.highest, *zip(now["position"].tolist(), now["position_minor"].tolist(), strict=True))
        pair.folded = max(pair.folded, *zip(now["handed"].tolist(), now["handed_minor"].tolist(), strict=True))


def _after(major: Ints, minor: Ints, place: Place) -> Flags:
    found: Flags = (major > place[0]) | ((major == place[0]) & (minor > place[1]))
    return found


def _folded(highest: Place) -> bytes:
    """One entry for all: before any other, and never told of."""
    fields = {"handed": [-1], "handed_minor": [-1], "position": [highest[0]], "position_minor": [highest[1]]}
    columns = {name: np.array(values, np.int64) for name, values in fields.items()}
    return packed(columns | {"vague": np.ones(1), "key": np.array([b""], KEY_TYPE), "life": np.zeros(1, np.int64)})
