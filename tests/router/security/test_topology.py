"""What a topology may say of security: who opens something to strangers says so."""

from pathlib import Path

import pytest

from router.mesh.topology import TopologyError, load

TWO_ROUTERS = """\
mesh: two
routers:
  a: {amqp: 127.0.0.1:5672}
  b: {amqp: 127.0.0.1:5673}
"""


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param(
            TWO_ROUTERS.replace("127.0.0.1:5673", "0.0.0.0:5672, advertise: 127.0.0.1:1")
            + "links: [[a, b]]\nsecurity: {open: [amqp, inter]}\n",
            "mesh.yaml:4: routers.b.amqp: 0.0.0.0:5672 is already routers.a.amqp, expected another port",
            id="duplicate port on all interfaces",
        ),
        pytest.param(
            "mesh: m\nrouters:\n  a: {amqp: h:1}\nsecurity: {open: [inter]}\n",
            "mesh.yaml:3: routers.a.amqp: h:1 is open to everybody, "
            "expected security by users or certificates, or security: {open: [amqp]}",
            id="a host without users",
        ),
        pytest.param(
            "mesh: m\nrouters:\n  a: {amqp: 127.0.0.1:1, http: 0.0.0.0:2}\nsecurity: {secret: s, users: u}\n",
            "mesh.yaml:3: routers.a.http: 0.0.0.0:2 is open to everybody, "
            "expected security by certificates, or users and plain: in-clear, or security: {open: [http]}",
            id="passwords that everybody hears",
        ),
        pytest.param(
            TWO_ROUTERS.replace("127.0.0.1:5673", "127.0.0.1:5673, http: 127.0.0.1:5672") + "links: [[a, b]]\n",
            "mesh.yaml:4: routers.b.http: 127.0.0.1:5672 is already routers.a.amqp, expected another port",
            id="a port for two listeners",
        ),
        pytest.param(
            "mesh: m\nrouters:\n  a: {amqp: 127.0.0.1:1, inter: 0.0.0.0:2}\n",
            "mesh.yaml:3: routers.a.inter: 0.0.0.0:2 is open to everybody, "
            "expected security by a secret or certificates, or security: {open: [inter]}",
            id="an open mesh",
        ),
        pytest.param(
            TWO_ROUTERS + "links: [[a, b]]\nsecurity: {key: k}\n",
            "mesh.yaml:6: security: certificate, key and ca belong together, expected certificate and ca, too",
            id="a key without a certificate",
        ),
        pytest.param(
            TWO_ROUTERS + "links: [[a, b]]\nsecurity: {users: u}\n",
            "mesh.yaml:6: security: clients need a password, but anybody can connect as a router: "
            "expected also a secret or certificates, by which routers know each other",
            id="users of an open mesh",
        ),
        pytest.param(
            TWO_ROUTERS + "links: [[a, b]]\nsecurity: {open: [amqps]}\n",
            "mesh.yaml:6: security.open: a list, "
            "expected listeners that are open to everybody, of amqp, inter, http, mqtt, amqp-ws, mqtt-ws",
            id="no such listener",
        ),
        pytest.param(
            TWO_ROUTERS + "links: [[a, b]]\nsecurity: {plain: yes}\n",
            'mesh.yaml:6: security.plain: "yes", expected tls or in-clear',
            id="neither tls nor in-clear",
        ),
    ],
)
def test_what_is_open_without_a_word_is_told(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "mesh.yaml"
    path.write_text(text)
    with pytest.raises(TopologyError) as caught:
        load(path)
    assert [message.replace(f"{tmp_path}/", "") for message in caught.value.messages] == [complaint]


@pytest.mark.parametrize(
    "security", ["{secret: s, users: u, plain: in-clear}", "{certificate: c, key: k, ca: ca}", "{open: [http]}"]
)
def test_who_looks_may_come_from_anywhere_if_that_is_closed_or_opened_by_name(tmp_path: Path, security: str) -> None:
    path = tmp_path / "mesh.yaml"
    path.write_text(f"mesh: m\nrouters:\n  a: {{amqp: 127.0.0.1:1, http: 0.0.0.0:2}}\nsecurity: {security}\n")
    assert str(load(path).routers["a"].http) == "0.0.0.0:2"


@pytest.mark.parametrize(
    "security", ["{secret: s, users: u}", "{certificate: c, key: k, ca: ca}", "{open: [amqp, inter]}"]
)
def test_what_is_closed_or_opened_by_name_may_listen_anywhere(tmp_path: Path, security: str) -> None:
    path = tmp_path / "mesh.yaml"
    path.write_text(f"mesh: m\nrouters:\n  a: {{amqp: 0.0.0.0:1, advertise: h:1}}\nsecurity: {security}\n")
    assert load(path).security.open == (("amqp", "inter") if "open" in security else ())


@pytest.mark.parametrize(
    ("security", "openings"),
    [
        (
            "{open: [amqp, inter]}",
            [
                "amqp of router b at 10.0.0.2 is open to everybody",
                "amqp of router b at 10.0.0.2 is not encrypted",
                "inter of router b at 10.0.0.2 is open to everybody",
                "inter of router b at 10.0.0.2 is not encrypted",
            ],
        ),
        (
            "{secret: s, users: u}",
            ["amqp of router b at 10.0.0.2 is not encrypted", "inter of router b at 10.0.0.2 is not encrypted"],
        ),
        ("{certificate: c, key: k, ca: ca}", []),
        ("{certificate: c, key: k, ca: ca, open: [amqp]}", ["amqp of router b at 10.0.0.2 is open to everybody"]),
    ],
)
def test_what_is_open_is_said(tmp_path: Path, security: str, openings: list[str]) -> None:
    path = tmp_path / "mesh.yaml"
    path.write_text(TWO_ROUTERS.replace("127.0.0.1:5673", "10.0.0.2:5673") + f"links: [[a, b]]\nsecurity: {security}\n")
    assert list(load(path).openings("a", "b")) == openings
