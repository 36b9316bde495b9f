"""What `oncemesh doctor` finds: each check with nothing wrong, and with what it is there for."""

import json
import socket
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner

from failover.cli.doctor.checks import CHECKS, Level, examine
from failover.cli.doctor.symptoms import Clock, Disk, Machine, StoreFault, Symptoms, ended, security, stores, taken
from router.cli.main import main
from router.mesh.config import Topology
from router.mesh.rundir import MeshRecord, RouterEntry, RunDirectory
from router.mesh.status import RouterView
from router.mesh.topology import load
from router.queues.replicas import open_store
from router.queues.store import STORE
from router.security.certs import issue_all
from router.security.validity import Validity, validity_of

NOW = 1_800_000_000.0
DAY_S = 86_400
TRIANGLE = """\
mesh: triangle
routers: {a: {amqp: 127.0.0.1:0}, b: {amqp: 127.0.0.1:0}, c: {amqp: 127.0.0.1:0}}
links: [[a, b], [b, c], [a, c]]
"""
QUEUES = """\
addresses: [{prefix: queue/, kind: queue}]
queues: {}
"""
PLAN = {"digest": "1", "routers": dict.fromkeys("abc", "member")}
HOST = Machine("here", 1 << 20, 16 << 30, True, [])


def plan(folder: Path, text: str = TRIANGLE) -> Topology:
    path = folder / "mesh.yaml"
    path.write_text(text)
    return load(path)


def replica_set(name: str, **told: Any) -> dict[str, Any]:
    """As that router tells of it, which a leads."""
    members = {"ring": [*"abc"], "voters": [*"abc"], "may_stop": [*"abc"], "why_aside": "", **told}
    return {"name": "q0", "life": "66-a", "term": 1, "commit": 1, "leader": "a"} | members | {
        "role": "leader" if name == members.get("leader", "a") else "follower"
    }  # fmt: skip


def view(name: str, pid: int | None = 1, **status: Any) -> RouterView:
    said: dict[str, Any] = {
        "router": name, "state": "ready", "waiting_for": [], "incarnation": int(NOW - 60) * 1000, "uptime_s": 60.0,
        "plan": PLAN, "routes": [{"router": r, "contact": True} for r in "abc" if r != name],
        "attaches": {"for": [], "waiting": 0, "since_s": 0.0}, "waits": [], "publishers": [], "lapsed": [],
        "sets": [replica_set(name)], "exceeded": {"links": 0}, "disk": {"log": "", "missing": 0, "store": ""},
    }  # fmt: skip
    return RouterView(name, pid, "127.0.0.1:1", "log", said | status if status != {"status": None} else None)


def views(**changed: RouterView) -> dict[str, RouterView]:
    return {name: changed.get(name, view(name)) for name in "abc"}


def clock(ahead_s: float = 0.2, moved_s: float = 0.0, behind_s: float = 0.1, refused: int = 0) -> Clock:
    return Clock(ahead_s, moved_s, behind_s, refused)


@pytest.fixture
def well(tmp_path: Path) -> Symptoms:
    valid = {"a": Validity(Path("a.pem"), NOW - DAY_S, NOW + 300 * DAY_S)}
    disk, told = Disk(100 << 30), {name: clock() for name in "abc"}
    return Symptoms(
        NOW, HOST, plan(tmp_path, TRIANGLE + QUEUES), certificates=valid, disk=disk, views=views(), clocks=told
    )


def test_where_all_is_well_every_check_passes(well: Symptoms) -> None:
    found = examine(well)
    assert [(finding.check, finding.level) for finding in found] == [(check.name, Level.PASS) for check in CHECKS]
    assert all(finding.what and not finding.todo for finding in found)


WAITS = [{"for": "subscriber s/l on topic/x", "records": 3, "publishers": ["p/l on topic/x"], "since_s": 40.0}]
LEADERLESS = replica_set("b", leader=None)
NEEDED = replica_set("a", may_stop=["c"])
ASIDE = replica_set("b", why_aside="rot")
FILLED = replica_set("a", message_bytes=7 << 30, limit_bytes=8 << 30)
FULL = replica_set("a", message_bytes=8 << 30, limit_bytes=8 << 30)
LEARNS = replica_set("a", learners=["c"], learning_s={"c": 1200.0}, behind={"c": 9})
AWAY = replica_set("a", away_s={"c": 7200.0, "b": 3.0})
PAIRED = replica_set("a", ring=[*"ab"], voters=[*"ab"], may_stop=[])
SMALL = view("d", disk={"free_bytes": 1 << 30}).status
UNBEGUN = replica_set("a", life=None, leader=None, voters=[])
ALL = [{"router": router, "contact": True} for router in "abc"]
ILL: list[tuple[str, dict[str, Any], Level, str]] = [
    ("descriptors", {"host": attrs.evolve(HOST, descriptors=1024)}, Level.WARN, "1024 descriptors"),
    ("descriptors", {"host": attrs.evolve(HOST, descriptors=64)}, Level.FAIL, "64 descriptors"),
    ("memory", {"host": attrs.evolve(HOST, memory_bytes=64 << 20)}, Level.WARN, "64.0 MiB of memory are free"),
    ("time", {"host": attrs.evolve(HOST, keeps_time=False)}, Level.WARN, "no time service runs"),
    ("audit", {"host": attrs.evolve(HOST, lacks_audit=["pyspark"])}, Level.WARN, "cannot run here: pyspark"),
    ("loops", {"host": attrs.evolve(HOST, is_compiled=False)}, Level.WARN, "are not compiled"),
    ("topology", {"topology": None, "unreadable": ["mesh.yaml:1: what"]}, Level.FAIL, "mesh.yaml:1: what"),
    ("listeners", {"taken": {"amqp of router a": "127.0.0.1:1: in use"}}, Level.FAIL, "amqp of router a cannot"),
    ("listeners", {"held": {"amqp of router a": Path("run/x")}}, Level.WARN, "runs already, with the run directory"),
    ("security", {"security": "a.pem: expected one of 'a'"}, Level.FAIL, "a.pem: expected"),
    ("certificates", {"certificates": {"a": Validity(Path("a.pem"), 0, NOW - 3 * DAY_S)}}, Level.FAIL, "expired 3"),
    ("certificates", {"certificates": {"a": Validity(Path("a.pem"), NOW + 3600, NOW * 2)}}, Level.FAIL, "only in 1h"),
    ("certificates", {"certificates": {"a": Validity(Path("a.pem"), 0, NOW + 9 * DAY_S)}}, Level.WARN, "in 9 days"),
    ("disk", {"disk": Disk(1 << 30)}, Level.WARN, "1.0 GiB are free"),
    ("disk", {"disk": Disk(1 << 20)}, Level.FAIL, "1.0 MiB are free"),
    ("disk", {"disk": Disk(0, "Permission denied")}, Level.FAIL, "Permission denied"),
    ("stores", {"stores": {"b": StoreFault("queues.db: locked", True)}}, Level.FAIL, "router b cannot start with"),
    ("stores", {"stores": {"b": StoreFault("set q0", False)}}, Level.WARN, "router b loses replicas when it starts"),
    ("crashes", {"ended": {"b": "AssertionError"}}, Level.WARN, "router b crashed: AssertionError"),
    ("running", {"views": views(b=view("b", None, status=None))}, Level.WARN, "router b does not run"),
    ("running", {"views": views(b=view("b", status=None))}, Level.FAIL, "does not answer"),
    ("running", {"views": views(b=view("b", state="booting"))}, Level.WARN, "router b is booting"),
    ("contacts", {"views": views(b=view("b", routes=[]))}, Level.FAIL, "router b is not in contact with a, c"),
    ("contacts", {"views": {"a": view("a", routes=[])}}, Level.WARN, "a is not in contact with b, c on other hosts"),
    ("contacts", {"views": views(b=view("b", plan=PLAN | {"digest": "2"}))}, Level.WARN, "different plans"),
    ("clocks", {"clocks": {"a": clock(), "d": clock(15.0)}}, Level.WARN, "router d is 15.0s ahead"),
    ("clocks", {"clocks": {"a": clock(-9e3)}}, Level.FAIL, "router a is 2h 30m behind the clock of this host"),
    ("clocks", {"clocks": {"a": clock(moved_s=-3.0)}}, Level.WARN, "router a was set back by 3.0s since it started"),
    ("clocks", {"clocks": {"a": clock(moved_s=90.0)}}, Level.WARN, "router a was set on by 1m 30s since it started"),
    ("clocks", {"clocks": {"a": clock(refused=2)}}, Level.FAIL, "a has rejected 2 times that were more than an hour"),
    ("clocks", {"clocks": {"a": clock(behind_s=7.0)}}, Level.WARN, "a clock in the mesh is, or was, 7.0s ahead of all"),
    ("waiting", {"views": views(a=view("a", waits=WAITS))}, Level.WARN, "a waits for subscriber s/l"),
    ("sets", {"views": {"b": view("b", sets=[LEADERLESS], routes=ALL)}}, Level.FAIL, "no router leads replica set q0"),
    ("sets", {"views": views(a=view("a", sets=[NEEDED]))}, Level.WARN, "if router a or b stops, no majority is left"),
    ("sets", {"views": views(b=view("b", sets=[ASIDE]))}, Level.WARN, "b set its store of replica set q0 aside: rot"),
    ("sets", {"views": {"a": view("a", sets=[UNBEGUN], routes=ALL)}}, Level.FAIL, "in replica set q0: not begun yet"),
    ("sets", {"views": views(c=view("c", sets=[]))}, Level.FAIL, "about replica set q0: no such set at router c"),
    ("sets", {"views": views(a=view("a", sets=[LEARNS]))}, Level.WARN, "has been a learner of replica set q0 for 20m"),
    ("sets", {"views": views(a=view("a", sets=[AWAY]))}, Level.WARN, "router c, a member of replica set q0, is away"),
    ("voters", {"views": views(a=view("a", sets=[PAIRED]))}, Level.WARN, "two voters: q0; these survive no failure"),
    ("rooms", {"views": views(a=view("a", sets=[FILLED]))}, Level.WARN, "q0 is nearly full, and then its publishers"),
    ("rooms", {"views": views(a=view("a", sets=[FULL]))}, Level.FAIL, "q0 is full, so its publishers wait: it has 8.0"),
    ("rooms", {"elsewhere": {"d": SMALL}}, Level.WARN, "1.0 GiB are free on the disk of r"),
    ("troubles", {"views": views(a=view("a", disk={"log": "full"}))}, Level.FAIL, "a cannot write its delivery log"),
    ("troubles", {"views": views(a=view("a", exceeded={"links": 7}))}, Level.WARN, "links 7 times"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "changes", "level", "what"), ILL)
def test_what_is_wrong_is_found_by_its_check_with_what_to_do(
    check: str, changes: dict[str, Any], level: Level, what: str, well: Symptoms
) -> None:
    findings = [one for one in examine(attrs.evolve(well, **changes)) if one.level is not Level.PASS]
    assert {one.check for one in findings} == {check}
    assert findings[0].level is level and what in findings[0].what and findings[0].todo


@pytest.mark.parametrize(
    ("check", "text", "what"),
    [
        ("alternatives", TRIANGLE.replace(", [a, c]", ""), "if router b dies, a cannot reach c"),
        ("alternatives", "mesh: one\nrouters: {a: {amqp: 127.0.0.1:0}}\n", "a is the only router"),
        (
            "openings",
            TRIANGLE.replace("127.0.0.1:0}, b", "10.0.0.1:5672}, b") + "security: {open: [amqp, inter]}\n",
            "open to everybody",
        ),
        (
            "voters",
            TRIANGLE + QUEUES.replace("{}", "{sets: 2, replicas: 2}"),
            "replica sets with two voters: q0, q1; these survive no failure, and are less available",
        ),
    ],
)
def test_what_a_topology_is_weak_in_is_found(check: str, text: str, what: str, well: Symptoms, tmp_path: Path) -> None:
    found = examine(attrs.evolve(well, topology=plan(tmp_path, text), views={}))
    assert any(one.check == check and one.level is Level.WARN and what in one.what for one in found)


def test_a_clock_that_another_one_is_ahead_of_is_told_once(well: Symptoms) -> None:
    """By the one that is ahead."""
    found = examine(attrs.evolve(well, clocks={"a": clock(0.0, behind_s=5.0), "b": clock(5.0, behind_s=0.0)}))
    assert [one.what for one in found if one.level is not Level.PASS] == [
        "the clock of router b is 5.0s ahead of the clock of this host"
    ]


def test_of_what_only_routers_tell_nothing_is_said_where_none_answers(well: Symptoms) -> None:
    silent = views(**{name: view(name, status=None) for name in "abc"})
    said = {found.check for found in examine(attrs.evolve(well, views=silent, clocks={}))}
    assert "running" in said and said.isdisjoint({"contacts", "clocks", "waiting", "troubles"})


def test_every_check_is_tested_in_both_states() -> None:
    assert {check for check, *_ in ILL} | {"alternatives", "voters", "openings"} == {check.name for check in CHECKS}


def test_a_listener_that_is_taken_is_seen(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        topology = plan(tmp_path, f"mesh: one\nrouters: {{a: {{amqp: 127.0.0.1:{port}}}}}\n")
        assert "Address already in use" in taken(topology, ["a"])["amqp of router a"]
        assert taken(topology, []) == {}


def test_the_ports_of_the_running_mesh_are_not_blamed_on_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as one, socket.socket() as other:
        for taken_by in (one, other):
            taken_by.bind(("127.0.0.1", 0))
            taken_by.listen()
        at, http = (f"127.0.0.1:{each.getsockname()[1]}" for each in (one, other))
        plan(tmp_path, f"mesh: one\nrouters: {{a: {{amqp: {at}, http: {http}}}}}\n")
        entry = RouterEntry(1, at, "127.0.0.1:1", "router.log")
        directory = RunDirectory(tmp_path / "run" / "one")
        directory.make()
        directory.write(MeshRecord("one", "mesh.yaml", {"a": entry}))
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(RunDirectory, "running", lambda _: {"a": None})
        told = CliRunner().invoke(main, ["doctor", "mesh.yaml"]).output
    assert f"this mesh runs already, with the run directory {directory.path}; its routers listen there: amqp of" in told
    assert f"fail  listeners: http of router a cannot listen on {http}: Address already in use" in told
    assert "amqp of router a cannot listen" not in told


def test_stores_of_replica_sets_are_looked_at_and_not_changed(tmp_path: Path) -> None:
    topology, directory = plan(tmp_path, TRIANGLE + QUEUES), RunDirectory(tmp_path)
    for router in "abc":
        (tmp_path / router).mkdir()
        with open_store(topology, "a" if router == "b" else router, tmp_path / router):
            pass
    (tmp_path / "c" / STORE).write_bytes(b"no database")
    before = {path: path.read_bytes() for path in tmp_path.glob("*/*")}
    found = stores(topology, directory, "abc")
    assert {path: path.read_bytes() for path in tmp_path.glob("*/*")} == before
    assert {router: fault.is_refused for router, fault in found.items()} == {"b": True, "c": False}
    assert found["b"].why.startswith(f"{tmp_path}/b/{STORE}: ") and "it belongs to router a" in found["b"].why
    assert "the former file is set aside" in found["c"].why


def test_certificates_are_read_and_met(tmp_path: Path) -> None:
    files = 'security: {certificate: "certs/{router}.pem", key: "certs/{router}.key", ca: certs/ca.pem}\n'
    topology = plan(tmp_path, TRIANGLE + files)
    why, found = security(topology, "abc")
    assert "a.pem" in why and found == {}
    issue_all(topology, tmp_path / "certs", ())
    why, found = security(topology, "abc")
    assert why == "" and {*found} == {*"abc"} and 300 * DAY_S < found["a"].ends - found["a"].begins < 400 * DAY_S
    assert validity_of(tmp_path / "mesh.yaml") is None


def test_the_last_traceback_of_a_log_is_told_by_its_error(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    died = 'Traceback (most recent call last):\n  File "x"\nKeyError: 3\nmore\n'
    for name, text in {"a": "all well\n", "b": died}.items():
        directory.log_path(name).parent.mkdir()
        directory.log_path(name).write_text(text)
    assert ended(directory, "abc") == {"b": "KeyError: 3"}


def test_the_command_tells_people_and_programs_and_exits_as_it_found(tmp_path: Path) -> None:
    plan(tmp_path)
    good = CliRunner().invoke(main, ["doctor", str(tmp_path / "mesh.yaml"), "--json"])
    levels = {finding["check"]: finding["level"] for finding in json.loads(good.output)}
    assert (good.exit_code, levels["topology"], levels["listeners"]) == (0, "pass", "pass")
    (tmp_path / "mesh.yaml").write_text("mesh: x\nroutes: {}\n")
    ill = CliRunner().invoke(main, ["doctor", str(tmp_path / "mesh.yaml")])
    assert ill.exit_code == 1
    assert f'fail  topology: {tmp_path / "mesh.yaml"}:2: unknown key "routes"' in ill.output
    assert "\\n" not in ill.output, "each problem of the file is a line"


def test_of_meshes_that_do_not_run_the_one_that_was_killed_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    topology, nobody = plan(tmp_path), 2**22  # no process has that number
    for name, pid in (("stopped", None), ("killed", nobody)):
        directory = RunDirectory(Path("run", name))
        directory.make()
        directory.keep(topology)
        entry = RouterEntry(pid, amqp="127.0.0.1:0", inter="127.0.0.1:0", log="log")
        directory.write(MeshRecord(name, str(directory.topology_path), {"a": entry}, str(tmp_path)))
    looked = CliRunner().invoke(main, ["doctor"])
    assert "warn  running: router a does not run\n      use oncemesh start a, with the --run-dir" in looked.output
    RunDirectory(Path("run", "killed")).write(
        MeshRecord("killed", str(directory.topology_path), {"a": attrs.evolve(entry, pid=None)}, str(tmp_path))
    )
    assert "router a does not run" not in CliRunner().invoke(main, ["doctor"]).output


HOSTS = """\
mesh: hosts
routers: {a: {amqp: 127.0.0.1:0, inter: 127.0.0.1:0}, b: {amqp: 192.0.2.1:5671}, c: {amqp: 192.0.2.2:5671}}
links: [[a, b], [b, c], [a, c]]
security: {certificate: "{router}.pem", key: "{router}.key", ca: ca.pem}
"""


def test_of_a_mesh_over_several_hosts_what_is_others_is_not_looked_for_here(tmp_path: Path) -> None:
    topology = plan(tmp_path, HOSTS)
    issue_all(topology, tmp_path, ())
    for theirs in ("b.pem", "b.key", "c.pem", "c.key", "ca.key"):
        (tmp_path / theirs).unlink()
    directory = RunDirectory(tmp_path / "run")
    directory.make()
    directory.keep(topology)
    entry = RouterEntry(None, amqp="127.0.0.1:0", inter="127.0.0.1:0", log="log")
    directory.write(MeshRecord("hosts", str(directory.topology_path), {"a": entry}, str(tmp_path)))

    path = str(tmp_path / "mesh.yaml")
    for arguments in (["--run-dir", str(directory.path)], [path, "--router", "a"]):
        looked = CliRunner().invoke(main, ["doctor", "--json", *arguments])
        levels = {finding["check"]: finding["level"] for finding in json.loads(looked.output)}
        found = looked.exit_code, levels["security"], levels["certificates"], levels["listeners"]
        assert found == (0, "pass", "pass", "pass")
    assert CliRunner().invoke(main, ["doctor", path]).exit_code == 1
    refused = CliRunner().invoke(main, ["doctor", path, "--router", "e"])
    assert 'there is no router "e" in this mesh, expected a, b or c' in refused.output


@pytest.mark.parametrize(
    ("why", "todo"),
    [
        ("users: Permission denied, expected a file of users", "run doctor as the user of the routers"),
        ("users: No such file or directory, expected a file of users", "oncemesh user add creates a file of users"),
        ("a.pem: No such file or directory, expected a file in PEM", "oncemesh certs init creates certificates"),
    ],
)
def test_what_to_do_about_a_file_of_security_fits_what_is_wrong_with_it(why: str, todo: str, well: Symptoms) -> None:
    [found] = [one for one in examine(attrs.evolve(well, security=why)) if one.level is not Level.PASS]
    assert found.what == why and todo in found.todo and ("certs init" in found.todo) == ("denied" not in why)


def test_replica_sets_with_the_same_fault_are_named_together(well: Symptoms) -> None:
    rows = [
        {**replica_set("a", voters=[*order], may_stop=["c"]), "name": name}
        for name, order in (("x", "abc"), ("y", "bca"))
    ]
    [found] = [
        one for one in examine(attrs.evolve(well, views={"a": view("a", sets=rows, routes=ALL)})) if one.check == "sets"
    ]
    assert found.what == "if router a or b stops, no majority is left of replica sets x, y"


def told_of_sets(well: Symptoms, **rows: dict[str, Any]) -> list[tuple[Level, str, str]]:
    """What doctor tells if routers have these rows. Only the first router is of this host."""
    here, *others = rows
    statuses = {name: {"sets": [rows[name]]} for name in others}
    seen = attrs.evolve(well, views={here: view(here, sets=[rows[here]], routes=ALL)}, elsewhere=statuses)
    return [(one.level, one.what, one.todo) for one in examine(seen) if one.check == "sets"]


def test_topologies_that_name_other_voters_of_a_set_are_told_with_their_routers(well: Symptoms) -> None:
    """It does not begin. No router need be started, as for a set without a leader."""
    rows = {"a": UNBEGUN, "b": UNBEGUN, "c": {**UNBEGUN, "ring": list("abd")}}
    [(level, what, todo)] = told_of_sets(well, **rows)
    differs = "voters a, b, c at routers a, b; voters a, b, d at router c"
    assert (level, what) == (Level.FAIL, f"the topologies of routers differ about replica set q0: {differs}")
    assert todo == "copy one topology file to all hosts, and restart the routers that had another one"


@pytest.fixture
def named(well: Symptoms, tmp_path: Path) -> Symptoms:
    """The topology names the voters of set eu."""
    sets = "{sets: 1, named: [{name: eu, prefix: queue/eu/, voters: [a, b, c], prefer: b}]}"
    return attrs.evolve(well, topology=plan(tmp_path, TRIANGLE + QUEUES.replace("{}", sets)))


def test_voters_that_are_not_those_of_the_topology_are_told(named: Symptoms) -> None:
    row = {**replica_set("a", ring=list("abd"), voters=list("abd"), may_stop=list("abd")), "name": "eu"}
    [(level, what, todo)] = told_of_sets(named, a=row)
    assert (level, what) == (Level.WARN, "replica set eu has the voters a, b, d, but a, b, c in the topology")
    write = "write a, b, d into the topology file of each host, or have the voters of the file with "
    assert todo == f"{write}oncemesh queue voters eu b a c"
    [_, (_, _, todo)] = told_of_sets(named, a={**row, "life": None})
    assert todo == "restart the routers: they read the topology when they start"
    [(_, what, _)] = told_of_sets(named, a={**row, "life": None}, b={**UNBEGUN, "name": "eu"})
    assert what.startswith("the topologies of routers differ about replica set eu"), "and nothing else is told of it"
    [(level, _, _)] = told_of_sets(named, a={**replica_set("a", ring=list("bac")), "name": "eu"})
    assert level is Level.PASS, "another order"


def test_a_leader_of_another_host_is_believed(well: Symptoms) -> None:
    """By a follower of this host alone it is not known which routers a set needs."""
    rows = {router: replica_set(router, leader="b", may_stop=["c"]) for router in "ab"}
    assert [what for _, what, _ in told_of_sets(well, **rows)] == [
        "if router a or b stops, no majority is left of replica set q0"
    ]
