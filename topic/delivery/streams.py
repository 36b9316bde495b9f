"""The streams of one router, as home or as edge, keyed by publisher and by address. `topic.delivery.record` defines a
stream."""

from collections.abc import Collection, Iterator, Mapping
from typing import TypeVar

from topic.delivery.kinds import AddressKinds
from topic.delivery.record import Stream
from topic.directory.addresses import ByAddress
from topic.directory.entry import LinkEntry

S = TypeVar("S", bound=Stream)


class Streams(Mapping[bytes, S]):
    """All streams of this router as home, or as edge. A publisher has at most one stream: the stream of its current
    epoch."""

    def __init__(self) -> None:
        self._by_publisher: dict[bytes, S] = {}
        self._at: ByAddress[bytes, S] = ByAddress()

    def __getitem__(self, publisher: bytes) -> S:
        return self._by_publisher[publisher]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._by_publisher)

    def __len__(self) -> int:
        return len(self._by_publisher)

    def at(self, address: str) -> Collection[S]:
        """The streams of an address, or of all addresses that a pattern covers."""
        return self._at.meeting(address)

    def add(self, stream: S) -> None:
        assert stream.publisher not in self._by_publisher, "a new epoch abandons or re-homes the old stream first"
        self._by_publisher[stream.publisher] = stream
        self._at.at(stream.address)[stream.publisher] = stream

    def discard(self, stream: S) -> None:
        """Remove the stream, because the publisher has a later stream, or is gone."""
        if self._by_publisher.get(stream.publisher) is stream:
            del self._by_publisher[stream.publisher]
            self._at.discard(stream.address, stream.publisher)


def stream_of(publisher: LinkEntry, kinds: AddressKinds) -> Stream:
    """Make a stream for the publisher's current epoch. Another router is the home."""
    kind = kinds.of(publisher.identity.address)
    return Stream(publisher.name, publisher.identity, publisher.epoch, publisher.generation, kind)
