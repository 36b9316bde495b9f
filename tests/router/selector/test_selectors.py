"""Selectors: what they say of a message, and what is no selector, with its place."""

import pytest

from router.amqp.format.message import in_envelope
from router.amqp.format.sections import write_message
from router.edge.selector import content
from router.edge.selector.content import Content, Simple
from router.edge.selector.parser import DEEPEST, MOST_TERMS
from router.edge.selector.selector import Selector
from router.edge.selector.terms import LONGEST_LIKE
from router.edge.selector.tokens import LONGEST, SelectorError

PROPERTIES = {"colour": "red", "size": 5, "urgent": True, "ratio": 1.5, "it's": "100%", "list.size": 0}
MESSAGE = write_message(
    {
        "header": {"durable": True, "priority": 7},
        "properties": {"subject": "eu.news", "message-id": "m1", "group-sequence": 3, "user-id": "ada"},
        "application-properties": PROPERTIES,
        "data": "body",
    }
)


def wants(selector: str, message: bytes = MESSAGE) -> bool:
    asked = Selector(selector)
    return asked.wants(asked.read(message))


@pytest.mark.parametrize(
    "selector",
    [
        "colour = 'red'", "colour <> 'blue'", "colour != 'blue'", "size > 4 AND size <= 5", "colour >= 'blue'",
        "colour = 'blue' OR size = 5", "NOT colour = 'blue'", "not (colour = 'blue' or size < 5)", "urgent",
        "urgent = TRUE", "size BETWEEN 5 AND 6", "size NOT BETWEEN 6 AND 7", "colour IN ('red', 'blue')",
        "colour NOT IN ('green')", "size IN (1 + 4)", "colour LIKE 'r_d'", "colour LIKE '%e%'", "colour LIKE 'red'",
        "colour NOT LIKE '_'", "\"it's\" LIKE '%!%' ESCAPE '!'", "\"it's\" = '100%'", "none IS NULL",
        "size IS NOT NULL", "size * 2 - 1 = 9", "-size = -5", "+size = 5", "size / 2 = 2", "ratio * 2 = 3",
        "ratio = 15E-1",
        "size + ratio > 6.4", "list.size = 0", "2 < size", "JMSPriority = 7", "amqp.priority = 7", "amqp.durable",
        "JMSDeliveryMode = 'PERSISTENT'", "JMSType = 'eu.news'", "amqp.subject LIKE 'eu.%'", "JMSMessageID = 'm1'",
        "JMSXGroupSeq = 3", "amqp.user_id = 'ada'", "JMSRedelivered = FALSE", "size > 1 or none = 1",
        "colour='it''s' or TRUE",
    ],
)  # fmt: skip
def test_what_holds_is_wanted(selector: str) -> None:
    assert wants(selector)


@pytest.mark.parametrize(
    "selector",
    [
        "colour = 'RED'", "none = 1", "none <> 1", "NOT none = 1", "none = 1 AND size = 5", "colour = 5", "colour <> 5",
        "size = '5'", "urgent > FALSE", "urgent = 1", "size", "colour", "NOT size", "size / 0 = 1", "size IN (1, none)",
        "NOT size IN (1, none)", "none LIKE '%'", "none NOT LIKE '%'", "size LIKE '5'", "colour LIKE 'e'",
        "colour LIKE ''",
        "colour LIKE 'red_'", "colour LIKE '%r'", "colour LIKE 're%ed'", "colour + 1 = 2", "size > none", "FALSE",
        "size BETWEEN none AND 6", "COLOUR = 'red'", "9223372036854775807 * 9223372036854775807 < 0",
    ],
)  # fmt: skip
def test_what_is_false_or_unknown_is_not_wanted(selector: str) -> None:
    assert not wants(selector)


def test_what_a_message_does_not_say_has_amqps_default() -> None:
    bare = write_message({"data": "x"})
    assert wants("JMSPriority = 4 AND JMSDeliveryMode = 'NON_PERSISTENT' AND amqp.subject IS NULL", bare)


@pytest.mark.parametrize("message", [b"", b"\x00", b"none", MESSAGE[:40], in_envelope(MESSAGE, 7), b"\x00\x53\x74"])
def test_what_cannot_be_read_has_no_properties(message: bytes) -> None:
    assert not wants("colour = 'red'", message)
    assert wants("colour IS NULL", message)


@pytest.mark.parametrize(
    ("selector", "column", "what"),
    [
        ("", 1, "expected a property or a value, got the end"),
        ("colour = ", 10, "got the end"),
        ("colour = 'red", 10, "the closing ' is missing"),
        ("(a = 1", 7, "expected ), got the end"),
        ("a = 1 b = 2", 7, "expected AND, OR or the end, got 'b'"),
        ("a ! 1", 3, "'!' is not allowed here"),
        ("1abc = 1", 1, "a number is followed by letters"),
        ("a LIKE b", 8, "expected a pattern in quotes"),
        ("a LIKE 'x' ESCAPE 'xx'", 19, "ESCAPE needs exactly one character"),
        ("a LIKE 'x!' ESCAPE '!'", 20, "ends in its escape character"),
        ("a NOT 1", 7, "expected BETWEEN, IN or LIKE"),
        ("a IS 1", 6, "expected NULL"),
        ("a IN ()", 7, "expected a property or a value"),
        ("9223372036854775808 = a", 1, "a whole number is too large"),
        ("(" * (DEEPEST + 2) + "a", DEEPEST + 2, "nested more than"),
        ("NOT " * (DEEPEST + 1) + "a", 4 * DEEPEST + 5, "nested more than"),
        (" OR ".join(["a"] * MOST_TERMS), 643, "more than 256 terms"),
        ("a" * (LONGEST + 1), LONGEST + 1, "longer than"),
    ],
)
def test_what_is_no_selector_is_told_with_its_place(selector: str, column: int, what: str) -> None:
    with pytest.raises(SelectorError, match=r"selector, column \d+: ") as error:
        Selector(selector)
    assert error.value.column == column
    assert what in str(error.value)


def test_no_pattern_costs_more_than_text_and_pattern_are_long() -> None:
    """Backtracking over so many places would not end."""
    text = write_message({"application-properties": {"a": "a" * LONGEST_LIKE}})
    assert not wants("a LIKE '" + "%a" * 500 + "%b'", text)
    assert not wants("a LIKE '" + "a_%" * 300 + "b'", text)
    longer = write_message({"application-properties": {"a": "a" * (LONGEST_LIKE + 1)}})
    assert not wants("a LIKE '%' OR a NOT LIKE '%'", longer), "unknown"


def test_what_is_nested_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice at each level would not end."""
    asked, known = [], Content.application_property

    def asking(self: Content, name: bytes) -> Simple:
        asked.append(name)
        return known(self, name)

    monkeypatch.setattr(Content, "application_property", asking)
    for end in (" BETWEEN 0 AND 9)", " NOT BETWEEN 0 AND 9)", " IN (1))", " LIKE 'a')", " = 1)", " IS NULL)"):
        assert not wants("(" * (DEEPEST - 1) + "none" + end * (DEEPEST - 1) + " = 1")
    assert asked == [b"none"] * 6


def test_a_pattern_that_could_match_anywhere_is_not_tried_at_each_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step is a character of the pattern, and each is looked for once in the text."""
    looked, asked, places, found = [], [], Content.places, content._places_in

    def asking(self: Content, text: str, character: str) -> int:
        asked.append(character)
        return places(self, text, character)

    def looking(text: str, character: str) -> int:
        looked.append(character)
        return found(text, character)

    monkeypatch.setattr(Content, "places", asking)
    monkeypatch.setattr(content, "_places_in", looking)
    text = write_message({"application-properties": {"x": "a" * LONGEST_LIKE}})
    assert not wants("x LIKE '%_" + "a" * 2000 + "b%' OR x LIKE '%_" + "a" * 1900 + "b%'", text)
    assert len(asked) == 3902 and looked == ["a", "b"]
    assert wants("x LIKE '%_" + "a" * 2000 + "%' AND x LIKE '%a_" + "a" * 1000 + "%" + "_a" * 500 + "%'", text)
    assert looked == ["a", "b", "a"], "of each message anew"
    asked.clear()
    assert wants("x LIKE 'a%" + "a" * 2000 + "%' AND x LIKE '%a_a'", text) and asked == [], "where it costs little"


def test_what_an_error_shows_is_short() -> None:
    """It goes into a frame, and into the log."""
    for said in ("a = '" + "x" * 4000 + "' b", "a b" + "c" * 4000, "1" * 4000 + "x"):
        with pytest.raises(SelectorError) as error:
            Selector(said)
        assert len(str(error.value)) < 120


def test_selectors_of_one_text_are_one() -> None:
    assert Selector("a = 1") == Selector("a = 1") != Selector("a  = 1")
    assert len({Selector("a = 1"), Selector("a = 1")}) == 1
