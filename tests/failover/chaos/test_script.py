"""Chaos scripts: what a good one says, and what is said about a bad one, all of it at once."""

import re
from pathlib import Path

import pytest

from failover.chaos.script.reader import PARTS, ScriptError, load
from failover.chaos.script.script import Crashes, FaultLine, ScriptClient, When
from failover.chaos.script.targets import Named, ReplicaOf, RouterOf, Several, Some
from failover.chaos.script.times import Span, Window
from failover.chaos.script.vocabulary import VERBS
from router.mesh.reading import joined_with_or
from router.mesh.topology import TopologyError
from tests.failover.chaos.scripts import TOPOLOGIES, script, write

LIBRARY = sorted((TOPOLOGIES / "chaos").rglob("*.yaml"))
SHORT = ("isolated", "mayhem-apart")
"""Those in which routers are apart for longer than termini last."""
WHOLE = Window(0.0, 10.0)
NO_DURATION = "is not a duration, expected a number above 0 and a unit, such as 200ms, 2s, 5m or 1h"
PUBLISHER = "name, rate, address, count, size, at, crash, away"


def complaints(folder: Path, text: str) -> list[str]:
    path = folder / "script.yaml"
    path.write_text(text)
    with pytest.raises(ScriptError) as caught:
        load(path)
    return [message.replace(f"{folder}/", "") for message in caught.value.messages]


def test_a_topology_in_its_place_is_told(tmp_path: Path) -> None:
    topology = Path(__file__).parents[3] / "topologies" / "line.yaml"
    assert complaints(tmp_path, topology.read_text()) == [
        "script.yaml: a topology, expected a chaos script; to start it: oncemesh up script.yaml"
    ]


def complaint(folder: Path, fault: str) -> str:
    """What is said about one fault; it stands on line 10."""
    [found] = complaints(folder, write(folder, fault).read_text())
    start = "script.yaml:10: faults[0]"
    assert found.startswith(start), found
    return found.removeprefix(start)


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: path.stem)
def test_a_script_of_the_library_says_what_it_tries_to_break(path: Path) -> None:
    assert path.read_text().startswith("# ")
    found = load(path)
    assert found.faults
    on_hosts = path.parent.name == "namespaces"
    assert found.topology.timing.terminus == (60.0 if on_hosts else 3.0 if path.stem in SHORT else 15.0)


def test_the_library_has_every_fault_there_is() -> None:
    used = {fault.verb.name for path in LIBRARY for fault in load(path).faults}
    assert {name for name, verb in VERBS.items() if not verb.ends} <= used


def test_clients_are_read_as_written(tmp_path: Path) -> None:
    path = tmp_path / "script.yaml"
    path.write_text(
        f"""\
topology: {TOPOLOGIES / "pair.yaml"}
duration: 1m
publishers:
  - {{name: p, count: 3, rate: 12.5, size: 1KiB, address: topic/x, at: [b, a], crash: 6/m, away: 1s..2s}}
subscribers:
  - {{name: s, settle: first, think: 5ms}}
"""
    )
    found = load(path)
    crashes = Crashes(0.1, Span(1.0, 2.0))
    assert found.clients == (
        ScriptClient("p1", "publisher", "topic/x", "b", rate=12.5, size=1024, crashes=crashes),
        ScriptClient("p2", "publisher", "topic/x", "a", rate=12.5, size=1024, crashes=crashes),
        ScriptClient("p3", "publisher", "topic/x", "b", rate=12.5, size=1024, crashes=crashes),
        ScriptClient("s", "subscriber", "topic/chaos", "a", settle="first", think=0.005),
    )
    assert found.groups == {"p": ("p1", "p2", "p3"), "s": ("s",)}
    assert (found.name, found.duration, found.offered) == ("script", 60.0, 37.5)


def test_timing_replaces_only_what_it_names(tmp_path: Path) -> None:
    timing = script(tmp_path).topology.timing
    assert (timing.terminus, timing.boot_wait, timing.hello) == (15.0, 3.0, 0.2)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("kill: a, at: 2s", FaultLine(VERBS["kill"], Named("a"), When(WHOLE, at=Span(2, 2)))),
        ("kill: one, at: 2s..3s, for: 1s", FaultLine(VERBS["kill"], Some("one"), When(WHOLE, Span(2, 3)), Span(1, 1))),
        ("pause: minority, every: 2s", FaultLine(VERBS["pause"], Some("minority"), When(WHOLE, every=2.0))),
        (
            "kill: {home-of: news}, random: 30/m, during: 2s..8s",
            FaultLine(VERBS["kill"], RouterOf("home-of", "news"), When(Window(2, 8), rate=0.5)),
        ),
        (
            "partition: [west, {custodian-of: reader1}], during: 2s..5s",
            FaultLine(
                VERBS["partition"],
                Several((Named("west"), RouterOf("custodian-of", "reader1"))),
                When(Window(2, 5), at=Span(2, 2)),
                Span(3, 3),
            ),
        ),
        ("kill-all: , at: 2s", FaultLine(VERBS["kill-all"], None, When(WHOLE, at=Span(2, 2)))),
        ("rolling-restart: , at: 2s", FaultLine(VERBS["rolling-restart"], Some("all"), When(WHOLE, at=Span(2, 2)))),
        ("crash-client: reader, at: 2s", FaultLine(VERBS["crash-client"], Named("reader"), When(WHOLE, at=Span(2, 2)))),
        ("heal: , every: 4s", FaultLine(VERBS["heal"], None, When(WHOLE, every=4.0))),
        (
            "slow: b-a, latency: 20ms, jitter: 5ms, at: 2s",
            FaultLine(VERBS["slow"], Named("a-b"), When(WHOLE, Span(2, 2)), None, {"latency": 0.02, "jitter": 0.005}),
        ),
        ("skew: a, by: -5s, at: 2s", FaultLine(VERBS["skew"], Named("a"), When(WHOLE, Span(2, 2)), None, {"by": -5.0})),
    ],
)
def test_a_fault_is_read_as_written(tmp_path: Path, text: str, fault: FaultLine) -> None:
    assert script(tmp_path, text).faults == (fault,)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "kill: d, at: 2s",
            '.kill: no target is called "d", expected one, minority, majority, all, a, b, c, west',
        ),
        ("kill: {home-of: reader1}, at: 2s", '.kill.home-of: "reader1" is no publisher, expected news'),
        (
            "kill: {near: news}, at: 2s",
            ".kill: a mapping, expected home-of: PUBLISHER, custodian-of: SUBSCRIBER, leader-of: QUEUE or "
            "follower-of: QUEUE",
        ),
        (
            "kill: {leader-of: q0}, at: 2s",
            '.kill.leader-of: "q0" is no replica set and no queue, expected a topology with the part queues',
        ),
        (
            "power-cut: a, at: 2s",
            ": power-cut strikes stores of replica sets, expected a topology with the part queues",
        ),
        ("disk-full: a, at: 2s", ": disk-full strikes stores of replica sets"),
        ("free: a, at: 3s, for: 4s", ': unknown key "for", expected free, at, every, random or during'),
        ("kill: [], at: 2s", ".kill: an empty list, expected at least one target"),
        ("cut: a-d, at: 2s", '.cut: no target is called "a-d", expected one'),
        ("crash-client: {home-of: news}, at: 2s", ".crash-client: a mapping, expected names"),
        ("kill-all: a, at: 2s", '.kill-all: "a", expected no target, because the fault concerns the whole mesh'),
        ("kill: a, pause: b, at: 2s", ": both kill and pause, expected one of them"),
        ("at: 2s", ": the fault is missing, expected kill, restart"),
        ("kil: a, at: 2s", ": the fault is missing, expected kill, restart"),
        ("kill: a", ": expected at, every, random or during"),
        ("kill: a, at: 2s, every: 3s", ": expected at, every, random or during"),
        ("kill: a, at: 2s, during: 3s..4s", ": expected at, every, random or during"),
        ("kill: a, during: 3s..4s, for: 1s", ": both during and for, expected one of them"),
        ("heal: , during: 3s..4s", ": heal takes no duration, expected at"),
        ("heal: , at: 3s, for: 4s", ': unknown key "for", expected heal, at, every, random or during'),
        ("kill: a, at: 12s", ": the fault begins after the end of the run, expected a time before 10s"),
        ("kill: a, at: 2", '.at: "2" is not a duration'),
        ("kill: a, at: 3s..2s", '.at: "3s..2s", expected the shorter time first'),
        ("kill: a, random: 5", '.random: "5" is not a rate, expected a number per time'),
        ("kill: a, random: 11/s", '.random: "11/s" is not a rate'),
        ("kill: a, every: 99ms", '.every: "99ms", expected a period of at least 100ms'),
        ("kill: a, random: 1/s, during: 5s", '.during: "5s" is not a window, expected its start and end'),
        ("kill: a, at: 2s, latency: 1s", ': unknown key "latency"'),
        ("slow: a-b, at: 2s", ': "latency" is missing, slow needs it'),
        ("cut: a-b, how: loud, at: 2s", '.how: "loud", expected silent'),
    ],
)
def test_a_bad_fault_is_told_with_what_was_expected(tmp_path: Path, text: str, said: str) -> None:
    assert complaint(tmp_path, text).startswith(said), complaint(tmp_path, text)


def test_a_replica_is_named_by_its_set_or_by_a_queue(tmp_path: Path) -> None:
    text = "kill: [{leader-of: q3}, {follower-of: queue/orders}], at: 2s"
    [fault] = script(tmp_path, text, topology="queues").faults
    assert fault.target == Several((ReplicaOf("leader-of", "q3", "q3"), ReplicaOf("follower-of", "queue/orders", "q7")))
    assert fault.line == 10


@pytest.mark.parametrize("name", ["q8", "topic/orders", "news", "[q0]", ""])
def test_what_is_no_replica_set_and_no_queue_is_told(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, f"cut: {{follower-of: {name}}}, at: 2s", topology="queues")
    [said] = complaints(tmp_path, path.read_text())
    assert re.fullmatch(
        r"script\.yaml:10: faults\[0\]\.cut\.follower-of: .+ is no replica set and no queue, expected q0, q1, q2, q3, "
        r"q4, q5, q6, q7 or the address of a queue such as queue/orders(; did you mean .+)?",
        said,
    ), said


def test_clients_are_not_replicas(tmp_path: Path) -> None:
    path = write(tmp_path, "crash-client: {leader-of: q0}, at: 2s", topology="queues")
    assert complaints(tmp_path, path.read_text()) == [
        "script.yaml:10: faults[0].crash-client: a mapping, expected names"
    ]


def test_a_mesh_of_two_has_no_minority(tmp_path: Path) -> None:
    path = write(tmp_path, "kill: minority, at: 2s", topology="pair")
    [said] = complaints(tmp_path, path.read_text())
    assert "no minority of 2 exists, expected one, majority or all" in said


def test_everything_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    text = f"""\
topology: {TOPOLOGIES / "pair.yaml"}
timing: {{terminus: soon}}
duration: 10
publishers:
  - {{name: p, rate: 0, at: a}}
  - {{rate: 5}}
  - {{name: q, rate: 5, at: z, address: queue/x}}
subscribers:
  - {{name: q, settle: third}}
  - {{name: q}}
sets: {{a: [b], west: [x]}}
fault: []
faults:
  - kill
"""
    assert complaints(tmp_path, text) == [
        f'script.yaml:2: timing.terminus: "soon" {NO_DURATION}',
        f'script.yaml:3: duration: "10" {NO_DURATION}',
        'script.yaml:5: publishers[0].rate: "0", expected messages per second such as 500',
        f'script.yaml:6: publishers[1]: "name" is missing, expected the keys {PUBLISHER}',
        'script.yaml:7: publishers.q.address: "queue/x", expected an address that begins with topic/',
        'script.yaml:7: publishers.q.at: there is no router "z", expected a or b',
        'script.yaml:9: subscribers[0].settle: "third", expected first (at least once) or second (exactly once)',
        'script.yaml:10: subscribers: there is a client or group "q" already, expected another name',
        'script.yaml:11: sets.west: there is no router "x", expected a or b',
        'script.yaml:11: sets: "a" is a router, expected another name',
        f'script.yaml:12: unknown key "fault", expected {joined_with_or(PARTS)}; did you mean "faults"?',
        'script.yaml:14: faults[0]: "kill", expected a fault such as {kill: one, at: 5s}',
    ]


def test_a_script_without_clients_is_no_run(tmp_path: Path) -> None:
    empty = "the list is empty, expected at least one group"
    none = [f"script.yaml:1: {role}s: {empty}" for role in ("publisher", "subscriber")]
    said = complaints(tmp_path, f"topology: {TOPOLOGIES / 'pair.yaml'}\nduration: 1s\n")
    assert said == none
    said = complaints(tmp_path, f"topology: {TOPOLOGIES / 'pair.yaml'}\nduration: soon\n")
    assert said[:2] == none and said[2].startswith("script.yaml:2: duration"), "whatever else is wrong"
    assert complaints(tmp_path, f"topology: {TOPOLOGIES / 'pair.yaml'}\nduration: 1s\npublishers: all\n") == [
        none[1],
        "script.yaml:3: publishers: not a list, expected groups such as {name: p, count: 3}",
    ]


def test_a_topology_that_is_not_there_is_told_with_its_path(tmp_path: Path) -> None:
    [said] = complaints(tmp_path, "topology: nowhere.yaml\nduration: 1s\n")
    assert said.startswith(
        "script.yaml:1: topology: the file nowhere.yaml does not exist, expected the path of a topology"
    )


def test_a_bad_topology_is_told_by_its_own_file(tmp_path: Path) -> None:
    (tmp_path / "mesh.yaml").write_text("mesh: x\n")
    (tmp_path / "script.yaml").write_text("topology: mesh.yaml\nduration: 1s\n")
    with pytest.raises(TopologyError, match=r"mesh\.yaml:1: routers: the mesh is empty"):
        load(tmp_path / "script.yaml")
