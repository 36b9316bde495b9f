"""Compares wall clocks by deliveries: a message arrives after it was sent, and its answer arrives after it was given.

    its router     ──●────────────●──
                      ╲          ╱         by one clock: sent before it came, answered before the answer was read
    a client       ────●────────●────

If, by the two clocks, a message or an answer arrived before it was sent, either the clocks disagree or a log is wrong.
Two durations show which of these is the case, and one clock measures each duration: how long the sender waited for the
answer, and how long the receiver took to answer. If the sender waited at least as long as the receiver took, the clocks
disagree. Otherwise a log is wrong. A message and its answer are an *exchange*.
"""

from collections import defaultdict
from collections.abc import Iterator

import attrs
import numpy as np

from failover.audit.mesh.clocks import SKEW_US, Disagreement
from failover.audit.read.columns import NONE, Ints, Rows
from failover.audit.read.facts import Facts, Groups, by_key, taken
from topic.journal import Event

LEAST = 3
"""A disagreement counts only if at least this number of exchanges show it."""


@attrs.frozen
class _Exchanges:
    """The four rows of each exchange: the message was sent, it arrived, it was answered, the answer arrived. There is
    one exchange for each delivery (and subscriber); `NONE` stands for a missing row."""

    asked: Ints
    came: Ints
    answered: Ints
    heard: Ints


def disagreements(rows: Rows) -> list[Disagreement]:
    """The pairs of logs whose clocks disagree, each with the largest difference that an exchange shows."""
    facts = Facts(rows)
    of, keys = by_key(rows.key)
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    groups = Groups(of, len(keys))
    publishers, subscribers = _of_publishers(facts, groups), _of_subscribers(facts, of)
    through = (*_of_routers(facts, groups, publishers), *_of_audiences(facts, of, publishers, subscribers))
    for told in (publishers, subscribers, *through):
        for pair, apart_us in _apart(facts, told):
            found[pair].append(apart_us)
    return [Disagreement(*pair, max(us, key=abs)) for pair, us in sorted(found.items()) if len(us) >= LEAST]


def _of_publishers(facts: Facts, groups: Groups) -> _Exchanges:
    rows = facts.rows
    own, home = (rows.log, rows.place), (rows.hlc, rows.log, rows.place)
    return _Exchanges(
        groups.first(facts.by_publisher & facts.flags_of(Event.PUBLISHED), *own),
        groups.first(facts.at_home & facts.flags_of(Event.RECEIVED), *home),
        groups.first(facts.at_home & facts.flags_of(Event.ACCEPTED), *home),
        groups.first(facts.by_publisher & facts.flags_of(Event.OUTCOME), *own),
    )


def _of_subscribers(facts: Facts, of: Ints) -> _Exchanges:
    rows = facts.rows
    pairs, pair = np.unique(of * (len(rows.strings) + 1) + rows.subscriber + 1, return_inverse=True)
    groups, own, router = Groups(pair.astype(np.int64), len(pairs)), (rows.log, rows.place), (rows.hlc, rows.place)
    answered = facts.by_router & facts.flags_of(Event.OUTCOME) & (rows.detail == NONE)
    return _Exchanges(
        groups.first(facts.by_router & facts.flags_of(Event.DELIVERED), *router),
        groups.first(facts.by_subscriber & facts.flags_of(Event.DELIVERED), *own),
        groups.first(facts.by_subscriber & facts.flags_of(Event.PROCESSED), *own),
        groups.first(answered, *router),
    )


def _of_routers(facts: Facts, groups: Groups, publishers: _Exchanges) -> Iterator[_Exchanges]:
    """Yields the exchanges of the home with the routers of subscribers, then the exchanges of publishers with these
    routers. The second kind goes through the home, and is there because the home's own clock may be wrong. An exchange
    counts only if the router got its subscriber's acceptance before the home accepted."""
    rows, number = facts.rows, len(facts.rows.logs)
    pairs, pair = np.unique(groups.of * number + rows.log, return_inverse=True)
    here, of = Groups(pair.astype(np.int64), len(pairs)), pairs // max(number, 1)
    asked, heard, own = publishers.came[of], publishers.answered[of], (rows.hlc, rows.place)
    came = here.first(facts.by_router & ~facts.at_home & facts.flags_of(Event.RECEIVED), *own)
    answered = here.first(
        facts.by_router & facts.flags_of(Event.OUTCOME) & facts.accepted & (rows.detail == NONE), *own
    )
    same = (taken(rows.epoch, asked) == taken(rows.epoch, came)) & (taken(rows.hlc, answered) < taken(rows.hlc, heard))
    came = np.where(same, came, NONE)
    yield _Exchanges(asked, came, answered, heard)
    yield _Exchanges(publishers.asked[of], came, answered, publishers.heard[of])


def _of_audiences(facts: Facts, of: Ints, publishers: _Exchanges, subscribers: _Exchanges) -> Iterator[_Exchanges]:
    """Yields the exchanges in which a publisher asked a subscriber, and the exchanges in which a home asked a
    subscriber. An exchange counts if the subscriber's router waited for the acceptance, and got it before the home
    accepted.

    A comparison with this router alone does not suffice, because the router's clock may be wrong. Exchanges on one host
    are left out: if one clock shows that the home accepted too early, this is a violation and not a wrong clock.
    """
    time, hlc, host = facts.rows.time, facts.rows.hlc, facts.host
    told = np.logical_and.reduce([rows >= 0 for rows in attrs.astuple(subscribers)])
    sent, came, answered, heard = (rows[told] for rows in attrs.astuple(subscribers))
    waited = facts.rows.log[sent] == facts.rows.log[heard]
    waited &= time[heard] - time[sent] >= time[answered] - time[came]
    waited &= facts.accepted[answered] & facts.accepted[heard]
    waited &= hlc[heard] < taken(hlc, publishers.answered[of[came]])
    came, answered = came[waited], answered[waited]
    for asked, known in ((publishers.asked, publishers.heard), (publishers.came, publishers.answered)):
        elsewhere = taken(host, asked[of[came]]) != host[came]
        yield _Exchanges(asked[of[came]], np.where(elsewhere, came, NONE), answered, known[of[came]])


def _apart(facts: Facts, told: _Exchanges) -> Iterator[tuple[tuple[str, str], int]]:
    """Yields the two logs of each exchange that shows a disagreement, and by how many µs, at least, the second clock is
    ahead."""
    log, time = facts.rows.log, facts.rows.time
    each = (told.asked, told.came, told.answered, told.heard)
    whole = np.logical_and.reduce([rows >= 0 for rows in each])
    whole &= (taken(log, told.asked) == taken(log, told.heard)) & (taken(log, told.came) == taken(log, told.answered))
    asked, came, answered, heard = (rows[whole] for rows in each)
    there, back = time[came] - time[asked], time[heard] - time[answered]
    host = facts.host
    slack = np.where((host[asked] == host[came]) & (host[asked] != NONE), 0, SKEW_US)
    behind, ahead = there < -slack, back < -slack
    honest = there + back >= 0
    apart = np.where(honest & behind, there, np.where(honest & ahead, -back, 0))
    names = [name.name for name in facts.rows.logs]
    for one, other, us in zip(log[asked].tolist(), log[came].tolist(), apart.tolist(), strict=True):
        if us:
            yield (names[one], names[other]), us
