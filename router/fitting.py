"""Tables for people that lose nothing on a narrow terminal: where a table does not fit into a line, each of its rows
becomes a few lines that name every value.
"""

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_GAP = 3
_INDENT = 2
_UNBOUNDED = 100_000
"""Columns: enough for whatever stands in a cell."""


class Fitting:
    """A table of texts. Headings that begin with `>` are those of numbers, which stand to the right."""

    def __init__(self, *headings: str) -> None:
        self._headings = [heading.removeprefix(">") for heading in headings]
        self._right = [heading.startswith(">") for heading in headings]
        self._rows: list[list[Text]] = []

    def add_row(self, *cells: Text | str) -> None:
        """The first cell is the row's name, and never empty."""
        assert len(cells) == len(self._headings)
        self._rows.append([Text(cell) if isinstance(cell, str) else cell for cell in cells])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = self._table()
        if Measurement.get(console, options.update(width=_UNBOUNDED), table).maximum <= options.max_width:
            yield table
        else:
            for row in self._rows:
                yield from self._lines(row, options.max_width)

    def _table(self) -> RenderableType:
        table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for heading, right in zip(self._headings, self._right, strict=True):
            table.add_column(heading, justify="right" if right else "left")
        for row in self._rows:
            table.add_row(*row)
        return table

    def _lines(self, row: list[Text], width: int) -> Iterator[Text]:
        """As many values to a line as it has room for; one that is longer than a line is folded."""
        values = [
            Text.assemble((f"{heading} ", "dim"), cell)
            for heading, cell in zip(self._headings, row, strict=True)
            if cell.plain
        ]
        line, *others = values
        for value in others:
            if line.cell_len + _GAP + value.cell_len <= width:
                line.append(" " * _GAP)
            else:
                yield line
                line = Text(" " * _INDENT)
            line.append_text(value)
        yield line
