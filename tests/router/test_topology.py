"""Topology files: what a good one says, and what is said about a bad one."""

import os
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.mesh.config import (
    AddressRule,
    Limits,
    LinkConfig,
    LogSettings,
    RouterConfig,
    Security,
    Timing,
    Topology,
    kind_of,
)
from router.mesh.planned import settings_of
from router.mesh.quantities import Address
from router.mesh.topology import TopologyError, load
from topic.settings import BackOff

TOPOLOGIES = sorted((Path(__file__).parents[2] / "topologies").glob("*.yaml"))

TWO_ROUTERS = """\
mesh: two
routers:
  a: {amqp: 127.0.0.1:5672}
  b: {amqp: 127.0.0.1:5673}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "mesh.yaml"
    path.write_text(text)
    return path


def complaints(folder: Path, text: str) -> list[str]:
    """What is said about `text`, without the folder's name."""
    path = write(folder, text)
    with pytest.raises(TopologyError) as caught:
        load(path)
    return [message.replace(f"{folder}/", "") for message in caught.value.messages]


def test_a_chaos_script_in_its_place_is_told(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "topologies" / "chaos" / "mayhem.yaml"
    assert complaints(tmp_path, script.read_text()) == [
        "mesh.yaml: a chaos script, expected a topology; to run it: oncemesh chaos mesh.yaml"
    ]


def test_a_full_topology_is_read_as_written(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """\
mesh: full
routers:
  a: {amqp: 127.0.0.1:0}
  b: {amqp: "[::1]:5673", inter: b.example.org:6000, advertise: "[2001:db8::2]:5673"}
links:
  - {between: [b, a], cost: 7, address: 10.0.0.1:6001}
addresses:
  - {prefix: news/, kind: topic}
timing: {hello: 100ms, dead: 500ms, idle: 1.5s, join: 1s, terminus: 2m, forget: 3h, boot_wait: 1h, grace: 10s}
limits: {window: 10, window_bytes: 3MiB, max_message: 1MiB, max_frame: 4096, redeliveries: 0}
log: {full: stop, keep: 2h, size: 10GiB}
security:
  {certificate: "{router}.pem", key: k, ca: /etc/ca.pem, secret: s, users: u, plain: in-clear, open: [amqp]}
""",
    )
    assert load(path) == Topology(
        mesh="full",
        routers={
            "a": RouterConfig("a", Address("127.0.0.1", 0)),
            "b": RouterConfig("b", Address("::1", 5673), Address("b.example.org", 6000), Address("2001:db8::2", 5673)),
        },
        links=(LinkConfig("a", "b", 7, Address("10.0.0.1", 6001)),),
        addresses=(AddressRule("news/", "topic"),),
        timing=Timing(0.1, 0.5, 1.5, 1.0, 120.0, 10800.0, 3600.0, 10.0),
        limits=Limits(10, 3 << 20, 1 << 20, 4096, 0),
        log=LogSettings("stop", 7200.0, 10 << 30),
        path=path,
        security=Security("{router}.pem", "k", "/etc/ca.pem", "s", "u", "in-clear", ("amqp",)),
    )
    assert load(path).file("{router}.pem", "a") == tmp_path / "a.pem"
    assert load(path).file("/etc/ca.pem", "a") == Path("/etc/ca.pem")


def test_a_router_has_several_listeners_of_a_kind(tmp_path: Path) -> None:
    text = """\
mesh: many
routers:
  a:
    amqp: [127.0.0.1:1, "[::1]:1"]
    inter: [127.0.0.1:2, 127.0.0.1:3]
    mqtt-ws: [127.0.0.1:4, 127.0.0.1:5]
    amqp-ws: 127.0.0.1:6
"""
    topology = load(write(tmp_path, text))
    router = topology.routers["a"]
    assert (router.amqp, router.inter, router.mqtt) == (Address("127.0.0.1", 1), Address("127.0.0.1", 2), None)
    assert [(name, str(address)) for _, name, address in topology.listeners()] == [
        ("amqp", "127.0.0.1:1"),
        ("inter", "127.0.0.1:2"),
        ("amqp[1]", "[::1]:1"),
        ("inter[1]", "127.0.0.1:3"),
        ("amqp-ws", "127.0.0.1:6"),
        ("mqtt-ws", "127.0.0.1:4"),
        ("mqtt-ws[1]", "127.0.0.1:5"),
    ]
    assert {kind_of(name) for _, name, _ in topology.listeners()} == {"amqp", "inter", "amqp-ws", "mqtt-ws"}


def test_what_is_left_out_has_its_default(tmp_path: Path) -> None:
    topology = load(write(tmp_path, TWO_ROUTERS + "links: [[a, b]]\n"))
    assert topology.links == (LinkConfig("a", "b", 1),)
    assert topology.addresses == (AddressRule("topic/"),)
    assert (topology.timing, topology.limits, topology.log) == (Timing(), Limits(), LogSettings())


def test_a_key_without_a_value_counts_as_left_out(tmp_path: Path) -> None:
    text = "mesh: one\nrouters:\n  a: {amqp: localhost:1}\nlinks:\naddresses:\ntiming:\nlimits:\nlog:\n"
    topology = load(write(tmp_path, text))
    assert (topology.links, topology.addresses) == ((), (AddressRule("topic/"),))
    assert (topology.timing, topology.limits, topology.log) == (Timing(), Limits(), LogSettings())


def test_silence_of_three_hellos_may_be_death(tmp_path: Path) -> None:
    timing = load(write(tmp_path, TWO_ROUTERS + "links: [[a, b]]\ntiming: {hello: 100ms, dead: 300ms}\n")).timing
    assert (timing.hello, timing.dead) == (0.1, 0.3)


def test_names_that_yaml_takes_for_something_else_stay_names(tmp_path: Path) -> None:
    text = "mesh: no\nrouters:\n  on: {amqp: localhost:0}\n  010: {amqp: localhost:0}\nlinks: [[on, 010]]\n"
    topology = load(write(tmp_path, text))
    assert topology.mesh == "no"
    assert list(topology.routers) == ["on", "010"]


@pytest.mark.parametrize("path", TOPOLOGIES, ids=lambda path: path.stem)
def test_the_ready_meshes_are_good_and_named_after_their_files(path: Path) -> None:
    topology = load(path)
    assert topology.mesh == path.stem
    assert path.read_text().startswith("# ")


def test_any_one_router_of_mesh6_may_die_and_its_cheapest_paths_are_not_all_direct() -> None:
    topology = load(next(path for path in TOPOLOGIES if path.stem == "mesh6"))
    graph: nx.Graph[str] = nx.Graph()
    graph.add_weighted_edges_from((link.a, link.b, link.cost) for link in topology.links)
    assert nx.is_biconnected(graph)
    assert nx.shortest_path(graph, "a", "b", weight="weight") == ["a", "d", "b"]


def test_a_router_dials_its_neighbours_of_higher_name(tmp_path: Path) -> None:
    text = """\
mesh: m
routers:
  a: {amqp: localhost:1}
  b: {amqp: localhost:2, inter: localhost:22}
  c: {amqp: localhost:3, inter: localhost:33}
links:
  - {between: [c, b], cost: 4, address: proxy:9}
  - [a, b]
"""
    topology = load(write(tmp_path, text))
    assert topology.dialled_by("a") == {"b": Address("localhost", 22)}
    assert topology.dialled_by("b") == {"c": Address("proxy", 9)}
    assert topology.dialled_by("c") == {}
    assert topology.costs_of("b") == {"a": 1, "c": 4}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param(
            TWO_ROUTERS + "links:\n  - [a, b]\n  - [a, z]\n",
            'mesh.yaml:7: links[1]: there is no router "z", expected a or b',
            id="unknown router in a link",
        ),
        pytest.param(
            TWO_ROUTERS.replace("5673", "5672") + "links: [[a, b]]\n",
            "mesh.yaml:4: routers.b.amqp: 127.0.0.1:5672 is already routers.a.amqp, expected another port",
            id="duplicate port",
        ),
        pytest.param(
            TWO_ROUTERS + "links: [[a, b]]\ntimeing: {}\n",
            'mesh.yaml:6: unknown key "timeing", '
            "expected mesh, routers, links, addresses, queues, timing, limits, log or security; "
            'did you mean "timing"?',
            id="unknown key",
        ),
        pytest.param(
            TWO_ROUTERS + "links: [[a, b]]\ntiming:\n  hallo: 1s\n",
            'mesh.yaml:7: timing: unknown key "hallo", expected hello, dead, idle, join, terminus, forget, boot_wait '
            'or grace; did you mean "hello"?',
            id="unknown key in a part",
        ),
        pytest.param(
            TWO_ROUTERS + "links: [[a, b]]\ntiming: {hello: 200 parsecs}\n",
            'mesh.yaml:6: timing.hello: "200 parsecs" is not a duration, '
            "expected a number above 0 and a unit, such as 200ms, 2s, 5m or 1h",
            id="wrong duration",
        ),
        pytest.param(
            TWO_ROUTERS + "links: [[a, b]]\ntiming: {hello: 2s}\n",
            "mesh.yaml:6: timing: dead is 1.0s, expected at least 3 times hello (2.0s): 6.0s",
            id="dead before hello",
        ),
        pytest.param(
            TWO_ROUTERS + "links: [[a, b]]\ntiming: {boot_wait: 0.5s}\n",
            "mesh.yaml:6: timing: boot_wait is 500ms, expected at least dead (1.0s)",
            id="boot_wait before dead",
        ),
        pytest.param(
            TWO_ROUTERS + "links: [[a, b]]\nlog: {full: go_on}\n",
            'mesh.yaml:6: log.full: "go_on", expected go-on or stop; did you mean "go-on"?',
            id="neither go-on nor stop",
        ),
        pytest.param(
            TWO_ROUTERS + "links: [[a, b]]\nlog: {size: 1MiB}\n",
            'mesh.yaml:6: log.size: "1MiB", expected a size from 67108864 to 1125899906842624 bytes',
            id="a log of less than two segments",
        ),
        pytest.param(
            "mesh: m\nrouters:\n  clients: {amqp: localhost:1}\n",
            'mesh.yaml:3: routers: "clients" is reserved, expected another name',
            id="the folder of the clients",
        ),
        pytest.param(
            "[" * 5000,
            "mesh.yaml: lists or maps are nested too deeply",
            id="nested deeply",
        ),
        pytest.param(
            "#" * ((1 << 20) + 1),
            "mesh.yaml: 1.0 MiB, expected a topology file of at most 1 MiB",
            id="huge",
        ),
        pytest.param(
            TWO_ROUTERS + "links:\n  - [a, b]\n  - [b, b]\n",
            'mesh.yaml:7: links[1]: links "b" to itself, expected two different routers',
            id="self-link",
        ),
        pytest.param(
            TWO_ROUTERS + "links:\n  - [a, b]\n  - {between: [b, a], cost: 2}\n",
            "mesh.yaml:7: links[1]: a and b are linked already, expected one link between them",
            id="duplicate link",
        ),
        pytest.param(
            TWO_ROUTERS,
            "mesh.yaml:4: routers.b: no path to a, expected links that join all routers",
            id="two halves",
        ),
        pytest.param(
            "mesh: m\nrouters: {}\n",
            "mesh.yaml:2: routers: the mesh is empty, expected a router such as a: {amqp: host:port}",
            id="empty mesh",
        ),
        pytest.param(
            "mesh: m\n",
            "mesh.yaml:1: routers: the mesh is empty, expected a router such as a: {amqp: host:port}",
            id="no routers",
        ),
        pytest.param("", "mesh.yaml:1: the file is empty", id="empty file"),
        pytest.param(
            "mesh: m\nrouters: [a\n",
            "mesh.yaml:3: not YAML: expected ',' or ']', but got '<stream end>'",
            id="not YAML",
        ),
        pytest.param(
            "- a\n- b\n",
            "mesh.yaml:1: a list, "
            "expected a mapping with mesh, routers, links, addresses, queues, timing, limits, log or security",
            id="not a mapping",
        ),
        pytest.param(
            "mesh: m\nrouters:\n  a: {amqp: localhost:1}\n  a: {amqp: localhost:2}\n",
            'mesh.yaml:4: "a" is given twice, expected once',
            id="router given twice",
        ),
        pytest.param(
            "mesh: m\nrouters:\n  a: &a {amqp: localhost:1}\n  b: *a\n",
            "mesh.yaml:4: an alias (*name), expected the value itself",
            id="alias",
        ),
        pytest.param(
            "mesh: m\nrouters:\n  ../a: {amqp: localhost:1}\n",
            'mesh.yaml:3: routers: "../a" cannot name a router, '
            "expected at most 63 letters, digits, - and _, with single dots between them",
            id="name that leaves the run directory",
        ),
        pytest.param(
            "mesh: m\nrouters:\n  eu..a: {amqp: 127.0.0.1:1}\n",
            'mesh.yaml:3: routers: "eu..a" cannot name a router, '
            "expected at most 63 letters, digits, - and _, with single dots between them",
            id="name with two dots in a row",
        ),
        pytest.param(
            "mesh: m\nrouters:\n  mesh.json: {amqp: 127.0.0.1:1}\n",
            'mesh.yaml:3: routers: "mesh.json" is reserved, expected another name',
            id="name of a file of the run directory",
        ),
        pytest.param(
            "mesh: m\nrouters:\n  a: {amqp: 127.0.0.1:99999}\n",
            'mesh.yaml:3: routers.a.amqp: "127.0.0.1:99999" is not an address, '
            "expected host:port such as 127.0.0.1:5672 or [::1]:5672",
            id="wrong address",
        ),
        pytest.param(
            "mesh: m\nrouters:\n  a:\n    amqp: 127.0.0.1:1\n    mqtt-ws: [127.0.0.1:2, 127.0.0.1:1]\n",
            "mesh.yaml:5: routers.a.mqtt-ws[1]: 127.0.0.1:1 is already routers.a.amqp, expected another port",
            id="a port for two listeners, one of a list",
        ),
        pytest.param(
            "mesh: m\nrouters:\n  a: {amqp: 127.0.0.1:1, amqp-ws: [127.0.0.1:2, 8080]}\n",
            'mesh.yaml:3: routers.a.amqp-ws: "8080" is not an address, '
            "expected host:port such as 127.0.0.1:5672 or [::1]:5672",
            id="a wrong address in a list",
        ),
        pytest.param(
            "mesh: m\nrouters:\n  a: {amqp: []}\n",
            "mesh.yaml:3: routers.a.amqp: an empty list, expected host:port, or a list of these",
            id="no address",
        ),
        pytest.param(
            "mesh: m\nrouters:\n  a: {amqp: 127.0.0.1:1, http: [127.0.0.1:2, 127.0.0.1:3]}\n",
            "mesh.yaml:3: routers.a.http: a list, expected a single value",
            id="two listeners for HTTP",
        ),
        pytest.param(
            "mesh: m\nrouters:\n  a: {amqp: 127.0.0.1:1, mqtt-ws: [127.0.0.1:2, h:3]}\n",
            "mesh.yaml:3: routers.a.mqtt-ws[1]: h:3 is open to everybody, "
            "expected security by certificates, or users and plain: in-clear, or security: {open: [mqtt-ws]}",
            id="a listener of a list that is open",
        ),
        pytest.param(
            "mesh: m\nrouters:\n  a: {inter: localhost:1}\n",
            'mesh.yaml:3: routers.a: "amqp" is missing, '
            "expected the keys amqp, inter, advertise, http, mqtt, amqp-ws, mqtt-ws",
            id="missing key",
        ),
        pytest.param(
            "mesh: m\nrouters:\n  a:\n",
            "mesh.yaml:3: routers.a: an empty value is not a mapping, "
            "expected the keys amqp, inter, advertise, http, mqtt, amqp-ws, mqtt-ws",
            id="router without anything",
        ),
        pytest.param(
            TWO_ROUTERS + "links: a-b\n",
            "mesh.yaml:5: links: not a list, expected links such as [a, b]",
            id="links that are not a list",
        ),
        pytest.param(
            TWO_ROUTERS + "links: [[a, b]]\nlimits: {max_message: 1GB}\n",
            'mesh.yaml:6: limits.max_message: "1GB" is not a size, '
            "expected a number and a unit, such as 100B, 64KiB or 16MiB",
            id="wrong size",
        ),
    ],
)
def test_a_bad_topology_is_explained_by_file_line_and_expectation(tmp_path: Path, text: str, complaint: str) -> None:
    assert complaints(tmp_path, text) == [complaint]


def test_nested_prefixes_and_the_empty_one_may_be_of_different_kinds(tmp_path: Path) -> None:
    text = (
        "mesh: m\nrouters: {eu.a: {amqp: 127.0.0.1:0}}\n"
        "addresses: [{prefix: ''}, {prefix: jobs, kind: balanced}, {prefix: jobs.near, kind: closest}]\n"
    )
    topology = load(write(tmp_path, text))
    assert topology.kinds == (("", "topic"), ("jobs", "balanced"), ("jobs.near", "closest"))
    assert list(topology.routers) == ["eu.a"]


def test_rules_may_have_pauses(tmp_path: Path) -> None:
    text = (
        "mesh: m\nrouters: {a: {amqp: 127.0.0.1:0}}\naddresses:\n"
        "- {prefix: work/, kind: balanced, retry_after: 1s, retry_factor: 2, retry_most: 1h}\n"
        "- {prefix: work/near/, kind: closest, retry_after: 200ms}\n"
        "- {prefix: work/now/, kind: balanced}\n"
    )
    settings = settings_of(load(write(tmp_path, text)))
    assert settings.pauses == {"work/": BackOff(1.0, 2, 3600.0), "work/near/": BackOff(0.2)}


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        ("kind: balanced, retry_after: 5",
         'retry_after: "5" is not a duration, expected a number above 0 and a unit, such as 200ms, 2s, 5m or 1h'),
        ("kind: balanced, retry_after: 5s, retry_factor: 0",
         'retry_factor: "0", expected a whole number from 1 to 100'),
        ("kind: closest, retry_factor: 2", "retry_factor: no effect without retry_after, expected both"),
        ("kind: closest, retry_most: 2s", "retry_most: no effect without retry_after, expected both"),
        ("kind: balanced, retry_after: 5s, retry_most: 1s",
         "retry_most: 1.0s is below retry_after (5.0s), expected at least as much"),
        ("retry_after: 5s", "retry_after: a topic has no pauses, expected kind: balanced or closest"),
    ],
)  # fmt: skip
def test_pauses_that_do_not_go_together_are_named(tmp_path: Path, rule: str, complaint: str) -> None:
    text = f"mesh: m\nrouters: {{a: {{amqp: 127.0.0.1:0}}}}\naddresses:\n- {{prefix: x/, {rule}}}\n"
    assert complaints(tmp_path, text) == [f"mesh.yaml:4: addresses[0].{complaint}"]


def test_a_queue_has_pauses_of_its_own(tmp_path: Path) -> None:
    text = (
        "mesh: m\nrouters: {a: {amqp: 127.0.0.1:0}}\nqueues: {}\naddresses:\n"
        "- {prefix: q/, kind: queue,\n   retry_after: 5s}\n"
    )
    assert complaints(tmp_path, text) == [
        "mesh.yaml:6: addresses[0].retry_after: each queue has its own pauses, "
        "expected oncemesh queue declare NAME --retry-after"
    ]


@pytest.mark.parametrize(
    ("prefix", "whose"),
    [
        ("_sets/", "replica sets, which are _sets/…"),
        ("_sets/q0/out/", "replica sets, which are _sets/…"),
        ("_dynamic/a/", "dynamic nodes, which are _dynamic/…"),
        ("_", "dynamic nodes, which are _dynamic/…"),
        ("_se", "replica sets, which are _sets/…"),
    ],
)
def test_no_address_of_clients_begins_like_one_of_the_mesh(tmp_path: Path, prefix: str, whose: str) -> None:
    text = f"mesh: m\nrouters: {{a: {{amqp: 127.0.0.1:0}}}}\naddresses: [{{prefix: {prefix}, kind: topic}}]\n"
    assert complaints(tmp_path, text) == [
        f'mesh.yaml:3: addresses[0].prefix: "{prefix}" begins addresses of {whose}: expected another start'
    ]


def test_all_problems_are_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = """\
mesh: bad mesh
routers:
  a: {amqp: 127.0.0.1:5672}
  b: {amqp: 127.0.0.1}
links:
  - {between: [a, b], cost: zero, via: c}
  - [a]
addresses:
  - {kind: queues}
limits: {links: 1}
"""
    assert complaints(tmp_path, text) == [
        'mesh.yaml:1: mesh: "bad mesh" is not a name, expected letters, digits, - and _',
        'mesh.yaml:4: routers.b.amqp: "127.0.0.1" is not an address, '
        "expected host:port such as 127.0.0.1:5672 or [::1]:5672",
        'mesh.yaml:6: links[0].cost: "zero", expected a whole number from 1 to 65535',
        'mesh.yaml:6: links[0]: unknown key "via", expected between, cost or address',
        "mesh.yaml:7: links[1].between: a list, expected the names of two routers such as [a, b]",
        'mesh.yaml:9: addresses[0].kind: unknown kind "queues", expected topic, balanced, closest or queue',
        'mesh.yaml:9: addresses[0]: "prefix" is missing, '
        "expected the keys prefix, kind, retry_after, retry_factor, retry_most",
        'mesh.yaml:10: limits.links: "1", expected a whole number from 2 to 1000000',
    ]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=r"none\.yaml: No such file or directory, expected a topology file"):
        load(tmp_path / "none.yaml")


def test_what_is_no_regular_file_is_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(TopologyError) as caught:
            load(path)
        assert str(caught.value) == f"{path}: not a regular file, expected a topology file"


def test_several_problems_are_counted_and_one_is_not(tmp_path: Path) -> None:
    path = write(tmp_path, "mesh: m\nrouters:\n  a: {amqp: h}\ntimeing: {}\n")
    with pytest.raises(TopologyError) as caught:
        load(path)
    head, *lines = str(caught.value).splitlines()
    assert head == f"2 problems in {path}:"
    assert [line.strip() for line in lines] == caught.value.messages
    with pytest.raises(TopologyError, match=r"^[^\n]*$"):
        load(write(tmp_path, "mesh: m\n"))


@given(st.binary(max_size=200))
def test_no_bytes_end_in_anything_but_a_topology_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "noise.yaml"
    path.write_bytes(data)
    with pytest.raises(TopologyError):
        load(path)
