"""A table on terminals of all widths."""

import io

from rich.console import Console
from rich.table import Table
from rich.text import Text

from failover.fitting import Fitting


def shown(width: int) -> list[str]:
    table = Table("who", "where", title="guests")
    table.add_column("how many", justify="right")
    table.add_row("[b]a-name-of-30-characters-or-so[/b]", Text("here\nand there"), "7", style="red")
    table.add_row("z", "", "12345")
    out = Console(file=io.StringIO(), width=width, markup=False)
    out.print(Fitting(table))
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue().splitlines()


def test_where_there_is_room_it_is_a_table() -> None:
    lines = shown(80)
    assert lines[0].strip() == "guests"
    assert "how many" in lines[2] and "┃" in lines[2]


def test_where_there_is_none_every_value_is_named_and_what_is_empty_left_out() -> None:
    assert shown(50) == [
        "guests:",
        "who [b]a-name-of-30-characters-or-so[/b]",
        "  where here, and there   how many 7",
        "who z   how many 12345",
    ]


def test_what_is_longer_than_a_line_is_folded() -> None:
    lines = shown(20)
    assert max(map(len, lines)) <= 20
    assert "".join(lines).replace(" ", "").count("[b]a-name-of-30-characters-or-so[/b]") == 1
