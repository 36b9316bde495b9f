"""Checks names of routers, addresses and costs in a plan. Every router gets the changes that an operator makes at any
router, so each router checks them."""

import re

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
"""Matches the name of a mesh or a replica set. Names become names of folders, so few characters are allowed."""
ROUTER_NAME = re.compile(r"(?=.{1,63}\Z)[A-Za-z0-9](?:\.?[A-Za-z0-9_-])*")
"""Matches the name of a router, which may have dots between other characters. Names become names of folders and parts
of printed epochs."""
MOST_COST = 65535
_ADDRESS = re.compile(r"(?:\[([0-9A-Za-z:.%_]+)\]|([^\s:/\[\]@]+)):([0-9]{1,5})")
_MOST_PORT = 65535
_LONGEST_HOST = 253
"""The highest number of bytes of a host name in DNS (RFC 1035 2.3.4)."""


def host_and_port(text: str) -> tuple[str, int]:
    """Split host:port or [host]:port. Raises ValueError."""
    found = _ADDRESS.fullmatch(text)
    if not found or int(found[3]) > _MOST_PORT or not _names_a_host(found[1] or found[2]):
        raise ValueError(f'"{text}" is not an address, expected host:port such as 127.0.0.1:5672 or [::1]:5672')
    return found[1] or found[2], int(found[3])


def in_ascii(address: str) -> str:
    """The address in the form that a plan has: a host name in another script is replaced by its DNS form (IDNA)."""
    host, _, port = address.rpartition(":")
    return f"{host.encode('idna').decode()}:{port}"


def is_address(text: str) -> bool:
    """Whether a plan may have this address. The function first checks that it is ASCII, because any other name takes a
    thousand times as long to check."""
    return text.isascii() and _is_any(text)


def mended(address: str) -> str:
    """The address from a store, in the form that a plan has; empty if it is not a valid address."""
    return in_ascii(address) if _is_any(address) else ""


def _is_any(text: str) -> bool:
    try:
        host_and_port(text)
    except ValueError:
        return False
    return True


def _names_a_host(name: str) -> bool:
    # Encoding takes time that grows with the square of the length.
    if len(name) > _LONGEST_HOST:
        return False
    try:
        return name.isprintable() and 0 < len(name.encode("idna")) <= _LONGEST_HOST
    except UnicodeError:
        return False
