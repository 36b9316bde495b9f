"""No Python file of the tree is too long to be read in one sitting."""

from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("failover", "linkstate", "router", "tests", "topic")
LIMIT = 350
"""Lines. A file that needs more has more than one subject."""


def test_no_file_is_longer_than_the_limit() -> None:
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if "node_modules" not in path.parts]
    assert paths
    sizes = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in paths}
    assert {path: size for path, size in sizes.items() if size > LIMIT} == {}
