"""Listening sockets, bound before the router exists that serves them.

The launcher binds all listeners of a mesh first. So it reports a port in use before it starts any router, and
neighbours know each other's addresses from the first moment. The sockets are blocking, bound and listening; a router
process inherits them by file descriptor.
"""

import os
import socket

from router.mesh.quantities import Address

# The highest number of connections that the kernel keeps until the router accepts them. The system has a limit of its
# own.
BACKLOG = 4096


Listeners = dict[str, socket.socket]
"""The sockets of one router, keyed by the listener's name in the topology."""


class ListenError(Exception):
    """The address cannot be listened on; the text has the reason."""


def listen(address: Address) -> socket.socket:
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, where = found[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ListenError(f"{address}: {error.strerror}") from None
    try:
        # Without this option, connections of an earlier router in TIME_WAIT would block the port.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        # A host's name may stand for another host's address, so the error names the address that was tried.
        meant = "" if where[0] == address.host else f" ({where[0]})"
        raise ListenError(f"{address}{meant}: {os.strerror(error.errno or 0)}") from None
    return listener


def bound_address(listener: socket.socket, host: str) -> Address:
    """The address of `listener`: the host as configured, the port as the system has chosen it."""
    return Address(host, listener.getsockname()[1])
