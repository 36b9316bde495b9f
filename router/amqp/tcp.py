"""What the kernel knows of a connection's other end: whether it has taken what we wrote, and is still there.

Many clients answer no echo (`router.amqp.echo`), but the machine under them acknowledges. It does so for an open socket
only: once a process has ended, or has closed its socket, the answer is a reset. So what is acknowledged proves that the
peer still had this connection after it was written; not that it has read anything, nor that it still uses it. And it is
the machine at the other end of this very socket that speaks: a proxy's, if there is one.
"""

import sys
from typing import Final

import trio

ESTABLISHED: Final = 1  # of Linux, as the first byte of TCP_INFO

if sys.platform == "linux":
    import fcntl
    import socket
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

    def kernel_of(stream: trio.abc.Stream) -> Kernel | None:
        return None
