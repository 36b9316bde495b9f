"""The docs name the code of each rule, and the code cites rules of the protocol. Both names and citations must
exist."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.test_imports import modules, tree

ROOT = Path(__file__).parent.parent
PROTOCOL = (ROOT / "docs" / "protocol.md").read_text()
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
NAMED = set(re.findall(r"`([A-Z][A-Za-z]+\._?[a-z_]+)`", PROTOCOL + ARCHITECTURE))
SOURCES = [(ROOT / path).read_text() for path in modules()]
CITED = sorted({place for source in SOURCES for place in re.findall(r"protocol (?:section )?(\d+\.\d+)", source)})


def declared() -> Iterator[str]:
    """Yield the attributes and methods of the product's classes, as `Class.name`."""
    for path in modules():
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef):
                yield from (f"{node.name}.{name}" for part in node.body for name in names(part))


def names(part: ast.stmt) -> Iterator[str]:
    if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
        yield part.name
    targets = [part.target] if isinstance(part, ast.AnnAssign) else part.targets if isinstance(part, ast.Assign) else []
    yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))


def test_a_rule_is_kept_where_the_docs_say() -> None:
    assert NAMED - set(declared()) == set()
    assert NAMED


def is_in_the_protocol(place: str) -> bool:
    section, item = place.split(".")
    texts = re.findall(rf"^## {section}\. .*?(?=^## |\Z)", PROTOCOL, re.MULTILINE | re.DOTALL)
    return any(re.search(rf"^{item}\. ", text, re.MULTILINE) for text in texts)


def test_a_rule_that_is_cited_is_in_the_protocol() -> None:
    assert CITED
    assert [place for place in CITED if not is_in_the_protocol(place)] == []
