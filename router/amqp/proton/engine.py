"""The proton engine of one connection: its three C objects, and the bytes that go into them and come out.

`Connection` handles proton's events. The frame tap (`tap`) reads and changes the bytes for `push` and from `pull`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from router.amqp.proton.library import MEMORY, OUTPUT_SIZE, ffi, lib, write_map, write_symbol

MAX_SESSIONS: Final = 255
LEAST_STEP_S: Final = 0.025
"""The shortest time between two ticks of a connection, in seconds. A tick sends a heartbeat that is due. A peer whose
idle timeout is shorter than this gets its heartbeats too late, and closes the connection."""


class Engine:
    """Owns proton's connection, collector and transport until `release`."""

    __slots__ = ("_idle_ms", "collector", "connection", "transport")

    def __init__(
        self,
        container: str,
        server: bool,
        hostname: str | None,
        properties: Mapping[str, Any] | None,
        max_frame: int,
        idle_timeout: float,
        offers: str,
    ) -> None:
        self.connection = lib.pn_connection()
        self.collector = lib.pn_collector()
        self.transport = lib.pn_transport()
        lib.pn_connection_set_container(self.connection, container.encode())
        if hostname is not None:
            lib.pn_connection_set_hostname(self.connection, hostname.encode())
        write_map(properties, lib.pn_connection_properties(self.connection))
        write_symbol(offers, lib.pn_connection_offered_capabilities(self.connection))
        lib.pn_connection_collect(self.connection, self.collector)
        if server:
            lib.pn_transport_set_server(self.transport)
        lib.pn_transport_set_max_frame(self.transport, max_frame)
        lib.pn_transport_set_channel_max(self.transport, MAX_SESSIONS)
        self._idle_ms = int(idle_timeout * 1000)
        lib.pn_transport_set_idle_timeout(self.transport, self._idle_ms)
        lib.pn_transport_bind(self.transport, self.connection)

    def push(self, data: bytes, offset: int, end: int) -> None:
        """Give proton bytes of the peer, from `offset` to `end`. Bytes after the peer's close, or after an error, are
        dropped; events report the close or the error."""
        source = ffi.from_buffer(data)
        while offset < end:
            capacity = lib.pn_transport_capacity(self.transport)
            if capacity <= 0:
                return
            count = lib.pn_transport_push(self.transport, source + offset, min(capacity, end - offset))
            if count <= 0:
                return
            offset += count

    def push_frame(self, frame: bytes) -> None:
        """Give proton a frame as if the peer had written it."""
        self.push(frame, 0, len(frame))

    def push_end(self) -> None:
        lib.pn_transport_close_tail(self.transport)

    @property
    def has_opened(self) -> bool:
        """Whether our end has opened."""
        return not lib.pn_connection_state(self.connection) & lib.PN_LOCAL_UNINIT

    @property
    def has_output(self) -> bool:
        return bool(lib.pn_transport_pending(self.transport) > 0)

    def pull(self) -> bytes:
        """All output of proton so far."""
        parts: list[bytes] = []
        end, output = 0, MEMORY.output
        while (size := lib.pn_transport_pending(self.transport)) > 0:
            if end == OUTPUT_SIZE:
                parts.append(ffi.unpack(output, end))
                end = 0
            size = lib.pn_transport_peek(self.transport, output + end, min(size, OUTPUT_SIZE - end))
            lib.pn_transport_pop(self.transport, size)
            end += size
        last: bytes = ffi.unpack(output, end)
        return b"".join((*parts, last)) if parts else last

    def pull_session_flows(self, sessions: Iterable[Any]) -> bytes:
        """All output, and then a flow for each session. Proton writes such a flow when the session's window is set
        again. One call handles all sessions, because a pull visits every link.
        """
        # Take the output first: otherwise a settlement on a freed link would make proton write a flow without a handle.
        before = self.pull()
        for session in sessions:
            lib.pn_session_set_incoming_capacity(session, 0)
        return before + self.pull()

    def pull_receiver_flows(self, links: Sequence[Any]) -> bytes:
        """All output, and a flow for each of these receiving links. Proton writes such a flow when drain is set."""
        draining = [lib.pn_link_get_drain(link) for link in links]
        for link in links:
            lib.pn_link_drain(link, 0)
        data = self.pull()
        for link, was_draining in zip(links, draining, strict=True):
            if not was_draining:
                # A flow of 0 credit ends the drain.
                lib.pn_link_flow(link, 0)
        return data

    def tick(self, now: float) -> float | None:
        """Apply the idle timeouts of both ends. Returns the time of the next call."""
        # The time is at least 1, because proton takes 0 for "never yet".
        lib.pn_transport_tick(self.transport, int(now * 1000) + 1)
        theirs_ms = lib.pn_transport_get_remote_idle_timeout(self.transport)
        timeouts = [timeout for timeout in (self._idle_ms, theirs_ms) if timeout]
        if not timeouts:
            return None
        # Proton compares byte counts between two ticks: four ticks in a timeout bound its error to a quarter.
        # Connections with the same timeout tick at the same instants, so that idle ones wake the process once.
        step = max(min(timeouts) / 4000, LEAST_STEP_S)
        # `now + step / 1000` is used, because rounding may put `now` slightly before such an instant.
        return ((now + step / 1000) // step + 1) * step

    def release(self) -> None:
        """Free all of proton's objects. No pointer of this connection may be used afterwards."""
        if self.connection is None:
            return
        lib.pn_collector_release(self.collector)
        lib.pn_transport_unbind(self.transport)
        lib.pn_connection_release(self.connection)
        for pointer in (self.connection, self.transport, self.collector):
            lib.pn_decref(pointer)
        self.connection = self.collector = self.transport = None

    def __del__(self) -> None:
        self.release()
