"""The values of a selector's terms for one message, in SQL's three-valued logic.

A term is a function of a message's content. Its value is a bool, a number or a text, or None for unknown: each term on
a property that the message does not have is unknown. The cost of a value grows at most with the lengths of the message
and of the selector. Where a pattern could cost the product of both, one step tries one of its characters at all
positions of the text at once.
"""

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from attrs import frozen

from router.edge.selector.content import Content
from router.edge.selector.tokens import LARGEST

Value: TypeAlias = bool | int | float | str | None
Term: TypeAlias = Callable[[Content], Value]

LONGEST_LIKE: Final = 4096
"""The highest number of characters of a text to which a pattern is applied. If the text is longer, the result is
unknown."""

COMPARED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_EQUALITY: Final = (operator.eq, operator.ne)
_TRIED: Final = 4096
"""A part of a pattern is tried at each position of a text only if this takes at most this many steps."""


@frozen(slots=True)
class _Stretch:
    """A part of a pattern that matches a fixed number of characters. The element "" stands for any one character."""

    characters: tuple[str, ...]
    pattern: re.Pattern[str]
    is_plain: bool
    """Whether no element is "". A search then looks at each character of a text only once."""

    def find(self, content: Content, text: str, at: int) -> int:
        """First position of a match at or after `at`; -1 if there is none."""
        length = len(self.characters)
        if self.is_plain or length * len(text) <= _TRIED:
            found = self.pattern.search(text, at)
            return -1 if found is None else found.start()
        left = len(text) - length + 1 - at
        places = ((1 << left) - 1) << at if left > 0 else 0
        for offset, character in enumerate(self.characters):
            if character and places:
                places &= content.places(text, character) >> offset
        return (places & -places).bit_length() - 1


def constant(value: Value) -> Term:
    return lambda content: value


def both(one: Term, other: Term) -> Term:
    """The conjunction of two terms: true if both are true, false if either is false, otherwise unknown."""

    def term(content: Content) -> Value:
        first = one(content)
        if first is False:
            return False
        second = other(content)
        return False if second is False else True if first is True and second is True else None

    return term


def disjunction(one: Term, other: Term) -> Term:
    def term(content: Content) -> Value:
        first = one(content)
        if first is True:
            return True
        second = other(content)
        return True if second is True else False if first is False and second is False else None

    return term


def negated(one: Term) -> Term:
    def term(content: Content) -> Value:
        value = one(content)
        return not value if isinstance(value, bool) else None

    return term


def compared(sign: str, one: Term, other: Term) -> Term:
    """Compares numbers with numbers, and texts with texts in the order of their characters; truth values are only equal
    or not. A comparison of different kinds is false."""
    holds = COMPARED[sign]
    return lambda content: _compared(holds, one(content), other(content))


def _compared(holds: Callable[[Any, Any], bool], left: Value, right: Value) -> bool | None:
    if left is None or right is None:
        return None
    kind = _kind(left)
    return kind is _kind(right) and (kind is not bool or holds in _EQUALITY) and holds(left, right)


def _kind(value: Value) -> type:
    return bool if isinstance(value, bool) else str if isinstance(value, str) else float


def computed(sign: str, one: Term, other: Term) -> Term:
    """Computes with numbers. The quotient of whole numbers is whole, as in SQL; a division by zero is unknown."""

    def term(content: Content) -> Value:
        left, right = one(content), other(content)
        if isinstance(left, int | float) and isinstance(right, int | float) and not isinstance(left, bool):
            return None if isinstance(right, bool) else _number(sign, left, right)
        return None

    return term


def _number(sign: str, left: float, right: float) -> Value:
    try:
        match sign:
            case "+":
                value = left + right
            case "-":
                value = left - right
            case "*":
                value = left * right
            case _ if isinstance(left, int) and isinstance(right, int):
                value = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
            case _:
                value = left / right
    except (OverflowError, ZeroDivisionError):
        return None
    return float(value) if isinstance(value, int) and abs(value) >= LARGEST else value


def between(one: Term, low: Term, high: Term) -> Term:
    """The conjunction of two comparisons of the same term, which is evaluated only once. Otherwise nested terms would
    double the evaluations at each level."""

    def term(content: Content) -> Value:
        value = one(content)
        first = _compared(operator.ge, value, low(content))
        if first is False:
            return False
        second = _compared(operator.le, value, high(content))
        return False if second is False else True if first and second else None

    return term


def one_of(one: Term, choices: Sequence[Term]) -> Term:
    """Whether the term equals one of the choices. Unknown if it equals none, and one comparison is unknown."""

    def term(content: Content) -> Value:
        value = one(content)
        found = {_compared(operator.eq, value, choice(content)) for choice in choices}
        return True if True in found else None if None in found else False

    return term


def missing(one: Term) -> Term:
    return lambda content: one(content) is None


def like(one: Term, pattern: Sequence[str | None]) -> Term:
    """Whether a term's text matches a pattern. The pattern is a sequence: a character stands for itself, "" for any one
    character, None for any number of characters."""
    runs = _runs(pattern)

    def term(content: Content) -> Value:
        text = one(content)
        if text is None or (isinstance(text, str) and len(text) > LONGEST_LIKE):
            return None
        return isinstance(text, str) and _is_like(content, text, runs)

    return term


def _runs(pattern: Sequence[str | None]) -> list[_Stretch]:
    """Split a pattern at the places that match any number of characters."""
    found: list[list[str]] = [[]]
    for element in pattern:
        if element is None:
            found.append([])
        else:
            found[-1].append(element)
    return [_run(tuple(characters)) for characters in found]


def _run(characters: tuple[str, ...]) -> _Stretch:
    said = "".join(re.escape(character) or "." for character in characters)
    return _Stretch(characters, re.compile(said, re.DOTALL), "" not in characters)


def _is_like(content: Content, text: str, runs: Sequence[_Stretch]) -> bool:
    """Whether the text matches all parts in order. Each part has a fixed length, so its first match is as good as any
    later one."""
    first, last = runs[0], runs[-1]
    if len(runs) == 1:
        return len(text) == len(first.characters) and first.pattern.match(text) is not None
    at, end = len(first.characters), len(text) - len(last.characters)
    if first.pattern.match(text) is None or last.pattern.match(text, max(end, 0)) is None:
        return False
    for run in runs[1:-1]:
        found = run.find(content, text, at)
        if found < 0:
            return False
        at = found + len(run.characters)
    return at <= end
