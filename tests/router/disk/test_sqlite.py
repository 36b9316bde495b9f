"""Files of SQLite, whatever store stands on them: made whole, held by one process, refused if they are not ours."""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import attrs
import pytest

from router.disk.rows import is_whole, summed
from router.disk.sqlite import IN_MEMORY, FileForm, SqliteFile, UnusableError, primary

SHARED = FileForm(
    name="a list",
    application=0x6C697374,
    version=1,
    tables=("CREATE TABLE item (name TEXT, sum INTEGER)",),
    settings=("journal_mode = WAL", "synchronous = NORMAL"),
    held="held",
    is_shared=True,
)
ALONE = attrs.evolve(SHARED, is_shared=False)
ADD = "INSERT INTO item VALUES (?, ?)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "list.db"


@pytest.fixture(params=[SHARED, ALONE], ids=["shared", "alone"])
def form(request: pytest.FixtureRequest) -> FileForm:
    found: FileForm = request.param
    return found


def items(file: SqliteFile) -> Iterator[str]:
    for row in file.connection.execute("SELECT * FROM item ORDER BY name"):
        assert is_whole(row)
        yield row[0]


def test_a_new_file_has_its_first_rows_and_an_old_one_what_was_written(path: Path, form: FileForm) -> None:
    with closing(SqliteFile(path, form, [(ADD, summed("first"))])) as file, file.transaction():
        file.connection.execute(ADD, summed("second"))
    with closing(SqliteFile(path, form, [(ADD, summed("third"))])) as file:
        assert [*items(file)] == ["first", "second"]
    assert sorted(found.name for found in path.parent.iterdir()) == ["list.db"]


def test_a_file_system_without_links_has_files_too(path: Path, form: FileForm, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(fresh: Path, where: str) -> None:
        raise PermissionError(1, "Operation not permitted", fresh)

    monkeypatch.setattr(os, "link", link)
    with closing(SqliteFile(path, form, [(ADD, summed("first"))])) as file:
        assert [*items(file)] == ["first"]


def test_a_file_that_another_made_meanwhile_is_not_replaced(
    path: Path, form: FileForm, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def late(fresh: Path, where: str) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(os, "link", link)
            SqliteFile(path, form, [(ADD, summed("theirs"))]).close()
        link(fresh, where)

    monkeypatch.setattr(os, "getpid", iter((1, 2)).__next__)
    monkeypatch.setattr(os, "link", late)
    with closing(SqliteFile(path, form, [(ADD, summed("ours"))])) as file:
        assert [*items(file)] == ["theirs"]


def test_a_file_has_one_holder(path: Path, form: FileForm) -> None:
    with closing(SqliteFile(path, form)), pytest.raises(UnusableError, match=r"^held$"):
        SqliteFile(path, form)
    SqliteFile(path, form).close()


def test_a_file_of_an_earlier_version_grows_and_one_of_a_later_is_refused(path: Path, form: FileForm) -> None:
    SqliteFile(path, form, [(ADD, summed("old"))]).close()
    later = attrs.evolve(form, version=2, grows={1: (("ALTER TABLE item ADD COLUMN colour TEXT", ()),)})
    with closing(SqliteFile(path, later)) as file:
        assert file.connection.execute("SELECT name, colour FROM item").fetchall() == [("old", None)]
    with pytest.raises(
        UnusableError, match="written in format 2 by another version of this program, expected format 1"
    ):
        SqliteFile(path, form)


def test_a_file_of_somebody_else_is_refused_and_left_as_it_was(path: Path, form: FileForm) -> None:
    SqliteFile(path, attrs.evolve(form, application=7)).close()
    before = path.read_bytes()
    with pytest.raises(UnusableError, match="a database, but not a list"):
        SqliteFile(path, form)
    assert path.read_bytes() == before


def test_a_transaction_that_fails_leaves_nothing(path: Path, form: FileForm) -> None:
    with closing(SqliteFile(path, form)) as file:
        with pytest.raises(KeyError), file.transaction():
            file.connection.execute(ADD, summed("half"))
            raise KeyError
        assert [*items(file)] == []


def test_a_shared_file_is_merged_by_another_thread(path: Path) -> None:
    with closing(SqliteFile(path, SHARED)) as file:
        with file.transaction():
            file.connection.execute(ADD, summed("first"))
        thread = threading.Thread(target=file.merge)
        thread.start()
        thread.join()
        with closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as merged:
            assert merged.execute("SELECT name FROM item").fetchall() == [("first",)]


def test_one_in_memory_is_like_a_file(form: FileForm) -> None:
    with closing(SqliteFile(IN_MEMORY, form)) as file:
        with file.transaction():
            file.connection.execute(ADD, summed("first"))
        assert [*items(file)] == ["first"]


def test_what_python_s_module_says_itself_is_told_as_well(path: Path, form: FileForm) -> None:
    """Of text that is not UTF-8: it has no code of SQLite's."""
    with closing(SqliteFile(path, form)) as file:
        file.connection.execute("INSERT INTO item VALUES (CAST(x'ff' AS TEXT), 0)")
        with pytest.raises(UnusableError, match="Could not decode to UTF-8"), file.explained():
            [*items(file)]
    assert primary(sqlite3.ProgrammingError("closed")) == 0
