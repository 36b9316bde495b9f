"""What is to be said of a run by the clients' own accounts: missing, doubled, out of order. Pure.

A second opinion that owes nothing to the delivery logs and the audit. It knows no excuses: what the protocol's limits
let a subscriber miss, for example while it was away for longer than its timeout, is missing here.
"""

from collections.abc import Mapping, Sequence

import attrs


@attrs.frozen
class Published:
    """Of one publisher, whose messages are numbered from 0."""

    sent: int
    otherwise: frozenset[int]
    """Those that had another outcome than acceptance."""
    unknown: frozenset[int]
    """Those that had none."""

    def counts(self) -> dict[str, int]:
        return {
            "sent": self.sent,
            "accepted": self.sent - len(self.otherwise | self.unknown),
            "otherwise": len(self.otherwise),
            "unknown": len(self.unknown - self.otherwise),
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
