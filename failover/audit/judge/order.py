"""Judges whether a subscriber got the deliveries of a publisher in order. This happens after all buckets are judged.

Each bucket packs two places for each delivery: its place in the order in which the subscriber got the deliveries, and
its place in the publisher's order. This module joins the packed columns of all buckets for each publisher and
subscriber.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgpack
import numpy as np

from failover.audit.judge.deliveries import Deliveries
from failover.audit.judge.kinds import FINDINGS_KEPT
from failover.audit.judge.pairs import Pairs
from failover.audit.judge.publishers import Fates
from failover.audit.judge.subscribers import SubscriberVerdicts
from failover.audit.judge.tally import Tally, Violation
from failover.audit.read.columns import KEY_TYPE, NONE, Flags, Ints, Texts

KIND = "out of order"
TYPES = {"handed": "i8", "handed_minor": "i8", "position": "i8", "position_minor": "i8", "vague": "i1"}
RIGHTLY, UNKNOWN = 1, 2
"""The values of the column `vague`. With `RIGHTLY`, there is a good reason for which the delivery may come late. With
`UNKNOWN`, a log lacks its end and may have lost such a reason. With 0, the delivery must not come late."""
KEYS = {"key": KEY_TYPE, "life": "i8"}


def pack_order(found: Deliveries, fates: Fates, pairs: Pairs, of: SubscriberVerdicts) -> Iterator[tuple[str, bytes]]:
    """Yields each pair of publisher and subscriber, with the packed columns of the deliveries that the subscriber got.

    Two kinds of deliveries are left out: deliveries without a known place in the publisher's order, and abandoned
    deliveries that no home accepted.
    """
    placed = (fates.position[1] != NONE) & ~(found.abandoned & ~fates.is_accepted)
    at = np.flatnonzero((of.handed[1] != NONE) & placed[pairs.delivery])
    delivery = pairs.delivery[at]
    columns: dict[str, Any] = {
        "handed": of.handed[0][at],
        "handed_minor": of.handed[1][at],
        "position": fates.position[0][delivery],
        "position_minor": fates.position[1][delivery],
        "vague": np.where(of.vague[at] | of.unordered[at], RIGHTLY, np.where(of.unsure[at], UNKNOWN, 0)),
        "key": found.uses.key[delivery],
        "life": found.uses.number[delivery],
    }
    publishers, publisher = np.unique(found.uses.publisher()[delivery], return_inverse=True)
    both = publisher * len(pairs.names) + pairs.subscriber[at]
    for one in np.unique(both).tolist():
        names = publishers[one // len(pairs.names)].decode(), pairs.names[one % len(pairs.names)]
        chosen = both == one
        yield " ".join(names), packed({name: column[chosen] for name, column in columns.items()})


def packed(columns: Mapping[str, Any]) -> bytes:
    found: bytes = msgpack.packb({name: columns[name].astype(kind).tobytes() for name, kind in (TYPES | KEYS).items()})
    return found


def judge_order(names: str, parts: Iterable[bytes]) -> Tally:
    """Judge the order of one publisher's deliveries to one subscriber. Returns the counts and the first findings."""
    keys, lives, unknown = overtaken(parts)
    publisher, subscriber = names.split(" ")
    tally = Tally()
    tally.pairs[publisher, subscriber, KIND] = len(keys)
    tally.pairs[publisher, subscriber, "unplaced"] = unknown
    if len(keys):
        tally.violations[KIND] = len(keys)
        lowest = np.lexsort((lives, keys))[:FINDINGS_KEPT]
        found = zip(keys[lowest].tolist(), lives[lowest].tolist(), strict=True)
        tally.keep(KIND, [Violation(key.decode(), life, "", publisher, (subscriber,)) for key, life in found])
    return tally


def overtaken(parts: Iterable[bytes]) -> tuple[Texts, Ints, int]:
    """Find the deliveries that the subscriber first got after it had got a later delivery of the same publisher.
    Returns their keys, the numbers of the keys' uses (`uses.Uses.number`), and for how many deliveries this is
    uncertain."""
    columns = unpacked(parts)
    handed = np.lexsort((columns["handed_minor"], columns["handed"]))
    place = _ranks(columns["position"], columns["position_minor"])[handed]
    late = handed[place < np.maximum.accumulate(place)]
    vague = columns["vague"][late]
    found = late[vague == 0]
    return columns["key"][found], columns["life"][found], int((vague == UNKNOWN).sum())


def unpacked(parts: Iterable[bytes]) -> dict[str, Any]:
    read = [msgpack.unpackb(part) for part in parts]
    return {
        name: np.concatenate([np.frombuffer(fields[name], kind) for fields in read])
        for name, kind in (TYPES | KEYS).items()
    }


def _ranks(major: Ints, minor: Ints) -> Ints:
    """The rank of each element among all elements. Equal elements have the same rank."""
    order = np.lexsort((minor, major))
    new: Flags = np.ones(len(order), np.bool_)
    new[1:] = (np.diff(major[order]) != 0) | (np.diff(minor[order]) != 0)
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum(new)
    return ranks
