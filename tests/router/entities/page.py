"""docs/entities.md, and the series of docs/monitoring.md, generated from the table of entities.

python -m tests.router.entities.page        # writes both anew
"""

import re
from collections import Counter
from pathlib import Path
from typing import Any

from router.entities.catalogue import ENTITIES
from router.entities.dispatch import VALUELESS
from router.entities.routers import ROUTER
from router.entities.table import DISPATCH, Attribute, Entity, Where

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "entities.md"
MONITORING = DOCS / "monitoring.md"
HEAD = """# What a router shows

`$status` ([status.md](status.md)), `$management` ([management.md](management.md)), the console and the commands show
these attributes of a router, its links and its deliveries, and nothing else. [monitoring.md](monitoring.md#the-series)
lists the series of `/metrics`. `python -m tests.router.entities.page` writes this page from the table in
`router/entities/`.

A name with a `.`, such as `plan.digest`, has the key of a map and a key within it. A number that counts up begins at 0
when the router, the link or the connection begins, or when the router begins to lead. `oncemesh top` and the console
compute rates from two readings of such a number. *It* and *its* in a row mean the entity of the heading, *this router*
the router that you asked.
"""
SHARED = """## Every link

Publishers, subscribers, orphans, lapsed and untold subscribers have these attributes. Their tables below list all
others.
"""
SMALL = """## Smaller entities

Only one of `$status` and `$management` shows these entities, and each has few attributes.

| entity | attributes |
| --- | --- |
"""
OTHERS = """## Types of qpid-dispatch

These types of `$management` begin with `org.apache.qpid.dispatch.` and follow the schema of qpid-dispatch 1.19, so that
its tools work. An attribute that routers do not count is missing; if `qdstat` needs it, it is there without a value.

| type | entities | attributes |
| --- | --- | --- |
"""
COMMON = 3
"""An attribute that is the same in this many entities is described once for all links."""
FEW = 7
"""An entity that one surface shows becomes a row of a common table if it has at most this many attributes."""
SURFACES = "`$status`", "`$management`"
LINKED = re.compile(r"\b(\w+\.md)\b")
SERIES = re.compile(
    r"(?<=\| series \| labels \| meaning \|\n\| --- \| --- \| --- \|\n)(.*?)(?=\| `process_)", re.DOTALL
)


def page() -> str:
    links = [entity for entity in ENTITIES if any(one.name == "container" for one in entity.attributes)]
    rows = (row for entity in links if not _is_foreign(entity) for row in _rows(entity))
    shared = [row for row, count in Counter(rows).items() if count >= COMMON]
    ours = [(entity, _others(entity, shared)) for entity in ENTITIES if not _is_foreign(entity)]
    sections = [_section(entity, rows) for entity, rows in ours if not _is_small(rows)]
    small = SMALL + "".join(_small_row(entity, rows) for entity, rows in ours if _is_small(rows))
    foreign = OTHERS + "".join(_foreign_row(entity) for entity in ENTITIES if _is_foreign(entity))
    return "\n".join([HEAD, SHARED, _table(shared), *sections, small, foreign])


def monitoring() -> str:
    """The document, with the rows of our series up to date."""
    ours = [one for entity in ENTITIES for one in entity.attributes if one.series is not None]
    return SERIES.sub(lambda found: "".join(map(_series_row, ours)), MONITORING.read_text())


def shown(entity: Entity[Any], attribute: Attribute[Any]) -> dict[str, str]:
    """Surface -> the name under which it shows the attribute."""
    names = {}
    if Where.STATUS in attribute.where and (entity.status or entity is ROUTER):
        names["`$status`"] = attribute.name
    if Where.MANAGEMENT in attribute.where and entity.managed:
        names["`$management`"] = attribute.managed_name
    if attribute.series is not None:
        names["`/metrics`"] = attribute.series.name
    return names


Row = tuple[str, str, str, str]
"""The attribute's name in `$status` and in `$management`, its type, its meaning."""


def _rows(entity: Entity[Any]) -> list[Row]:
    """Attributes that a surface other than `/metrics` shows."""
    names = [(one, shown(entity, one)) for one in entity.attributes]
    return [
        (*(f"`{called[surface]}`" if surface in called else "" for surface in SURFACES), one.type, _linked(one.says))  # type: ignore[misc]
        for one, called in names
        if called.keys() & set(SURFACES)
    ]


def _others(entity: Entity[Any], shared: list[Row]) -> list[Row]:
    """All rows except those that are described once for all links, even in `$status` alone."""
    told = {(*names, *rest) for status, managed, *rest in shared for names in ((status, managed), (status, ""))}
    return [row for row in _rows(entity) if row not in told]


def _table(rows: list[Row]) -> str:
    used = [place for place in range(4) if any(row[place] for row in rows)]
    heads = [(*SURFACES, "value", "meaning"), ("---",) * 4]
    return "".join(f"| {' | '.join(row[place] for place in used)} |\n" for row in (*heads, *rows))


def _section(entity: Entity[Any], rows: list[Row]) -> str:
    return f"## `{_title(entity)}`\n\n{_about(entity)}\n\n" + _table(rows)


def _title(entity: Entity[Any]) -> str:
    return entity.managed or entity.name


def _about(entity: Entity[Any]) -> str:
    """Which ones there are, and where."""
    where = [f"`{entity.status}[]` in `$status`"] if entity.status else []
    where += [f"type `{entity.managed}`"] if entity.managed else []
    return f"{_linked(entity.says[0].upper() + entity.says[1:])}{': ' if where else ''}{', '.join(where)}."


def _is_small(rows: list[Row]) -> bool:
    return len(rows) <= FEW and not (any(row[0] for row in rows) and any(row[1] for row in rows))


def _small_row(entity: Entity[Any], rows: list[Row]) -> str:
    attributes = (f"{status or managed} ({value}): {says}" for status, managed, value, says in rows)
    return f"| **`{_title(entity)}`**: {_about(entity)} | {'<br>'.join(attributes)} |\n"


def _is_foreign(entity: Entity[Any]) -> bool:
    return entity.managed.startswith(DISPATCH)


def _foreign_row(entity: Entity[Any]) -> str:
    empty = [f"`{one.managed_name}`" for one in entity.attributes if one.says == VALUELESS]
    attributes = [f"`{one.managed_name}`: {_linked(one.says)}" for one in entity.attributes if one.says != VALUELESS]
    attributes += [f"without a value: {', '.join(empty)}"] if empty else []
    return f"| `{entity.managed.removeprefix(DISPATCH)}` | {_linked(entity.says)} | {'; '.join(attributes)} |\n"


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
