"""Large messages on their way: what has come of them ahead of their Forwards (protocol 5, Large messages).

Each publisher has one at most, as its order is kept. Whether a router is home of one is not known here.
"""

from topic.errors import BreachError


class Bodies:
    """The pieces of the publishers of other routers."""

    def __init__(self, largest: int) -> None:
        """`largest`: most bytes of a message."""
        self._largest = largest
        self.come: dict[bytes, tuple[str, bytes, bytearray]] = {}
        """Keyed by publisher: its home, the delivery's key, and the part of the message that has come."""

    def add(self, home: str, publisher: bytes, key: bytes, at: int, piece: bytes) -> None:
        """Take a piece that begins with that byte of the message; an empty one ends it. Raises BreachError."""
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
        """Remove and return the message of a delivery that was forwarded without it. Raises BreachError."""
        _, known, body = self.come.pop(publisher, ("", b"", bytearray()))
        if known != key:
            raise BreachError("a delivery was forwarded before its message was complete")
        return bytes(body)

    def drop(self, publisher: bytes) -> None:
        """The message does not come: the publisher has moved or is gone, or its home has said so."""
        self.come.pop(publisher, None)

    def lost(self, home: str) -> None:
        """The contact is lost: a home forwards whole messages in the next one."""
        for publisher in [publisher for publisher, (of, *_) in self.come.items() if of == home]:
            self.drop(publisher)
