"""The kinds of violation, and the reasons why a subscriber got more or less than it was owed, in words.

What the rules are is `publishers`', `subscribers`', `routers`' and `order`'s to say.
"""

from collections.abc import Mapping

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
    SHARED: "at a balanced address, where each is for one of many",
    "declined": "whose publisher was told another outcome than acceptance",
    "unanswered": "whose publisher was told no outcome that a log knows",
    "unaddressed": "of which a part of a log is lost that told whom they were for",
    "unlisted": "accepted by a router that did not know this subscriber",
    "passed": "which its filter had left out",
    "apart": "accepted without it, as it was apart for longer than its timeout",
    "ended": "accepted after its link had ended for the publisher's router",
    "forgotten": "accepted by a mesh that had begun without any state store",
}
"""Why a subscriber processed deliveries that it was not owed."""
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
