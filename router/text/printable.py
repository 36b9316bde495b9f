"""Texts of strangers (names of clients, messages, reasons of peers), made fit for a terminal and a log.

A control character could move the cursor, change the colours or begin a line of its own; a bidi override turns around
what is beside it. Such characters are shown as Python writes them; all others stay.
"""

import json
import re

_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """`text` on one line, with nothing in it that a terminal would obey."""
    return _UNFIT.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def visible(text: str) -> str:
    """`text` with whatever cannot be seen in it written out, also a space that is none: of a file, that may be what is
    wrong with it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable_json(value: object, indent: int | None = None) -> str:
    """`value` as JSON that a terminal does not obey either; for programs it says the same."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return _UNFIT.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)
