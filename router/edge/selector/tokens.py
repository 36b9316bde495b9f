"""Cuts a selector's text into tokens. `parser` puts them together."""

import re
from typing import Final

from attrs import frozen

NUMBER, TEXT, NAME, WORD, SIGN, END = "number", "text", "name", "word", "sign", "end"
"""The kinds of tokens. A word is a reserved word; a name is the name of a property."""

WORDS: Final = frozenset(
    ("AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE"),
)
LONGEST: Final = 4096
"""The highest number of characters of a selector."""
SHOWN: Final = 40
"""The highest number of characters of a token that an error shows."""
LARGEST: Final = 2**63
"""Whole numbers are below this, as in AMQP's long."""

_TOKENS: Final = re.compile(
    r"(?P<space>[ \t\r\n\f]+)"
    r"|(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w$.]))"
    r"|(?P<text>'[^']*(?:''[^']*)*')"
    r'|(?P<quoted>"[^"]+")'
    r"|(?P<name>[^\W\d][\w$.]*|[$][\w$.]*)"
    r"|(?P<sign><>|!=|<=|>=|[=<>()+\-*/,])"
)


class SelectorError(ValueError):
    """A malformed selector: the problem, and its place. `column` counts from 1."""

    def __init__(self, column: int, what: str) -> None:
        super().__init__(f"selector, column {column}: {what}")
        self.column = column


@frozen(slots=True)
class Token:
    kind: str
    value: str | int | float
    """The value of a number, the characters of a text or a name, or a word in capitals."""
    column: int

    def __str__(self) -> str:
        return "the end" if self.kind is END else f"{self.value!r:.{SHOWN}}"


def tokens_of(selector: str) -> list[Token]:
    """The tokens of the selector, followed by one of kind END. Raises SelectorError."""
    if len(selector) > LONGEST:
        raise SelectorError(LONGEST + 1, f"the selector is longer than {LONGEST} characters")
    found: list[Token] = []
    at = 0
    while at < len(selector):
        match = _TOKENS.match(selector, at)
        if match is None:
            raise SelectorError(at + 1, _what_is_wrong(selector[at:]))
        if match.lastgroup != "space":
            assert match.lastgroup is not None
            found.append(_token(match.lastgroup, match.group(), at + 1))
        at = match.end()
    return [*found, Token(END, "", len(selector) + 1)]


def _what_is_wrong(rest: str) -> str:
    if rest[0] in "'\"":
        return f"the closing {rest[0]} is missing"
    return "a number is followed by letters" if rest[0].isdigit() else f"{rest[0]!r} is not allowed here"


def _token(kind: str, said: str, column: int) -> Token:
    match kind:
        case "number":
            return Token(NUMBER, _number(said, column), column)
        case "text":
            return Token(TEXT, said[1:-1].replace("''", "'"), column)
        case "quoted":
            return Token(NAME, said[1:-1], column)
        case "sign":
            return Token(SIGN, said, column)
    return Token(WORD, said.upper(), column) if said.upper() in WORDS else Token(NAME, said, column)


def _number(said: str, column: int) -> int | float:
    if not (said.isascii() and said.isdigit()):
        return float(said)
    if len(said) > len(str(LARGEST)) or int(said) >= LARGEST:
        raise SelectorError(column, f"a whole number is too large, expected less than {LARGEST}")
    return int(said)
