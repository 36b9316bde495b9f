"""The parser of selectors: it turns the tokens of a selector into one term.

condition   conjunction { OR conjunction }
conjunction negation { AND negation }
negation    [NOT] predicate
predicate   sum [ = | <> | != | < | <= | > | >= sum ]
            sum [NOT] BETWEEN sum AND sum
            sum [NOT] IN ( sum {, sum} )
            sum [NOT] LIKE text [ESCAPE text]
            sum IS [NOT] NULL
sum         product { +|- product }
product     factor { *|/ factor }
factor      [+|-] factor | number | text | name | TRUE | FALSE | ( condition )
"""

from collections.abc import Callable
from typing import Final

from router.edge.selector.content import property_named
from router.edge.selector.terms import (
    COMPARED,
    Term,
    between,
    both,
    compared,
    computed,
    constant,
    disjunction,
    like,
    missing,
    negated,
    one_of,
)
from router.edge.selector.tokens import END, NAME, NUMBER, SIGN, TEXT, WORD, SelectorError, Token, tokens_of

DEEPEST: Final = 32
"""The greatest depth of nested parentheses, NOT and signs."""
MOST_TERMS: Final = 256
"""The highest number of numbers, texts, names and operations in one selector, because each costs a step per message."""


def parse(selector: str) -> tuple[Term, int]:
    """Parse a selector. Returns its term, and the highest number of steps that one evaluation takes. Raises
    SelectorError."""
    parser = _Parser(tokens_of(selector))
    return parser.whole(), parser.steps


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._terms = 0
        self._sought = 0
        """The number of characters in the patterns of LIKE so far."""

    @property
    def steps(self) -> int:
        return self._terms + self._sought

    def whole(self) -> Term:
        term = self._condition()
        if self._next.kind is not END:
            raise self._unexpected("AND, OR or the end")
        return term

    # The methods from here on read tokens.

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._next
        self._at += 1
        return token

    def _takes(self, kind: str, *values: str) -> Token | None:
        """Take and return the next token if it is one of these; else None."""
        token = self._next
        return self._take() if token.kind is kind and token.value in values else None

    def _demand(self, kind: str, value: str) -> None:
        if not self._takes(kind, value):
            raise self._unexpected(value)

    def _unexpected(self, expected: str) -> SelectorError:
        return SelectorError(self._next.column, f"expected {expected}, got {self._next}")

    def _counted(self, term: Term) -> Term:
        self._terms += 1
        if self._terms > MOST_TERMS:
            raise SelectorError(self._next.column, f"the selector has more than {MOST_TERMS} terms")
        return term

    def _nested(self, read: Callable[[], Term]) -> Term:
        self._depth += 1
        if self._depth > DEEPEST:
            raise SelectorError(self._next.column, f"the selector is nested more than {DEEPEST} levels deep")
        term = read()
        self._depth -= 1
        return term

    # The methods from here on parse conditions.

    def _condition(self) -> Term:
        term = self._conjunction()
        while self._takes(WORD, "OR"):
            term = self._counted(disjunction(term, self._conjunction()))
        return term

    def _conjunction(self) -> Term:
        term = self._negation()
        while self._takes(WORD, "AND"):
            term = self._counted(both(term, self._negation()))
        return term

    def _negation(self) -> Term:
        if self._takes(WORD, "NOT"):
            return self._counted(negated(self._nested(self._negation)))
        return self._predicate()

    def _predicate(self) -> Term:
        term = self._sum()
        if sign := self._takes(SIGN, *COMPARED):
            return self._counted(compared(str(sign.value), term, self._sum()))
        if self._takes(WORD, "IS"):
            denied = self._takes(WORD, "NOT")
            self._demand(WORD, "NULL")
            found = missing(term)
        else:
            denied = self._takes(WORD, "NOT")
            if self._takes(WORD, "BETWEEN"):
                found = self._between(term)
            elif self._takes(WORD, "IN"):
                found = self._one_of(term)
            elif self._takes(WORD, "LIKE"):
                found = self._like(term)
            elif denied:
                raise self._unexpected("BETWEEN, IN or LIKE")
            else:
                return term
        return self._counted(negated(found) if denied else found)

    def _between(self, term: Term) -> Term:
        low = self._sum()
        self._demand(WORD, "AND")
        return between(term, low, self._sum())

    def _one_of(self, term: Term) -> Term:
        self._demand(SIGN, "(")
        choices = [self._sum()]
        while self._takes(SIGN, ","):
            choices.append(self._sum())
        self._demand(SIGN, ")")
        return one_of(term, choices)

    def _like(self, term: Term) -> Term:
        pattern, column, escape = self._text("a pattern in quotes"), self._next.column, None
        if self._takes(WORD, "ESCAPE"):
            column, escape = self._next.column, self._text("a text of one character")
            if len(escape) != 1:
                raise SelectorError(column, "ESCAPE needs exactly one character")
        self._sought += len(pattern)
        return like(term, _elements(pattern, escape, column))

    def _text(self, expected: str) -> str:
        if self._next.kind is not TEXT:
            raise self._unexpected(expected)
        return str(self._take().value)

    # The methods from here on parse values.

    def _sum(self) -> Term:
        term = self._product()
        while sign := self._takes(SIGN, "+", "-"):
            term = self._counted(computed(str(sign.value), term, self._product()))
        return term

    def _product(self) -> Term:
        term = self._factor()
        while sign := self._takes(SIGN, "*", "/"):
            term = self._counted(computed(str(sign.value), term, self._factor()))
        return term

    def _factor(self) -> Term:
        if sign := self._takes(SIGN, "+", "-"):
            return self._counted(computed(str(sign.value), constant(0), self._nested(self._factor)))
        if self._takes(SIGN, "("):
            term = self._nested(self._condition)
            self._demand(SIGN, ")")
            return term
        if word := self._takes(WORD, "TRUE", "FALSE"):
            return self._counted(constant(word.value == "TRUE"))
        if self._next.kind not in (NUMBER, TEXT, NAME):
            raise self._unexpected("a property or a value")
        token = self._take()
        return self._counted(property_named(str(token.value)) if token.kind is NAME else constant(token.value))


def _elements(pattern: str, escape: str | None, column: int) -> list[str | None]:
    """The elements of a pattern, as `like` takes them. Raises SelectorError."""
    found: list[str | None] = []
    escaped = False
    for character in pattern:
        if escaped or character not in ("%", "_", escape):
            found.append(character)
            escaped = False
        elif character == escape:
            escaped = True
        else:
            found.append(None if character == "%" else "")
    if escaped:
        raise SelectorError(column, "the pattern ends in its escape character")
    return found
