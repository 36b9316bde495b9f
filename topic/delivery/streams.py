"""The streams of one router, as home or as edge: by publisher, and by address. What is in them is
`topic.delivery.record`'s."""

from collections.abc import Collection, Iterator, Mapping

from topic.delivery.record import Stream


class Streams(Mapping[bytes, Stream]):
    """At most one stream for each publisher: that of its current epoch."""

    def __init__(self) -> None:
        self._by_publisher: dict[bytes, Stream] = {}
        self._at: dict[str, dict[bytes, Stream]] = {}

    def __getitem__(self, publisher: bytes) -> Stream:
        return self._by_publisher[publisher]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._by_publisher)

    def __len__(self) -> int:
        return len(self._by_publisher)

    def at(self, address: str) -> Collection[Stream]:
        """The streams of an address."""
        return self._at.get(address, {}).values()

    def add(self, stream: Stream) -> None:
        assert stream.publisher not in self._by_publisher, "a new epoch abandons or re-homes the old stream first"
        self._by_publisher[stream.publisher] = stream
        self._at.setdefault(stream.address, {})[stream.publisher] = stream

    def discard(self, stream: Stream) -> None:
        """The publisher has a later stream, or none."""
        if self._by_publisher.get(stream.publisher) is stream:
            del self._by_publisher[stream.publisher]
            at_address = self._at[stream.address]
            del at_address[stream.publisher]
            if not at_address:
                del self._at[stream.address]
