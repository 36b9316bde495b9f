"""Makes tables for terminals of any width.

If a table is too wide, its long cells are folded. If it is still too wide, some columns are left out, and a line names
them. If that does not suffice, each row becomes a few lines that name every value."""

from collections.abc import Collection, Iterator
from copy import copy
from dataclasses import replace
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_GAP: Final = 3
_INDENT: Final = 2
_UNBOUNDED: Final = 100_000
"""The columns of an imaginary terminal that has room for any cell."""
_FOLDED: Final = 16
"""The least width of a folded cell, in columns."""


class Fitting:
    """A table that fits itself to the terminal. The cells of `table` are texts; the first cell of each row is not
    empty. Columns with overflow="fold" may be folded. `least` has the headings of columns that may be left out, the
    least important first."""

    def __init__(self, table: Table, *least: str) -> None:
        self.table = table
        self.least = least

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for number in range(len(self.least) + 1):
            without = self.least[:number]
            if self._least_width(console, options, without) <= options.max_width:
                yield self._table(without)
                if without:
                    yield Text(f"no room for {', '.join(dict.fromkeys(without))}", style="dim")
                return
        yield from self._as_lines(console, options.max_width)

    def _table(self, without: Collection[str]) -> Table:
        """The table without these columns. Only columns with overflow="fold" wrap."""
        table = copy(self.table)
        kept = [column for column in self.table.columns if str(column.header) not in without]
        table.columns = [
            replace(column, _index=index, no_wrap=column.overflow != "fold") for index, column in enumerate(kept)
        ]
        return table

    def _least_width(self, console: Console, options: ConsoleOptions, without: Collection[str]) -> int:
        """The width that the table needs when all foldable cells are folded."""
        table = self._table(without)
        for column in table.columns:
            if column.overflow == "fold":
                column.max_width = _FOLDED
        return Measurement.get(console, options.update(width=_UNBOUNDED), table).maximum

    def _as_lines(self, console: Console, width: int) -> RenderResult:
        if self.table.title:
            yield f"{self.table.title}:"
        columns = [[*column.cells] for column in self.table.columns]
        for row, cells in zip(self.table.rows, zip(*columns, strict=True), strict=True):
            texts = [console.render_str(cell) if isinstance(cell, str) else cell for cell in cells]
            for line in self._lines(texts, width):
                line.stylize(row.style or "")
                yield line

    def _lines(self, cells: list[Text], width: int) -> Iterator[Text]:
        """Put as many values on a line as it has room for. A value that is longer than a line is folded."""
        headings = (str(column.header) for column in self.table.columns)
        named = zip(headings, cells, strict=True)
        line, *others = (_value(heading, cell) for heading, cell in named if cell.plain)
        for value in others:
            if line.cell_len + _GAP + value.cell_len <= width:
                line.append(" " * _GAP)
            else:
                yield line
                line = Text(" " * _INDENT)
            line.append_text(value)
        yield line


def _value(heading: str, cell: Text) -> Text:
    return Text.assemble((f"{heading} ", "dim"), Text(", ").join(cell.split()))
