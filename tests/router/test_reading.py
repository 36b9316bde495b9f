"""What is said where a word is not known, or a text not to be read."""

import pytest
from click.testing import CliRunner

from router.cli.main import main
from router.mesh.marked import Malformed, read
from router.mesh.reading import expected


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("kil", 'expected kill, pause or rolling-restart; did you mean "kill"?'),
        ("PAUSE", 'expected kill, pause or rolling-restart; did you mean "pause"?'),
        ("rolling_restart", 'expected kill, pause or rolling-restart; did you mean "rolling-restart"?'),
        ("explode", "expected kill, pause or rolling-restart"),
        ("", "expected kill, pause or rolling-restart"),
    ],
)
def test_a_word_that_is_like_a_known_one_may_be_that(word: str, said: str) -> None:
    assert expected(word, ["kill", "pause", "rolling-restart"]) == said


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [(["statsu"], "status"), (["pubish", "topic/x"], "publish"), (["status", "--jsn"], "--json")],
)
def test_a_command_or_an_option_that_is_like_a_known_one_may_be_that(arguments: list[str], meant: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert "Did you mean" in result.output and f"'{meant}'" in result.output


def test_a_text_in_another_encoding_is_told_with_its_line() -> None:
    with pytest.raises(Malformed) as caught:
        read("mesh: a\n# für b\n".encode("latin-1"))
    assert (caught.value.line, caught.value.problem) == (2, "not UTF-8: a byte 0xfc, expected a text in UTF-8")
