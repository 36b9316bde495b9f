"""The packet identifiers of what one session sends, and which of them its client may still hold from another router.

A client that has said PUBREC takes another message of that identifier for a copy, until it reads PUBREL (MQTT 5 4.3.3),
also if that comes from a router that knows nothing of the first. So it is told to let go, and an identifier is used
when it has said that it has.
"""

from typing import Final

MOST_SENT: Final = 256
"""Messages that are under way to a client at once, unless it wants fewer."""
MOST_ASKED: Final = 3
"""Connections on which a client is told to let go: some end theirs at that, against the standard."""


class Identifiers:
    def __init__(self) -> None:
        self._used = 0
        """So many have been, from the first on."""
        self._free = list[int]()
        """Of these."""
        self._held = set[int]()
        self._asked = 0

    def __bool__(self) -> bool:
        """Whether there is one."""
        return bool(self._free) or self._used < MOST_SENT

    def take(self) -> int:
        if self._free:
            return self._free.pop()
        self._used += 1
        return self._used

    def give_back(self, number: int) -> None:
        self._free.append(number)

    def may_be_held(self) -> None:
        """All of them, by the client, from another router."""
        self._held.update(self._free, range(self._used + 1, MOST_SENT + 1))
        self._used = MOST_SENT
        self._free.clear()
        self._asked = 0

    def to_be_let_go(self) -> list[int]:
        """What the client is told to let go of, on a new connection."""
        if self._asked == MOST_ASKED:
            self._free += self._held
            self._held.clear()
        self._asked += 1
        return sorted(self._held)

    def let_go(self, number: int) -> bool:
        """The client has; False if it was not asked for that."""
        was_held = number in self._held
        if was_held:
            self._held.discard(number)
            self._free.append(number)
        return was_held
