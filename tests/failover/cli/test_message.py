"""Messages as people and programs write and read them."""

import json
from typing import Any

import pytest
from proton import Message

from failover.cli.json_message import as_json, as_lines, as_raw, as_text, parse_json
from failover.cli.subscribe import write
from router.amqp.format.message import data_message
from router.amqp.format.sections import read_message, write_message

KEY = b"k" * 32


def test_what_json_shows_json_takes() -> None:
    for sections in (
        {"data": b"text\n"},
        {"data": b"\xff\x00"},
        {"value": {"a": [1, 2.5, None, True, "x"]}},
        {"sequence": [[1], ["a"]]},
        {"value": {"a": b"text", "b": [b"\xff"]}},
        {"value": b"\xff"},
        {"sequence": [[b"\xff"]]},
        {"properties": {"message-id": b"\xff", "user-id": b"\xff", "correlation-id": b"text"}, "data": b""},
        {"properties": {"user-id": "me"}, "application-properties": {"base64": b"\xff"}, "data": b""},
        {"header": {"ttl": 5}, "properties": {"subject": "s"}, "application-properties": {"a": 1}, "data": b""},
        {"delivery-annotations": {"d": 1}, "message-annotations": {"m": "x"}, "data": b"", "footer": {"f": None}},
    ):
        message = write_message(sections)
        assert write_message(parse_json(as_json(KEY, message))) == message


def test_json_has_all_sections_and_the_key_on_one_line() -> None:
    message = write_message({"properties": {"subject": "a\nb"}, "data": b"\xff"})
    line = as_json(KEY, message)
    assert b"\n" not in line
    assert json.loads(line) == {"key": KEY.decode(), "properties": {"subject": "a\nb"}, "base64": "/w=="}


def test_a_value_is_decoded_and_never_the_bytes_of_the_message() -> None:
    for value, raw in ((3.25, b"3.25"), ("text", b"text"), (b"\xff", b"\xff"), ([1, None], b"[1, null]"), ({}, b"{}")):
        message = bytes(Message(body=value, inferred=False).encode())
        assert as_raw(KEY, message) == raw
    assert json.loads(as_json(KEY, write_message({"value": float("inf")})))["value"] == "inf"
    assert json.loads(as_json(KEY, write_message({"value": {1: b"\xff"}})))["value"] == {"1": {"base64": "/w=="}}


def test_a_body_is_raw_for_programs_and_harmless_on_a_terminal() -> None:
    message = data_message(b"\x1b[2J\r\n" + "\u202e".encode() + b"\xff")
    assert as_raw(KEY, message) == b"\x1b[2J\r\n\xe2\x80\xae\xff"
    assert as_lines(KEY, message) == rb"\x1b[2J\r\n\u202e\xff"


def test_what_is_laid_out_has_everything_and_is_harmless() -> None:
    message = write_message(
        {
            "header": {"ttl": 5},
            "properties": {"subject": "\x1b[2J", "creation-time": 1_700_000_000_000, "user-id": "me"},
            "application-properties": {"n\n": 1},
            "data": b"two\nlines\x1b",
        }
    )
    assert as_text(KEY, message).decode().splitlines() == [
        KEY.decode(),
        "  header",
        "    ttl: 5 ms",
        "  properties",
        "    user-id: me",
        r"    subject: \x1b[2J",
        "    creation-time: 2023-11-14T22:13:20.000+00:00",
        "  application-properties",
        r"    n\n: 1",
        "  body: 10 bytes",
        "    two",
        r"    lines\x1b",
    ]
    assert b"2147483648" in as_text(KEY, write_message({"properties": {"creation-time": 2147483648 * 10**9}}))
    assert as_text(KEY, write_message({"value": [1, "a"]})).decode().splitlines()[1:] == [
        "  body: value",
        '    [1, "a"]',
    ]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "not JSON: Expecting property name enclosed in double quotes at column 2, expected a message such as {"),
        (b"\xff", "not UTF-8, expected JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("[1]", 'not a JSON object, expected a message such as {"body": "text"}'),
        ('{"value": NaN}', "NaN is not JSON, expected a number"),
        ('{"value": -' + "9" * 4999 + "}", "an integer has 5000 characters, expected at most 20"),
        ('{"body": "a\\ud800"}', r""""body": '\ud800' is not UTF-8, expected a text"""),
        ('{"body": "a", "body": "b"}', '"body" appears twice, expected once'),
        ('{"value": {"a": 1, "a": 1}}', '"a" appears twice, expected once'),
        ("{}", "0 bodies, expected one of body, base64, sequence and value"),
        ('{"body": "a", "value": 1}', "2 bodies, expected one of body"),
        ('{"body": 1}', '"body" is 1, expected a text'),
        ('{"sequence": [1]}', '"sequence" is [1], expected a list of lists'),
        ('{"subject": "s", "body": ""}', '"subject" belongs into "properties": {"properties": {"subject": …}}'),
        ('{"ttl": 1, "body": ""}', '"ttl" belongs into "header": {"header": {"ttl": …}}'),
        ('{"data": "s"}', '"data" is not a part of a message, expected header, '),
        ('{"base64": "?"}', "base64: "),
    ],
)
def test_a_line_that_cannot_be_meant_is_told(line: str | bytes, complaint: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_json(line.encode() if isinstance(line, str) else line)
    assert str(caught.value).startswith(complaint)


def test_a_line_may_say_no_more_than_that_there_is_an_empty_body() -> None:
    sections: dict[str, Any] = parse_json(b'{"body": ""}')
    assert read_message(write_message(sections)) == {"data": b""}


def test_what_is_no_message_is_said_and_stops_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    for message in (b"\xff" * 9, b"\x00\x53"):
        write(as_raw, KEY, message)
    shown = capsys.readouterr()
    assert shown.out == ""
    told = f"{KEY.decode()} cannot be read as an AMQP message: "
    assert [line[: len(told)] for line in shown.err.splitlines()] == [told, told]
