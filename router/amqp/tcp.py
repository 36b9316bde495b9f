"""What the kernel knows of a connection's other end: whether it has taken what we wrote, and is still there.

Many clients answer no echo (`router.amqp.echo`), but the machine under them acknowledges. It does so for an open socket
only: once a process has ended, or has closed its socket, the answer is a reset. So what is acknowledged proves that the
peer still had this connection after it was written; not that it has read anything.
"""

import sys
from typing import Final

import trio

ESTABLISHED: Final = 1  # of Linux, as the first byte of TCP_INFO
TELLS: Final = sys.platform == "linux"  # whether this kernel does

if sys.platform == "linux":
    import fcntl
    import socket
    import struct
    import termios

    def can_tell(stream: trio.abc.Stream) -> bool:
        """Whether the other functions work with this stream."""
        return isinstance(stream, trio.SocketStream) and stream.socket.family in (socket.AF_INET, socket.AF_INET6)

    def unacknowledged(stream: trio.SocketStream) -> int:
        """Bytes that were written and that the peer's machine has not acknowledged yet."""
        return _count(stream, termios.TIOCOUTQ)

    def unread(stream: trio.SocketStream) -> int:
        """Bytes that have come and were not read yet."""
        return _count(stream, termios.FIONREAD)

    def is_open(stream: trio.SocketStream) -> bool:
        """Whether neither end has closed its direction, as far as is known here."""
        return stream.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == ESTABLISHED

    def _count(stream: trio.SocketStream, request: int) -> int:
        count: int = struct.unpack("i", fcntl.ioctl(stream.socket.fileno(), request, bytes(4)))[0]
        return count

else:

    def can_tell(stream: trio.abc.Stream) -> bool:
        return False

    def unacknowledged(stream: trio.SocketStream) -> int:
        raise NotImplementedError

    unread = is_open = unacknowledged
