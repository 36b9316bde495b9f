"""What strangers write reaches no terminal as a command."""

import json

import pytest

from router.text.printable import printable, printable_json


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("a\r\nb\tc", r"a\r\nb\tc"),
        ("\x00\x7f\x9b", r"\x00\x7f\x9b"),
        ("abc\u202egpj", r"abc\u202egpj"),
        ("\u2066\u2069\u200f\u061c", r"\u2066\u2069\u200f\u061c"),
        ("\u2028\u2029", r"\u2028\u2029"),
        ("\udcff", r"\udcff"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize("text", ["", "topic/x", "größe 大小 \u3000 שלום 👩‍👩‍👧 [red] a\\b"])
def test_all_else_stays(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize("indent", [None, 1])
def test_json_says_the_same_with_nothing_to_obey(indent: int | None) -> None:
    value = {"container": "\x1b[31m\x7f\x9b\u202e\udcffgröße", "link": ["a\nb"]}
    text = printable_json(value, indent)
    assert json.loads(text) == value and "größe" in text
    assert printable(text.replace("\n", "")) == text.replace("\n", "")
