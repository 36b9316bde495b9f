"""Keeps pieces of large messages that have come before their Forwards (protocol 5, Large messages).

A publisher's deliveries are in order, so at most one message of each publisher comes in pieces at a time. This module
does not know whether this router is the home of a publisher.
"""

from topic.errors import BreachError


class Bodies:
    """The pieces of messages that other homes send to this router."""

    def __init__(self, largest: int) -> None:
        """`largest`: the highest number of bytes that a message may have."""
        self._largest = largest
        self.come: dict[bytes, tuple[str, bytes, bytearray]] = {}
        """Maps each publisher to three values: the publisher's home, the key of the delivery, and the part of the
        message that has come so far."""

    def add(self, home: str, publisher: bytes, key: bytes, at: int, piece: bytes) -> None:
        """Add a piece. `at`: the offset of its first byte in the message. An empty piece means that the home has
        dropped the message. Raises BreachError if the piece does not fit."""
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
        """Take the message of a delivery whose Forward came without it, because the pieces came before. Raises
        BreachError if the pieces belong to another delivery."""
        _, known, body = self.come.pop(publisher, ("", b"", bytearray()))
        if known != key:
            raise BreachError("a delivery was forwarded before its message was complete")
        return bytes(body)

    def drop(self, publisher: bytes) -> None:
        """Drop the pieces of this publisher, which has moved or is gone, or whose home has dropped the message."""
        self.come.pop(publisher, None)

    def contact_lost(self, home: str) -> None:
        """Drop the pieces that the lost home has sent. In the next contact the home sends its messages from the
        beginning."""
        for publisher in [publisher for publisher, (of, *_) in self.come.items() if of == home]:
            self.drop(publisher)
