"""The names and descriptions of all kinds of violation. Also the reasons for which a subscriber may process more or
fewer deliveries than it was owed.

The rules are in `publishers`, `subscribers`, `routers` and `order`. Most rules find a violation if a client or router
did something and no entry explains it. If a log that breaks off may have lost the explaining entry (`Case.open_spans`),
the audit concludes nothing: the case is unknown. `SHOWN_BY` lists, for each kind, the logs that could have this entry.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import numpy as np

from failover.audit.read.columns import Flags

Violating = Mapping[str, Flags]
"""Maps each kind of violation to flags of the deliveries, pairs or records with such a violation."""
FINDINGS_KEPT = 20
"""Reports list at most this number of violations of one kind. They count all of them."""

DISPUTED = "content disputed"
LOST_AT_REST = "lost at rest"
KINDS = {
    "lost": "accepted, but not processed by a subscriber it was owed to",
    "duplicated": "processed more than once",
    "out of order": "given to the subscriber after a later message of the same publisher",
    "accepted too early": "accepted before the subscriber had accepted",
    "accepted though refused": "accepted, although the subscriber refused it",
    "never published": "received by a subscriber, but in no publisher's log",
    "misreported": "the publisher received an outcome that its home did not record",
    "settled before accepted": "settled at a router before the publisher received an outcome",
    "never forgotten": "settled, but still held when its router stopped",
    "forwarded by nobody": "received by a router from its home, but the log of the home does not show that it sent it",
    "place disputed": "its place in the publisher's order differs between a router and its home",
    "sent by nobody": "received by a subscriber, but sent by no router according to their logs",
    "sent though left out": "sent to a subscriber although its filter had left it out on the same attach",
    "sent though expired": "sent to a subscriber after its home had told the publisher that it expired",
    "outcome disputed": "the logs of a router and of the subscriber show different outcomes",
    "processed by several": "processed by more than one subscriber of a balanced address, or consumer of a queue",
    "processed by nobody": "accepted at a balanced address before any subscriber had processed it",
    "never enqueued": "accepted for a queue, although no replica of its set had put it into the queue",
    "enqueued twice": "put into a queue more than once",
    "gone without a consumer": "taken out of its queue as accepted or rejected, although no consumer had answered so",
    "given back though processed": "given back to its queue, although a consumer that resumes had processed it",
    DISPUTED: "a replica has other messages in its queues than its own log, or another replica, says",
    LOST_AT_REST: "put into a queue, and neither taken out nor in the stores of its set",
    "settled by nobody": "settled at its home after an outcome that its publisher's log does not show",
}

SHARED = "balanced"
UNOWED = {
    "unpublished": "in no publisher's log",
    "declined": "whose publisher received another outcome",
    "unanswered": "whose publisher received no outcome that a log shows",
    SHARED: "at a balanced address or a queue, where one subscriber gets each message",
    "unaddressed": "whose subscribers were named in a lost part of a log",
    "unlisted": "accepted by a router that did not know this subscriber",
    "passed": "which its filter left out",
    "apart": "accepted without the subscriber while that was out of contact for longer than its timeout",
    "ended": "accepted after the subscriber's link had ended for the publisher's router",
    "forgotten": "accepted by a mesh that had started without any state store",
}
"""The reasons for which a subscriber processed a delivery that it was not owed, each with a description."""
UNACCEPTED = ("unpublished", "declined", "unanswered")
"""The reasons of `UNOWED` for which the publisher has not read *accepted*. If the publisher publishes such a message
again, under another key, subscribers get the message twice."""
FIRST, ENDED, LATE, AFRESH = "first", "ended", "late", "afresh"
REPEATED = {
    FIRST: "because their publisher, which uses settle mode first, attached again (at least once is promised)",
    ENDED: "because routers lost contact with the router of their publisher, which has no timeout (at least once is "
    "promised)",
    LATE: "because a router read an attach of their publisher late, which ended its life there (at least once is "
    "promised)",
    AFRESH: "which attached without a map or in settle mode first meanwhile (at least once is promised)",
}
"""The reasons for which the mesh promises only *at least once*, so that a delivery processed twice is no violation."""
UNPROCESSED = {
    "lost": "lost",
    "refused": "accepted although the subscriber refused them",
    "unknown": "unknown, because a part of a log is lost",
}
"""The possible fates of a delivery that a subscriber was owed and did not process, each with a description."""

# Each constant from here on names a group of logs. Its docstring names the entries that a log of this group may lack.

OWN = "the subscriber's own"
"""The PROCESSED entries of a subscriber. If a subscriber has no log, the entries of its routers show what it
processed."""
EDGE = "those of its routers"
"""The DELIVERED, OUTCOME and PASSED entries of the subscriber's routers."""
HOME = "those of its homes"
"""The RECEIVED, AUDIENCE (also for a balanced address), APART and ACCEPTED entries of homes."""
LINK = "those of all routers, until its client attached again"
"""CLOSED and EXPIRED entries, which show that the subscriber's link had ended; JOINED and CONTACT entries, which show
that the home knew the subscriber."""
ANY = "those of all routers, while it was on its way"
"""ATTACHED and ABANDONED entries of any router, which may explain why a router sent a delivery again."""
REPLICAS = "those of all routers, from their beginning on"
"""The ENQUEUED entries of any replica."""
ALL = "those of everybody"
"""The PROCESSED or OUTCOME entries of any subscriber."""

SHOWN_BY: Final[Mapping[str, Iterable[str]]] = {
    "lost": (OWN, EDGE, HOME, LINK),
    "accepted though refused": (OWN, EDGE, HOME, LINK),
    "accepted too early": (EDGE, HOME, LINK),
    "duplicated": (ANY,),
    "sent by nobody": (EDGE,),
    "processed by several": (HOME, LINK, ANY),
    "processed by nobody": (ALL,),
    "never enqueued": (REPLICAS,),
    "misreported": (HOME,),
    "settled by nobody": (ANY,),
    "settled before accepted": (HOME, ANY),
}
"""Maps each kind of violation to the groups of logs that could have the missing entry. The logs need no test if the
table lacks the kind: then no missing entry could explain the violation, or the rule itself checks that the logs are
whole."""
NEEDED: Final = (
    *("lost", "accepted though refused", "accepted too early", "duplicated"),
    *("processed by several", "processed by nobody", "never enqueued"),
)
"""The kinds of violation that concern a subscriber. If it is unknown whether there is one of these violations, the
verdict cannot be *holds*."""

Lacking = Callable[[str], Flags]
"""A function that takes a group of logs, and flags the deliveries (or pairs) about which these logs may lack an
entry."""


def concluded(found: Violating, lacking: Lacking) -> tuple[Violating, Flags]:
    """Split the found violations into certain and uncertain ones. A violation is uncertain if a log of the groups in
    `SHOWN_BY` lacks entries, and one of these may explain what happened. Returns the certain violations, and flags of
    the deliveries (or pairs) with an uncertain violation of a kind in `NEEDED`."""
    certain, unknown = {}, np.zeros_like(next(iter(found.values())))
    for kind, flags in found.items():
        certain[kind] = flags
        if flags.any():
            certain[kind] = flags & ~np.logical_or.reduce([False & flags, *map(lacking, SHOWN_BY.get(kind, ()))])
        if kind in NEEDED:
            unknown |= flags & ~certain[kind]
    return certain, unknown
