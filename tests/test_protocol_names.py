"""docs/protocol.md says where each rule is kept: what it names is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NAMED = sorted(set(re.findall(r"`([A-Z][A-Za-z]+)\.(_?[a-z_]+)`", (ROOT / "docs" / "protocol.md").read_text())))
FOLDERS = ("linkstate", "topic", "failover", "router")
SOURCES = [path.read_text() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]


@pytest.mark.parametrize(("owner", "name"), NAMED)
def test_a_rule_is_kept_where_the_protocol_says(owner: str, name: str) -> None:
    declared = re.compile(rf"^class {owner}\b.*?^    (?:async )?(?:def )?{name}\b", re.MULTILINE | re.DOTALL)
    assert any(declared.search(source) for source in SOURCES), f"{owner}.{name}"
