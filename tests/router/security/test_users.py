"""The file of users: written for the owner, read anew when it changes, and never quoted."""

import os
import stat
from pathlib import Path

import pytest

from router.amqp.sasl.scram import Verifier
from router.security.users import UserFile, Users, UsersError, read_users, write_users

ALICE = Verifier.of("sesame", b"salt", 4096)
KEY = bytes(32)
LINE = "alice SCRAM-SHA-256$4096:c2FsdA==$"


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_users(tmp_path / "users", UserFile({"alice": ALICE, "bob@example.org": Verifier.of("x")}))
    assert list(read_users(tmp_path / "users").verifiers) == ["alice", "bob@example.org"]
    assert read_users(tmp_path / "users").verifiers["alice"] == ALICE
    assert read_users(tmp_path / "users").verifiers["alice"].fits("sesame")
    assert stat.S_IMODE((tmp_path / "users").stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["users"]
    text = (tmp_path / "users").read_text()
    assert f"\n{LINE}" in text and "sesame" not in text


@pytest.mark.parametrize(
    "text",
    [
        "alice\n",
        "alice sesame\n",
        LINE + "x:y\n",
        f"{LINE}aGVsbG8=:aGVsbG8=\n",
        "a b SCRAM-SHA-256$4096:eA==$eA==:eA==\n",
    ],
)
def test_a_damaged_file_is_told_by_its_line_and_not_by_what_it_holds(tmp_path: Path, text: str) -> None:
    write_users(tmp_path / "users", UserFile({"bob": ALICE}))
    with (tmp_path / "users").open("a") as file:
        file.write(text)
    with pytest.raises(UsersError, match=f"{tmp_path}/users:3: ") as told:
        read_users(tmp_path / "users")
    assert "sesame" not in str(told.value) and "c2Fsd" not in str(told.value)


def test_a_name_stands_there_once(tmp_path: Path) -> None:
    write_users(tmp_path / "users", UserFile({"alice": ALICE}))
    decoys, alice = (tmp_path / "users").read_text().splitlines(keepends=True)
    (tmp_path / "users").write_text(decoys + 2 * alice)
    with pytest.raises(UsersError, match="users:3: not a user"):
        read_users(tmp_path / "users")


@pytest.mark.parametrize("text", ["", "\n", f"{LINE}x:y\n", "decoys\n", "decoys c2hvcnQ=\n"])
def test_a_file_that_does_not_begin_as_one_is_none(tmp_path: Path, text: str) -> None:
    """An empty one, too: it is about to be written, or spoilt."""
    (tmp_path / "users").write_text(text)
    with pytest.raises(UsersError, match="users:1: not the first line of a file of users"):
        read_users(tmp_path / "users")


def test_a_file_that_has_no_end_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "users").open("wb") as file:
        file.truncate(2 << 20)
    with pytest.raises(UsersError, match=r"2.0 MiB, expected a file of users of at most 1 MiB"):
        read_users(tmp_path / "users")
    with pytest.raises(UsersError, match="/dev/zero: not a regular file"):
        read_users(Path("/dev/zero"))


def test_a_router_knows_of_changes_and_does_not_fall_for_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "users"
    write_users(path, UserFile({"alice": ALICE}, KEY))
    users = Users(path)
    assert users.find("alice") == ALICE and users.find("bob") is None
    write_users(path, UserFile({"bob": ALICE}, KEY))
    assert users.find("bob") == ALICE and users.find("alice") is None
    assert users.decoys == KEY
    for damage in (lambda: path.write_text("damaged"), lambda: path.write_text(""), path.unlink):
        damage()
        assert users.find("bob") == ALICE
    assert caplog.text.count("keeping the old ones") == 3
    write_users(path, UserFile({}, KEY))
    assert users.find("bob") is None
    assert f"{path} has no users: no client can log in with a password" in caplog.text
    path.unlink()
    with pytest.raises(UsersError, match="No such file"):
        Users(path)
