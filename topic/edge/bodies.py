"""Large messages on their way: what has come of them ahead of their Forwards (protocol 5, Large messages).

Each publisher of a router in contact has one at most, as its order is kept.
"""

from topic.errors import BreachError


class Bodies:
    """Of all publishers elsewhere."""

    def __init__(self, largest: int) -> None:
        """`largest`: bytes of a message, at most."""
        self._largest = largest
        self.come: dict[str, dict[bytes, tuple[bytes, bytearray]]] = {}
        """By home and publisher: the delivery's key, and the message as far as it has come."""

    def add(self, home: str, publisher: bytes, key: bytes, at: int, piece: bytes) -> None:
        """Take a piece that begins with that byte of the message; an empty one ends it. Raises BreachError."""
        of_home = self.come.setdefault(home, {})
        if not at:
            of_home[publisher] = key, bytearray()
        known, body = of_home.get(publisher, (b"", bytearray()))
        if known != key or len(body) != at or at + len(piece) > self._largest:
            raise BreachError(f"a piece of {len(piece)} bytes at {at} of a message of which {len(body)} have come")
        body += piece
        if not piece:
            del of_home[publisher]

    def take(self, home: str, publisher: bytes, key: bytes) -> bytes:
        """The message of a delivery that is forwarded without it. Raises BreachError."""
        known, body = self.come.get(home, {}).pop(publisher, (b"", bytearray()))
        if known != key:
            raise BreachError("a delivery is forwarded without its message")
        return bytes(body)

    def lost(self, home: str) -> None:
        """The contact is over: what is forwarded in the next one comes whole."""
        self.come.pop(home, None)
