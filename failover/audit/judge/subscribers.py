"""Judges each pair of a delivery and a subscriber, with one function for each kind of violation. Also judges each
delivery of a balanced address, which only one subscriber gets.

`order` judges the order of a publisher's deliveries to a subscriber, after all buckets.
"""

from collections.abc import Mapping

import attrs
import numpy as np

from failover.audit.judge.kinds import EDGE, HOME, Violating, concluded
from failover.audit.judge.owed import Owed, by_reason, ended
from failover.audit.judge.repeats import Repeats, has_ended, sent_anew
from failover.audit.judge.sequence import Order
from failover.audit.judge.testimony import Testimony
from failover.audit.mesh.clocks import SET_BACK_US
from failover.audit.read.columns import NONE, Flags, Ints
from failover.audit.read.facts import BIG, taken
from topic.journal import Event

SECOND = "second"


@attrs.frozen
class SubscriberVerdicts:
    """The verdicts on pairs. Each column has one flag for each pair."""

    violations: Violating
    owed: Flags
    taken: Flags
    unknown: Flags
    unplaced: Flags
    """Whether it is unknown if the delivery came to the subscriber in order."""
    handed: Order
    vague: Flags
    """Whether the audit concludes nothing about the pair, because the evidence is incomplete."""
    unordered: Flags
    """Whether there is a good reason for which the delivery may come late: a filter left it out at first; another
    subscriber had it before; a router had given it up; its publisher sent it anew; or no attach shows in which order
    routers sent it."""
    unsure: Flags
    """Whether a log that lacks its end may have lost the reason for which the delivery came late."""
    timely: Flags
    """Whether the subscriber certainly answered the delivery before the publisher read an answer."""
    repeated: Mapping[str, Flags]
    """Maps each reason in `kinds.REPEATED` to flags of the pairs that were processed more than once although no promise
    was broken."""
    unowed: Mapping[str, Flags]
    """Maps each reason in `kinds.UNOWED` to flags of the pairs that were processed although they were not owed."""
    unprocessed: Mapping[str, Flags]
    """Maps each reason in `kinds.UNPROCESSED` to flags of the pairs that were owed and not processed."""


def judge_subscribers(each: Testimony) -> SubscriberVerdicts:
    too_early, in_time = early(each)
    timely = in_time & ~too_early
    owed, repeats, fates, sure = Owed(each, timely), Repeats(each), each.fates, each.deliveries.uses.sure[each.at]
    vague = ~sure | (fates.uses_doubted[each.at] & repeats.duplicated)
    vague |= each.undated & fates.is_accepted[each.at] & (each.deliveries.accepted[each.at] == NONE)
    unanswered = _before_any_answer(each)
    unheard = fates.unheard[each.at] & each.pairs.in_audience & (each.refused | ~unanswered)
    unasked = never_published(each) & ~vague
    found, unknown = concluded(
        {
            "lost": lost(each, owed) & ~vague,
            "duplicated": repeats.duplicated & ~vague,
            "accepted too early": owed.got & too_early & ~vague,
            "accepted though refused": accepted_though_refused(each, owed) & ~vague,
            "never published": unasked,
            # the kind "never published" covers these deliveries
            "sent by nobody": sent_by_nobody(each) & ~unasked & sure,
            "sent though left out": sent_though_left_out(each) & sure,
            "outcome disputed": outcome_disputed(each, owed) & sure,
        },
        each.lacking,
    )
    unknown |= owed.got & ~too_early & ~in_time
    return SubscriberVerdicts(
        found,
        owed=owed.flags,
        taken=each.taken,
        unknown=unknown | (vague & (owed.flags | each.was_handed)) | unheard,
        unplaced=each.was_handed & (fates.position[1][each.at] == NONE) & ~fates.invented[each.at],
        handed=each.handed,
        vague=vague,
        unordered=_unordered(each),
        unsure=each.lacking(EDGE) | each.lacking(HOME),
        timely=timely | unanswered,
        repeated={reason: flags & ~vague for reason, flags in repeats.unpromised.items()},
        unowed=owed.unowed(),
        unprocessed=by_reason(
            owed.missing,
            ("lost", found["lost"]),
            ("refused", found["accepted though refused"]),
            ("unknown", owed.missing),
        ),
    )


def _unordered(each: Testimony) -> Flags:
    left_out, balanced = each.pairs.left_out != NONE, each.deliveries.balanced[each.at]
    found: Flags = left_out | balanced | each.disordered | has_ended(each) | sent_anew(each)
    return found


def lost(each: Testimony, owed: Owed) -> Flags:
    """Flags the pairs that were owed, and that the subscriber neither processed nor refused."""
    return owed.missing & ~each.refused


def sent_though_left_out(each: Testimony) -> Flags:
    """Flags the pairs whose delivery a router sent although, by its own log, the subscriber's filter had not let the
    delivery pass, and the subscriber had not attached at this router again."""
    rows, left_out, sent = each.facts.rows, each.pairs.left_out, each.pairs.last_sent
    found: Flags = (left_out != NONE) & (sent != NONE) & (taken(rows.log, left_out) == taken(rows.log, sent))
    found &= taken(rows.place, left_out) < taken(rows.place, sent)
    for pair in np.flatnonzero(found).tolist():
        log, name = rows.logs[rows.log[sent[pair]]].name, each.pairs.names[each.pairs.subscriber[pair]]
        since, till = int(rows.place[left_out[pair]]), int(rows.place[sent[pair]])
        found[pair] = not each.case.attaches.between(log, name, since, till)
    return found


def early(each: Testimony) -> tuple[Flags, Flags]:
    """Returns two flags for each pair: whether the publisher read *accepted* before the subscriber had accepted, and
    whether it certainly did not.

    Hybrid clocks decide between two routers. If a hybrid clock and a corrected wall clock disagree, the hybrid clock
    counts, because the clock by which the audit corrected the wall clock may have been wrong.
    """
    later, known = _edge_later(each)
    after, before = _clocks(each)
    in_time = known & ~later
    told_later = known & later & ~each.edge_doubted  # a lost entry may have the outcome
    credible = ~(in_time & each.is_put_right(each.processed, _answer(each))) | _heard_too_soon(each)
    by_wall = after & credible & (each.own | ~(each.edge_doubted | known))
    return told_later | by_wall, in_time | before


def accepted_though_refused(each: Testimony, owed: Owed) -> Flags:
    """Flags the pairs that were owed, and that the subscriber refused and never processed."""
    return owed.missing & each.refused


def never_published(each: Testimony) -> Flags:
    """Flags the pairs whose delivery the subscriber got, although certainly no publisher published it."""
    return each.was_handed & each.fates.invented[each.at]


def sent_by_nobody(each: Testimony) -> Flags:
    """Flags the pairs whose delivery the subscriber got, although no router logs that it sent the delivery to this
    subscriber."""
    unsent: Flags = (each.pairs.own_order >= 0) & (each.pairs.last_sent_hlc == NONE)
    return unsent & ~_unended(each)


def outcome_disputed(each: Testimony, owed: Owed) -> Flags:
    """Flags the pairs for which the logs of router and subscriber disagree. Either a router logs an acceptance that the
    subscriber's log lacks, or routers log only refusals although the subscriber accepted.

    Only subscribers that have logs and use settle mode second count, because their routers log an acceptance only when
    they read it. If the publisher used a tag again, acceptances in maps do not count, because no log shows which of the
    deliveries a map names.
    """
    pairs, told, clear = each.pairs, each.pairs.edge_stamp >= 0, ~each.deliveries.uses.reused[each.at]
    own_doubted = each.doubted | each.bridged | _unended(each)
    invented = told & (clear | (pairs.edge_count > 0)) & (pairs.own_count == 0) & ~own_doubted & ~lost(each, owed)
    ignored = ~told & pairs.edge_refused & (pairs.own_count > 0) & ~pairs.own_refused
    ignored &= ~(each.edge_doubted | _unended(each))
    if ignored.any():
        ignored &= clear | _is_refused_on_link(each)
    answers = [client is not None and bool(client.logs) and client.mode == SECOND for _, client in each.clients]
    found: Flags = np.array(answers, np.bool_)[pairs.subscriber] & (invented | ignored)
    return found


def _is_refused_on_link(each: Testimony) -> Flags:
    facts = each.facts
    refused = facts.by_router & facts.flags_of(Event.OUTCOME) & ~facts.accepted
    return each.pairs.groups.any(refused & (facts.rows.detail == NONE))


def _unended(each: Testimony) -> Flags:
    """Flags the pairs whose delivery has no known acceptance, if any log lacks its end. The delivery may then have
    lasted until all logs end."""
    found: Flags = (each.accepted_time == BIG) & bool(each.case.unfinished)
    return found


def _before_any_answer(each: Testimony) -> Flags:
    """Flags the pairs that were processed before the publisher can have had an answer.

    The publisher's log is known to be whole up to a certain time, and has no answer until then. The subscriber had
    processed the delivery by that time.
    """
    since, processed = each.fates.unheard_since[each.at], each.processed
    by = taken(each.facts.rows.time, processed) + each.slack(processed, each.deliveries.published[each.at])
    found: Flags = (processed >= 0) & (since != NONE) & (by <= since)
    return found


def _edge_later(each: Testimony) -> tuple[Flags, Flags]:
    """Returns two flags for each pair, by hybrid clocks: whether the subscriber's acceptance reached its router only
    after the home had accepted, and whether both times are known."""
    rows, source = each.facts.rows, each.facts.source
    edge, home = each.pairs.edge_stamp, each.accepted
    known = (edge >= 0) & (home >= 0)
    hlc, at_home = taken(rows.hlc, edge), taken(rows.hlc, home)
    elsewhere = taken(source, edge) != taken(source, home)
    behind = taken(rows.place, edge) > taken(rows.place, home)
    return (hlc > at_home) | ((hlc == at_home) & (elsewhere | behind)), known


def _heard_too_soon(each: Testimony) -> Flags:
    """Flags the pairs for which the only router that sent the delivery logs the acceptance sooner than the subscriber
    can have given it.

    Two durations show this: how long the router waited for the answer, and how long the subscriber took to process.
    Each is measured by one clock, so the difference of the two clocks does not matter.
    """
    rows, pairs = each.facts.rows, each.pairs
    sent, heard, came, done = pairs.first_sent, pairs.edge_stamp, pairs.own_order, pairs.own_processed
    shown = (sent >= 0) & (heard >= 0) & (came >= 0) & (done >= 0) & ~taken(rows.undated, heard, True)
    for one, other in ((sent, heard), (pairs.last_sent, heard), (came, done)):
        shown &= taken(rows.log, one) == taken(rows.log, other)
    waited, took = (taken(rows.time, till) - taken(rows.time, since) for since, till in ((sent, heard), (came, done)))
    found: Flags = shown & (waited + SET_BACK_US < took)  # a clock that was set back by less than SET_BACK_US is right
    return found


def _answer(each: Testimony) -> Ints:
    """The row of each pair that shows that the publisher read *accepted*. If no log of the publisher has this row, it
    is the row in which the home accepted the delivery."""
    told = each.deliveries.told_accepted[each.at]
    return np.where(told >= 0, told, each.accepted_first)


def _clocks(each: Testimony) -> tuple[Flags, Flags]:
    """Returns two flags for each pair, by wall clocks. The first: the subscriber certainly processed the delivery after
    the publisher had read the answer. The second: the subscriber certainly processed the delivery before the publisher
    read the answer."""
    time, processed, answer = each.facts.rows.time, each.processed, _answer(each)
    known = (processed >= 0) & (answer >= 0)
    slack = each.slack(processed, answer)
    later = taken(time, processed) - taken(time, answer)
    return known & (later > slack), known & (later <= -slack)


# The functions from here on are about balanced addresses and queues (protocol 12).


def judge_balanced(each: Testimony) -> tuple[Violating, Flags]:
    """The violations at balanced addresses, with one flag for each delivery. Also flags the deliveries for which it is
    unknown whether exactly one subscriber processed them."""
    sure = each.deliveries.balanced & each.deliveries.uses.sure
    if not sure.any():
        return {"processed by several": sure, "processed by nobody": sure}, sure
    found = {
        "processed by several": processed_by_several(each) & sure,
        "processed by nobody": accepted_before_processed(each) & sure,
    }
    return concluded(found, each.lacking_of_any)


def processed_by_several(each: Testimony) -> Flags:
    """Flags the deliveries that more than one subscriber has processed.

    A subscriber does not count if its link had ended when the home accepted the delivery, or if it was apart for too
    long. In these cases the home may rightly have offered the delivery to another subscriber.
    """
    stays = each.taken & ~ended(each) & ~each.pairs.apart
    found: Flags = np.bincount(each.at[stays], minlength=len(each.deliveries.balanced)) > 1
    return found


def accepted_before_processed(each: Testimony) -> Flags:
    """Flags the deliveries that were accepted when certainly no subscriber had processed them yet."""
    too_early, _ = early(each)
    may_have = (each.taken & ~too_early) | each.doubted | each.edge_doubted
    number = len(each.deliveries.balanced)
    had: Flags = np.bincount(each.at[may_have], minlength=number) > 0
    return each.fates.is_accepted & ~had
