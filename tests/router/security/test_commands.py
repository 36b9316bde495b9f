"""`oncemesh user` and `oncemesh certs`, and what a client shows."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from router.cli.main import main
from router.security.certs import Authority
from router.security.users import read_users
from tests.processes.mesh import TOPOLOGIES


def oncemesh(*arguments: str | Path, stdin: str = "") -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin)


def test_users_come_and_go(tmp_path: Path) -> None:
    file, password = tmp_path / "users", tmp_path / "password"
    password.write_text("open sesame\nsecond line\n")
    assert oncemesh("user", "add", file, "alice", "--password-file", password).output == "alice added\n"
    assert oncemesh("user", "add", file, "bob", stdin="another\n").output == "bob added\n"
    assert oncemesh("user", "add", file, "bob", stdin="changed\n").output == "bob changed\n"
    assert oncemesh("user", "list", file).output == "alice\nbob\n"
    assert oncemesh("user", "list", "--json", file).output == '["alice", "bob"]\n'
    users = read_users(file).verifiers
    assert users["alice"].fits("open sesame") and users["bob"].fits("changed")
    assert oncemesh("user", "remove", file, "alice").output == "alice removed\n"
    assert list(read_users(file).verifiers) == ["bob"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            ["user", "add", "users", "$mesh"],
            "'$mesh' is not a valid user name, expected letters, digits and . _ @ -, at most 64",
        ),
        (["user", "add", "users", "alice"], "expected a password on standard input"),
        (["user", "add", "users", "alice", "--password-file", "empty"], "empty: expected a password in its first line"),
        (["user", "remove", "users", "alice"], "users: No such file or directory, expected a file of users"),
        (["user", "add", "nodir/users", "b", "--password-file", "word"], "Error: nodir/users: No such file or direc"),
        (["user", "list", "empty/users"], "empty/users: Not a directory, expected a file of users"),
        (
            ["certs", "init", str(TOPOLOGIES / "pair.yaml"), "--user", "a"],
            "a is the name of a router, expected another name",
        ),
        (
            ["certs", "init", str(TOPOLOGIES / "pair.yaml"), "--user", "ca"],
            "ca is the name of the CA's files, expected another",
        ),
        (["certs", "init", str(TOPOLOGIES / "pair.yaml"), "--folder", "odd"], "Error: odd/ca.pem: not created by"),
        (["certs", "init", str(TOPOLOGIES / "pair.yaml"), "--folder", "torn"], "Error: torn/ca.key: not created by"),
        (
            ["certs", "init", str(TOPOLOGIES / "pair.yaml"), "--user", "../x"],
            "'../x' is not a valid user name, expected letters",
        ),
        (
            ["user", "add", "users", "alice", "--password-file", "bell"],
            "not a password: the name or password has control characters",
        ),
        (
            ["user", "add", "users", "alice", "--password-file", "long"],
            "not a password: the name or password has more than 256 characters",
        ),
        (["publish", "topic/x", "--ca", "nowhere.pem"], "nowhere.pem: No such file or directory"),
        (["publish", "topic/x", "--ca", "bell"], "bell: no certificate or crl found, expected certificates"),
        (["publish", "topic/x", "--user", "alice"], "--user and --password-file belong together"),
        (["publish", "topic/x", "--key", "alice.key"], "--certificate and --key belong together"),
    ],
)
def test_what_cannot_be_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").touch()
    (tmp_path / "bell").write_text("\a\n")
    (tmp_path / "word").write_text("sesame\n")
    for folder in ("odd", "torn"):
        Authority(tmp_path / folder, "a CA")
    (tmp_path / "odd" / "ca.pem").write_text("")
    (tmp_path / "torn" / "ca.key").write_text("-----BEGIN PRIVATE KEY-----\n")
    (tmp_path / "long").write_text(257 * "x")
    result = oncemesh(*words)
    assert result.exit_code != 0 and complaint in result.output


def test_certificates_are_made_for_all_routers_and_for_users(tmp_path: Path) -> None:
    users = "--user", "alice", "--user", "$mesh"
    made = oncemesh("certs", "init", TOPOLOGIES / "pair.yaml", "--folder", tmp_path, *users)
    assert made.exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "$mesh.key", "$mesh.pem", "a.key", "a.pem", "alice.key", "alice.pem", "b.key", "b.pem", "ca.key", "ca.pem",
    ]  # fmt: skip


def damage(folder: Path, what: str) -> None:
    """What is there of a CA, and is none that can go on."""
    ca, other = folder / "ca.pem", folder / "other"
    key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    found = x509.load_pem_x509_certificate(ca.read_bytes())
    if what == "bare":  # as earlier versions made it
        name, since, until = found.subject, found.not_valid_before_utc, found.not_valid_after_utc
        bare = x509.CertificateBuilder(name, name, key.public_key(), 1, since, until)
        ca.write_bytes(bare.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    elif what == "of a router":
        Authority(folder, "").issue("a")
        for suffix in (".pem", ".key"):
            (folder / f"a{suffix}").rename(folder / f"ca{suffix}")
    elif what == "expired":
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("router.security.certs.DAYS", -1)
            Authority(other, "a CA")
        for path in other.iterdir():
            path.replace(folder / path.name)
        other.rmdir()
    elif what == "another key":
        Authority(other, "a CA")
        (other / "ca.key").replace(folder / "ca.key")
        (other / "ca.pem").unlink()
        other.rmdir()
    else:
        ca.unlink()


@pytest.mark.parametrize(
    ("what", "complaint"),
    [
        ("bare", "ca.pem: it lacks subjectKeyIdentifier, which Python 3.13 needs"),
        ("of a router", "ca.pem: it is not the certificate of a CA"),
        ("expired", "ca.pem: it has expired"),
        ("another key", "ca.pem: it does not match the key beside it"),
        ("only its key", "ca.key: the certificate of this CA key is missing, expected"),
    ],
)
def test_a_ca_that_nobody_would_believe_does_not_go_on(tmp_path: Path, what: str, complaint: str) -> None:
    """Nor is anything of it overwritten."""
    folder = tmp_path / "certs"
    Authority(folder, "a CA")
    damage(folder, what)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    result = oncemesh("certs", "init", TOPOLOGIES / "pair.yaml", "--folder", folder)
    assert result.exit_code != 0 and complaint in result.output.replace("\n", " ")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
