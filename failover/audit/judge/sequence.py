"""The order in which a publisher published: the place of each delivery, comparable within one publisher.

The publisher's log decides, if it is whole. Else its homes decide, unless its epochs are not in the order of its
attaches. If a publisher came back with its kept state, its log lacks only the deliveries of the last moments of earlier
lives. Their homes show these deliveries, and they come after all deliveries that the log of that life has. Deliveries
that no home had received by then are in the kept state, in order.
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
"""Major and minor; the minor is `NONE` if the delivery has no place."""
BEHIND = 1 << 62
"""More than any place in a log. A place after the log adds its epoch and n, in 31 bits each: below 2 ** 63."""
N_BITS = 31
AGE_MS = 1 << 30
"""An epoch counts in ms from the beginning of its publisher's life, plus this, because a router's clock may be
behind."""


def order(facts: Facts, found: Deliveries, home_doubted: Flags, case: Case) -> Order:
    names = found.uses.publisher()
    whole, resumed = (np.isin(names, [name.encode() for name in known]) for known in (case.whole, case.resumed))
    by_log, by_home = (whole | resumed) & (found.published >= 0), ~(whole | resumed) & (found.ranked >= 0)
    by_home &= ~home_doubted  # an earlier place may be missing
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
    """The publisher's life in which a router received these, by the clock of one host, and their place after the log of
    that life; `NONE` if the log is whole."""
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
