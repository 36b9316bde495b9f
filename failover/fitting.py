"""Tables for people that lose nothing on a narrow terminal: where a table does not fit into a line, each of its rows
becomes a few lines that name every value.
"""

from collections.abc import Iterator
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_GAP: Final = 3
_INDENT: Final = 2
_UNBOUNDED: Final = 100_000
"""Columns: enough for whatever stands in a cell."""


class Fitting:
    """`table` has texts in its cells, and one in the first of each row."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if Measurement.get(console, options.update(width=_UNBOUNDED), self.table).maximum <= options.max_width:
            yield self.table
            return
        if self.table.title:
            yield f"{self.table.title}:"
        columns = [[*column.cells] for column in self.table.columns]
        for row, cells in zip(self.table.rows, zip(*columns, strict=True), strict=True):
            texts = [console.render_str(cell) if isinstance(cell, str) else cell for cell in cells]
            for line in self._lines(texts, options.max_width):
                line.stylize(row.style or "")
                yield line

    def _lines(self, cells: list[Text], width: int) -> Iterator[Text]:
        """As many values to a line as it has room for; one that is longer than a line is folded."""
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
