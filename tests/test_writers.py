"""A record alone writes what is in it (topic.delivery.record): nothing else assigns to its fields, or changes them."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
RECORD = "topic/delivery/record.py"
CALLED_RECORDS = {"record", "known", "r", "one", "first"}
"""Names by which modules call a record."""
COUNTED_ELSEWHERE = {"unread", "message"}
"""The hot path: the docstring of the record's module says where."""
CHANGES = {"add", "append", "clear", "difference_update", "discard", "extend", "pop", "remove", "setdefault", "update"}


def fields() -> set[str]:
    """The slots of a record."""
    (record,) = [
        node for node in ast.parse((ROOT / RECORD).read_text()).body if getattr(node, "name", None) == "Record"
    ]
    assert isinstance(record, ast.ClassDef)
    (slots,) = [node.value for node in record.body if isinstance(node, ast.Assign) and names(node) == ["__slots__"]]
    return set(ast.literal_eval(slots))


def names(node: ast.Assign) -> list[str]:
    return [target.id for target in node.targets if isinstance(target, ast.Name)]


def written(path: str) -> Iterator[tuple[str, int]]:
    """Fields of what is called a record that the module at `path` writes, and the line of each."""
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
                case ast.Attribute(attr=name, value=ast.Name(id=of)) if of in CALLED_RECORDS:
                    yield name, target.lineno


def test_nothing_but_its_own_module_writes_a_record() -> None:
    theirs = fields() - COUNTED_ELSEWHERE
    assert {"state", "awaited", "orphans", "chosen"} < theirs
    modules = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "topic").rglob("*.py"))
    found = [
        f"{path}:{line}: {name}" for path in modules if path != RECORD for name, line in written(path) if name in theirs
    ]
    assert found == []
