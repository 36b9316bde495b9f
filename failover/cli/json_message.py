"""Converts messages from JSON, and to JSON, to lines, and to a layout for people.

The JSON object of a message has a member for each section (`router.amqp.format.sections`). The member of the body is
`body` for a text, `base64` for data that is no text, or else `sequence` or `value`. Elsewhere a binary value is an
object whose only member is `base64`. `publish --format json` reads the JSON that `subscribe --format json` prints, and
ignores its `key`.
"""

import base64
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from router.amqp.format.codec import Described, Timestamp
from router.amqp.format.sections import BODIES, FIELDS, NAMES, not_text, read_message
from router.text.printable import printable

EXAMPLE: Final = '{"body": "text"}'
TEXTS: Final = ("body", "base64")
LONGEST_INTEGER: Final = 20
"""The highest number of characters of an integer's text, because an integer of AMQP has at most 64 bits."""
MEMBERS: Final = ("key", *(name for name in NAMES.values() if name != "data"), *TEXTS)

Show = Callable[[bytes, bytes], bytes]
"""Turns the key and the message of a delivery into the bytes to print. Raises AmqpError if the message is malformed."""


# The functions from here on read JSON.


def parse_json(line: bytes) -> dict[str, Any]:
    """Return the sections of the message that a line of JSON has, by name. Raises ValueError; its text says what is
    expected."""
    try:
        message = json.loads(line, parse_int=_integer, parse_constant=_no_number, object_pairs_hook=_once)
    except UnicodeDecodeError:
        raise ValueError("not UTF-8, expected JSON") from None
    except json.JSONDecodeError as error:
        raise ValueError(
            f"not JSON: {error.msg} at column {error.colno}, expected a message such as {EXAMPLE}"
        ) from None
    except RecursionError:
        raise ValueError(f"nested too deeply, expected a message such as {EXAMPLE}") from None
    if not isinstance(message, dict):
        raise ValueError(f"not a JSON object, expected a message such as {EXAMPLE}")
    for name in message:
        _check_member(name)
    sections = {name: value for name, value in message.items() if name not in ("key", *TEXTS)}
    return {name: _members(value) for name, value in sections.items()} | _body(message)


def _members(section: Any) -> Any:
    return {name: _typed(value) for name, value in section.items()} if isinstance(section, dict) else section


def _typed(value: Any) -> Any:
    """The same value, but bytes replace each object whose only member is `base64`."""
    match value:
        case {"base64": str(text)} if len(value) == 1:
            return _from_base64(text)
        case dict():
            return _members(value)
        case list():
            return [_typed(item) for item in value]
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise ValueError(f'"{name}" appears twice, expected once')
        members[name] = value
    return members


def _integer(text: str) -> int:
    if len(text) > LONGEST_INTEGER:
        raise ValueError(f"an integer has {len(text)} characters, expected at most {LONGEST_INTEGER}")
    return int(text)


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not JSON, expected a number")


def _check_member(name: str) -> None:
    owner = next((section for section, fields in FIELDS.items() if name in fields), None)
    if owner is not None:
        raise ValueError(f'"{name}" belongs into "{owner}": {{"{owner}": {{"{name}": …}}}}')
    if name not in MEMBERS:
        raise ValueError(f'"{name}" is not a part of a message, expected {", ".join(MEMBERS[1:])}')


def _body(message: Mapping[str, Any]) -> dict[str, Any]:
    named = [name for name in (*TEXTS, "sequence", "value") if name in message]
    if len(named) != 1:
        raise ValueError(f"{len(named)} bodies, expected one of body, base64, sequence and value")
    match named[0], message[named[0]]:
        case "body", str(text):
            return {"data": _utf8(text)}
        case "base64", str(text):
            return {"data": _from_base64(text)}
        case "sequence", [list(), *rest] as lists if all(isinstance(one, list) for one in rest):
            return {"sequence": _typed(lists)}
        case "value", value:
            return {"value": _typed(value)}
        case name, value:
            raise ValueError(f'"{name}" is {value!r}, expected {"a list of lists" if name == "sequence" else "a text"}')
    raise AssertionError("a body has a name")


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f'"body": {not_text(error)}') from None


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise ValueError(f"base64: {error}") from None


# The functions from here on write JSON and text.


def plain(value: Any) -> Any:
    """An AMQP value as a value of JSON. If JSON has no form for it, it becomes a text."""
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if abs(value) < float("inf") else str(value)
        case str():
            return str(value)
        case bytes():
            return {"base64": base64.b64encode(value).decode()}
        case Described(descriptor, inner):
            return {"descriptor": plain(descriptor), "value": plain(inner)}
        case list():
            return [plain(item) for item in value]
        case dict():
            return {key if isinstance(key, str) else str(plain(key)): plain(item) for key, item in value.items()}
    return str(value)


def text_of(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def as_json(key: bytes, message: bytes) -> bytes:
    line: dict[str, Any] = {"key": key.decode(errors="backslashreplace")}
    for name, value in read_message(message).items():
        if name == "properties":
            line[name] = {field: _property(field, item) for field, item in value.items()}
        elif name != "data":
            line[name] = plain(value)
        elif (text := text_of(value)) is not None:
            line["body"] = text
        else:
            line["base64"] = base64.b64encode(value).decode()
    return json.dumps(line).encode()


def _property(field: str, value: Any) -> Any:
    """A property of a message as a value of JSON. A user-id that is UTF-8 becomes a text, although AMQP always gives it
    a binary type."""
    text = text_of(value) if field == "user-id" and isinstance(value, bytes) else None
    return plain(value) if text is None else text


def as_raw(key: bytes, message: bytes) -> bytes:
    """The body alone. Bytes and texts are not changed, and other values become JSON."""
    sections = read_message(message)
    body = next((sections[name] for name in BODIES if name in sections), b"")
    if isinstance(body, bytes):
        return body
    return body.encode() if isinstance(body, str) else json.dumps(plain(body)).encode()


def as_lines(key: bytes, message: bytes) -> bytes:
    """The body for a terminal: one line, without control characters."""
    return printable(as_raw(key, message).decode(errors="backslashreplace")).encode()


def as_text(key: bytes, message: bytes) -> bytes:
    """The key and all sections of the message, on several lines that people can read."""
    lines = [printable(key.decode(errors="backslashreplace"))]
    for name, value in read_message(message).items():
        if name in BODIES:
            lines += _laid_out(name, value)
        elif value:
            lines.append(f"  {name}")
            items = value.items() if isinstance(value, dict) else [("", value)]
            lines += [f"    {printable(str(plain(field)))}: {_shown(field, item)}" for field, item in items]
    return "\n".join([*lines, ""]).encode()


def _shown(field: Any, value: Any) -> str:
    if isinstance(value, Timestamp):
        return _time(value)
    text = text_of(value) if isinstance(value, bytes) else None
    value = plain(value) if text is None else text
    shown = printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return f"{shown} ms" if field == "ttl" else shown


def _time(value: Timestamp) -> str:
    try:
        return datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{value} ms since 1970"


def _laid_out(name: str, body: Any) -> list[str]:
    if name == "data":
        text, head = body.decode(errors="backslashreplace"), f"  body: {len(body)} byte{'s' * (len(body) != 1)}"
    elif isinstance(body, str):
        text, head = str(body), "  body: a text"
    else:
        text, head = json.dumps(plain(body), ensure_ascii=False), f"  body: {name}"
    return [head, *(f"    {printable(line)}" for line in text.split("\n"))]
