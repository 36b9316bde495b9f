"""A filter by selector, as the topic core asks it (`topic.edge.filters`)."""

from attrs import field, frozen

from router.edge.selector.content import Content
from router.edge.selector.parser import parse
from router.edge.selector.terms import Term
from router.edge.selector.tokens import SelectorError


@frozen
class Selector:
    """Raises SelectorError for a text that is none. Those of one text are equal."""

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
        """Only what is true is wanted: not what is unknown, nor what is no truth value."""
        return self._term(content) is True
