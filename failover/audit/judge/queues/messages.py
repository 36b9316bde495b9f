"""Judges the messages of queues (protocol 14). It compares what replicas log about messages with what homes and clients
log about the deliveries that bring messages to queues and take them to consumers.

Each replica logs the changes of messages when it applies the log of its set, and all replicas apply the same entries.
So an entry of one replica is enough. A replica without the entry may just be behind.
"""

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Final

import attrs
import numpy as np

from failover.audit.judge.kinds import REPLICAS, Violating, concluded
from failover.audit.judge.queues.passages import Passage, passages, unstored
from failover.audit.judge.repeats import with_weaker_promise
from failover.audit.judge.testimony import Testimony
from failover.audit.mesh.case import Case
from failover.audit.mesh.clients import Client
from failover.audit.read.columns import NONE, Flags, Ints, Rows, Texts, chosen
from failover.audit.read.entries import OF_MESSAGES
from failover.audit.read.facts import BIG, Groups, by_key, codes_of
from topic.identity import INSIDE, egress_address, queue_of
from topic.journal import Event, LoggedOutcome
from topic.queues.logged.message_log import MessageEnd

ANSWERED: Final = (LoggedOutcome.ACCEPTED, LoggedOutcome.REJECTED)
"""The outcomes with which a consumer ends a message."""


def apart(rows: Rows) -> tuple[Rows, Rows]:
    """Splits rows into the rows about deliveries, and the rows of replicas about messages."""
    of_messages = np.isin(rows.event, OF_MESSAGES)
    return chosen(rows, ~of_messages), chosen(rows, of_messages)


@attrs.frozen
class Messages:
    """The messages that queues have or had. Each column has one element for each delivery key and queue."""

    groups: Groups
    rows: Rows
    key: Texts
    address: Ints
    """The address of the egress of the message's queue, as a code."""
    delivery: Ints
    """The first delivery with this key; `NONE` if no delivery has it, but only replicas log it."""
    uses: Ints
    """The number of deliveries that had this key."""
    judged: Flags
    """Whether `uses` is certain, and no operator has recovered the set."""

    def has_event(self, *events: Event) -> Flags:
        found: Flags = np.isin(self.rows.event, [int(event) for event in events])
        return found

    def left(self, *why: MessageEnd) -> Flags:
        """Flags the rows in which messages have left their queue for one of these reasons."""
        codes = codes_of([each.value for each in why], self.rows.strings)
        found: Flags = self.has_event(Event.LEFT) & np.isin(self.rows.detail, codes[codes != NONE])
        return found


def _messages(told: Rows, each: Testimony) -> Messages:
    uses = each.deliveries.uses
    of, keys = by_key(told.key)
    number = len(told.strings) + 1
    distinct, group = np.unique(of * number + told.address + 1, return_inverse=True)
    key, address = keys[distinct // number], distinct % number - 1
    sorter = np.argsort(uses.key, kind="stable")
    start, end = (np.searchsorted(uses.key, key, side, sorter=sorter) for side in ("left", "right"))
    first = np.append(sorter, NONE)[np.where(end > start, start, len(sorter))]
    recovered = [INSIDE + set_ + "/" for set_ in each.case.recovered]
    certain = np.array([not text.startswith(tuple(recovered)) for text in told.strings] + [False], np.bool_)
    return Messages(
        Groups(group.astype(np.int64), len(distinct)),
        told,
        key,
        address,
        delivery=first,
        uses=np.maximum(end - start, 1),
        judged=certain[address] & np.append(uses.sure, True)[first],
    )


@attrs.frozen
class QueueVerdicts:
    """The verdicts on the messages of one bucket."""

    messages: Messages
    accepted: Violating
    """The violations about deliveries. For each kind of violation, an array has one flag for each delivery."""
    unknown: Flags
    """Flags the deliveries for which it is unknown whether a queue got them."""
    violations: Violating
    """The violations about messages of queues. For each kind of violation, an array has one flag for each message."""
    repeated: Mapping[str, Flags]
    """Maps each reason in `kinds.REPEATED` to flags of the pairs (a delivery and an ingress) whose message was enqueued
    more than once for this reason."""
    passed: Mapping[tuple[str, str], Passage]
    """Maps each log and set to the growth of the set's queues by this log: the messages that came, minus the messages
    that left (`Passage`)."""
    unstored: Counter[tuple[str, str]]
    """Three sums for each set, as `passages.unstored` returns them. One is the number of messages that the queues
    should still have, but that no store has."""

    def counts(self) -> Counter[tuple[str, str]]:
        """The numbers of messages, keyed by the address of the queue's egress and by the name of the count. The counts
        are `enqueued`, `returned` and each `MessageEnd`."""
        of, found = self.messages, Counter[tuple[str, str]]()
        flags = {why.value: of.groups.any(of.left(why)) for why in MessageEnd}
        numbers = {name: flag.astype(np.int64) for name, flag in flags.items()}
        numbers["returned"] = of.groups.any(of.has_event(Event.RETURNED)).astype(np.int64)
        numbers["enqueued"] = of.groups.distinct(of.has_event(Event.ENQUEUED), of.rows.n)
        known = of.address != NONE
        for what, number in numbers.items():
            sums = np.bincount(of.address[known], number[known])
            for code in np.flatnonzero(sums).tolist():
                found[of.rows.strings[code], what] += int(sums[code])
        return found


def judge_queues(told: Rows, each: Testimony) -> QueueVerdicts:
    of = _messages(told, each)
    accepted, unknown = concluded({"never enqueued": never_enqueued(of, each)}, partial(_lacking, each.case, each))
    twice = enqueued_twice(of)
    again = _by_ingress(each) & np.isin(each.at, of.delivery[twice])
    excused = with_weaker_promise(each, again)
    twice &= ~np.isin(of.delivery, each.at[np.logical_or.reduce([*excused.values()])])
    return QueueVerdicts(
        of,
        accepted,
        unknown,
        {
            "enqueued twice": twice,
            "gone without a consumer": gone_without_a_consumer(of, each),
            "given back though processed": given_back_though_processed(of, each),
        },
        excused,
        passages(told, each.case.contents),
        unstored(told, each.case.at_rest),
    )


def _lacking(case: Case, each: Testimony, logs: str) -> Flags:
    assert logs == REPLICAS
    return np.full(len(each.deliveries.uses.key), bool(case.open_homes or case.cut))


def _by_ingress(each: Testimony) -> Flags:
    """The pairs whose subscriber is the ingress of a set, or the subscriber of a binding."""
    codes = [code for code, client in each.clients if client is not None and client.is_ingress]
    found: Flags = np.isin(each.pairs.subscriber, codes)
    return found


def never_enqueued(of: Messages, each: Testimony) -> Flags:
    """Flags the deliveries that an ingress accepted too early: no replica logs that their queue has them, or the leader
    accepted them before its own replica logged this."""
    facts, rows = each.facts, each.facts.rows
    codes = np.unique(each.pairs.subscriber[_by_ingress(each)])
    answered = facts.by_router & facts.flags_of(Event.OUTCOME) & facts.accepted & (rows.detail == NONE)
    at = np.flatnonzero(answered & np.isin(rows.subscriber, codes) & each.deliveries.uses.sure[each.deliveries.uses.of])
    delivery = each.deliveries.uses.of[at]
    queue = _queues(rows.subscriber[at].astype(np.int64), each.deliveries.address[delivery], each)
    message = _find(of, each.deliveries.uses.key[delivery], queue)
    enqueued = of.has_event(Event.ENQUEUED)
    has = np.append(of.groups.any(enqueued), False)[message]
    here = Groups(of.groups.of * (len(rows.logs) + 1) + of.rows.log, of.groups.number * (len(rows.logs) + 1))
    first = np.append(here.lowest(enqueued, of.rows.place), BIG)
    own = np.where(message == NONE, len(first) - 1, message * (len(rows.logs) + 1) + rows.log[at])
    too_early = (first[own] != BIG) & (first[own] > rows.place[at])
    certain = (queue != NONE) & np.append(of.judged, True)[message]
    found = np.zeros(len(each.deliveries.uses.key), np.bool_)
    found[delivery[certain & (~has | too_early)]] = True
    return found


def _queues(subscriber: Ints, address: Ints, each: Testimony) -> Ints:
    """For each pair of an ingress and an address, the queue into which the ingress puts deliveries of this address. A
    queue is given by the code of the address of its egress. `NONE` if the queue is unknown. If no row names the queue,
    the result is the number of all strings; no string has this code."""
    strings, clients = each.facts.rows.strings, dict(each.clients)
    known = {text: code for code, text in enumerate(strings)}
    number = len(strings) + 1
    distinct, which = np.unique(subscriber * number + address + 1, return_inverse=True)
    found = []
    for one in distinct.tolist():
        client, code = clients[one // number], one % number - 1
        assert client is not None
        queue = _queue_of(client, strings[code] if code != NONE else "")
        found.append(known.get(queue, len(strings)) if queue else NONE)
    return np.array(found, np.int64)[which]


def _queue_of(client: Client, address: str) -> str:
    """The address of the egress of the queue into which the ingress puts a delivery of this address; empty if the queue
    is unknown."""
    if client.bound is not None:
        return egress_address(*client.bound)
    return egress_address(*queue_of(address)) if address.startswith(INSIDE) else ""


def _find(of: Messages, key: Texts, address: Ints) -> Ints:
    """For each key and queue, the index of the message with this key in this queue; `NONE` if no replica logs such a
    message."""
    if not len(of.key):
        return np.full(len(key), NONE, np.int64)
    _, group = np.unique(np.concatenate([of.key, key]), return_inverse=True)
    number = len(of.rows.strings) + 2
    known = group[: len(of.key)] * number + of.address + 1
    asked = group[len(of.key) :] * number + address + 1
    sorter = np.argsort(known, kind="stable")
    place = np.minimum(np.searchsorted(known, asked, sorter=sorter), len(known) - 1)
    found: Ints = np.where(known[sorter[place]] == asked, sorter[place], NONE)
    return found


def enqueued_twice(of: Messages) -> Flags:
    """Flags the messages that are at more positions of their queue than there are deliveries with their key."""
    found: Flags = of.judged & (of.groups.distinct(of.has_event(Event.ENQUEUED), of.rows.n) > of.uses)
    return found


def gone_without_a_consumer(of: Messages, each: Testimony) -> Flags:
    """Flags the messages that left their queue as accepted or rejected, although no home of their delivery logs that a
    consumer answered so."""
    facts = each.facts
    answered = facts.at_home & facts.flags_of(Event.ACCEPTED) & np.isin(facts.rows.outcome, ANSWERED)
    # If a key has several uses, a consumer's answer to any of them counts.
    has_answer = np.isin(of.key, each.deliveries.uses.key[each.deliveries.groups.any(answered)])
    is_open = bool(each.case.open_homes or each.case.cut)
    doubted = np.append(each.fates.home_doubted | is_open, is_open)[of.delivery]
    found: Flags = of.judged & of.groups.any(of.left(MessageEnd.DEQUEUED)) & ~has_answer & ~doubted
    return found


def given_back_though_processed(of: Messages, each: Testimony) -> Flags:
    """Flags the messages that a consumer with a timeout had processed, and that then came back to their queue, expired
    or were purged before the consumer's link had ended."""
    taken_back = of.has_event(Event.RETURNED) | of.left(MessageEnd.EXPIRED, MessageEnd.PURGED)
    when = of.groups.highest(taken_back, of.rows.hlc)
    at = np.full(len(each.deliveries.uses.key), NONE, np.int64)
    known = of.judged & (of.delivery != NONE)
    at[of.delivery[known]] = when[known]
    lasting = np.zeros(len(each.at), np.bool_)
    for code, client in each.clients:
        if client is None or not client.timeout_s or client.mode != "second":
            continue
        pairs = each.pairs_of(code)
        ended = np.zeros(len(pairs), np.bool_)
        for _, ending, _ in client.closings:
            ended |= (each.pairs.last_sent_hlc[pairs] <= ending) & (ending <= at[each.at[pairs]])
        lasting[pairs] = each.taken[pairs] & ~ended & (at[each.at[pairs]] != NONE)
    processed = np.zeros(len(at) + 1, np.bool_)
    processed[each.at[lasting & ~each.doubted]] = True
    found: Flags = of.judged & processed[of.delivery] & (of.delivery != NONE) & (when != NONE)
    return found
