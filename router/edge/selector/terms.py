"""What the terms of a selector are worth for one message, in SQL's three-valued logic.

A term is a function of a message's content. Its value is a bool, a number or a text, or None: unknown, as everything is
that is said of a property that the message does not have. No value costs more than the message and the selector are
long: where a pattern could cost their product, a step is one of its characters, for all places of the text at once.
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
"""Characters of a text that a pattern is tried on. What a longer one is like is unknown."""

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
"""Steps that it may take to try a run at each place of a text."""


@frozen(slots=True)
class _Stretch:
    """A part of a pattern that stands for so many characters; "" for any one."""

    characters: tuple[str, ...]
    pattern: re.Pattern[str]
    is_plain: bool
    """Then each character of a text is looked at once."""

    def find(self, content: Content, text: str, at: int) -> int:
        """Where it first matches, from there on; -1 if nowhere."""
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
    """False if either is; unknown if either is no truth value."""

    def term(content: Content) -> Value:
        first = one(content)
        if first is False:
            return False
        second = other(content)
        return False if second is False else True if first is True and second is True else None

    return term


def either(one: Term, other: Term) -> Term:
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
    """Numbers with numbers, texts with texts, in the order of their characters; truth values are equal or not. Of
    different kinds no comparison holds."""
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
    """Of numbers. A quotient of whole numbers is whole, as in SQL; by zero it is unknown."""

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
    """As with both comparisons, but it asks once: what is within each other would be asked twice at each level."""

    def term(content: Content) -> Value:
        value = one(content)
        first = _compared(operator.ge, value, low(content))
        if first is False:
            return False
        second = _compared(operator.le, value, high(content))
        return False if second is False else True if first and second else None

    return term


def one_of(one: Term, choices: Sequence[Term]) -> Term:
    """Unknown if it is equal to none of them, and one is unknown."""

    def term(content: Content) -> Value:
        value = one(content)
        found = {_compared(operator.eq, value, choice(content)) for choice in choices}
        return True if True in found else None if None in found else False

    return term


def missing(one: Term) -> Term:
    return lambda content: one(content) is None


def like(one: Term, pattern: Sequence[str | None]) -> Term:
    """`pattern`: characters, "" for any one, None for any number of any."""
    runs = _runs(pattern)

    def term(content: Content) -> Value:
        text = one(content)
        if text is None or (isinstance(text, str) and len(text) > LONGEST_LIKE):
            return None
        return isinstance(text, str) and _is_like(content, text, runs)

    return term


def _runs(pattern: Sequence[str | None]) -> list[_Stretch]:
    """What stands between the places for any number of characters."""
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
    """A run's length is fixed, so the first place where it matches is as good as any later one."""
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
