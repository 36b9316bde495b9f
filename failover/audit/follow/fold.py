"""Judges the order of deliveries step by step, for a continuous audit. It keeps only the highest place of the judged
deliveries.

A delivery is *folded* if the subscriber got it before all deliveries that the audit has not judged yet. Its order is
judged, and then one entry with the highest place replaces all folded deliveries. A delivery is *unplaced* if the
subscriber got it before the last folded delivery, and the audit reads its entries only after the folding. The audit
then does not know whether the delivery came in order.
"""

from collections.abc import Mapping

import attrs
import numpy as np

from failover.audit.judge.order import judge_order, packed, unpacked
from failover.audit.judge.tally import Tally
from failover.audit.read.columns import KEY_TYPE, Flags, Ints

Place = tuple[int, int]
"""A place in an order, as a major and a minor number."""
NOWHERE: Place = (-1, -1)
Who = tuple[bytes, int]
"""A delivery, named by its key and by the number of the key's use."""


@attrs.define(slots=True)
class _Pair:
    """The deliveries of one publisher to one subscriber."""

    highest: Place = NOWHERE
    """The highest place in the publisher's order that any folded delivery has."""
    folded: Place = NOWHERE
    """The place of the last folded delivery, in the order in which the subscriber got them."""
    waiting: list[bytes] = attrs.field(factory=list)


class OrderFold:
    def __init__(self) -> None:
        self.tally = Tally()
        self._pairs: dict[str, _Pair] = {}
        self._told: dict[str, set[Who]] = {}
        """Maps each pair to the deliveries that `add` has taken and that the follower still keeps. The follower passes
        such a delivery to `add` again at each step, and `add` skips it."""

    def add(self, names: str, part: bytes) -> None:
        """Add the packed deliveries of a publisher and subscriber (`judge.order.pack_order`). Deliveries that were
        added before are skipped."""
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
        """Forget these deliveries, because the follower will not pass them to `add` again."""
        for known in self._told.values():
            known -= left

    def fold(self, before: Mapping[str, Place]) -> None:
        """Judge and fold the deliveries that the subscriber got before the place `before[pair]`.

        The deliveries after this place stay, because the rows of earlier deliveries may still come, and the order of
        all of them has to be judged together. If `before` lacks a pair, no more deliveries of that pair can come, so
        all its deliveries are folded.
        """
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
    """Pack one entry that replaces all folded deliveries. The entry has their highest place in the publisher's order.
    It counts as the first delivery that the subscriber got, so that every later delivery is compared with it. Reports
    do not name it."""
    fields = {"handed": [-1], "handed_minor": [-1], "position": [highest[0]], "position_minor": [highest[1]]}
    columns = {name: np.array(values, np.int64) for name, values in fields.items()}
    return packed(columns | {"vague": np.ones(1), "key": np.array([b""], KEY_TYPE), "life": np.zeros(1, np.int64)})
