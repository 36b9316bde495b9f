"""Asks the kernel about a TCP connection: whether the peer's machine is there, and has acknowledged our bytes.

Many clients answer no echo (`router.amqp.frames.echo`), but the kernel of their machine acknowledges bytes. It does so
only for an open socket: once a process has ended or has closed its socket, the kernel answers with a reset. So an
acknowledgement proves that the peer still had this connection after the bytes were written. It does not prove that the
peer has read them, or still uses the connection. The acknowledgement comes from the machine at the other end of this
very socket, which may be a proxy.
"""

import contextlib
import socket
import sys
from typing import Final

import trio

from router.amqp.format.values import StreamFigures

TCP_NOTSENT_LOWAT: Final = 25  # a socket option of Linux, for which Python 3.11 has no name
UNSENT_BYTES: Final = 256 * 1024
"""The socket of a neighbour (`short`) buffers at most this many bytes beyond the bytes under way."""
# Linux's TCP_INFO of an open connection begins with this byte.
ESTABLISHED: Final = 1
# The length of TCP_INFO on Linux 4.1 and later.
TCP_INFO_BYTES: Final = 136

if sys.platform == "linux":
    import fcntl
    import struct
    import termios

    class Kernel:
        """Queries the kernel about one TCP socket."""

        def __init__(self, stream: trio.SocketStream) -> None:
            self._socket = stream.socket

        def unacknowledged(self) -> int:
            """Bytes that were written and that the peer's machine has not acknowledged yet."""
            return self._count(termios.TIOCOUTQ)

        def unread(self) -> int:
            """Bytes that have arrived and were not read yet."""
            return self._count(termios.FIONREAD)

        def is_open(self) -> bool:
            """Whether neither end has closed its direction, as far as this machine knows."""
            return self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == ESTABLISHED

        def figures(self) -> StreamFigures:
            """The figures that this kernel keeps."""
            told = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
            rtt_us, sent, received = struct.unpack_from("68xI48xQQ", told.ljust(TCP_INFO_BYTES, b"\0"))
            return StreamFigures(sent, received, rtt_us / 1e6)

        def _count(self, request: int) -> int:
            count: int = struct.unpack("i", fcntl.ioctl(self._socket.fileno(), request, bytes(4)))[0]
            return count

    def kernel_of(stream: trio.abc.Stream) -> Kernel | None:
        """The kernel's view of this stream; None if the stream is no plain socket: the kernel counts bytes of a socket,
        not of a layer above it."""
        if not isinstance(stream, trio.SocketStream) or stream.socket.family not in (socket.AF_INET, socket.AF_INET6):
            return None
        return Kernel(stream)

else:

    class Kernel:
        """Has no objects, because this kernel has no such figures."""

        def unacknowledged(self) -> int:
            raise NotImplementedError

        unread = is_open = unacknowledged

        def figures(self) -> StreamFigures:
            raise NotImplementedError

    def kernel_of(stream: trio.abc.Stream) -> Kernel | None:
        return None


def prompt(stream: trio.SocketStream) -> trio.SocketStream:
    """Let written bytes leave at once, without Nagle's delay."""
    with contextlib.suppress(OSError):
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream


def acknowledge(stream: trio.SocketStream) -> None:
    """Acknowledge received bytes now, because the sender may wait for that before it sends more (RFC 896)."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def short(stream: trio.SocketStream) -> trio.SocketStream:
    """Keep few unsent bytes in the socket. The other bytes wait in the outbox, where link state can overtake data."""
    if sys.platform == "linux":
        stream.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, UNSENT_BYTES)
    return stream


def remote_address(stream: trio.abc.Stream) -> str:
    """Host and port of the other end; empty if unknown."""
    if not isinstance(stream, trio.SocketStream) or stream.socket.family not in (socket.AF_INET, socket.AF_INET6):
        return ""
    try:
        host, port = stream.socket.getpeername()[:2]
    # The socket is closed.
    except OSError:
        return ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
