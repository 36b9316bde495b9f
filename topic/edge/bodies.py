"""The pieces of large messages that have come ahead of their Forwards (protocol 5, Large messages).

Each publisher has at most one such message, because its deliveries are in order. This module does not know whether the
router is the home of a publisher.
"""

from topic.errors import BreachError


class Bodies:
    """The pieces of messages whose home is another router."""

    def __init__(self, largest: int) -> None:
        """`largest`: most bytes of a message."""
        self._largest = largest
        self.come: dict[bytes, tuple[str, bytes, bytearray]] = {}
        """Keyed by publisher: its home, the delivery's key, and the part of the message that has come."""

    def add(self, home: str, publisher: bytes, key: bytes, at: int, piece: bytes) -> None:
        """Take a piece. `at`: the offset of its first byte in the message. An empty piece drops the message. Raises
        BreachError if the piece does not fit."""
        if not piece:
            return self.drop(publisher)
        if not at:
            self.come[publisher] = home, key, bytearray()
        _, known, body = self.come.get(publisher, (home, b"", bytearray()))
        if known != key:
            raise BreachError("a piece belongs to another message than the piece before it")
        if len(body) != at:
            raise BreachError(f"a piece of a message begins at byte {at}, expected byte {len(body)}")
        if at + len(piece) > self._largest:
            raise BreachError(f"a message has more than {self._largest} bytes")
        body += piece

    def take(self, publisher: bytes, key: bytes) -> bytes:
        """Remove and return the message of a delivery that was forwarded without it. Raises BreachError if the pieces
        are of another delivery."""
        _, known, body = self.come.pop(publisher, ("", b"", bytearray()))
        if known != key:
            raise BreachError("a delivery was forwarded before its message was complete")
        return bytes(body)

    def drop(self, publisher: bytes) -> None:
        """Drop the pieces: the publisher has moved or is gone, or its home has said so."""
        self.come.pop(publisher, None)

    def contact_lost(self, home: str) -> None:
        """The contact is lost: drop the pieces of this home. In the next contact the home begins again."""
        for publisher in [publisher for publisher, (of, *_) in self.come.items() if of == home]:
            self.drop(publisher)
