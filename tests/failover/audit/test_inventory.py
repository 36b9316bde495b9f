"""Accounting for the files: what is missing or damaged is told from what a killed writer leaves."""

import json
from typing import Any

import pytest

from failover.audit import Verdict
from failover.audit.mesh.clients import find_clients
from failover.audit.read.files import AuditError
from failover.audit.read.inventory import ControlRow, Inventory, take_inventory
from failover.audit.read.segments import FILE, MESH
from tests.failover.audit.in_process import judge_files
from tests.failover.audit.runs import START_MS, Run
from topic.journal import Block, Event, segment_name

WHOLE = {
    "size": 100,
    "segments": 1,
    "foreign": None,
    "first_time": 1,
    "last_time": 9,
    "set_back": 0,
    "damage": None,
    "stopped": False,
}


def row(event: int, source: str = "a", incarnation: int = 7, **columns: Any) -> ControlRow:
    fields: dict[str, Any] = dict.fromkeys(
        ("address", "publisher", "subscriber", "peer", "generation", "epoch_hlc", "home", "detail")
    )
    fields |= {"role": "router", "host": "h", "place": 0, "time": 1, "hlc": 1} | columns
    return ControlRow(source=source, incarnation=incarnation, event=event, **fields)


def segment(number: int, blocks: list[int], source: str = "a", **reading: Any) -> ControlRow:
    path = f"run/{source}/log/7-{number:06}.oml"
    detail = WHOLE | {"path": path, "segment": number, "blocks": [[n, n] for n in blocks]} | reading
    return row(FILE, source, detail=json.dumps(detail))


def mesh(*routers: str) -> ControlRow:
    text = json.dumps({"routers": {router: {} for router in routers}})
    return row(MESH, detail=json.dumps({"path": "run/mesh.json", "text": text}))


def told(inventory: Inventory) -> list[tuple[str, str]]:
    return [(problem.path, problem.what) for problem in inventory.problems]


def damage(*, torn: bool) -> dict[str, Any]:
    return {"offset": 60, "skipped": 40, "torn": torn}


def test_a_log_in_several_segments_is_one_log() -> None:
    inventory = take_inventory([mesh("a"), segment(1, [2], stopped=True), segment(0, [0, 1])])
    assert inventory.problems == () and inventory.torn == ()
    (log,) = inventory.logs
    assert (log.name, log.stopped, log.first_time, log.last_time) == ("a.7", True, 1, 9)


def at(router: str) -> str:
    """The run directory of its host."""
    return "file:/one" if router in "ab" else "file:/two"


def test_two_runs_of_one_mesh_are_told_apart_from_one_on_two_hosts() -> None:
    meshes = {f"file:/{run}/mesh.json": json.dumps({"mesh": "m", "routers": {}}).encode() for run in ("one", "two")}
    logs = dict(Run().files())
    hosts = {f"{at(name[0])}/{name}": content for name, content in logs.items()}
    assert judge_files(hosts | meshes).verdict is Verdict.HOLDS
    runs = {f"file:/{run}/{name}": content for run in ("one", "two") for name, content in logs.items()}
    with pytest.raises(
        AuditError, match=r"^router [abc] has logs in file:/(one|two) and in file:/(one|two): these are two runs"
    ):
        judge_files(runs | meshes)


def test_segments_that_were_read_as_one_are_named_by_the_last() -> None:
    assert take_inventory([mesh("a"), segment(3, [2], segments=3), segment(0, [0, 1])]).problems == ()
    inventory = take_inventory([mesh("a"), segment(3, [2], segments=2), segment(0, [0, 1])])
    assert [what for _, what in told(inventory)] == ["the segment 1 before it is missing"]


def test_a_block_of_another_log_is_named_and_its_place() -> None:
    run, forged = Run(), Block("near", "subscriber", START_MS - 1, host="host")
    files = {f"file:/run/{name}": content for name, content in run.files()}
    path = f"file:/run/clients/near/log/{segment_name(START_MS, 0)}"
    forged.append(**run.logs["clients/near"][-1])
    with pytest.raises(AuditError, match=f"^{path}: block 0 belongs to incarnation {START_MS - 1}, which did not"):
        judge_files(files | {path: files[path] + forged.encode()})


def test_a_missing_segment_is_noticed() -> None:
    inventory = take_inventory([mesh("a"), segment(0, [0]), segment(2, [2])])
    assert told(inventory) == [
        ("run/a/log/7-000002.oml", "block 1 is missing"),
        ("run/a/log/7-000002.oml", "the segment 1 before it is missing"),
    ]


def test_a_block_cut_out_cleanly_is_noticed() -> None:
    inventory = take_inventory([mesh("a"), segment(0, [0, 3])])
    assert told(inventory) == [("run/a/log/7-000000.oml", "blocks 1 to 2 are missing")]


def test_a_block_that_is_there_twice_is_no_gap() -> None:
    inventory = take_inventory([mesh("a"), segment(0, [0, 1, 2, 1, 2, 3]), segment(1, [4, 3, 5])])
    assert told(inventory) == [
        ("run/a/log/7-000000.oml", "blocks 1 to 2 are there more than once or out of order"),
        ("run/a/log/7-000001.oml", "block 3 is there more than once or out of order"),
    ]


def test_damage_says_what_was_readable() -> None:
    inventory = take_inventory([mesh("a"), segment(0, [0, 2], damage=damage(torn=False))])
    what = "damaged: 40 of 100 bytes from byte 60 on are damaged; 2 blocks are readable"
    assert told(inventory) == [("run/a/log/7-000000.oml", what)]


def test_a_torn_end_is_normal_in_the_last_segment_and_damage_in_another() -> None:
    torn = segment(0, [0], damage=damage(torn=True))
    last = take_inventory([mesh("a"), torn])
    assert last.problems == () and [problem.path for problem in last.torn] == ["run/a/log/7-000000.oml"]
    earlier = take_inventory([mesh("a"), torn, segment(1, [1])])
    assert [what.partition(":")[0] for _, what in told(earlier)] == ["damaged"] and earlier.torn == ()


def test_a_router_of_the_mesh_without_a_log_is_missing() -> None:
    inventory = take_inventory([mesh("a", "b"), segment(0, [0])])
    assert told(inventory) == [("run/b/log", "router b has no log")]


def test_an_incarnation_that_others_met_must_have_left_a_log() -> None:
    met = row(Event.CONTACT, peer="b", detail='{"incarnation": 8}')
    homed = row(Event.ATTACHED, home="c.9", epoch_hlc=5)
    inventory = take_inventory([mesh("a"), segment(0, [0]), met, homed])
    assert [path for path, _ in told(inventory)] == ["b.8", "c.9"]


def test_without_a_readable_mesh_file_nobody_knows_which_routers_there_were() -> None:
    assert [path for path, _ in told(take_inventory([segment(0, [0])]))] == ["mesh.json"]
    garbage = row(MESH, detail=json.dumps({"path": "run/mesh.json", "text": "{"}))
    assert [path for path, _ in told(take_inventory([garbage, segment(0, [0])]))] == ["run/mesh.json"]


def test_names_that_clients_choose_do_nothing_to_the_terminal() -> None:
    detail = json.dumps({"container": "x\x1b[2J", "link": "y\n", "address": "\u202ez"})
    clients = find_clients([row(Event.ATTACHED, publisher="12 bytes", detail=detail)], [])
    assert clients.publishers["12 bytes"].identity == r"x\x1b[2J/y\n on \u202ez"


def wholes(*rows: ControlRow) -> dict[str, bool]:
    return {log.source: log.whole for log in take_inventory(rows).logs}


def test_a_killed_writers_log_is_whole_if_its_kernel_is_known_to_have_gone_on() -> None:
    killed = segment(0, [0, 1, 2], last_time=5, written=2, boot="x")
    assert wholes(killed) == {"a": False}
    assert wholes(killed, segment(0, [0], "b", stopped=True, boot="x", written=1)) == {"a": True, "b": True}


def test_a_killed_writers_log_may_lack_its_end_if_nobody_of_its_boot_has_ended_cleanly_after_it() -> None:
    killed = segment(0, [0, 1], last_time=5, written=2, boot="x")
    others = {
        "still runs": segment(0, [0], "b", boot="x", written=1),
        "another boot": segment(0, [0], "b", stopped=True, boot="y", written=1),
        "ended before": segment(0, [0], "b", stopped=True, boot="x", written=1, last_time=4),
    }
    for other in others.values():
        assert not wholes(killed, other)["a"]


def test_a_killed_writers_log_may_lack_its_end_if_that_was_not_saved_or_is_not_here() -> None:
    witness = segment(0, [0], "b", stopped=True, boot="x", written=1)
    unsaved = {
        "no tail": segment(0, [0, 1]),
        "a tail that cannot be read": segment(0, [0, 1], boot="x", written=None),
        "blocks that it had written are not there": segment(0, [0, 1], boot="x", written=3),
        "no boot that can be told": segment(0, [0, 1], boot="", written=2),
    }
    for log in unsaved.values():
        assert not wholes(log, witness)["a"]


def test_directories_of_two_meshes_are_not_judged_as_one() -> None:
    rows = [
        row(MESH, detail=json.dumps({"path": f"{name}/mesh.json", "text": json.dumps({"mesh": name, "routers": {}})}))
        for name in ("line", "line", "triangle")
    ]
    assert take_inventory(rows[:2]).problems == ()
    with pytest.raises(AuditError, match=r"^line/mesh\.json belongs to mesh 'line', triangle/mesh\.json to"):
        take_inventory(rows)
