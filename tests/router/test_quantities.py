"""Durations, sizes and addresses as people write them."""

import pytest

from router.mesh.quantities import Address, format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"), [("200ms", 0.2), ("1s", 1.0), ("1.5s", 1.5), ("2m", 120.0), ("1h", 3600.0)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "1", "0s", "-1s", "1 s", "s", "1d", "١s", "nan"])
def test_what_is_not_a_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration, expected"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["9" * 20 + "h", "1." + "0" * 10 + "s", "9" * 5000 + "ms"])
def test_a_duration_of_too_many_digits_is_one_that_is_too_large(text: str) -> None:
    with pytest.raises(ValueError, match="has too many digits, expected at most 9 before and after the point"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["9" * 13, "9" * 5000 + "GiB"])
def test_a_size_of_too_many_digits_is_one_that_is_too_large(text: str) -> None:
    with pytest.raises(ValueError, match="has too many digits, expected at most 12"):
        parse_size(text)


@pytest.mark.parametrize(("text", "size"), [("0", 0), ("100B", 100), ("1KiB", 1024), ("16MiB", 16 << 20)])
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "KiB", "1KB", "1.5KiB", "-1", "1 KiB"])
def test_what_is_not_a_size(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size, expected"):
        parse_size(text)


@pytest.mark.parametrize("text", ["127.0.0.1:5672", "[::1]:0", "router-a.example.org:65535", "a." * 126 + "a:1"])
def test_an_address_reads_back_as_it_was_written(text: str) -> None:
    assert str(Address.parse(text)) == text


WORDS = ["", "h", ":1", "h:", "h:x", "h:65536", "::1:5672", "a b:1", "amqp://h:1", "a..b:1"]


@pytest.mark.parametrize("text", [*WORDS, "a\0b:1", "a\x1bb:1", "a." * 126 + "ab:1", "é" * 100_000 + ":1"])
def test_what_is_not_an_address(text: str) -> None:
    with pytest.raises(ValueError, match="is not an address, expected"):
        Address.parse(text)


@pytest.mark.parametrize(
    ("text", "here"), [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:1", "[::1]:1"), ("0:1", "127.0.0.1:1"), ("h:1", "h:1")]
)
def test_what_listens_anywhere_is_found_on_loopback(text: str, here: str) -> None:
    assert str(Address.parse(text).here) == here


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.35, "350ms"), (4.21, "4.2s"), (200, "3m 20s"), (120, "2m"), (7500, "2h 5m"), (3600, "1h"), (3630, "1h")],
)
def test_durations_are_shown_short(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(("size", "text"), [(512, "512 B"), (1536, "1.5 KiB"), (80 << 20, "80.0 MiB")])
def test_sizes_are_shown_short(size: int, text: str) -> None:
    assert format_size(size) == text
