"""docs/entities.md, and the series of docs/monitoring.md, as the table of entities has them.

python -m tests.router.entities.page        # writes both anew
"""

import re
from pathlib import Path
from typing import Any

from router.entities.catalogue import ENTITIES
from router.entities.routers import ROUTER
from router.entities.table import Attribute, Entity, Where

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "entities.md"
MONITORING = DOCS / "monitoring.md"
HEAD = """# What a router shows

`$status` ([status.md](status.md)), `$management` ([management.md](management.md)), `/metrics`
([monitoring.md](monitoring.md)), the console and the commands show these entities and attributes of a router,
and nothing else. `python -m tests.router.entities.page` writes this page from the table in `router/entities/`.

A `.` stands between the key of a map and a key in it. A value that counts up begins at 0 with the process; that of
a link, with its attach; that of a connection, with the connection. `oncemesh top` and the console make rates of two
looks at such values. What began between the looks counts from 0.
"""
SURFACES = "`$status`", "`$management`", "`/metrics`"
LINKED = re.compile(r"\b(\w+\.md)\b")
SERIES = re.compile(
    r"(?<=\| series \| labels \| meaning \|\n\| --- \| --- \| --- \|\n)(.*?)(?=\| `process_)", re.DOTALL
)


def page() -> str:
    return "\n".join([HEAD, *map(_section, ENTITIES)])


def monitoring() -> str:
    """The document, with the rows of our series as they should be."""
    ours = [one for entity in ENTITIES for one in entity.attributes if one.series is not None]
    return SERIES.sub(lambda found: "".join(map(_series_row, ours)), MONITORING.read_text())


def shown(entity: Entity[Any], attribute: Attribute[Any]) -> dict[str, str]:
    """By who shows it: under which name."""
    names = {}
    if Where.STATUS in attribute.where and (entity.status or entity is ROUTER):
        names["`$status`"] = attribute.name
    if Where.MANAGEMENT in attribute.where and entity.managed:
        names["`$management`"] = attribute.managed_name
    if attribute.series is not None:
        names["`/metrics`"] = attribute.series.name
    return names


def _section(entity: Entity[Any]) -> str:
    where = [f"`{entity.status}[]` in `$status`"] if entity.status else []
    where += [f"type `{entity.managed}`"] if entity.managed else []
    title = entity.managed or entity.name
    surfaces = [name for name in SURFACES if any(name in shown(entity, one) for one in entity.attributes)]
    rows = [f"| {' | '.join(surfaces)} | value | meaning |", f"|{' --- |' * (len(surfaces) + 2)}"]
    for one in entity.attributes:
        names = shown(entity, one)
        cells = [f"`{names[surface]}`" if surface in names else "" for surface in surfaces]
        rows.append(f"| {' | '.join((*cells, one.type, _linked(one.says)))} |")
    says = f"{_linked(entity.says[0].upper() + entity.says[1:])}{': ' if where else ''}{', '.join(where)}."
    return f"## `{title}`\n\n{says}\n\n" + "\n".join(rows) + "\n"


def _series_row(attribute: Attribute[Any]) -> str:
    series = attribute.series
    assert series is not None
    labels = ", ".join(f"`{label}`" for label in series.labels)
    values = f": {', '.join(f'`{value}`' for value in series.values)}" if series.values else ""
    return f"| `{series.name}` |{f' {labels} ' if labels else ' '}| {_linked(attribute.measured)}{values} |\n"


def _linked(text: str) -> str:
    return LINKED.sub(r"[\1](\1)", text)


if __name__ == "__main__":
    PAGE.write_text(page())
    MONITORING.write_text(monitoring())
