"""The file of users: written for the owner, read anew when it changes, and never quoted."""

import os
import stat
from pathlib import Path

import pytest

from router.amqp.sasl.scram import Verifier
from router.security.users import Users, UsersError, read_users, write_users

ALICE = Verifier.of("sesame", b"salt", 4096)
LINE = "alice SCRAM-SHA-256$4096:c2FsdA==$"


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_users(tmp_path / "users", {"alice": ALICE, "bob@example.org": Verifier.of("x")})
    assert list(read_users(tmp_path / "users")) == ["alice", "bob@example.org"]
    assert read_users(tmp_path / "users")["alice"] == ALICE
    assert read_users(tmp_path / "users")["alice"].fits("sesame")
    assert stat.S_IMODE((tmp_path / "users").stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["users"]
    assert (tmp_path / "users").read_text().startswith(LINE) and "sesame" not in (tmp_path / "users").read_text()


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
    write_users(tmp_path / "users", {"bob": ALICE})
    with (tmp_path / "users").open("a") as file:
        file.write(text)
    with pytest.raises(UsersError, match=f"{tmp_path}/users:2: ") as told:
        read_users(tmp_path / "users")
    assert "sesame" not in str(told.value) and "c2Fsd" not in str(told.value)


def test_a_name_stands_there_once(tmp_path: Path) -> None:
    write_users(tmp_path / "users", {"alice": ALICE})
    (tmp_path / "users").write_text(2 * (tmp_path / "users").read_text())
    with pytest.raises(UsersError, match="users:2: not a user"):
        read_users(tmp_path / "users")


def test_a_router_knows_of_changes_and_does_not_fall_for_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "users"
    write_users(path, {"alice": ALICE})
    users = Users(path)
    assert users.find("alice") == ALICE and users.find("bob") is None
    write_users(path, {"bob": ALICE})
    assert users.find("bob") == ALICE and users.find("alice") is None
    path.write_text("damaged")
    assert users.find("bob") == ALICE
    path.unlink()
    assert users.find("bob") == ALICE
    assert caplog.text.count("the users stay as they were") == 2
    with pytest.raises(UsersError, match="No such file"):
        Users(path)
