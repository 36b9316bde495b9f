"""The part `queues` of a topology file: which replica sets a good one gives, and what is said about a bad one."""

from pathlib import Path

import pytest

from router.mesh.config import NamedSet, Queues, Topology
from router.mesh.planned import sets_of
from router.mesh.topology import TopologyError, load
from topic.queues.moving.policy import FOLLOW, PREFERS, SHARE, MovePolicy

ROUTERS = """\
mesh: three
routers:
  a: {amqp: 127.0.0.1:5672}
  b: {amqp: 127.0.0.1:5673}
  c: {amqp: 127.0.0.1:5674}
links: [[a, b], [b, c]]
addresses: [{prefix: topic/, kind: topic}, {prefix: queue/, kind: queue}]
"""
LINE = ROUTERS.count("\n") + 1
"""Of what is added to it."""


def read(folder: Path, text: str) -> Topology:
    path = folder / "mesh.yaml"
    path.write_text(text)
    return load(path)


def complaints(folder: Path, text: str) -> list[str]:
    """What is said about a bad file, without the folder's name."""
    with pytest.raises(TopologyError) as caught:
        read(folder, text)
    return [message.replace(f"{folder}/", "") for message in caught.value.messages]


def test_a_full_part_is_read_as_written(tmp_path: Path) -> None:
    text = """\
queues:
  sets: 4
  replicas: 1
  sync: memory
  limit: 2GiB
  named:
    - {name: west, prefix: queue/eu/west/, voters: [c]}
    - {name: eu, prefix: queue/eu/, voters: [a], async: [b, c]}
"""
    assert read(tmp_path, ROUTERS + text).queues == Queues(
        4,
        1,
        "memory",
        2 << 30,
        (NamedSet("west", "queue/eu/west/", ("c",)), NamedSet("eu", "queue/eu/", ("a",), copies=("b", "c"))),
    )


def test_a_mesh_has_queues_only_if_its_file_has_the_part(tmp_path: Path) -> None:
    topology = read(tmp_path, ROUTERS.replace(", {prefix: queue/, kind: queue}", ""))
    assert topology.queues is None
    assert not sets_of(topology).plans
    assert read(tmp_path, ROUTERS + "queues: {}\n").queues == Queues(8, 3, "disk", 8 << 30, ())


def test_the_sets_are_the_named_ones_then_the_hashed_ones(tmp_path: Path) -> None:
    text = "queues: {sets: 2, replicas: 2, named: [{name: eu, prefix: queue/eu/, voters: [a, b, c], prefer: c}]}\n"
    sets = sets_of(read(tmp_path, ROUTERS + text))
    assert {name: plan.voters for name, plan in sets.plans.items()} == {
        "eu": ("c", "a", "b"),  # the preferred voter is the first
        "q0": ("a", "b"),
        "q1": ("b", "c"),
    }
    eu = sets.plan_of("queue/eu/orders")
    assert eu is not None and eu.name == "eu"
    assert sets.plan_of("queue/us/orders") in (sets.plans["q0"], sets.plans["q1"])
    assert sets.plan_of("topic/orders") is None, "no address of kind queue begins so"


def test_a_named_set_says_how_its_lead_moves(tmp_path: Path) -> None:
    x, y, z = (f"name: {name}, prefix: queue/{name}/, voters: [a, b, c]" for name in "xyz")
    text = named(EU, f"{x}, moves: follow", f"{y}, moves: share, hold: 2s", f"{z}, moves: share")
    policies = [plan.policy for plan in sets_of(read(tmp_path, ROUTERS + text)).plans.values()]
    assert policies[:4] == [PREFERS, MovePolicy(FOLLOW), MovePolicy(SHARE, 2.0), MovePolicy(SHARE, 10.0)]
    assert {*policies[4:]} == {PREFERS}, "hashed sets have no other"


def test_a_mesh_of_fewer_routers_than_replicas_has_one_at_each(tmp_path: Path) -> None:
    text = "mesh: one\nrouters: {a: {amqp: 127.0.0.1:0}}\naddresses: [{prefix: queue/, kind: queue}]\n"
    assert {plan.voters for plan in sets_of(read(tmp_path, text + "queues: {}\n")).plans.values()} == {("a",)}


def test_replicas_for_which_routers_are_missing_are_refused_with_what_to_write(tmp_path: Path) -> None:
    text = "mesh: one\nrouters: {a: {amqp: 127.0.0.1:0}}\naddresses: [{prefix: queue/, kind: queue}]\n"
    assert complaints(tmp_path, text + "queues: {replicas: 3}\n") == [
        "mesh.yaml:4: queues.replicas: the mesh has 1 router, expected at most as many replicas, such as replicas: 1, "
        "not 3"
    ]


def named(*sets: str) -> str:
    return "queues:\n  named:\n" + "".join(f"    - {{{one}}}\n" for one in sets)


EU = "name: eu, prefix: queue/eu/, voters: [a, b, c]"


@pytest.mark.parametrize(
    ("part", "line", "complaint"),
    [
        pytest.param(
            "queues: 8\n",
            0,
            'queues: "8" is not a mapping, expected the keys sets, replicas, sync, limit, named',
            id="no mapping",
        ),
        pytest.param(
            "queues: {sets: 0}\n", 0, 'queues.sets: "0", expected a whole number from 1 to 256', id="no hashed set"
        ),
        pytest.param("queues: {replicas: 0}\n", 0, 'queues.replicas: "0", expected 1, 2, 3, 5 or 7', id="no replica"),
        pytest.param(
            "queues: {replicas: 4}\n", 0, 'queues.replicas: "4", expected 1, 2, 3, 5 or 7', id="an even number"
        ),
        pytest.param(
            "queues:\n  replicas: 5\n",
            1,
            "queues.replicas: the mesh has 3 routers, expected at most as many replicas, such as replicas: 3, not 5",
            id="more replicas than routers",
        ),
        pytest.param(
            "queues: {sync: dsk}\n",
            0,
            'queues.sync: "dsk", expected disk or memory; did you mean "disk"?',
            id="another sync",
        ),
        pytest.param(
            "queues: {set: 8}\n",
            0,
            'queues: unknown key "set", expected sets, replicas, sync, limit or named; did you mean "sets"?',
            id="unknown key",
        ),
        pytest.param(
            "queues:\n  named: eu\n",
            1,
            "queues.named: not a list, "
            "expected sets such as {name: eu, prefix: queue/eu/, voters: [a, b, c], prefer: a}",
            id="named sets that are no list",
        ),
        pytest.param(
            named(f"name: {'n' * 3000}, prefix: queue/eu/, voters: [a]"),
            2,
            f'queues.named[0].name: "{"n" * 100}…" cannot name a set, expected letters, digits, - and _',
            id="a huge name",
        ),
        pytest.param(
            named(f"name: eu, prefix: {'queue/' * 43}, voters: [a]"),
            2,
            f'queues.named[0].prefix: "{("queue/" * 17)[:100]}…" is longer than any name of a queue, '
            "expected fewer than 255 bytes",
            id="a huge prefix",
        ),
        pytest.param(
            named("name: eu, prefix: queue/eu/"),
            2,
            'queues.named[0]: "voters" is missing, expected the keys name, prefix, voters, prefer, moves, hold, async',
            id="no voters",
        ),
        pytest.param(
            named("name: eu, prefix: queue/eu/, voters: []"),
            2,
            "queues.named[0].voters: 0 routers, expected 1, 2, 3, 5 or 7",
            id="an empty list of voters",
        ),
        pytest.param(
            named("name: eu, prefix: queue/eu/, voters: a"),
            2,
            'queues.named[0].voters: "a", expected the names of routers such as [a, b, c]',
            id="voters that are no list",
        ),
        pytest.param(
            named("name: eu, prefix: queue/eu/, voters: [a, b, a]"),
            2,
            'queues.named[0].voters: "a" is named twice, expected different routers',
            id="a voter named twice",
        ),
        pytest.param(
            named("name: eu, prefix: queue/eu/, voters: [a, b, z]"),
            2,
            'queues.named[0].voters: there is no router "z", expected a, b or c',
            id="an unknown voter",
        ),
        pytest.param(
            named(EU.replace("b, c", "b") + ", prefer: c"),
            2,
            'queues.named[0].prefer: "c" is no voter of this set, expected a or b',
            id="a preferred router that is no voter",
        ),
        pytest.param(
            named(EU.replace("b, c", "b") + ", async: [b]"),
            2,
            "queues.named[0].async: router b is a voter of this set, expected routers without a vote",
            id="a copy at a voter",
        ),
        pytest.param(
            named(EU + ", async: [z]"),
            2,
            'queues.named[0].async: there is no router "z", expected a, b or c',
            id="a copy at no router",
        ),
        pytest.param(
            named(EU.replace("b, c", "b") + ", async: [c, c]"),
            2,
            'queues.named[0].async: "c" is named twice, expected different routers',
            id="a copy twice",
        ),
        pytest.param(
            named(EU + ", moves: folow"),
            2,
            'queues.named[0].moves: "folow", expected prefer, follow or share; did you mean "follow"?',
            id="an unknown policy",
        ),
        pytest.param(
            named("name: eu, prefix: queue/eu/, voters: [a], moves: follow"),
            2,
            "queues.named[0].moves: the set has one voter, which always leads, expected several voters, or prefer",
            id="a policy that has no choice",
        ),
        pytest.param(
            named(EU + ", moves: share, hold: 500ms"),
            2,
            'queues.named[0].hold: "500ms", expected 1s or more',
            id="a lead that is too short",
        ),
        pytest.param(
            named(EU + ", moves: follow, hold: 5s"),
            2,
            "queues.named[0].hold: a set with moves: follow does not share its lead, expected it with moves: share "
            "only",
            id="a time to hold a lead that is not shared",
        ),
        pytest.param(
            named(EU.replace("eu,", "e/u,")),
            2,
            'queues.named[0].name: "e/u" cannot name a set, expected letters, digits, - and _',
            id="a bad character in a name",
        ),
        pytest.param(
            named(EU.replace("eu,", "q7,")),
            2,
            'queues.named[0].name: "q7" may be the name of a hashed set (q0, q1, …), expected another name',
            id="the name of a hashed set",
        ),
        pytest.param(
            named(EU.replace("queue/eu/", "queue/e u/")),
            2,
            'queues.named[0].prefix: "queue/e u/" is not a prefix, expected the start of an address such as topic/',
            id="a bad character in a prefix",
        ),
        pytest.param(
            named(EU.replace("queue/eu/", "topic/eu/")),
            2,
            'queues.named[0].prefix: "topic/eu/" is of no queue, expected a prefix that begins with queue/',
            id="a prefix of topics",
        ),
        pytest.param(
            named(EU, EU.replace("queue/eu/", "queue/us/")),
            3,
            'queues.named[1].name: another set has the name "eu", expected different names',
            id="two sets of one name",
        ),
        pytest.param(
            named(EU, EU.replace("eu,", "us,")),
            3,
            'queues.named[1].prefix: set eu has the prefix "queue/eu/", expected different prefixes',
            id="two sets of one prefix",
        ),
        pytest.param(
            named(EU, "name: west, prefix: queue/eu/west/, voters: [a]"),
            3,
            'queues.named[1].prefix: set eu has all queues of "queue/eu/", so none is left for "queue/eu/west/", '
            "expected the longer prefix first",
            id="a set that no queue is left for",
        ),
    ],
)
def test_a_bad_part_is_explained_by_file_line_and_expectation(
    tmp_path: Path, part: str, line: int, complaint: str
) -> None:
    assert complaints(tmp_path, ROUTERS + part) == [f"mesh.yaml:{LINE + line}: {complaint}"]


def test_queues_need_an_address_of_theirs_and_such_an_address_needs_queues(tmp_path: Path) -> None:
    assert complaints(tmp_path, ROUTERS) == [
        'mesh.yaml:1: queues: the address rule "queue/" is of kind queue, and the mesh has no replica sets, expected '
        "also a part such as queues: {sets: 8, replicas: 3}"
    ]
    assert complaints(
        tmp_path, ROUTERS.replace("kind: queue", "kind: balanced") + f"queues: {{named: [{{{EU}}}]}}\n"
    ) == [
        f"mesh.yaml:{LINE}: queues: no address is of kind queue, expected also an address rule such as "
        "{prefix: queue/, kind: queue}"
    ]


def test_a_rule_that_cannot_be_read_is_told_once(tmp_path: Path) -> None:
    assert complaints(tmp_path, ROUTERS.replace("kind: queue", "kind: qeue") + "queues: {}\n") == [
        f'mesh.yaml:{LINE - 1}: addresses[1].kind: unknown kind "qeue", expected topic, balanced, closest or queue'
    ]
