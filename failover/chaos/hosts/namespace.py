"""Network namespaces without names: a namespace lives as long as a descriptor, a process or a thread is in it.

So there is nothing to clean up. A namespace's interfaces, addresses and routes go with it, also if the process that
made it is killed. Only root may make a namespace.
"""

import ctypes
import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from shutil import which
from typing import Final

from router.mesh.errors import RunError

# CLONE_NEWNET of linux/sched.h. Python 3.11 has neither the number nor the system calls.
NEW_NETWORK: Final = 0x40000000
OURS: Final = "/proc/thread-self/ns/net"
TUN: Final = "/dev/net/tun"
# TUNSETIFF of linux/if_tun.h.
SET_INTERFACE: Final = 0x400454CA
PACKETS_ONLY: Final = 0x0001 | 0x1000  # IFF_TUN, IFF_NO_PI
PROGRAMS: Final = {"ip": "iproute2", "setpriv": "util-linux"}
"""Maps each program that a run needs to the package that has it."""

_libc = ctypes.CDLL(None, use_errno=True)


class NamespaceError(RunError):
    """A namespace, or a part of one, cannot be made. The text of the error names the reason."""


def _called(name: str, *arguments: int) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise NamespaceError(f"{name}: {os.strerror(number)}")


def enter(path: str) -> None:
    """Move this thread into a namespace for good: the sockets that it makes, and the processes that it starts, are
    there from now on."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _called("setns", descriptor, NEW_NETWORK)
    finally:
        os.close(descriptor)


@contextmanager
def _elsewhere(call: str, *arguments: int) -> Iterator[None]:
    """Move this thread to another namespace with a system call. At the end of the context, move it back."""
    home = os.open(OURS, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _called(call, *arguments)
        try:
            yield
        finally:
            _called("setns", home, NEW_NETWORK)
    finally:
        os.close(home)


class Namespace:
    """A new namespace, whose only interface is its loopback."""

    def __init__(self) -> None:
        with _elsewhere("unshare", NEW_NETWORK):
            self._descriptor = os.open(OURS, os.O_RDONLY | os.O_CLOEXEC)
        self.configure("link set lo up")

    @property
    def path(self) -> str:
        """The path by which other processes can enter the namespace, while this object lives."""
        return f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def entered(self) -> AbstractContextManager[None]:
        """While the context lasts, keep this thread in the namespace."""
        return _elsewhere("setns", self._descriptor, NEW_NETWORK)

    def close(self) -> None:
        """Close this object's descriptor. The namespace ends once no process uses it."""
        os.close(self._descriptor)

    def configure(self, *commands: str) -> None:
        """Run the program `ip` once for each of these commands. A command is one line with all arguments."""
        with self.entered():
            _ip(commands)

    def tunnel(self, name: str) -> int:
        """Make an interface in the namespace, and return a descriptor. A read from the descriptor returns a packet that
        the interface sends. A write to the descriptor delivers a packet to the interface. The interface ends when the
        descriptor is closed."""
        try:
            with self.entered():
                descriptor = os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise NamespaceError(f"{TUN}: {error.strerror}") from None
        try:
            fcntl.ioctl(descriptor, SET_INTERFACE, struct.pack("16sH22x", name.encode(), PACKETS_ONLY))
        except OSError as error:
            os.close(descriptor)
            raise NamespaceError(f"{TUN}: {error.strerror}") from None
        return descriptor


def _ip(commands: Sequence[str]) -> None:
    done = subprocess.run(["ip", "-batch", "-"], input="\n".join(commands), capture_output=True, text=True)
    if done.returncode != 0:
        raise NamespaceError(f"ip: {done.stderr.strip()}")


def lacking() -> str:
    """Return the reason why no namespace can be made on this machine; empty if one can."""
    if not Path(OURS).exists():
        return "the kernel has no network namespaces"
    if missing := [program for program in PROGRAMS if which(program) is None]:
        return f"the program {missing[0]} of the package {PROGRAMS[missing[0]]} is missing"
    try:
        namespace = Namespace()
    except NamespaceError as error:
        return f"{error}; this needs root"
    try:
        os.close(namespace.tunnel("probe"))
    except NamespaceError as error:
        return str(error)
    finally:
        namespace.close()
    return ""
