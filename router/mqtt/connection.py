"""One client's MQTT connection, sans-I/O: decodes bytes to packets, requires a CONNECT first, and times out silence.

`router.amqp.driven` drives it as it drives an AMQP connection. An `MqttHandler` decides what packets mean. If a packet
breaks MQTT, the packets before it count and the bytes after it are ignored.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Final, Protocol

from router.amqp.driven import DrivenConnection
from router.mqtt.aliases import ALIAS, ReceivedAliases, SentAliases
from router.mqtt.format.packets import (
    PINGRESP,
    AckPacket,
    ConnectPacket,
    DisconnectPacket,
    Packet,
    PingPacket,
    PublishPacket,
    SubscribePacket,
    UnsubscribePacket,
    connack,
    disconnect,
    read_packet,
    version_of,
)
from router.mqtt.format.values import V3, V5, MqttError, PacketKind, Reason

PATIENCE: Final = 1.5
"""The silence after which a client is disconnected, as a multiple of its keep-alive (MQTT 5 3.1.2.10)."""
LOOK_S: Final = 10.0
"""The shell checks at least this often whether the client reads its output, in seconds."""
MOST_PACKET: Final = 64 * 1024
"""The highest number of bytes of any packet except PUBLISH. Such a packet is handled in one turn, so its size bounds
the turn."""
HEADER_MOST: Final = 5
HELD_MOST: Final = 4 * 1024 * 1024
"""The highest number of bytes that the router buffers from a client whose packets are held. One packet of any allowed
size always fits."""
HELD_TURN: Final = 32 * 1024
"""The bytes of held packets that are handled in one turn."""
HELD_PACKETS: Final = 5000
"""The highest number of held packets among which the router looks for a DISCONNECT."""
MOST_ANSWERS: Final = 8 * 1024 * 1024
"""The highest number of bytes of answers and other packets that wait until the client reads them. Packets of messages
do not count, because the credit of the client's subscriptions bounds them. One answer for each of the 65,535
identifiers takes 5 MB in all, which is below this limit."""
OVERHEAD: Final = 64
"""About how many bytes of memory a waiting packet takes besides its own bytes."""


class MqttHandler(Protocol):
    """Handles the packets of connections."""

    def on_connect(self, connection: "MqttConnection", packet: ConnectPacket) -> None: ...
    def on_first_word(self, connection: "MqttConnection") -> None:
        """Called before the client's first packet after the CONNACK is handled. The packet shows that the client has
        read the CONNACK."""

    def on_publish(self, connection: "MqttConnection", packet: PublishPacket) -> None: ...
    def on_ack(self, connection: "MqttConnection", packet: AckPacket) -> None: ...
    def on_subscribe(self, connection: "MqttConnection", packet: SubscribePacket) -> None: ...
    def on_unsubscribe(self, connection: "MqttConnection", packet: UnsubscribePacket) -> None: ...

    def on_disconnect(self, connection: "MqttConnection", packet: DisconnectPacket) -> None:
        """Called when the client sends a DISCONNECT. `on_close` follows."""

    def on_batch(self, connection: "MqttConnection") -> None:
        """Called when all packets of one read have been handled."""

    def on_close(self, connection: "MqttConnection", packet: DisconnectPacket | None) -> None:
        """Called when the connection is over. `packet` is the client's DISCONNECT, if it sent one."""


class MqttConnection(DrivenConnection):
    protocol: Final = "mqtt"

    def __init__(self, handler: MqttHandler, max_packet: int, opening: float) -> None:
        """`opening`: the seconds within which the CONNECT has to come."""
        super().__init__()
        self.heartbeat = PINGRESP
        self.mechanism = ""
        self.has_spoken = False
        """Whether the client has sent a packet after its CONNECT."""
        self.error: MqttError | None = None
        self.version = V5
        self.aliases = SentAliases(0)
        """The topic aliases for messages that the router sends to the client."""
        self._aliases = ReceivedAliases()
        self.gives_reasons = True
        """Whether acknowledgements may carry a reason string (MQTT 5 3.1.2.11.7)."""
        self.max_packet = max_packet
        self._handler = handler
        self._opening = opening
        self._begun: float | None = None
        self._keep_alive = 0.0
        self._buffer = bytearray()
        self._held: Callable[[], None] | None = None
        # True once the client has sent bytes after the read that brought its CONNECT.
        self._has_said_more = False
        self._out: list[bytes] = []
        self._answers = 0  # the number of bytes in `_out`

    # The methods from here on take input.

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes of the peer. If the peer broke MQTT, calls `on_close` and raises MqttError."""
        self.last_received = now
        if self.closed or self.closing:
            return
        self._has_said_more = self.opened
        self._buffer += data
        if self._held is None:
            self._handle_all()
        elif len(self._buffer) > max(HELD_MOST, self.max_packet):
            self._fail(MqttError(Reason.QUOTA, "the client sent too many bytes before the router knew that it lives"))

    def hold(self, then: Callable[[], None]) -> None:
        """Keep the packets that arrive from now on unread in the buffer, until the router has proof that the client is
        alive. Then call `then`, and handle the packets. If the connection ends before the proof, the packets are
        dropped: the client repeats most of them on its next connection. `take_leave` handles the packets that a client
        never repeats."""
        self._held = then
        self.prove(self._proven)

    def _proven(self) -> None:
        then, self._held = self._held, None
        if then is not None and not self.is_over:
            then()
            self._handle_all(HELD_TURN)

    def _handle_all(self, most: float = math.inf) -> None:
        """Handle the complete packets of the buffer. Packets that begin after `most` bytes wait for another turn."""
        try:
            self._take(most)
        except MqttError as error:
            self._handler.on_batch(self)
            self._fail(error)
        else:
            self._handler.on_batch(self)

    def _take(self, most: float) -> None:
        buffer, at = self._buffer, 0
        if not self.opened and buffer and buffer[0] >> 4 != PacketKind.CONNECT:
            raise MqttError(Reason.PROTOCOL_ERROR, "the client sent a packet before its CONNECT")
        try:
            while self._held is None and not self.is_over and (found := self._header(at)) is not None:
                start, end = found
                if end > len(buffer):
                    break
                if at > most:
                    self.hold(lambda: None)
                    break
                if self.opened and not self.has_spoken:
                    self.has_spoken = True
                    self._handler.on_first_word(self)
                    continue
                first, body, at = buffer[at], bytes(buffer[start:end]), end
                if not self.opened:
                    self.version = version_of(body)
                self._handle(read_packet(first, body, self.version))
                if self._answers > MOST_ANSWERS:
                    raise MqttError(
                        Reason.QUOTA, f"{self._answers} bytes of answers wait, which the client does not read"
                    )
        finally:
            del buffer[:at]

    def _header(self, at: int) -> tuple[int, int] | None:
        """The offsets at which the body of the packet at `at` begins and ends; None if its header is incomplete. Raises
        MqttError."""
        size, buffer = 0, self._buffer
        for digit, byte in enumerate(buffer[at + 1 : at + HEADER_MOST]):
            size |= (byte & 0x7F) << (7 * digit)
            if byte < 0x80:
                publishes = self.opened and buffer[at] >> 4 == PacketKind.PUBLISH
                most = self.max_packet if publishes else min(self.max_packet, MOST_PACKET)
                if size > most:
                    limit = "max_message" if publishes else "max_frame"
                    raise MqttError(
                        Reason.TOO_LARGE, f"the client sent a packet of {size} bytes, expected at most {most}", limit
                    )
                start = at + 2 + digit
                return start, start + size
        if len(buffer) - at >= HEADER_MOST:
            raise MqttError(Reason.MALFORMED, "the length field of a packet has too many bytes")
        return None

    def _handle(self, packet: Packet) -> None:
        match packet:
            case PublishPacket():
                self._handler.on_publish(self, self._named(packet))
            case AckPacket():
                self._handler.on_ack(self, packet)
            case PingPacket():
                self.send(PINGRESP)
            case SubscribePacket():
                self._handler.on_subscribe(self, packet)
            case UnsubscribePacket():
                self._handler.on_unsubscribe(self, packet)
            case DisconnectPacket():
                self._handler.on_batch(self)
                self._handler.on_disconnect(self, packet)
                self._finish(packet)
            case ConnectPacket():
                if self.opened:
                    raise MqttError(Reason.PROTOCOL_ERROR, "the client sent a second CONNECT")
                self._handler.on_connect(self, packet)

    def told(self, why: str) -> str:
        """The reason string that an acknowledgement carries; empty if the client wants none."""
        return why if self.gives_reasons else ""

    def _named(self, packet: PublishPacket) -> PublishPacket:
        """The packet with its topic. Raises MqttError if it has a property that clients may not send."""
        if "subscription-identifier" in packet.properties:
            why = "the PUBLISH has a subscription identifier, which clients may not send"
            raise MqttError(Reason.PROTOCOL_ERROR, why)
        return self._aliases.named(packet) if ALIAS in packet.properties else packet

    def open(self, client: str, keep_alive: int) -> None:
        """Accept the client under this name. `keep_alive` is in seconds; 0: none."""
        self.opened = True
        self.remote_container = client
        self._keep_alive = PATIENCE * keep_alive

    def receive_eof(self) -> None:
        self._finish(None)

    def take_leave(self) -> None:
        """Drop the held packets, but first handle the packets that the client never repeats: a DISCONNECT, and the QoS
        0 messages before it. They are handled only if a DISCONNECT is among the held packets and came in a later read
        than the CONNECT. This client has read the CONNACK, and may be at another router by now."""
        # An error of a held packet is ignored, because the client is gone and reads no answer.
        with suppress(MqttError):
            self._take_leave()

    def _take_leave(self) -> None:
        settled = list[Packet]()
        for first, start, end in islice(self._held_packets(), HELD_PACKETS):
            if first >> 4 == PacketKind.DISCONNECT:
                for packet in settled:
                    self._handle(packet)
                self._handle(read_packet(first, bytes(self._buffer[start:end]), self.version))
                break
            if first >> 4 == PacketKind.PUBLISH:
                packet = read_packet(first, bytes(self._buffer[start:end]), self.version)
                assert isinstance(packet, PublishPacket)
                named = self._named(packet)
                if not packet.qos:
                    settled.append(named)

    def _held_packets(self) -> Iterator[tuple[int, int, int]]:
        """Yield, for each packet that came after the CONNECT, its first byte, and the offsets at which its body begins
        and ends."""
        at, is_held = 0, self._held is not None and self._has_said_more and not self.is_over
        while is_held and (found := self._header(at)) is not None and found[1] <= len(self._buffer):
            yield self._buffer[at], *found
            at = found[1]

    def tick(self, now: float) -> float | None:
        """Apply the timeouts. Returns the time of the next call, None if there is none. Raises MqttError if the client
        was silent for too long."""
        if self.closed:
            return None
        self._begun = now if self._begun is None else self._begun
        heard = self._begun if self.last_received is None else self.last_received
        if not self.opened:
            deadline = self._begun + self._opening
            if now >= deadline:
                self._fail(MqttError(Reason.PROTOCOL_ERROR, "the client sent no CONNECT in time", "opening"))
            return deadline
        if not self._keep_alive:
            return now + LOOK_S
        if now >= heard + self._keep_alive:
            self._fail(MqttError(Reason.KEEP_ALIVE, f"the client was silent for {self._keep_alive:g} s"))
        return min(heard + self._keep_alive, now + LOOK_S)

    # The methods from here on make output.

    @property
    def has_output(self) -> bool:
        return bool(self._out)

    @property
    def unsent(self) -> int:
        """The number of packets that wait to be written."""
        return len(self._out)

    @property
    def is_over(self) -> bool:
        """Whether the router sends nothing more on this connection."""
        return self.closed or self.closing

    def send(self, packet: bytes) -> None:
        self._out.append(packet)
        if packet[0] >> 4 != PacketKind.PUBLISH:
            self._answers += OVERHEAD + len(packet)

    def data_to_send(self) -> bytes:
        data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
        self._out.clear()
        self._answers = 0
        return data

    # The methods from here on end the connection.

    def close(self, condition: str | None = None, description: str = "") -> None:
        """End the connection for the router. `condition` is an AMQP error condition."""
        self.leave(Reason.SHUTTING_DOWN if condition == "amqp:connection:forced" else Reason.UNSPECIFIED, description)

    def leave(self, reason: Reason, description: str) -> None:
        """End the connection with a DISCONNECT. A server of MQTT 3.1.1 has no DISCONNECT to send, so there the
        connection just ends."""
        if self.is_over:
            return
        self.closing = True
        if self.version == V3 or not self.opened:
            self._finish(None)
        else:
            self.send(disconnect(reason, description))
        self.wake()

    def taken_over(self) -> None:
        """End the connection, because the client has connected at another router (`topic.wills.wills.WillHolder`)."""
        self.leave(Reason.TAKEN_OVER, "the client has connected again")

    def _fail(self, error: MqttError) -> None:
        self.error = error
        if self.opened and self.version == V5:
            self.send(disconnect(error.reason, error.description))
        elif not self.opened and self._is_answered(error):
            self.send(connack(self.version, error.reason, told={"reason-string": error.description}))
        self._finish(None)
        raise error

    def _is_answered(self, error: MqttError) -> bool:
        """Whether the router answers a wrong CONNECT with a CONNACK (MQTT 5 4.13.1). It does not answer a malformed
        one."""
        if error.reason is Reason.UNSUPPORTED_VERSION:
            self.version = V3
        return error.reason not in (Reason.MALFORMED, Reason.PROTOCOL_ERROR, Reason.TOO_LARGE)

    def _finish(self, packet: DisconnectPacket | None) -> None:
        if packet is None:
            self.take_leave()
        if not self.closed:
            self.closed = True
            self._handler.on_close(self, packet)

    def release(self) -> None:
        """Drop all buffers. This is the last call of the shell."""
        self._finish(None)
        self._out.clear()
        self._buffer.clear()
