"""The kinds of violation, and the reasons why a subscriber got more or less than it was owed, in words.

What the rules are is `publishers`', `subscribers`', `routers`' and `order`'s to say. Most fire where something was done
and no entry is there that would explain it. Where a log may lack such an entry, which was written when it had broken
off (`Case.open_spans`), nothing is concluded: it is not known. `SHOWN_BY` says for each kind which logs these are.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import numpy as np

from failover.audit.read.columns import Flags

Violating = Mapping[str, Flags]
"""By kind, the elements that are."""
FINDINGS_KEPT = 20
"""Violations of one kind that are listed; all are counted."""

KINDS = {
    "lost": "accepted, but not processed by a subscriber it was owed to",
    "duplicated": "processed more than once",
    "out of order": "handed to the subscriber after a later one of its publisher",
    "accepted too early": "accepted before the subscriber had accepted",
    "accepted though refused": "accepted, although the subscriber refused it",
    "never published": "handed to a subscriber, but published by nobody",
    "misreported": "the publisher was told an outcome that its home did not record",
    "settled before accepted": "settled at a router before the publisher was answered",
    "never forgotten": "settled, but still held when its router stopped",
    "forwarded by nobody": "received by a router from a home whose log does not say that it sent it there",
    "place disputed": "at another place in its publisher's order at a router than at its home",
    "sent by nobody": "handed to a subscriber, but by the logs of all routers not sent there",
    "sent though left out": "sent to a subscriber by whose filter its router had left it out on the same attach",
    "sent though expired": "sent to a subscriber, though its home told the publisher that its time was over",
    "outcome disputed": "a router's log and the subscriber's tell different outcomes",
    "had by several": "at a balanced address, processed by more than one subscriber",
    "had by nobody": "at a balanced address, accepted, but not processed by any subscriber by then",
    "settled by nobody": "settled at its home after an outcome that its publisher's log does not know",
}

SHARED = "balanced"
UNOWED = {
    "unpublished": "published by nobody",
    "declined": "whose publisher was told another outcome than acceptance",
    "unanswered": "whose publisher was told no outcome that a log knows",
    SHARED: "at a balanced address, where each is for one of many",
    "unaddressed": "of which a part of a log is lost that told whom they were for",
    "unlisted": "accepted by a router that did not know this subscriber",
    "passed": "which its filter had left out",
    "apart": "accepted without it, as it was apart for longer than its timeout",
    "ended": "accepted after its link had ended for the publisher's router",
    "forgotten": "accepted by a mesh that had begun without any state store",
}
"""Why a subscriber processed deliveries that it was not owed."""
UNACCEPTED = ("unpublished", "declined", "unanswered")
"""Of these: to whom published them they are none. Who publishes such a one again, under another key, has it twice."""
FIRST, ENDED, AFRESH = "first", "ended", "afresh"
REPEATED = {
    FIRST: "as their publisher, which settles first, attached again: that is at least once",
    ENDED: "as routers lost contact with that of their publisher, which asked for no timeout: that is at least once",
    AFRESH: "which had begun afresh meanwhile, with a null map or settling first: that is at least once",
}
"""Why a subscriber that processed deliveries more than once was not promised that it would not."""
UNPROCESSED = {
    "lost": "lost",
    "refused": "refused by it, yet accepted",
    "unknown": "not known, as a part of a log is lost that may have told it",
}
"""What became of deliveries that it was owed and did not process."""

# which logs would show what is absent

OWN = "the subscriber's own"
"""PROCESSED; or, of who has no log, what its routers say in its place."""
EDGE = "those of its routers"
"""DELIVERED, OUTCOME, PASSED."""
HOME = "those of its homes"
"""RECEIVED, AUDIENCE (also that it is for one of many), APART, ACCEPTED."""
LINK = "those of all routers, until its client attached again"
"""CLOSED and EXPIRED: its link had ended; JOINED, CONTACT: its home knew it."""
ANY = "those of all routers, while it was on its way"
"""ATTACHED, ABANDONED: why it was sent again."""
ALL = "those of everybody"
"""Who has processed it, whoever that may be."""

SHOWN_BY: Final[Mapping[str, Iterable[str]]] = {
    "lost": (OWN, EDGE, HOME, LINK),
    "accepted though refused": (OWN, EDGE, HOME, LINK),
    "accepted too early": (EDGE, HOME, LINK),
    "duplicated": (ANY,),
    "sent by nobody": (EDGE,),
    "had by several": (HOME, LINK, ANY),
    "had by nobody": (ALL,),
    "misreported": (HOME,),
    "settled by nobody": (ANY,),
    "settled before accepted": (HOME, ANY),
}
"""What is not here rests on what is told, or asks by itself which log is whole."""
NEEDED: Final = (
    *("lost", "accepted though refused", "accepted too early", "duplicated"),
    *("had by several", "had by nobody"),
)
"""What befalls a subscriber: while that is not known, nothing holds."""

Lacking = Callable[[str], Flags]
"""Given whose logs: the elements of which these may lack an entry."""


def concluded(found: Violating, lacking: Lacking) -> tuple[Violating, Flags]:
    """What is certain of what the rules found; and the elements of which something is not known that is needed."""
    certain, unknown = {}, np.zeros_like(next(iter(found.values())))
    for kind, flags in found.items():
        certain[kind] = flags
        if flags.any():
            certain[kind] = flags & ~np.logical_or.reduce([False & flags, *map(lacking, SHOWN_BY.get(kind, ()))])
        if kind in NEEDED:
            unknown |= flags & ~certain[kind]
    return certain, unknown
