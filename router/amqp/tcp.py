"""What the kernel does for a connection, and knows of its other end: whether it has taken what we wrote, and is there.

Many clients answer no echo (`router.amqp.frames.echo`), but the machine under them acknowledges. It does so for an
open socket only: once a process has ended, or has closed its socket, the answer is a reset. So what is acknowledged
proves that the peer still had this connection after it was written; not that it has read anything, nor that it still
uses it. And it is the machine at the other end of this very socket that speaks: a proxy's, if there is one.
"""

import contextlib
import socket
import sys
from typing import Final

import trio

from router.amqp.format.values import StreamFigures

TCP_NOTSENT_LOWAT: Final = 25  # of Linux; Python 3.11 has no name for it
UNSENT_BYTES: Final = 256 * 1024
"""What a short socket takes beyond what is under way."""
ESTABLISHED: Final = 1  # of Linux, as the first byte of TCP_INFO
TCP_INFO_BYTES: Final = 136  # the begin of it, as of Linux 4.1

if sys.platform == "linux":
    import fcntl
    import struct
    import termios

    class Kernel:
        """Asked about one TCP socket."""

        def __init__(self, stream: trio.SocketStream) -> None:
            self._socket = stream.socket

        def unacknowledged(self) -> int:
            """Bytes that were written and that the peer's machine has not acknowledged yet."""
            return self._count(termios.TIOCOUTQ)

        def unread(self) -> int:
            """Bytes that have come and were not read yet."""
            return self._count(termios.FIONREAD)

        def is_open(self) -> bool:
            """Whether neither end has closed its direction, as far as is known here."""
            return self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == ESTABLISHED

        def figures(self) -> StreamFigures:
            """As far as this kernel counts."""
            told = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
            rtt_us, sent, received = struct.unpack_from("68xI48xQQ", told.ljust(TCP_INFO_BYTES, b"\0"))
            return StreamFigures(sent, received, rtt_us / 1e6)

        def _count(self, request: int) -> int:
            count: int = struct.unpack("i", fcntl.ioctl(self._socket.fileno(), request, bytes(4)))[0]
            return count

    def kernel_of(stream: trio.abc.Stream) -> Kernel | None:
        """Who can tell of this stream; None if nobody can: what it carries must be its bytes, one for one."""
        if not isinstance(stream, trio.SocketStream) or stream.socket.family not in (socket.AF_INET, socket.AF_INET6):
            return None
        return Kernel(stream)

else:

    class Kernel:
        """Never made: this one does not tell."""

        def unacknowledged(self) -> int:
            raise NotImplementedError

        unread = is_open = unacknowledged

        def figures(self) -> StreamFigures:
            raise NotImplementedError

    def kernel_of(stream: trio.abc.Stream) -> Kernel | None:
        return None


def prompt(stream: trio.SocketStream) -> trio.SocketStream:
    """What is written leaves at once."""
    with contextlib.suppress(OSError):
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream


def acknowledge(stream: trio.SocketStream) -> None:
    """What has come is acknowledged now: its sender may wait for that before it sends more (RFC 896)."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def short(stream: trio.SocketStream) -> trio.SocketStream:
    """Little waits in the socket: the rest waits where link state goes before data."""
    if sys.platform == "linux":
        stream.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, UNSENT_BYTES)
    return stream


def remote_address(stream: trio.abc.Stream) -> str:
    """Host and port of its other end; empty if that is unknown."""
    if not isinstance(stream, trio.SocketStream) or stream.socket.family not in (socket.AF_INET, socket.AF_INET6):
        return ""
    try:
        host, port = stream.socket.getpeername()[:2]
    except OSError:  # it has gone
        return ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
