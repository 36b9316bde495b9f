"""Finds the order in which a publisher published. The result is a place for each delivery; places of one publisher can
be compared.

If the publisher's log is whole, the log decides. Otherwise the logs of its homes decide. If the epochs of the publisher
are not in the order of its attaches, the places are unknown.

If a publisher came back with its state file, its log lacks only the deliveries of the last moments of an earlier life.
The logs of homes show the lost deliveries, and their places are behind all deliveries in the log of that life. The
state file names, in order, the deliveries that no home had received when the life ended.
"""

import numpy as np

from failover.audit.judge.deliveries import Deliveries
from failover.audit.mesh.case import Case
from failover.audit.mesh.clients import Client
from failover.audit.mesh.clocks import COUNTER_BITS
from failover.audit.read.columns import NONE, Flags, Ints
from failover.audit.read.facts import Facts, taken
from topic.journal import Event

Order = tuple[Ints, Ints]
"""The place of each delivery, as a major and a minor number; the minor number is `NONE` if the place is unknown."""
BEHIND = 1 << 62
"""A number above all places in a log. A delivery that is missing at the end of the publisher's log gets this number
plus 62 bits as its minor number: 31 bits for the epoch, 31 bits for `n`. So a minor number stays below 2 ** 63."""
N_BITS = 31
AGE_MS = 1 << 30
"""A number that is added to the epoch in a minor number above `BEHIND`. The epoch is counted in ms from the start of
the publisher's process. Without the addition, the count would be negative if the router's clock is behind the clock of
the process."""


def order(facts: Facts, found: Deliveries, home_doubted: Flags, case: Case) -> Order:
    names = found.uses.publisher()
    whole, resumed = (np.isin(names, [name.encode() for name in known]) for known in (case.whole, case.resumed))
    by_log, by_home = (whole | resumed) & (found.published >= 0), ~(whole | resumed) & (found.ranked >= 0)
    by_home &= ~home_doubted  # the home's log may have lost an entry with an earlier place
    clients = case.clients.publishers.values()
    by_home &= ~np.isin(names, [client.name.encode() for client in clients if client.is_disordered])
    major = np.where(by_log, taken(facts.incarnation, found.published), taken(facts.epoch_hlc, found.ranked))
    minor = np.where(by_log, taken(facts.rows.place, found.published), taken(facts.rows.n, found.ranked))
    known = by_log | by_home
    unsent = (taken(facts.rows.event, found.published) != Event.PUBLISHED) & (found.ranked >= 0)
    for name in case.resumed:
        at = np.flatnonzero((names == name.encode()) & unsent)
        life, behind = _behind(facts, found.ranked[at], case.clients.publishers[name])
        kept = taken(facts.incarnation, found.published[at])
        placed = (behind != NONE) & ((kept == NONE) | (life < kept))
        major[at[placed]], minor[at[placed]], known[at[placed]] = life[placed], behind[placed], True
    known &= found.uses.sure
    return np.where(known, major, NONE), np.where(known, minor, NONE)


def _behind(facts: Facts, ranked: Ints, client: Client) -> tuple[Ints, Ints]:
    """Return two numbers for each delivery: the life of the publisher's process in which a router received the
    delivery; and the delivery's minor number, if the log of this life has ended without the delivery.

    The minor number is `NONE` in three cases: the log is whole; the logs do not show that router and publisher ran on
    the same host; or the epoch or `n` has too many bits.
    """
    logs = client.logs_in_order
    lives = np.array([log.incarnation for log in logs], np.int64)
    at = np.searchsorted([log.first_time for log in logs], facts.rows.time[ranked], side="right") - 1
    hosts = np.array([log.host for log in facts.rows.logs])[facts.rows.log[ranked]]
    broken: Flags = ~np.array([log.whole for log in logs])[at] & (at >= 0)
    age = (facts.epoch_hlc[ranked] >> COUNTER_BITS) - lives[at] + AGE_MS
    n = facts.rows.n[ranked]
    placed = broken & (hosts == np.array([log.host for log in logs])[at]) & (hosts != "")
    placed &= (age >= 0) & (age < 2 * AGE_MS) & (n < 1 << N_BITS)
    return lives[at], np.where(placed, BEHIND + (np.where(placed, age, 0) << N_BITS) + n, NONE)
