"""Makes the messages of `publish`: copies of a given body, numbered bodies, or one message for each line of input."""

import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from typing import IO, Any, Final

import attrs
import click
import trio

from failover.cli.json_message import parse_json
from router.amqp.format.message import data_message
from router.amqp.format.sections import write_message
from router.mesh.errors import RunError
from router.mesh.rundir import RunDirectory
from router.mesh.topology_parts import MOST_MESSAGE

SIZE: Final = 100
"""The bytes of a numbered body if the user gives no `--size`."""
READ_SIZE: Final = 1 << 16
LONGER: Final = 6
"""A line of input may be this many times longer than the longest message, because JSON may write one byte as six
characters."""


@attrs.frozen
class Source:
    """Encoded messages, and how many there are if this is known. At a malformed line the iterator raises RunError,
    after the messages of all lines before it."""

    messages: AsyncIterator[bytes]
    count: int | None


@attrs.frozen
class Limit:
    """The size of the longest message that the mesh accepts.

    `most` is this size in bytes, `said` is the way in which texts of errors name it. Without a run directory, the limit
    is the highest one that a topology can set.
    """

    most: int
    said: str

    @classmethod
    def of(cls, directory: RunDirectory | None) -> "Limit":
        most = directory.topology().limits.max_message if directory is not None else MOST_MESSAGE
        return cls(most, f"limits.max_message of this mesh, {most} bytes" if directory is not None else f"{most} bytes")

    def check(self, what: str, size: int) -> None:
        """Raises RunError if a message is too long. `size` is the number of bytes of the whole message. `what` is the
        beginning of the error's text."""
        if size > self.most:
            raise RunError(f"{what} too large, expected at most {self.said}, including the header")


def source_of(
    given: Mapping[str, Mapping[str, Any]],
    limit: Limit,
    *,
    body: str | None = None,
    body_file: IO[bytes] | None = None,
    lines: IO[bytes] | None = None,
    form: str | None = None,
    count: int | None = None,
    size: int | None = None,
) -> Source:
    """The source that the options of the command describe. `given` has the sections that all messages have. Raises
    UsageError if options exclude each other."""
    options = {"--body": body, "--body-file": body_file, "--size": size, "--format": form or lines}
    said = [name for name, value in options.items() if value is not None]
    said += ["--count"] if (form or lines) is not None and count is not None else []
    if lines is not None:
        said = [name if name != "--format" else "--from" for name in said]
    if len(said) > 1:
        raise click.UsageError(f"{said[0]} and {said[1]} exclude each other: messages come from one source")
    try:
        head = write_message(given)
    except ValueError as error:
        raise RunError(str(error)) from None
    times = 1 if count is None else count
    if body is not None:
        return same(os.fsencode(body), times, head, limit)
    if body_file is not None:
        return same(body_file.read(limit.most + 1), times, head, limit)
    if count is not None or size is not None:
        return numbered(SIZE if size is None else size, times, head, limit)
    read = json_reader(given) if form == "json" else raw_reader(head)
    return from_lines(read, limit, lines.fileno() if lines is not None else None)


async def repeated(make: Callable[[int], bytes], count: int) -> AsyncIterator[bytes]:
    for number in range(count):
        yield make(number)


def same(body: bytes, count: int, head: bytes, limit: Limit) -> Source:
    """The same message, `count` times. `head` has the encoded sections before the body."""
    message = head + data_message(body)
    limit.check(f"a message of {len(body)} bytes is", len(message))
    return Source(repeated(lambda number: message, count), count)


def numbered(size: int, count: int, head: bytes, limit: Limit) -> Source:
    """`count` messages with bodies of `size` bytes. Each body begins with the number of its message. If the number has
    more than `size` digits, the body has only the first `size` of them."""
    limit.check(f"messages of {size} bytes are", size + len(head + data_message(b"")))
    return Source(repeated(lambda number: head + data_message(numbered_body(number, size)), count), count)


def numbered_body(number: int, size: int) -> bytes:
    return (b"%d " % number).ljust(size, b".")[:size]


def from_lines(read: Callable[[bytes], bytes | None], limit: Limit, fd: int | None = None) -> Source:
    """A message for each line of a file descriptor. The default is standard input. `read` makes a line into a message,
    or returns None if the line is to be skipped."""
    return Source(_messages(_input() if fd is None else fd, read, limit), None)


def raw_reader(head: bytes) -> Callable[[bytes], bytes]:
    return lambda line: head + data_message(line)


def json_reader(given: Mapping[str, Mapping[str, Any]]) -> Callable[[bytes], bytes | None]:
    """Return a function that makes a line of JSON into a message (`failover.cli.json_message`). If a line lacks a
    field, the field has its value from `given`. An empty line is skipped."""

    def read(line: bytes) -> bytes | None:
        if not line.strip():
            return None
        sections: dict[str, Any] = {**given, **parse_json(line)}
        for name, fields in given.items():
            if isinstance(sections[name], dict):
                sections[name] = {**fields, **sections[name]}
        return write_message(sections)

    return read


def _input() -> int:
    try:
        return sys.stdin.fileno()
    except (AttributeError, ValueError, OSError):
        raise RunError("there is no standard input to read messages from, expected --body or --count") from None


async def _messages(fd: int, read: Callable[[bytes], bytes | None], limit: Limit) -> AsyncIterator[bytes]:
    number = 0
    async for line in _lines(fd, LONGER * limit.most):
        number += 1
        try:
            message = read(line)
        except ValueError as error:
            raise RunError(f"line {number}: {error}") from None
        if message is not None:
            limit.check(f"line {number} is", len(message))
            yield message


async def _lines(fd: int, longest: int) -> AsyncIterator[bytes]:
    held = bytearray()
    while data := await _read(fd):
        held += data
        if b"\n" in data:
            *lines, rest = held.split(b"\n")
            for line in lines:
                yield bytes(line)
            held = rest
        if len(held) > longest:
            raise RunError(f"a line is longer than {longest} bytes, expected one message per line")
    if held:
        yield bytes(held)


async def _read(fd: int) -> bytes:
    """Read some bytes. This uses no thread, because ctrl-c could not end a thread that waits for a terminal."""
    try:
        await trio.lowlevel.wait_readable(fd)
    except PermissionError:  # the kernel cannot wait for a regular file, which is always readable
        await trio.lowlevel.checkpoint()
    return os.read(fd, READ_SIZE)
