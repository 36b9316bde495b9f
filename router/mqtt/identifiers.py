"""The packet identifiers of one session's outgoing messages, and which of them its client may hold from another router.

A client *holds* an identifier from its PUBREC until it reads PUBREL: it takes a new message with the identifier for a
copy, and drops it (MQTT 5 4.3.3). The client does so also if the new message comes from this router, and the identifier
was another router's. So this router first sends PUBREL for each identifier that the client may hold, and uses the
identifier only after the client's PUBCOMP.
"""

from typing import Final

MOST_SENT: Final = 256
"""The highest number of messages that are in flight to a client at once, unless the client asks for fewer."""
MOST_ASKED: Final = 3
"""The highest number of connections of a client on which the router sends PUBREL for held identifiers. Some clients
break the standard, and disconnect when they read a PUBREL for an unknown identifier."""


class Identifiers:
    def __init__(self) -> None:
        self._used = 0
        """The highest identifier that was ever used; 0: none."""
        self._free = list[int]()
        """The identifiers up to `_used` that are free again."""
        self._held = set[int]()
        self._asked = 0

    def __bool__(self) -> bool:
        """Whether an identifier is free."""
        return bool(self._free) or self._used < MOST_SENT

    def take(self) -> int:
        if self._free:
            return self._free.pop()
        self._used += 1
        return self._used

    def give_back(self, number: int) -> None:
        self._free.append(number)

    def may_be_held(self) -> None:
        """The client may hold every free identifier from another router."""
        self._held.update(self._free, range(self._used + 1, MOST_SENT + 1))
        self._used = MOST_SENT
        self._free.clear()
        self._asked = 0

    def to_be_let_go(self) -> list[int]:
        """The identifiers for which the router sends PUBREL on a new connection, in order. After `MOST_ASKED`
        connections all of them are free."""
        if self._asked == MOST_ASKED:
            self._free += self._held
            self._held.clear()
        self._asked += 1
        return sorted(self._held)

    def release(self, number: int) -> bool:
        """The client has sent PUBCOMP for `number`. Returns False if `number` was not held from another router."""
        was_held = number in self._held
        if was_held:
            self._held.discard(number)
            self._free.append(number)
        return was_held
