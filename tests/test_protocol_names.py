"""docs/ say where each rule is kept, and code which rule it keeps: what they name is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROTOCOL = (ROOT / "docs" / "protocol.md").read_text()
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
NAMED = sorted(set(re.findall(r"`([A-Z][A-Za-z]+)\.(_?[a-z_]+)`", PROTOCOL + ARCHITECTURE)))
FOLDERS = ("linkstate", "topic", "failover", "router")
SOURCES = [path.read_text() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
CITED = sorted({place for source in SOURCES for place in re.findall(r"protocol (?:section )?(\d+\.\d+)", source)})


@pytest.mark.parametrize(("owner", "name"), NAMED)
def test_a_rule_is_kept_where_the_docs_say(owner: str, name: str) -> None:
    declared = re.compile(rf"^class {owner}\b.*?^    (?:async )?(?:def )?{name}\b", re.MULTILINE | re.DOTALL)
    assert any(declared.search(source) for source in SOURCES), f"{owner}.{name}"


@pytest.mark.parametrize("place", CITED)
def test_a_rule_that_is_cited_is_in_the_protocol(place: str) -> None:
    section, item = place.split(".")
    (text,) = re.findall(rf"^## {section}\. .*?(?=^## |\Z)", PROTOCOL, re.MULTILINE | re.DOTALL)
    assert re.search(rf"^{item}\. ", text, re.MULTILINE), f"protocol {place}"
