"""Judges a run by the clients' own accounts: counts messages that are missing, doubled or overtaken.

This second opinion uses neither the delivery logs nor the audit. A message also counts as missing here if the protocol
lets the subscriber miss it, for example while the subscriber was away for longer than its timeout. At the end of a run,
the two opinions are compared: the audit has to account for each missing message. This module does no input or output.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

EXPLAINED = {
    "missing": ("without", "away", "unknown", "lost", "accepted though refused"),
    "doubled": ("unknown", "duplicated"),
    "overtaken": ("unknown", "out of order"),
}
"""Maps each count in a subscriber's account to the names under which the audit's report may explain the count. A name
is a count of a pair (a publisher and the subscriber), or a kind of violation."""
SHARED = {"missing": "processed by nobody", "doubled": "processed by several"}
"""Maps each count in the account of a publisher at a balanced address to the kind of violation that explains the
count."""
WORDS = {"missing": "are missing", "doubled": "came more than once", "overtaken": "came out of order"}


@attrs.frozen
class Published:
    """The account of one publisher, whose messages are numbered from 0."""

    sent: int
    otherwise: frozenset[int]
    """The numbers of the messages that got an outcome other than accepted."""
    unknown: frozenset[int]
    """The numbers of the messages whose outcome the publisher does not know."""
    pause_ms: int = 0
    """The longest time between two acceptances within one life of the publisher's process."""

    def counts(self) -> dict[str, int]:
        return {
            "sent": self.sent,
            "accepted": self.sent - len(self.otherwise | self.unknown),
            "otherwise": len(self.otherwise),
            "unknown": len(self.unknown - self.otherwise),
            "pause_ms": self.pause_ms,
        }

    def missing(self, numbers: Sequence[int]) -> int:
        """The number of accepted messages whose number is not in `numbers`."""
        return len(set(range(self.sent)) - self.otherwise - self.unknown - set(numbers))


def subscriber_counts(received: Mapping[str, Sequence[int]], owed: Mapping[str, Published]) -> dict[str, int]:
    """Return the counts of one subscriber.

    `received` has, for each publisher, the numbers of the messages that the subscriber received, in the order in which
    they came. `owed` has the publishers of the subscriber's address.
    """
    lists = received.values()
    return {
        "received": sum(map(len, lists)),
        "missing": sum(account.missing(received.get(name, ())) for name, account in owed.items()),
        "doubled": sum(len(numbers) - len(set(numbers)) for numbers in lists),
        "overtaken": sum(map(overtaken, lists)),
    }


def consumer_counts(received: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Return the counts of one subscriber at a balanced address. `missing` and `overtaken` are always 0: a message may
    go to any subscriber of the address, so no single subscriber has to get a message, or to get messages in order."""
    return subscriber_counts(received, {}) | {"overtaken": 0}


def shared_counts(account: Published, received: Iterable[Sequence[int]]) -> dict[str, int]:
    """Return the counts of one publisher at a balanced address. `received` has the numbers of its messages that all
    subscribers of the address received together."""
    had = Counter(number for numbers in received for number in set(numbers))
    return {"missing": account.missing(list(had)), "doubled": sum(count > 1 for count in had.values())}


def overtaken(numbers: Sequence[int]) -> int:
    """The number of messages that first came after a message with a higher number."""
    count, highest = 0, -1
    for number in dict.fromkeys(numbers):
        count += number < highest
        highest = max(highest, number)
    return count


def unexplained(
    clients: Mapping[str, Mapping[str, Any]], pairs: Sequence[Mapping[str, Any]], violations: Mapping[str, int]
) -> Iterator[str]:
    """Yield each difference between the clients' counts and the audit's counts, as a sentence. `clients` comes from
    chaos.json, `pairs` and `violations` come from audit.json. The name of a link begins with the name of its client."""
    shared = [account for account in clients.values() if account["role"] == "publisher"]
    for what, kind in SHARED.items():
        count, known = sum(account.get(what, 0) for account in shared), violations.get(kind, 0)
        if count > known:
            yield (
                f"{count} messages {WORDS[what]} according to all subscribers that share them, but {known} according "
                "to the audit"
            )
    for name, account in clients.items():
        if account["role"] == "publisher":
            continue
        own = [pair for pair in pairs if pair["subscriber"].partition("/")[0] == name]
        for what, counted in EXPLAINED.items():
            known = sum(pair.get(kind, 0) + pair["violations"].get(kind, 0) for pair in own for kind in counted)
            if account.get(what, 0) > known:
                yield f"{account[what]} messages {WORDS[what]} according to {name}, but {known} according to the audit"
