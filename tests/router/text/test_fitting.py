"""A table on terminals of all widths."""

import io

from rich.console import Console
from rich.table import Table
from rich.text import Text

from router.text.fitting import Fitting


def shown(width: int, *least: str) -> list[str]:
    table = Table("who", "where", title="guests")
    table.add_column("how many", justify="right")
    table.columns[0].overflow = "fold"
    table.add_row("[b]a-name-of-30-characters-or-so[/b]", Text("here\nand there"), "7", style="red")
    table.add_row("z", "", "12345")
    out = Console(file=io.StringIO(), width=width, markup=False)
    out.print(Fitting(table, *least))
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue().splitlines()


def test_where_there_is_room_it_is_a_table() -> None:
    lines = shown(80)
    assert lines[0].strip() == "guests"
    assert "how many" in lines[2] and "┃" in lines[2]


def test_where_there_is_less_long_names_are_folded_and_nothing_else_is() -> None:
    lines = shown(50, "how many")
    assert "how many" in lines[2] and "no room" not in lines[-1]
    names = "".join(line.split("│")[1].strip() for line in lines if "│" in line)
    assert names == "[b]a-name-of-30-characters-or-so[/b]z"
    assert [line for line in lines if "and there" in line], lines


def test_where_there_is_less_still_columns_are_left_out_and_named() -> None:
    lines = shown(33, "how many", "where")
    assert "who" in lines[2] and "where" in lines[2] and "how many" not in lines[2]
    assert lines[-1] == "no room for how many"
    assert max(map(len, lines)) <= 33


def test_where_there_is_none_every_value_is_named_and_what_is_empty_left_out() -> None:
    assert shown(42) == [
        "guests:",
        "who [b]a-name-of-30-characters-or-so[/b]",
        "  where here, and there   how many 7",
        "who z   how many 12345",
    ]


def test_what_is_longer_than_a_line_is_folded() -> None:
    lines = shown(20)
    assert max(map(len, lines)) <= 20
    assert "".join(lines).replace(" ", "").count("[b]a-name-of-30-characters-or-so[/b]") == 1
