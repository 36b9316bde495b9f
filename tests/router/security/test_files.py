"""What a topology's security names has to be there, and right, before a router begins."""

from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from router.mesh.errors import FileError
from router.mesh.topology import load
from router.security.certs import CA, Authority, issue_all
from router.security.doors import Doors, check
from router.security.users import UserFile, write_users

TOPOLOGY = """\
mesh: m
routers:
  a: {amqp: 127.0.0.1:0}
  b: {amqp: 10.0.0.2:5671, inter: b.example.org:5672}
links: [[a, b]]
security: {certificate: "{router}.pem", key: "{router}.key", ca: ca.pem, secret: secret, users: users}
"""
SECRET = "sixteen letters or more"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mesh.yaml").write_text(TOPOLOGY)
    (tmp_path / "secret").write_text(SECRET)
    write_users(tmp_path / "users", UserFile())
    issue_all(load(tmp_path / "mesh.yaml"), tmp_path, ["alice"])
    return tmp_path


def test_all_is_there(folder: Path) -> None:
    check(load(folder / "mesh.yaml"), ["a", "b"])


def unlink(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def write(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: [(folder / name).write_text(text)].clear()


@pytest.mark.parametrize(
    ("befalls", "complaint"),
    [
        (unlink("b.pem"), "{folder}/b.pem: No such file or directory, expected a file in PEM"),
        (unlink("b.key"), "{folder}/b.key: No such file or directory, expected a file in PEM"),
        (unlink("ca.pem"), "{folder}/ca.pem: No such file or directory, expected a file in PEM"),
        (unlink("secret"), "{folder}/secret: No such file or directory, expected the mesh's secret"),
        (unlink("users"), "{folder}/users: No such file or directory, expected a file of users"),
        (write("ca.pem", "nonsense"), "{folder}/ca.pem: expected certificates of a CA, in PEM"),
        (
            lambda folder: (folder / "a.key").rename(folder / "b.key"),
            "{folder}/b.pem, {folder}/b.key: key values mismatch, expected a certificate and its key, in PEM",
        ),
        (write("secret", "s" * 257), "{folder}/secret: expected a secret of 16 to 256 characters, in one line"),
        (write("secret", "short"), "{folder}/secret: expected a secret of 16 to 256 characters, in one line"),
        (
            write("secret", f"{SECRET}\n{SECRET}"),
            "{folder}/secret: expected a secret of 16 to 256 characters, in one line",
        ),
    ],
)
def test_what_is_missing_or_wrong_is_told_with_its_path(
    folder: Path, befalls: Callable[[Path], object], complaint: str
) -> None:
    befalls(folder)
    with pytest.raises(FileError) as told:
        check(load(folder / "mesh.yaml"), ["b"])
    assert str(told.value) == complaint.format(folder=folder)


def issue(name: str, days: int = 1, ca: str = "") -> Callable[[Path], None]:
    """As b's certificate, one of this name."""

    def befalls(folder: Path) -> None:
        for path in Authority(folder / ca, "m").issue(name, days=days):
            path.rename(folder / f"b{path.suffix}")

    return befalls


EXPECTED = "expected a certificate of 'b' that {folder}/ca.pem has signed"


@pytest.mark.parametrize(
    ("befalls", "complaint"),
    [
        (issue("a"), "names 'a'"),
        (issue("b", days=-1), "the certificate was not accepted: certificate has expired"),
        (issue("b", ca="foreign"), "the certificate was not accepted: unable to get local issuer certificate"),
    ],
)
def test_a_certificate_that_others_would_refuse_is_refused_by_its_own_router(
    folder: Path, befalls: Callable[[Path], None], complaint: str
) -> None:
    befalls(folder)
    with pytest.raises(FileError) as told:
        check(load(folder / "mesh.yaml"), ["b"])
    assert str(told.value) == f"{folder}/b.pem: {complaint}, {EXPECTED.format(folder=folder)}"


def test_routers_that_would_refuse_each_other_are_told(folder: Path) -> None:
    mesh = folder / "mesh.yaml"
    mesh.write_text(TOPOLOGY.replace("secret: secret", 'secret: "{router}.secret"').replace("ca.pem", '"{router}.ca"'))
    for name in "ab":
        (folder / f"{name}.secret").write_text(f"{SECRET} of {name}")
        (folder / f"{name}.ca").write_bytes((folder / "ca.pem").read_bytes())
    with pytest.raises(FileError) as told:
        check(load(mesh), ["a", "b"])
    assert str(told.value) == (
        f"{folder}/a.secret, {folder}/b.secret: the secrets of one mesh differ, expected the same secret"
    )
    (folder / "b.secret").write_text(f"{SECRET} of a")
    check(load(mesh), ["a", "b"])
    issue("b", ca="foreign")(folder)
    (folder / "b.ca").write_bytes((folder / "foreign" / "ca.pem").read_bytes())
    with pytest.raises(FileError, match=f"^{folder}/b.pem: router a: the certificate was not accepted"):
        check(load(mesh), ["a", "b"])


def test_a_file_that_vanishes_while_it_is_read_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.security.files._readable", lambda path, what: SECRET.encode())
    unlink("b.key")(folder)
    with pytest.raises(FileError, match=r"b\.key: no such file or directory, expected a certificate and its key"):
        check(load(folder / "mesh.yaml"), ["b"])


def test_a_user_that_there_is_not_has_one_salt_at_all_routers_and_after_a_restart(folder: Path) -> None:
    mesh = load(folder / "mesh.yaml")
    for security in (mesh.security, attrs.evolve(mesh.security, users=None)):
        doors = [Doors(attrs.evolve(mesh, security=security), name) for name in ("a", "b", "a")]
        assert len({one._find("nobody").salt for one in doors}) == 1
        assert doors[0]._find("nobody").salt != doors[0]._find("somebody").salt


def test_a_ca_that_is_there_goes_on(folder: Path) -> None:
    ca, keys = (folder / "ca.pem").read_bytes(), (folder / "a.key").read_bytes()
    issue_all(load(folder / "mesh.yaml"), folder, [])
    assert (folder / "ca.pem").read_bytes() == ca and (folder / "a.key").read_bytes() != keys
    assert all((folder / name).stat().st_mode & 0o77 == 0 for name in ("ca.key", "a.key", "alice.key"))


def test_a_certificate_is_for_the_hosts_where_its_router_listens(folder: Path) -> None:
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate((folder / "b.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["b.example.org", "localhost"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.2", "127.0.0.1", "::1"]


def test_somebody_elses_key_is_no_cas(folder: Path) -> None:
    (folder / f"{CA}.key").write_text("nonsense")
    with pytest.raises(FileError, match=f"{CA}.key: not created by oncemesh certs init"):
        Authority(folder, "m")
