"""One AMQP connection, sans-I/O. (Signatures; the engine follows.)"""

from collections.abc import Callable, Mapping
from typing import Any

from router.amqp.handler import EXPIRE_SESSION, RCV_FIRST, SND_MIXED, Handler
from router.amqp.link import Link


class Connection:
    context: Any = None  # the owner's
    closed: bool = False  # over: nothing more to send or to receive
    remote_container: str = ""
    remote_hostname: str = ""
    remote_properties: Mapping[str, Any]
    last_received: float = 0.0  # `now` of the last receive()
    on_wake: Callable[[], None] | None = None  # set by the transport
    links: list[Link]

    def __init__(
        self,
        handler: Handler,
        *,
        container: str,
        server: bool,
        hostname: str | None = None,
        properties: Mapping[str, Any] | None = None,
        max_frame: int = 64 * 1024,
        max_message: int = 16 * 1024 * 1024,
        idle_timeout: float = 0.0,
    ) -> None:
        raise NotImplementedError

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes from the peer, call the handler. Raises PeerError (after on_close) when the peer broke AMQP; what
        is then still in data_to_send() should be written before the socket is closed."""
        raise NotImplementedError

    def receive_eof(self) -> None:
        """The peer's half of the stream ended: on_close, if it did not come before."""
        raise NotImplementedError

    def data_to_send(self) -> bytes:
        """Everything pending; b"" if nothing."""
        raise NotImplementedError

    def tick(self, now: float) -> float | None:
        """Idle timeouts both ways; returns when to be called next (None: never). Raises PeerError on silence."""
        raise NotImplementedError

    def open(self) -> None:
        raise NotImplementedError

    def close(self, condition: str | None = None, description: str = "") -> None:
        """Begin closing: no link of it does anything any more; on_close follows when the peer has closed too (or is
        gone)."""
        raise NotImplementedError

    def wake(self) -> None:
        """The owner changed something outside of receive(): there is something to flush. Cheap, any number of times."""
        raise NotImplementedError

    def sender(
        self,
        name: str,
        target: str,
        *,
        snd_settle_mode: int = SND_MIXED,
        rcv_settle_mode: int = RCV_FIRST,
        durable: int = 0,
        expiry_policy: str = EXPIRE_SESSION,
        timeout: int = 0,
        properties: Mapping[str, Any] | None = None,
    ) -> Link:
        """Attach a sending link to the peer's node `target`."""
        raise NotImplementedError

    def receiver(
        self,
        name: str,
        source: str,
        *,
        snd_settle_mode: int = SND_MIXED,
        rcv_settle_mode: int = RCV_FIRST,
        durable: int = 0,
        expiry_policy: str = EXPIRE_SESSION,
        timeout: int = 0,
        max_message_size: int = 0,
        properties: Mapping[str, Any] | None = None,
    ) -> Link:
        """Attach a receiving link to the peer's node `source`."""
        raise NotImplementedError
