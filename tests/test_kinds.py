"""Only the module of kinds knows what is special about each kind of address. No other code asks which kind an address
is."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
KINDS = "topic/delivery/kinds.py"
PARTICULAR = {
    "topic/settings.py": {"BALANCED", "balanced", "QUEUE"},  # defines these names
    "router/imported/topology.py": {"BALANCED", "balanced"},  # translates words of other routers
}
"""Maps a module to the names of particular kinds that it may use."""
ROOMS = ("topic", "router", "failover/chaos")
MODULES = sorted(str(path.relative_to(ROOT)) for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def particular() -> set[str]:
    """The names that stand for one kind of address: classes and objects of the module of kinds."""
    names = {"balanced", "is_balanced", "BALANCED", "QUEUE", "is_queue"}
    for node in ast.parse((ROOT / KINDS).read_text()).body:
        if isinstance(node, ast.ClassDef) and any(isinstance(base, ast.Name) for base in node.bases):
            names.add(node.name)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and isinstance(node.value, ast.Call):
            names.add(node.target.id)
    return names


def said(path: str) -> Iterator[tuple[str, int]]:
    """Yield each name, attribute and text of a module, with its line."""
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
                yield name, node.lineno
            case ast.ImportFrom(names=names):
                yield from ((alias.name, node.lineno) for alias in names)
            case ast.Compare():
                for side in (node.left, *node.comparators):
                    match side:
                        case ast.Attribute(attr="kind", value=ast.Name(id="stream" | "subscriber")):
                            yield "kind compared", node.lineno
                        case ast.Attribute(attr="name", value=ast.Attribute(attr="kind")):
                            yield "name of a kind compared", node.lineno


def test_the_particular_kinds_are_those_of_their_module() -> None:
    assert {"TopicKind", "BalancedKind", "DynamicKind", "EACH_TO_ALL", "EACH_TO_ONE"} < particular()


def test_nobody_asks_of_which_kind_an_address_is() -> None:
    asked = particular() | {"kind compared", "name of a kind compared"}
    found = [
        f"{path}:{line}: {name}"
        for path in MODULES
        if path != KINDS
        for name, line in said(path)
        if name in asked - PARTICULAR.get(path, set())
    ]
    assert found == []
