"""A router's state while somebody else has his hands on its file: the router goes on."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.router.test_store import entry, store
from topic.errors import UnkeptError


def test_a_store_that_somebody_else_has_locked_goes_on_when_it_is_free(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with store(path) as kept, closing(sqlite3.connect(path, isolation_level=None)) as operator:
        operator.execute("BEGIN IMMEDIATE")
        with pytest.raises(UnkeptError, match="database is locked"):
            kept.save([entry("s")], 1)
        operator.execute("ROLLBACK")
        kept.save([entry("t")], 1)
    with store(path) as again:
        assert again.remembered == [entry("t")]


def test_nothing_comes_to_the_place_of_a_file_that_was_deleted(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with store(path) as kept:
        path.unlink()
        kept.merge()
        assert not path.exists()
