"""Large messages on their way: what has come of them ahead of their Forwards (protocol 5, Large messages).

Each publisher of a router in contact has one at most, as its order is kept. What comes of others is dropped: their home
has not heard yet that they are elsewhere, or does not keep to the protocol.
"""

from collections.abc import Callable
from itertools import islice

from topic.errors import BreachError


class Bodies:
    """Of all publishers elsewhere."""

    def __init__(self, largest: int, is_home: Callable[[str, bytes], bool]) -> None:
        """`largest`: bytes of a message, at most. `is_home`: of a router and a publisher, as far as is known here."""
        self._largest = largest
        self._is_home = is_home
        self.come: dict[str, dict[bytes, tuple[bytes, bytearray]]] = {}
        """By home and publisher: the delivery's key, and the message as far as it has come."""

    def add(self, home: str, publisher: bytes, key: bytes, at: int, piece: bytes) -> None:
        """Take a piece that begins with that byte of the message; an empty one ends it. Raises BreachError."""
        if not piece or not self._is_home(home, publisher):
            return self.drop(home, publisher)
        of_home = self.come.setdefault(home, {})
        if not at:
            self._drop_left(home)
            of_home[publisher] = key, bytearray()
        known, body = of_home.get(publisher, (b"", bytearray()))
        if known != key or len(body) != at or at + len(piece) > self._largest:
            raise BreachError(f"a piece of {len(piece)} bytes at {at} of a message of which {len(body)} have come")
        body += piece

    def _drop_left(self, home: str) -> None:
        """Drop what is of publishers that have left: two are looked at for each that comes, so that all are in turn."""
        of_home = self.come[home]
        for publisher in list(islice(of_home, 2)):
            left = of_home.pop(publisher)
            if self._is_home(home, publisher):
                of_home[publisher] = left

    def drop(self, home: str, publisher: bytes) -> None:
        """The message does not come from there, or not here."""
        self.come.get(home, {}).pop(publisher, None)

    def take(self, home: str, publisher: bytes, key: bytes) -> bytes:
        """The message of a delivery that is forwarded without it. Raises BreachError."""
        known, body = self.come.get(home, {}).pop(publisher, (b"", bytearray()))
        if known != key:
            raise BreachError("a delivery is forwarded without its message")
        return bytes(body)

    def lost(self, home: str) -> None:
        """The contact is over: what is forwarded in the next one comes whole."""
        self.come.pop(home, None)
