"""The file of users: for each user a verifier, which reveals the password only to guessing (the form of RFC 5803).

    decoys KEY
    NAME SCRAM-SHA-256$ITERATIONS:SALT$STORED-KEY:SERVER-KEY

The key in the first line gives the salts for unknown users. All routers of a mesh show the same salt for an unknown
user, also after a restart, as they do for known users: so a client cannot find out which users exist.

At each login, a router checks whether the file has changed. So an added user can log in at once, and a removed user can
no longer log in. Existing connections stay.
"""

import contextlib
import logging
import os
import re
import secrets
import tempfile
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Final

import attrs

from router.amqp.sasl.scram import LEAST_ITERATIONS, SCRAM, Verifier
from router.mesh.errors import FileError
from router.mesh.marked import Malformed
from router.mesh.reading import contents

log = logging.getLogger("oncemesh.security")

USER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
EXPECTED: Final = "expected letters, digits and . _ @ -, at most 64"
_KEY: Final = r"([A-Za-z0-9+/]+={0,2})"
_LINE: Final = re.compile(rf"(\S+) {SCRAM}\$([0-9]{{4,7}}):{_KEY}\${_KEY}:{_KEY}")
_KEY_BYTES: Final = 32
_DECOYS: Final = re.compile(r"decoys ([A-Za-z0-9+/]{43}=)")


class UsersError(FileError):
    """A file of users has a fault; the text says which."""


@attrs.frozen
class UserFile:
    """The contents of a file of users."""

    verifiers: dict[str, Verifier] = attrs.field(factory=dict)
    decoys: bytes = attrs.field(factory=lambda: secrets.token_bytes(_KEY_BYTES), repr=False)


def read_users(path: Path) -> UserFile:
    """Read a file of users. Raises UsersError, whose text reveals nothing of a line. An empty file counts as damaged,
    because a file without users still has a first line."""
    try:
        first, *lines = contents(path, "a file of users").decode().splitlines() or [""]
    except (OSError, UnicodeDecodeError, Malformed) as error:
        reason = error.problem if isinstance(error, Malformed) else f"{_why(error)}, expected a file of users"
        raise UsersError(path, [f"{path}: {reason}"]) from None
    if not (key := _DECOYS.fullmatch(first)):
        raise UsersError(
            path, [f"{path}:1: not the first line of a file of users, expected a file that oncemesh user add wrote"]
        )
    verifiers: dict[str, Verifier] = {}
    for number, line in enumerate(lines, 2):
        found = _LINE.fullmatch(line)
        if not found or not USER.fullmatch(found[1]) or found[1] in verifiers:
            what = "expected a unique name and a verifier, as oncemesh user add writes them"
            raise UsersError(path, [f"{path}:{number}: not a user, {what}"])
        verifiers[found[1]] = _verifier(path, number, int(found[2]), found[3], found[4], found[5])
    return UserFile(verifiers, b64decode(key[1]))


def _why(error: OSError | UnicodeDecodeError) -> str:
    return error.strerror or "not readable" if isinstance(error, OSError) else "not a text"


def _verifier(path: Path, number: int, iterations: int, *parts: str) -> Verifier:
    try:
        salt, stored, server = (b64decode(part, validate=True) for part in parts)
    except ValueError:
        salt, stored, server = b"", b"", b""
    if not salt or len(stored) != _KEY_BYTES or len(server) != _KEY_BYTES or iterations < LEAST_ITERATIONS:
        raise UsersError(
            path,
            [f"{path}:{number}: the verifier of the user is damaged, expected a line that oncemesh user add wrote"],
        )
    return Verifier(salt, iterations, stored, server)


def write_users(path: Path, users: UserFile) -> None:
    """Replace the file in one step, readable only by its owner. Raises OSError."""
    lines = [f"decoys {b64encode(users.decoys).decode()}\n"]
    lines += [f"{name} {_text(verifier)}\n" for name, verifier in users.verifiers.items()]
    try:
        _replace(path, "".join(lines))
    # The error may name a temporary file, so it is raised again with the path of the file of users.
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def _replace(path: Path, text: str) -> None:
    # The temporary file has mode 600.
    handle, fresh = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
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
    """The users of a router, as the file has them at present. The constructor raises UsersError if the file cannot be
    read. If a later read fails, the former contents stay."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = _version(path)
        self._read()

    def _read(self) -> None:
        self._file = read_users(self._path)
        if not self._file.verifiers:
            log.warning("%s has no users: no client can log in with a password", self._path)

    def find(self, user: str) -> Verifier | None:
        version = _version(self._path)
        if version != self._seen:
            self._seen = version
            try:
                self._read()
            except UsersError as error:
                log.error("the users cannot be read, keeping the old ones: %s", error)
        return self._file.verifiers.get(user)

    @property
    def decoys(self) -> bytes:
        """The key that gives the salts of unknown users."""
        return self._file.decoys


def _version(path: Path) -> tuple[int, int, int]:
    """A value that changes whenever the file changes: its inode, time and size."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return found.st_ino, found.st_mtime_ns, found.st_size
