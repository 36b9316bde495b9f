"""What is to be said of a run by the clients' own accounts: missing, doubled, out of order. Pure.

A second opinion that owes nothing to the delivery logs and the audit. It knows no excuses: what the protocol's limits
let a subscriber miss, for example while it was away for longer than its timeout, is missing here. So in the end the two
are compared: what is missing has to be what the audit names.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

EXPLAINED = {
    "missing": ("without", "away", "unknown", "lost", "accepted though refused"),
    "doubled": ("unknown", "duplicated"),
    "overtaken": ("unknown", "out of order"),
}
"""By what a subscriber counts: the counts and violations of the audit's pairs that tell of the same."""
WORDS = {"missing": "are missing", "doubled": "came more than once", "overtaken": "came out of order"}


@attrs.frozen
class Published:
    """Of one publisher, whose messages are numbered from 0."""

    sent: int
    otherwise: frozenset[int]
    """Those that had another outcome than acceptance."""
    unknown: frozenset[int]
    """Those that had none."""
    pause_ms: int = 0
    """The longest time between two acceptances of one life."""

    def counts(self) -> dict[str, int]:
        return {
            "sent": self.sent,
            "accepted": self.sent - len(self.otherwise | self.unknown),
            "otherwise": len(self.otherwise),
            "unknown": len(self.unknown - self.otherwise),
            "pause_ms": self.pause_ms,
        }

    def missing(self, numbers: Sequence[int]) -> int:
        """How many of those that were accepted are not among these."""
        return len(set(range(self.sent)) - self.otherwise - self.unknown - set(numbers))


def subscriber_counts(received: Mapping[str, Sequence[int]], owed: Mapping[str, Published]) -> dict[str, int]:
    """`received` by publisher, in order; `owed` is what the publishers of its address have published."""
    lists = received.values()
    return {
        "received": sum(map(len, lists)),
        "missing": sum(account.missing(received.get(name, ())) for name, account in owed.items()),
        "doubled": sum(len(numbers) - len(set(numbers)) for numbers in lists),
        "overtaken": sum(map(overtaken, lists)),
    }


def overtaken(numbers: Sequence[int]) -> int:
    """Messages that came for the first time after a later one."""
    count, highest = 0, -1
    for number in dict.fromkeys(numbers):
        count += number < highest
        highest = max(highest, number)
    return count


def unexplained(clients: Mapping[str, Mapping[str, Any]], pairs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What subscribers count and the audit does not: `clients` as chaos.json has them, `pairs` as audit.json does. A
    link is named by its client first."""
    for name, account in clients.items():
        own = [pair for pair in pairs if pair["subscriber"].partition("/")[0] == name]
        for what, counted in EXPLAINED.items():
            known = sum(pair.get(kind, 0) + pair["violations"].get(kind, 0) for pair in own for kind in counted)
            if account.get(what, 0) > known:
                yield f"{account[what]} messages {WORDS[what]} by {name}'s own account, and {known} by the audit"
