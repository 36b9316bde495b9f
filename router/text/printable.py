"""Escapes the text of strangers (names of clients, messages, reasons of peers) for a terminal and a log.

A control character could move the cursor, change the colours or begin a new line; a bidi override reverses the text
beside it. Such characters are shown as Python escapes; all others stay.
"""

import json
import re

_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """`text` on one line, without characters that control a terminal."""
    return _UNFIT.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def visible(text: str) -> str:
    """`text` with every invisible character escaped, also a space other than " ": in a file, this may be the error."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable_json(value: object, indent: int | None = None) -> str:
    """`value` as JSON without characters that control a terminal. A program reads the same value from it."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return _UNFIT.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)
