"""Sends channel frames towards their targets (protocol 3, layer 2): one copy to each next hop, even if the
next hop leads to many targets.

A frame names its targets. Every router groups them by next hop, and sends each group on with the chunk as it came. A
relay writes a new header and never decodes a payload. A router drops a target without a next hop. It also drops a frame
that has crossed more links than the mesh has routers, because frames may go in circles while routes change.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from linkstate.chunks import Buffer, Chunk
from linkstate.clock import HybridClock
from linkstate.frames import DATA, PART, ChannelFrame, Target, bin_prefix, encode_header
from linkstate.paths import Route


class Forwarding:
    """Sends this router's own frames, and passes on frames of other routers."""

    def __init__(
        self,
        name: str,
        max_hops: Callable[[], int],
        clock: HybridClock,
        routes: Callable[[], Mapping[str, Route]],
        transmit: Callable[[str, bytes], None],
    ) -> None:
        self._name = name
        self._max_hops = max_hops
        self._clock = clock
        self._routes = routes
        self._transmit = transmit

    def send(self, kind: int, target: Target) -> None:
        self._dispatch(kind, self._name, self._max_hops(), self._clock.read(), (target,), ())

    def send_chunk(self, chunk: Chunk, targets: Iterable[Target]) -> None:
        kind, content = PART if chunk.more else DATA, (bin_prefix(len(chunk.content)), chunk.content)
        self._dispatch(kind, self._name, self._max_hops(), self._clock.read(), targets, content)

    def relay(self, frame: ChannelFrame, targets: Iterable[Target]) -> None:
        hops_left = min(frame.hops_left, self._max_hops()) - 1
        if hops_left > 0:
            self._dispatch(frame.kind, frame.source, hops_left, frame.clock, targets, (frame.raw_chunk(),))

    def _dispatch(
        self,
        kind: int,
        source: str,
        hops_left: int,
        clock: int,
        targets: Iterable[Target],
        content: Sequence[Buffer],
    ) -> None:
        routes = self._routes()
        by_hop: dict[str, list[Target]] = {}
        for target in targets:
            route = routes.get(target[0])
            if route is not None:
                by_hop.setdefault(route.next_hop, []).append(target)
        for next_hop, group in by_hop.items():
            header = encode_header([kind, source, hops_left, clock, group])
            self._transmit(next_hop, b"".join((header, *content)))
