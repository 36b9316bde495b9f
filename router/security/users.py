"""The file of users: for each a verifier, from which the password is not to be had but by trying (RFC 5803's form).

    NAME SCRAM-SHA-256$ITERATIONS:SALT$STORED-KEY:SERVER-KEY

A router looks whether the file has changed whenever somebody says that he is a user: who is added may come in at once,
who is removed comes in no more. He stays where he is connected.
"""

import contextlib
import logging
import os
import re
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from router.amqp.sasl.scram import LEAST_ITERATIONS, SCRAM, Verifier
from router.mesh.reading import FileError

log = logging.getLogger("oncemesh.security")

USER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
EXPECTED: Final = "expected letters, digits and . _ @ -, at most 64"
_KEY: Final = r"([A-Za-z0-9+/]+={0,2})"
_LINE: Final = re.compile(rf"(\S+) {SCRAM}\$([0-9]{{4,7}}):{_KEY}\${_KEY}:{_KEY}")
_KEY_BYTES: Final = 32


class UsersError(FileError):
    """What is wrong with a file of users."""


def read_users(path: Path) -> dict[str, Verifier]:
    """Raises UsersError, which tells nothing of what a line holds."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text"
        raise UsersError(path, [f"{path}: {reason}, expected a file of users"]) from None
    users = {}
    for number, line in enumerate(lines, 1):
        found = _LINE.fullmatch(line)
        if not found or not USER.fullmatch(found[1]) or found[1] in users:
            what = "expected a name of its own and a verifier, as oncemesh user add writes them"
            raise UsersError(path, [f"{path}:{number}: not a user, {what}"])
        users[found[1]] = _verifier(path, number, int(found[2]), found[3], found[4], found[5])
    return users


def _verifier(path: Path, number: int, iterations: int, *parts: str) -> Verifier:
    try:
        salt, stored, server = (b64decode(part, validate=True) for part in parts)
    except ValueError:
        salt, stored, server = b"", b"", b""
    if not salt or len(stored) != _KEY_BYTES or len(server) != _KEY_BYTES or iterations < LEAST_ITERATIONS:
        raise UsersError(path, [f"{path}:{number}: a damaged verifier, expected what oncemesh user add writes"])
    return Verifier(salt, iterations, stored, server)


def write_users(path: Path, users: Mapping[str, Verifier]) -> None:
    """At once, and for the owner's eyes only. Raises OSError."""
    lines = [f"{name} {_text(verifier)}\n" for name, verifier in users.items()]
    handle, fresh = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # with mode 600
    try:
        with os.fdopen(handle, "w") as file:
            file.write("".join(lines))
        os.replace(fresh, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(fresh)
        raise


def _text(verifier: Verifier) -> str:
    salt, stored, server = (
        b64encode(part).decode() for part in (verifier.salt, verifier.stored_key, verifier.server_key)
    )
    return f"{SCRAM}${verifier.iterations}:{salt}${stored}:{server}"


class Users:
    """The users of a router, as the file has them now. Raises UsersError if it cannot be read at first; later what was
    read before goes on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = _version(path)
        self._users = read_users(path)

    def find(self, user: str) -> Verifier | None:
        version = _version(self._path)
        if version != self._seen:
            self._seen = version
            try:
                self._users = read_users(self._path)
            except UsersError as error:
                log.error("the users stay as they were: %s", error)
        return self._users.get(user)


def _version(path: Path) -> tuple[int, int, int]:
    """Of the file that is there: another if it has changed."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return found.st_ino, found.st_mtime_ns, found.st_size
