"""A filter by selector, as the topic core evaluates it (`topic.edge.filters`)."""

from attrs import field, frozen

from router.edge.selector.content import Content
from router.edge.selector.parser import parse
from router.edge.selector.terms import Term
from router.edge.selector.tokens import SelectorError


@frozen
class Selector:
    """A parsed selector. Selectors with the same text are equal. Raises SelectorError for a malformed text."""

    text: str
    cost: int = field(init=False, eq=False, repr=False)
    _term: Term = field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise SelectorError(1, "expected a text")
        term, cost = parse(self.text)
        object.__setattr__(self, "_term", term)
        object.__setattr__(self, "cost", cost)

    def read(self, message: bytes) -> Content:
        return Content(message)

    def wants(self, content: Content) -> bool:
        """Whether the selector is true for the message. An unknown result, or one that is no truth value, is false."""
        return self._term(content) is True
