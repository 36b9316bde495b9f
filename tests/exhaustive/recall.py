"""What a function of a world comes to, found again by what it looks at: most events look at a few columns of dozens."""

from collections.abc import Callable
from itertools import zip_longest
from typing import Any, Generic, TypeVar

from tests.exhaustive.world import Draft, Layout, Values

T = TypeVar("T")


class Recall(Generic[T]):
    """A function of a draft, computed once for all worlds that it cannot tell apart.

    It is a tree. What the function looks at first is always the same column; what it looks at next depends on what it
    has seen by then alone. So a node is a column, and by its value the next node; a leaf is what the function returned,
    which must be no tuple. Nothing has to be declared, and nothing can be left out of the account, as a draft is all
    that a function has.
    """

    def __init__(self, layout: Layout, function: Callable[[Draft], T]) -> None:
        self._layout = layout
        self._function = function
        self._root: Any = (0, {})

    def __call__(self, values: Values) -> T:
        node = self._root
        while type(node) is tuple:
            node = node[1].get(values[node[0]])
        return self._learn(values) if node is None else node

    def _learn(self, values: Values) -> T:
        draft = Draft(self._layout, values)
        result = self._function(draft)
        assert result is not None and type(result) is not tuple
        looked_at = draft.read_first
        if not looked_at:
            self._root = result
        elif not self._root[1]:
            self._root = (looked_at[0], {})
        node = self._root
        for column, following in zip_longest(looked_at, looked_at[1:]):
            assert node[0] == column, "it looks at something that no draft has"
            node = node[1].setdefault(values[column], result if following is None else (following, {}))
        return result
