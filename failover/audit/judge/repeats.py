"""Finds the deliveries that a subscriber processed more than once, and decides whether exactly once was promised.

The mesh promises only *at least once* in four cases (protocol 1, 10). Each repeat counts by its reason:

1. An attach of the subscriber began afresh between the two times.
2. The publisher uses settle mode first, and attached again.
3. A publisher without a timeout had ended for a router that lost contact with its home.
4. A router read an attach of the publisher late, and thereby ended a life that went on at another router.
"""

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from failover.audit.judge.kinds import AFRESH, ENDED, FIRST, LATE
from failover.audit.judge.testimony import Testimony
from failover.audit.mesh.attaches import Life
from failover.audit.mesh.clients import Client
from failover.audit.read.columns import NONE, Flags, Ints
from failover.audit.read.facts import taken
from topic.journal import Event

Rows = list[int]


class Repeats:
    """The deliveries that were processed more than once, as flags. There is one flag for each pair of a delivery and a
    subscriber."""

    def __init__(self, each: Testimony) -> None:
        repeated = _suspects(each)
        afresh = np.zeros(len(repeated), np.bool_)
        for pair, rows in _told(each, np.flatnonzero(repeated)):
            of = _witness(each, pair)
            repeated[pair] = of.repeats(rows)
            afresh[pair] = repeated[pair] and not any(map(of.repeats, of.links(rows)))
        by_publisher = with_weaker_promise(each, repeated)
        afresh &= ~np.logical_or.reduce([*by_publisher.values()])
        self.unpromised: Mapping[str, Flags] = {**by_publisher, AFRESH: afresh}
        """Maps each reason in `kinds.REPEATED` to flags of the pairs that were processed more than once for this
        reason."""
        self.duplicated: Flags = repeated & ~np.logical_or.reduce([*self.unpromised.values()])


def with_weaker_promise(each: Testimony, repeated: Flags) -> Mapping[str, Flags]:
    """Maps each reason in `kinds.REPEATED` that is about publishers to flags of the repeated pairs to which the reason
    applies."""
    first = repeated & _settled_first(each)
    ended = repeated & ~first & has_ended(each)
    late = repeated & ~first & ~ended & _given_up_late(each, repeated)
    return {FIRST: first, ENDED: ended, LATE: late}


def _suspects(each: Testimony) -> Flags:
    """Flags the pairs that may have been processed more than once.

    If the subscriber has logs of its own, they show this directly. Otherwise there are three signs in the logs of
    routers: a router sent the delivery after the subscriber had accepted it; routers sent the delivery several times;
    or the number of logged acceptances is above the number of routers that log an acceptance.
    """
    pairs, accepted, facts = each.pairs, each.pairs.edge_stamp >= 0, each.facts
    later = pairs.last_sent_hlc > taken(facts.rows.hlc, pairs.edge_stamp)
    later |= pairs.groups.count(facts.by_router & facts.flags_of(Event.DELIVERED)) > 1
    return np.where(each.own, pairs.own_count > 1, (accepted & later) | (pairs.edge_count > pairs.edges))


def _told(each: Testimony, pairs: Ints) -> Iterator[tuple[int, Rows]]:
    """Yields each of these pairs, with all rows about the sending of the delivery to the subscriber and about its
    acceptance. The rows are from the subscriber's own logs if it has any, otherwise from the logs of its routers."""
    if not len(pairs):
        return
    facts = each.facts
    tells = facts.accepted & facts.flags_of(Event.PROCESSED, Event.KEPT, Event.OUTCOME)
    place, rows = each.pairs.groups.all_told(tells | facts.flags_of(Event.DELIVERED), pairs)
    judged = np.where(each.own[pairs[place]], facts.by_subscriber[rows], facts.by_router[rows])
    for at, pair in enumerate(pairs.tolist()):
        yield pair, rows[judged & (place == at)].tolist()


class _Witness(ABC):
    """Decides from the entries of one kind of logs whether one subscriber processed one delivery more than once."""

    def __init__(self, each: Testimony, pair: int) -> None:
        self._facts, self._attaches = each.facts, each.case.attaches
        self._subscriber = each.pairs.names[each.pairs.subscriber[pair]]
        self._client = each.case.clients.subscribers[self._subscriber]

    def links(self, rows: Rows) -> list[Rows]:
        """Split the subscriber's rows into parts. Each attach that began afresh begins a new part."""
        found = defaultdict[int, Rows](list)
        for row in rows:
            found[self._begun(row)].append(row)
        return list(found.values())

    @abstractmethod
    def _begun(self, row: int) -> int:
        """How often the subscriber had begun afresh up to this row."""

    @abstractmethod
    def repeats(self, rows: Rows) -> bool:
        """Whether the rows show more than one acceptance."""


class _Itself(_Witness):
    """Decides by the subscriber's own logs whether the subscriber processed a delivery more than once."""

    def _begun(self, row: int) -> int:
        return self._attaches.begun_itself(
            self._subscriber, int(self._facts.incarnation[row]), int(self._facts.rows.place[row])
        )

    def repeats(self, rows: Rows) -> bool:
        """Whether the rows show more than one acceptance. If the state that an earlier life has left contains the
        delivery, this counts as one acceptance by that life."""
        event, life = self._facts.rows.event, self._facts.incarnation
        processed, kept = ([int(life[row]) for row in rows if event[row] == of] for of in (Event.PROCESSED, Event.KEPT))
        return len(processed) > 1 or bool(processed and kept and max(processed) >= min(kept))


class _Routers(_Witness):
    """Decides by the logs of the subscriber's routers whether the subscriber processed a delivery more than once."""

    def _begun(self, row: int) -> int:
        return self._attaches.begun(self._subscriber, self._attach(row))

    def repeats(self, rows: Rows) -> bool:
        """Whether the rows show more than one acceptance by the subscriber.

        They do in three cases: the subscriber accepted the delivery twice at one router; a router sent the delivery
        again in the attach in which the subscriber had accepted it; or the subscriber got and accepted the delivery
        again in a later attach. A delivery that a router only sends in a later attach does not count, because the
        client may have left that link. No clock orders the entries of two routers about one client. The epochs of the
        client's attaches order them, but only if the client echoes epochs.
        """
        facts, attaches, earlier = self._facts, defaultdict[Life, Rows](list), False
        is_ordered = not self._client.is_read_in_disorder
        for row in rows:
            attaches[self._attach(row)].append(row)
        for _, told in sorted(attaches.items()):
            sent = [row for row in told if facts.rows.event[row] == Event.DELIVERED]
            answers = [row for row in told if facts.rows.event[row] == Event.OUTCOME]
            again = bool(sent and answers) and max(map(self._when, sent)) > min(map(self._when, answers))
            if again or (earlier and sent and any(map(self._is_on_link, answers))):
                return True
            earlier |= bool(answers) and is_ordered
        on_link = Counter(int(facts.rows.log[row]) for row in rows if self._is_on_link(row))
        return max(on_link.values(), default=0) > 1

    def _when(self, row: int) -> tuple[int, int]:
        return int(self._facts.rows.hlc[row]), int(self._facts.rows.place[row])

    def _is_on_link(self, row: int) -> bool:
        rows = self._facts.rows
        return bool(rows.event[row] == Event.OUTCOME and rows.detail[row] == NONE)

    def _attach(self, row: int) -> Life:
        rows = self._facts.rows
        log, place = rows.logs[rows.log[row]].name, int(rows.place[row])
        by_map = bool(rows.event[row] == Event.OUTCOME) and not self._is_on_link(row)
        return self._attaches.at(log, self._subscriber, place, by_map=by_map)


class _OfIngress(_Routers):
    """Decides by the logs of routers about the ingress of a replica set. The set keeps each answer, and the next leader
    gives the same answer again (protocol 14.3). So a delivery counts as repeated only if it is accepted twice in one
    attach."""

    def repeats(self, rows: Rows) -> bool:
        attaches = defaultdict[Life, Rows](list)
        for row in rows:
            attaches[self._attach(row)].append(row)
        return any(map(super().repeats, attaches.values()))


def _witness(each: Testimony, pair: int) -> _Witness:
    if each.own[pair]:
        return _Itself(each, pair)
    client = each.case.clients.subscribers[each.pairs.names[each.pairs.subscriber[pair]]]
    return _OfIngress(each, pair) if client.is_ingress else _Routers(each, pair)


def _settled_first(each: Testimony) -> Flags:
    """Flags the pairs whose publisher has ever used settle mode first, if homes received the delivery in several
    epochs."""
    facts = each.facts
    received = facts.at_home & facts.flags_of(Event.RECEIVED)
    found: Flags = (each.deliveries.groups.distinct(received, facts.rows.epoch) > 1)[each.at]
    return found & _published_by(each, lambda publisher: publisher.settles_first)


def sent_anew(each: Testimony) -> Flags:
    """Flags the pairs whose publisher uses settle mode first, and attached again after a home had answered the
    delivery.

    In this mode the answer also settles the delivery. If the publisher has not read the answer, it transfers the
    delivery again, and the next home takes this for a new delivery.
    """
    facts, deliveries = each.facts, each.deliveries
    answered = deliveries.groups.lowest(facts.at_home & facts.flags_of(Event.ACCEPTED), facts.epoch_hlc)
    found: Flags = (answered < deliveries.sent_last)[each.at]
    return found & _published_by(each, lambda publisher: publisher.settles_first)


def has_ended(each: Testimony) -> Flags:
    """Flags the pairs in which a router other than the home abandoned the delivery, and the publisher has no timeout.
    For this router, the publisher's link had ended."""
    facts = each.facts
    given_up = facts.by_router & facts.flags_of(Event.ABANDONED) & (facts.rows.peer != NONE)
    found: Flags = each.deliveries.groups.any(given_up)[each.at]
    return found & _published_by(each, lambda publisher: not publisher.timeout_s)


def _given_up_late(each: Testimony, repeated: Flags) -> Flags:
    """Flags the repeated pairs whose delivery a router abandoned because it read an attach of the publisher late.

    The router took this attach for the beginning of another life, although the former life went on. The sign: in a
    later attach, a home received the delivery, and this attach does not belong to the other life.
    """
    facts, rows, deliveries = each.facts, each.facts.rows, each.deliveries
    given_up = facts.by_router & facts.flags_of(Event.ABANDONED) & (rows.detail != NONE)
    given_up &= facts.epoch_hlc < deliveries.sent_last[deliveries.uses.of]
    given_up &= np.isin(deliveries.uses.of, each.at[repeated])
    publisher, found = deliveries.uses.publisher(), np.zeros(len(deliveries.uses.key), np.bool_)
    for row in np.flatnonzero(given_up).tolist():
        delivery = deliveries.uses.of[row]
        client = each.case.clients.publishers.get(publisher[delivery].decode())
        lives = {} if client is None else client.generations
        found[delivery] |= lives.get(int(deliveries.sent_last[delivery])) != rows.strings[rows.detail[row]]
    return found[each.at]


def _published_by(each: Testimony, such: Callable[[Client], bool]) -> Flags:
    names = [name.encode() for name, client in each.case.clients.publishers.items() if such(client)]
    found: Flags = np.isin(each.deliveries.uses.publisher(), names)[each.at]
    return found
