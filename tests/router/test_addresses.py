"""Where routers listen, and where others find them: `amqp`, `inter`, `advertise`, and the `address` of a link."""

from pathlib import Path

import pytest

from router.mesh.quantities import Address
from router.mesh.topology import TopologyError, load


def test_who_listens_anywhere_is_found_where_clients_are_told(tmp_path: Path) -> None:
    """On hosts of their own they may have the same ports."""
    text = """\
mesh: m
routers:
  a: {amqp: 0.0.0.0:5672, inter: 0.0.0.0:5772, advertise: a.example.org:5672}
  b: {amqp: "[::]:5672", inter: "[::]:5772", advertise: "[2001:db8::2]:15672"}
  c: {amqp: c.example.org:5672, inter: 0.0.0.0:5772}
links: [[a, b], [b, c]]
security: {open: [amqp, inter]}
"""
    path = tmp_path / "mesh.yaml"
    path.write_text(text)
    topology = load(path)
    assert [str(router.told) for router in topology.routers.values()] == [
        "a.example.org:5672",
        "[2001:db8::2]:15672",
        "c.example.org:5672",
    ]
    assert topology.dialled_by("a") == {"b": Address("2001:db8::2", 5772)}
    assert topology.dialled_by("b") == {"c": Address("c.example.org", 5772)}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param(
            "mesh: m\nrouters:\n  a: {amqp: '[::]:1'}\nsecurity: {open: [amqp, inter]}\n",
            "mesh.yaml:3: routers.a.amqp: [::]:1 is no address that clients can connect to, "
            "expected also advertise: host:port",
            id="listening everywhere, found nowhere",
        ),
        pytest.param(
            "mesh: m\nrouters:\n  a: {amqp: localhost:1, advertise: 0.0.0.0:1}\n",
            'mesh.yaml:3: routers.a.advertise: "0.0.0.0:1" is no reachable address, '
            "expected a host and a port that others can connect to",
            id="advertising everywhere",
        ),
        pytest.param(
            "mesh: m\nrouters: {a: {amqp: h:0}, b: {amqp: h:0}}\n"
            "links: [{between: [a, b], address: 'h:0'}]\nsecurity: {open: [amqp, inter]}\n",
            'mesh.yaml:3: links[0].address: "h:0" is no reachable address, expected a host and a port'
            " that others can connect to",
            id="dialling any port",
        ),
    ],
)
def test_an_address_that_leads_nowhere_is_told(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "mesh.yaml"
    path.write_text(text)
    with pytest.raises(TopologyError) as caught:
        load(path)
    assert [message.replace(f"{tmp_path}/", "") for message in caught.value.messages] == [complaint]


def test_what_a_complaint_quotes_can_be_seen_and_is_not_obeyed_by_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "mesh.yaml"
    path.write_text("mesh: m\nrouters:\n  a: {amqp: 'host\u202e\xa0:1x'}\n")
    with pytest.raises(TopologyError, match=r"host\\u202e\\xa0:1x"):
        load(path)
