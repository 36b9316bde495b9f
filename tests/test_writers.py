"""Only `topic.delivery.record` assigns to fields of records and streams, or changes what these fields hold."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
RECORD = "topic/delivery/record.py"
CALLED_SO = {"record", "known", "r", "one", "first", "stream", "old", "new", "mine", "other"}
"""The names that modules give to a record or a stream."""
COUNTED_ELSEWHERE = {"unread", "message"}
"""Fields that other modules may write, because they are on the hot path. The docstring of the record's module lists the
modules."""
KEPT_ELSEWHERE = {"records"}
"""Fields from which other modules may remove records: `RecordTable.forget` and `Unconfirmed.hold`."""
CHANGES = {
    "add",
    "append",
    "clear",
    "difference_update",
    "discard",
    "extend",
    "pop",
    "popleft",
    "remove",
    "setdefault",
    "update",
}


def fields(*classes: str) -> set[str]:
    """The slots of these classes."""
    found: set[str] = set()
    for node in ast.parse((ROOT / RECORD).read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name in classes:
            (slots,) = [
                each.value for each in node.body if isinstance(each, ast.Assign) and names(each) == ["__slots__"]
            ]
            found |= set(ast.literal_eval(slots))
    return found


def names(node: ast.Assign) -> list[str]:
    return [target.id for target in node.targets if isinstance(target, ast.Name)]


def written(path: str) -> Iterator[tuple[str, int]]:
    """Yield the fields of a record or a stream that the module at `path` writes, each with its line."""
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            targets = [node]
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            targets = [node.value]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
            targets = [node.func.value]
        for target in targets:
            match target:
                case ast.Attribute(attr=name, value=ast.Name(id=of)) if of in CALLED_SO:
                    yield name, target.lineno
                case ast.Attribute(attr=name, value=ast.Attribute(attr="stream")):
                    yield name, target.lineno


def test_nothing_but_its_own_module_writes_a_record_or_a_stream() -> None:
    theirs = fields("Record", "Stream", "HomeStream") - COUNTED_ELSEWHERE - KEPT_ELSEWHERE
    assert {"state", "awaited", "orphans", "chosen", "unconfirmed", "withheld", "gates", "questions"} < theirs
    modules = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "topic").rglob("*.py"))
    found = [
        f"{path}:{line}: {name}" for path in modules if path != RECORD for name, line in written(path) if name in theirs
    ]
    assert found == []
