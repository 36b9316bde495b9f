"""Whatever is said for a selector, and whatever comes for a message, is answered: truly, or with the place."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from router.amqp.format.sections import write_message
from router.edge.selector import terms
from router.edge.selector.content import Content
from router.edge.selector.selector import Selector
from router.edge.selector.tokens import SelectorError

WORDS = (
    "AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE", "(", ")", ",", "=", "<>", "<",
    ">=", "+", "-", "*", "/", "a", "b.c", '"a b"', "JMSPriority", "amqp.to", "'x'", "'%_!'", "1", "0", "2.5", "1e99",
    "'", "?",
)  # fmt: skip
SAID = st.one_of(st.text(max_size=40), st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join))
VALUES = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=5))
MESSAGES = st.dictionaries(st.sampled_from(("a", "b.c", "a b")), VALUES).map(
    lambda properties: write_message({"application-properties": properties, "data": "x"})
)


def atom(name: str) -> st.SearchStrategy[str]:
    return st.sampled_from(
        (f"{name} = 1", f"{name} IS NULL", f"{name} LIKE 'x%'", f"{name} IN (1, 'x')", f"{name} > 0")
    )


@settings(max_examples=300, deadline=None)
@given(SAID, MESSAGES, st.integers(0, 60))
def test_any_text_is_a_selector_or_told_where_it_is_none(said: str, message: bytes, cut: int) -> None:
    try:
        selector = Selector(said)
    except SelectorError as error:
        assert 1 <= error.column <= len(said) + 1
    else:
        for read in (message, message[:cut], message[cut:]):
            assert selector.wants(selector.read(read)) in (True, False)


@settings(max_examples=100, deadline=None)
@given(atom("a"), atom("b.c"), MESSAGES)
def test_three_valued_logic_keeps_to_de_morgan(one: str, other: str, message: bytes) -> None:
    for each, same in (
        (f"NOT ({one} AND {other})", f"NOT ({one}) OR NOT ({other})"),
        (f"NOT ({one} OR {other})", f"NOT ({one}) AND NOT ({other})"),
    ):
        asked, equal = Selector(each), Selector(same)
        assert asked.wants(asked.read(message)) == equal.wants(equal.read(message))


LIKES = st.lists(st.sampled_from(("a", "b", "é", "_", "_", "%", "%")), max_size=9)


@settings(max_examples=500, deadline=None)
@given(LIKES, st.text("abé\n", max_size=12), st.sampled_from((0, terms._TRIED)))
def test_a_pattern_matches_as_a_regular_expression_would(pattern: list[str], text: str, tried: int) -> None:
    """Whether it is tried at each place, or at all of them at once."""
    expected = re.fullmatch("".join({"_": ".", "%": ".*"}.get(one, one) for one in pattern), text, re.DOTALL)
    elements = [None if one == "%" else "" if one == "_" else one for one in pattern]
    before, terms._TRIED = terms._TRIED, tried  # type: ignore[misc]
    try:
        assert terms.like(terms.constant(text), elements)(Content(b"")) is (expected is not None)
    finally:
        terms._TRIED = before  # type: ignore[misc]
