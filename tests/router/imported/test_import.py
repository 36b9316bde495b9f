"""`oncemesh import`: configurations as qpid-dispatch and skupper-router document them, and what becomes of them."""

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from router.cli.main import main
from router.imported.sections import ConfigurationError, sections_of
from router.mesh.config import AddressRule, LinkConfig
from router.mesh.quantities import Address
from router.mesh.topology import load

EAST = """\
# The router of the eastern site
router {
    mode: interior
    id: east.example.org
    workerThreads: 4            # as many as cores
    helloIntervalSeconds: 1
    helloMaxAgeSeconds: 3
    defaultDistribution: unavailable
}

sslProfile {
    name: site
    certFile: /etc/pki/east.example.org.crt
    privateKeyFile: /etc/pki/east.example.org.key
    caCertFile: /etc/pki/ca.crt
    password: env:KEY
}

listener {
    host: 0.0.0.0
    port: amqps
    sslProfile: site
    authenticatePeer: yes
    saslMechanisms: PLAIN EXTERNAL
    idleTimeoutSeconds: 16
    linkCapacity: 250
}

listener {
    host: 10.0.0.1
    port: 8443
    http: yes
    sslProfile: site
    httpRootDir: /usr/share/console
}

listener {
    role: inter-router
    host: 10.0.0.1
    port: 55671
    sslProfile: site
    cost: 3
}

listener {
    role: edge
    port: 45671
}

address {
    prefix: orders
    distribution: multicast
}

address {
    pattern: jobs/#
    distribution: closest
}

address {
    pattern: devices/*/commands
    distribution: balanced
}

address {
    prefix: held
    waypoint: yes
}

linkRoute {
    prefix: broker
    direction: in
    connection: broker
}

connector {
    name: broker
    role: route-container
    host: broker.example.org
    port: 5672
    saslMechanisms: ANONYMOUS
}

vhost {
    hostname: "#"
    groups: {
        "$default": {
            "users": "*",
            "sources": "#",
            "targets": ["a", {"b": "}"}]
        }
    }
}
"""
WEST = """\
# comments are allowed
[
    ["router", {
        "id": "west.example.org",
        "mode": "interior",
        "defaultDistribution": "unavailable"
    }],
    ["sslProfile", {
        "name": "site",
        "certFile": "/etc/pki/west.example.org.crt",
        "privateKeyFile": "/etc/pki/west.example.org.key",
        "caCertFile": "/etc/pki/ca.crt"
    }],
    ["listener", {
\t"host": "10.0.0.2",
\t"port": 5671,
\t"sslProfile": "site",
\t"idleTimeoutSeconds": 30
    }],
    ["connector", {
        "role": "inter-router",
        "host": "10.0.0.1",
        "port": "55671",
        "cost": 4,
        "sslProfile": "site"
    }],
    ["io.skupper.router.router.config.address", {"prefix": "orders", "distribution": "balanced"}],
    ["tcpListener", {"host": "0.0.0.0", "port": 8080, "address": "web"}]
]
"""


def imported(folder: Path, **files: str) -> Result:
    paths = []
    for name, text in files.items():
        path = folder / (f"{name}.json" if "[" in text[:40] else f"{name}.conf")
        path.write_text(text)
        paths.append(str(path))
    return CliRunner().invoke(main, ["import", *paths, "--mesh", "sites"])


def test_two_sites_become_a_mesh_and_the_rest_is_listed_by_line(tmp_path: Path) -> None:
    result = imported(tmp_path, east=EAST, west=WEST)
    assert result.exit_code == 0, result.stderr
    (tmp_path / "mesh.yaml").write_text(result.stdout)
    mesh = load(tmp_path / "mesh.yaml")
    east, west = mesh.routers["east.example.org"], mesh.routers["west.example.org"]
    assert (east.amqp, east.inter, east.more) == (
        Address("0.0.0.0", 5671),
        Address("10.0.0.1", 55671),
        {"amqp-ws": Address("10.0.0.1", 8443)},
    )
    assert east.advertise == Address("east.example.org", 5671)
    assert west.amqp == Address("10.0.0.2", 5671)
    assert mesh.links == (LinkConfig("east.example.org", "west.example.org", 4),)
    assert mesh.addresses == (
        AddressRule("orders", "topic"),
        AddressRule("jobs", "closest"),
        AddressRule("held", "balanced"),
    )
    assert (mesh.timing.hello, mesh.timing.dead, mesh.timing.idle, mesh.limits.window) == (1, 3, 16, 250)
    security = mesh.security
    assert (security.certificate, security.key, security.ca, security.open) == (
        "/etc/pki/{router}.crt",
        "/etc/pki/{router}.key",
        "/etc/pki/ca.crt",
        (),
    )
    said = result.stderr.replace(f"{tmp_path}/", "").splitlines()
    users = "has no counterpart: users are in the file security.users: oncemesh user add"
    assert said == [
        "east.conf:2: east.example.org listens everywhere: check advertise: east.example.org:5671",
        "east.conf:2: the common name of a router's certificate has to be the router's name",
        "east.conf:5: router.workerThreads has no counterpart: a router runs in one thread",
        "east.conf:16: sslProfile.password has no counterpart",
        f"east.conf:23: listener.authenticatePeer {users}",
        f"east.conf:24: listener.saslMechanisms {users}",
        "east.conf:29: the listener becomes amqp-ws; the console, health and metrics need http: host:port",
        "east.conf:34: listener.httpRootDir has no counterpart: a listener http serves health, metrics and a console",
        "east.conf:42: listener.cost has no counterpart",
        "east.conf:46: a listener with role edge has no counterpart: it is left out",
        'east.conf:61: "devices/*/commands" has no counterpart: a rule has a prefix; only a pattern that ends with /# '
        "is one",
        "east.conf:67: address.waypoint has no counterpart: a mesh's own queues are addresses of kind queue",
        "east.conf:70: linkRoute has no counterpart: messages to a broker are not routed through a mesh; its own "
        "queues are addresses of kind queue",
        "east.conf:76: a connector with role route-container has no counterpart: a mesh attaches no links to brokers "
        "by itself; its own queues are addresses of kind queue",
        "east.conf:84: vhost has no counterpart: users' permissions are in the file security.rules",
        "west.json:18: listener.idleTimeoutSeconds: timing.idle is 16s for the whole mesh, not 30s",
        "west.json:20: east.example.org dials west.example.org, as its name is lower: west.example.org needs "
        "inter: host:port, unless both run on one host",
        'west.json:27: "orders" is of kind topic for the whole mesh, not balanced',
        "west.json:28: tcpListener has no counterpart",
    ]


def test_a_default_distribution_is_for_all_other_addresses(tmp_path: Path) -> None:
    result = imported(tmp_path, a="router {\n  id: a\n}\nlistener {\n  host: 127.0.0.1\n  port: 5672\n}\n")
    assert (result.exit_code, result.stderr) == (0, "")
    (tmp_path / "mesh.yaml").write_text(result.stdout)
    assert load(tmp_path / "mesh.yaml").addresses == (AddressRule("", "balanced"),)


def test_an_open_listener_stays_open_and_others_need_a_decision(tmp_path: Path) -> None:
    text = "router {{\n  id: a\n}}\nlistener {{\n  host: 0.0.0.0\n  {}\n}}\n"
    assert imported(tmp_path, a=text.format("authenticatePeer: no")).exit_code == 0
    assert imported(tmp_path, a=text.format("saslMechanisms: ANONYMOUS")).exit_code == 0
    result = imported(tmp_path, a=text.format("saslMechanisms: PLAIN"))
    assert result.exit_code == 1
    assert "topology:4: routers.a.amqp: 0.0.0.0:5672 is open to everybody, expected security by users" in result.stderr


def test_connectors_find_their_routers_by_host_or_by_port_alone(tmp_path: Path) -> None:
    def conf(name: str, *dials: tuple[str, int], inter: int = 0) -> str:
        parts = [f"router {{\n  id: {name}\n}}\nlistener {{\n  host: 127.0.0.1\n  port: {5000 + ord(name[0])}\n}}"]
        if inter:
            parts.append(
                f"listener {{\n  role: inter-router\n  host: 0.0.0.0\n  port: {inter}\n  authenticatePeer: no\n}}"
            )
        parts += [f"connector {{\n  role: inter-router\n  host: {host}\n  port: {port}\n}}" for host, port in dials]
        return "\n".join(parts)

    one, other = conf("one", inter=20000), conf("two", ("one.example.org", 20000), inter=20000)
    third = conf("xyz", ("two", 20000), ("nobody", 7))
    result = imported(tmp_path, one=one, other=other, third=third)
    assert "- one\n  - two" in result.stdout and "- two\n  - xyz" in result.stdout
    assert (
        "third.conf:13: no file has a router that listens at nobody:7, expected one: there is no link" in result.stderr
    )
    lost = imported(tmp_path, one=one, other=other, third=conf("xyz", ("somewhere", 20000)))
    assert "several files have a router that listens at somewhere:20000" in lost.stderr
    assert lost.exit_code == 1 and "routers.xyz: no path to one, expected links that join all routers" in lost.stderr


def test_a_router_that_is_described_twice_is_a_fault(tmp_path: Path) -> None:
    one = "router {\n  id: A\n}\nlistener {\n  host: 127.0.0.1\n  port: 5672\n}\n"
    result = imported(tmp_path, first=one, second=one.replace("5672", "5673"), third=one.replace("A", "B") * 2)
    assert result.exit_code == 1
    assert "second.conf:1: " in result.stderr and "first.conf has a router A, too" in result.stderr
    assert "third.conf:8: a second section router, expected one in a file: the first one is B" in result.stderr
    assert "127.0.0.1:5672" in result.stdout and "5673" not in result.stdout


def test_an_address_without_a_prefix_is_told(tmp_path: Path) -> None:
    result = imported(tmp_path, only="router {\n  id: A\n}\naddress {\n  distribution: multicast\n}\n")
    assert "only.conf:4: the address is left out: it has no prefix and no pattern" in result.stderr
    assert "topic" not in result.stdout


def test_a_name_that_no_router_may_have_is_changed(tmp_path: Path) -> None:
    result = imported(tmp_path, a="router {\n  id: Qpid Router/A..B\n}\nlistener {\n  host: 127.0.0.1\n}\n")
    assert result.exit_code == 0 and "Qpid-Router-A.B:" in result.stdout
    assert 'a.conf:2: "Qpid Router/A..B" cannot name a router: it is named Qpid-Router-A.B' in result.stderr


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("router {\n  id: a\n", "1: the section router has no end, expected a line with }"),
        ("router\n", '1: "router", expected a section such as router {'),
        ("router {\n  id a\n}\n", '2: "id a", expected an attribute such as host: 0.0.0.0, or }'),
        ('[["router", {"id": "a"}], ["x"]]', '1: a list, expected a pair such as ["router", {…}]'),
        ('[\n["router", {"id": "a"}\n', "3: not YAML: expected ',' or ']', but got '<stream end>'"),
        ('{"router": {"id": "A"}}', "1: a mapping, expected a list of pairs such as"),
        ("[\n[1, 2]]", '2: a pair of other values, expected one such as ["router", {…}]'),
    ],
)
def test_a_damaged_file_is_explained_by_file_and_line(tmp_path: Path, text: str, complaint: str) -> None:
    result = imported(tmp_path, a=text)
    assert result.exit_code == 1
    assert complaint in result.stderr, result.stderr


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["import", str(tmp_path / "none.conf")])
    assert result.exit_code == 1
    assert "none.conf: No such file or directory, expected a configuration of qpid-dispatch" in result.stderr


@given(st.text(alphabet='router {}[]":#,\n\t1a', max_size=200))
def test_no_text_does_more_than_be_refused(text: str) -> None:
    with TemporaryDirectory() as folder, suppress(ConfigurationError):
        path = Path(folder) / "a.conf"
        path.write_text(text)
        sections_of(path)
