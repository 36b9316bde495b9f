"""The commands `oncemesh queue`, with a mesh of which every router answers by its own management agent."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from failover.cli.clients import attached
from failover.cli.watch import asking, replica_sets
from failover.cli.watch import queue as commands
from failover.cli.watch.mesh_client import Main
from router.amqp.format.message import data_message
from router.amqp.format.sections import write_message
from router.cli.main import main
from router.entities.queues import SETTINGS
from router.mesh.shown.sets import ShownSet
from router.queues.dead_letter import dead_letter
from tests.router.agreeing import AgreeingMesh, AskingMesh, Behind
from tests.topic.queues.test_messages import ONE
from topic.queues.leader.egress import Resting
from topic.queues.operations import Configure, Declare, Delete, Done, QueueSettings
from topic.queues.outgoing.outbox import Why
from topic.queues.proposals import Dequeue, Enqueue, Free, Reserve
from topic.queues.set_map import SetMap
from topic.queues.state import SetState


@pytest.fixture
def mesh(monkeypatch: pytest.MonkeyPatch) -> AgreeingMesh:
    """What the commands ask."""
    agreeing = AgreeingMesh()

    def ask_mesh(main: Main, run_dir: Path | None, urls: Any, credentials: Any) -> None:
        attached(main, AskingMesh(agreeing))

    monkeypatch.setattr(asking, "ask_mesh", ask_mesh)
    return agreeing


def queue(*words: str) -> Result:
    return CliRunner().invoke(main, ["queue", *words])


def done(*words: str) -> str:
    result = queue(*words)
    assert result.exit_code == 0, result.output
    return result.output


def listed(*words: str) -> str:
    """What `list` prints, without its warnings."""
    result = queue("list", *words)
    assert result.exit_code == 0, result.output
    return result.stdout


def failed(*words: str) -> str:
    result = queue(*words)
    assert result.exit_code == 1, result.output
    assert result.output.startswith("Error: ") and result.output.count("\n") == 1
    return result.output.removeprefix("Error: ").strip()


def test_a_queue_lives_from_its_declaration_to_its_deletion(mesh: AgreeingMesh) -> None:
    told = done("declare", "queue/eu/orders", "--limit-messages", "100", "--limit-bytes", "64MiB")
    assert told == "queue queue/eu/orders is declared in set eu: limit-messages 100, limit-bytes 64MiB\n"
    assert done("declare", "queue/eu/orders", "--limit-bytes", "64MiB", "--limit-messages", "100") == told
    told = done("configure", "queue/eu/orders", "--limit-messages", "5")
    assert told == "queue queue/eu/orders is configured in set eu: limit-messages 5, limit-bytes 64MiB\n"
    told = done("configure", "queue/eu/orders", "--limit-messages", "none", "--limit-bytes", "none")
    assert told == "queue queue/eu/orders is configured in set eu: no settings\n"
    assert done("delete", "queue/eu/orders") == "queue queue/eu/orders is deleted\n"
    assert listed() == "no queue is declared\n"
    kinds = [type(operation) for _, operation in mesh.changes]
    assert kinds == [Declare, Declare, Configure, Configure, Delete]


def test_a_queue_limits_the_time_of_its_messages(mesh: AgreeingMesh) -> None:
    told = done("declare", "queue/eu/orders", "--ttl", "1.5m")
    assert told == "queue queue/eu/orders is declared in set eu: ttl 90s\n"
    assert done("configure", "queue/eu/orders", "--ttl", "none").endswith(": no settings\n")


def test_a_queue_is_bound_to_topics_and_bound_no_more(mesh: AgreeingMesh) -> None:
    told = done("declare", "queue/eu/orders", "--bind", "topic/x", "--bind", "topic/eu/*", "--limit-messages", "5")
    assert told == "queue queue/eu/orders is declared in set eu: limit-messages 5, bind topic/eu/* topic/x\n"
    told = done("configure", "queue/eu/orders", "--limit-messages", "none")
    assert told == "queue queue/eu/orders is configured in set eu: bind topic/eu/* topic/x\n"
    assert "topic/eu/*" in listed()
    told = done("configure", "queue/eu/orders", "--bind", "none")
    assert told == "queue queue/eu/orders is configured in set eu: no settings\n"


def test_a_queue_gives_its_dead_letters_away(mesh: AgreeingMesh) -> None:
    told = done("declare", "queue/eu/orders", "--dead-letter", "queue/eu/dead", "--redeliveries", "0")
    assert told == "queue queue/eu/orders is declared in set eu: dead-letter queue/eu/dead, redeliveries 0\n"
    told = done("configure", "queue/eu/orders", "--redeliveries", "none")
    assert told == "queue queue/eu/orders is configured in set eu: dead-letter queue/eu/dead\n"
    assert "dead-letter" in listed() and "queue/eu/dead" in done("show", "queue/eu/orders")
    told = done("configure", "queue/eu/orders", "--dead-letter", "none")
    assert told == "queue queue/eu/orders is configured in set eu: no settings\n"
    for address, why in (("topic/*", "is a pattern"), ("_sets/eu/in/queue/eu/x", "inside a replica set")):
        result = queue("declare", "queue/eu/x", "--dead-letter", address)
        assert result.exit_code == 2 and why in " ".join(result.output.split())


def test_a_queue_has_one_consumer_at_a_time(mesh: AgreeingMesh) -> None:
    told = done("declare", "queue/eu/orders", "--single-active")
    assert told == "queue queue/eu/orders is declared in set eu: single-active\n"
    assert done("declare", "queue/eu/orders", "--single-active") == told
    told = done("configure", "queue/eu/orders", "--no-single-active")
    assert told == "queue queue/eu/orders is configured in set eu: no settings\n"


def test_dead_letters_go_back(mesh: AgreeingMesh) -> None:
    done("declare", "queue/eu/dead")
    text = dead_letter(data_message(b"1"), "queue/eu/orders", Why.REJECTED, 0)
    assert text is not None
    mesh.propose("eu", Enqueue("queue/eu/dead", (), (), [text, text, data_message(b"1")]))
    assert done("retry", "queue/eu/dead", "--count", "1") == "queue queue/eu/dead: 1 message went back, 0 stayed\n"
    assert json.loads(done("retry", "queue/eu/dead", "--json"))["stayed"] == 1
    assert "2 messages in the outbox" in done("show", "queue/eu/dead")
    assert failed("retry", "queue/eu/y").startswith("there is no queue queue/eu/y")


def test_any_router_changes_a_queue_of_which_it_has_no_replica(mesh: AgreeingMesh) -> None:
    """Router a, which is asked, is none of the set of the hash."""
    done("declare", "queue/orders")
    done("configure", "queue/orders", "--limit-messages", "5")
    done("delete", "queue/orders")
    assert [router for router, _ in mesh.changes] == ["a", "a", "a"] and not [*mesh.lists["q0"]]


def test_a_queue_that_differs_is_left_as_it_is(mesh: AgreeingMesh) -> None:
    done("declare", "queue/x", "--limit-messages", "5")
    told = failed("declare", "queue/x")
    assert told == 'queue "queue/x" exists with limit-messages 5, expected no settings'
    [known] = mesh.lists["q0"]
    assert known.settings == QueueSettings(limit_messages=5)


def test_the_list_has_each_queue_once_as_its_leader_knows_it(mesh: AgreeingMesh) -> None:
    done("declare", "queue/eu/b", "--limit-messages", "5")
    mesh.behind["b", "eu"] = Behind(SetState(mesh.lists["eu"].rows), 2)
    done("delete", "queue/eu/b")
    done("declare", "queue/eu/c", "--limit-messages", "7")
    done("declare", "queue/a")
    lines = [line.split() for line in listed().splitlines()]
    assert lines == [
        ["Queue", "Set", "Leader", "Messages", "Bytes", "Oldest", "Consumers", "Settings"],
        lines[1],
        ["queue/a", "q0", "b", "0", "0", "B", "0", "no", "settings"],
        ["queue/eu/c", "eu", "a", "0", "0", "B", "0", "limit-messages", "7"],
    ]
    rows = json.loads(listed("--json"))
    assert [(row["name"], row["set"], row["leader"], row["settings"]) for row in rows] == [
        ("queue/a", "q0", "b", {}), ("queue/eu/c", "eu", "a", {"limit_messages": 7}),
    ]  # fmt: skip
    assert failed("show", "queue/eu/b") == "there is no queue queue/eu/b; did you mean queue/eu/c?"


def test_without_a_leader_the_router_that_has_most_is_believed(mesh: AgreeingMesh) -> None:
    done("declare", "queue/eu/x")
    mesh.behind["a", "eu"] = mesh.behind["c", "eu"] = Behind(SetState(), 1)
    del mesh.leaders["eu"]
    [row] = json.loads(listed("--json"))
    assert (row["name"], row["leader"]) == ("queue/eu/x", None)
    assert "none" in listed()


def test_a_router_that_does_not_answer_is_left_out(mesh: AgreeingMesh) -> None:
    done("declare", "queue/x")
    mesh.absent.add("c")
    shown = json.loads(done("show", "queue/x", "--json"))
    assert [*shown["replicas"]] == ["a", "b", "d"] and shown["leader"] == "b"
    assert shown["replicas"]["b"]["may_stop"] == ["c"]
    table = {line.split()[0]: line.split() for line in done("show", "queue/x").splitlines()[3:]}
    assert table["b"][1:] == ["leader", "3", "2", "2", "0", "B", "no"]


def test_show_has_the_replicas_of_the_set(mesh: AgreeingMesh) -> None:
    mesh.behind["c", "eu"] = Behind(SetState(), 1)
    mesh.aside["c", "eu"] = "its disk has lost entries"
    done("declare", "queue/eu/x", "--limit-messages", "5")
    first, second, third, fourth, _, _, *rows = done("show", "queue/eu/x").splitlines()
    assert first == "queue/eu/x: limit-messages 5"
    assert second == f"id {next(iter(mesh.lists['eu'])).id}, in set eu, led by router a, moves: prefer"
    assert third == "0 messages, 0 B; 0 of them reserved for consumers"
    counts = "0 came, 0 left, 0 were given back, 0 were purged, 0 expired, 0 were dead letters"
    assert fourth == f"0 consumers; since router a leads, {counts}"
    assert [row.split() for row in rows[:4]] == [
        ["a", "leader", "3", "2", "2", "0", "B", "yes"],
        ["b", "follower", "3", "2", "2", "0", "0", "B", "yes"],
        ["c", "follower", "3", "1", "1", "1", "0", "B", "yes"],
        ["d", "proxy", "3", "2", "2", "0", "B", "yes"],
    ]
    assert rows[4] == "router c set its store aside: its disk has lost entries"


def used(mesh: AgreeingMesh, name: str) -> None:
    """The queue has three messages, of which one is reserved, after one was given back and one was taken."""
    asked = Enqueue(name, (), (), [b"a", b"b", b"c", b"d"])
    mesh.propose("eu", asked)
    [queue] = [queue for queue in mesh.lists["eu"] if queue.name == name]
    first, second = [*mesh.lists["eu"].messages.of(queue.id)][:2]
    for proposal in (
        Reserve(queue.id, ONE, [(first, second)]),
        Free(queue.id, [(first, first)], failed=False),
        Dequeue(queue.id, [(first, first)]),
    ):
        mesh.propose("eu", proposal)
    mesh.consumers[name] = 2
    mesh.oldest_s = 125.0


def test_what_is_in_a_queue_and_what_has_passed_is_shown(mesh: AgreeingMesh) -> None:
    done("declare", "queue/eu/x")
    used(mesh, "queue/eu/x")
    assert listed().splitlines()[2].split() == [
        *("queue/eu/x", "eu", "a", "3", "3", "B", "2m", "5s", "2", "no", "settings")
    ]
    _, _, third, fourth, *_ = done("show", "queue/eu/x").splitlines()
    assert third == "3 messages, 3 B; 1 of them reserved for consumers; the oldest is 2m 5s old or older"
    counts = "4 came, 1 left, 1 were given back, 0 were purged, 0 expired, 0 were dead letters"
    assert fourth == f"2 consumers; since router a leads, {counts}"
    [row] = json.loads(listed("--json"))
    figures = {"messages": 3, "bytes": 3, "reserved": 1, "consumers": 2, "oldest_s": 125.0}
    assert row.items() >= {**figures, "enqueued": 4, "dequeued": 1, "given_back": 1}.items()
    mesh.resting = Resting(2, 1)
    _, _, third, *_ = done("show", "queue/eu/x").splitlines()
    assert "1 of them reserved for consumers, 2 paused after a failure, 1 scheduled for later; the oldest" in third
    [row] = json.loads(listed("--json"))
    assert row.items() >= {"paused": 2, "scheduled": 1}.items()
    del mesh.leaders["eu"]
    [row] = json.loads(listed("--json"))
    assert row["paused"] is row["scheduled"] is None
    assert row.items() >= {"messages": 3, "consumers": 2, "oldest_s": None, "enqueued": None}.items()
    assert listed().splitlines()[2].split() == [*("queue/eu/x", "eu", "none", "3", "3", "B", "2", "no", "settings")]
    assert done("show", "queue/eu/x").splitlines()[2:4] == [
        "3 messages, 3 B; 1 of them reserved for consumers", "2 consumers"
    ]  # fmt: skip


def test_a_purge_takes_what_no_consumer_has(mesh: AgreeingMesh) -> None:
    done("declare", "queue/eu/x")
    assert done("purge", "queue/eu/x") == "queue queue/eu/x: 0 messages purged\n"
    used(mesh, "queue/eu/x")
    assert done("purge", "queue/eu/x") == "queue queue/eu/x: 2 messages purged\n"
    assert json.loads(done("purge", "queue/eu/x", "--json"))["purged"] == 0
    assert (
        done("show", "queue/eu/x")
        .splitlines()[3]
        .endswith("4 came, 1 left, 1 were given back, 2 were purged, 0 expired, 0 were dead letters")
    )
    assert failed("purge", "queue/eu/y") == "there is no queue queue/eu/y; did you mean queue/eu/x?"


def test_the_first_messages_are_shown(mesh: AgreeingMesh) -> None:
    done("declare", "queue/eu/x")
    assert done("peek", "queue/eu/x") == "no messages\n"
    head = {"properties": {"subject": "new\norder"}, "application-properties": {"a": 1}}
    messages = [write_message({**head, "data": b"one\x1b[2J"}), b"strange", *[data_message(b"x" * 9000)] * 120]
    mesh.propose("eu", Enqueue("queue/eu/x", (), (), messages))
    [queue] = mesh.lists["eu"]
    first, second, third, *_ = mesh.lists["eu"].messages.of(queue.id)
    mesh.propose("eu", Reserve(queue.id, ONE, [(first, second)]))
    mesh.propose("eu", Free(queue.id, [(second, second)], failed=True))
    assert done("peek", "queue/eu/x", "--count", "2").splitlines() == [
        f"{first}: {len(messages[0])} B, at consumer one",
        "  properties",
        "    subject: new\\norder",
        "  application-properties",
        "    a: 1",
        "  body: 7 bytes",
        "    one\\x1b[2J",
        f"{second}: 7 B, failed 1 times, cannot be read as an AMQP message",
    ]
    assert f"{third}: 8.8 KiB, shortened\n" in done("peek", "queue/eu/x", "--from", str(third))
    rows = json.loads(done("peek", "queue/eu/x", "--count", "1000", "--json"))
    assert [row["position"] for row in rows] == [*mesh.lists["eu"].messages.of(queue.id)], "page by page"
    assert rows[0]["message"] == {**head, "body": "one\x1b[2J"} and rows[1]["message"] is None
    del mesh.leaders["eu"]
    told = "set eu has no leader now, so nobody knows what is in queue queue/eu/x"
    assert failed("peek", "queue/eu/x") == told
    told = "no router that answers knows queue queue/eu/y, and no router leads replica set eu"
    assert failed("peek", "queue/eu/y") == told


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_long_name_is_folded_where_the_terminal_is_narrow(
    width: int, mesh: AgreeingMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "console", lambda: Console(width=width))
    name = "queue/eu/" + "x" * 150
    done("declare", name, "--limit-messages", "5", "--limit-bytes", "1KiB")
    used(mesh, name)
    text = listed()
    assert max(map(len, text.splitlines())) <= width
    assert "".join(text.split()).count("x") >= 150 and "2m 5s" in text
    assert ("no room for Set" in text) == (width == 80)


def test_programs_read_what_changes_print(mesh: AgreeingMesh) -> None:
    declared = json.loads(done("declare", "queue/x", "--limit-bytes", "1KiB", "--json"))
    assert declared == {"name": "queue/x", "id": declared["id"], "set": "q0", "settings": {"limit_bytes": 1024}}
    configured = json.loads(done("configure", "queue/x", "--limit-bytes", "none", "--json"))
    assert configured == {**declared, "settings": {}}
    assert json.loads(done("delete", "queue/x", "--json"))["id"] == declared["id"]


def test_an_unknown_queue_is_told_with_those_that_it_may_be(mesh: AgreeingMesh) -> None:
    hint = "no queue is declared: use oncemesh queue declare"
    assert failed("delete", "queue/x") == f"there is no queue queue/x; {hint}"
    for name in ("queue/orders", "queue/eu/orders", "queue/bills"):
        done("declare", name)
    told = failed("configure", "queue/oders", "--limit-messages", "1")
    assert told == "there is no queue queue/oders; did you mean queue/orders or queue/eu/orders?"
    assert failed("show", "zzz") == "there is no queue zzz; oncemesh queue list shows all 3"


def test_without_a_majority_the_error_says_how_long_it_was_tried(mesh: AgreeingMesh) -> None:
    done("declare", "queue/eu/x")
    del mesh.leaders["eu"]
    for words in (
        ("declare", "queue/eu/y"),
        ("configure", "queue/eu/x", "--limit-messages", "1"),
        ("delete", "queue/eu/x"),
        ("purge", "queue/eu/x"),
    ):
        assert failed(*words) == "no router led set eu, for 10 s"
    listed = queue("list")
    assert listed.stderr == "warning: no router leads replica set eu: this list may lack queues\n"
    assert "queue/eu/x" in listed.stdout
    told = failed("show", "queue/eu/y")
    assert told == "no router that answers knows queue queue/eu/y, and no router leads replica set eu"
    assert failed("declare", "topic/x") == 'no replica set may have a queue "topic/x"'


def test_a_queue_that_was_deleted_by_a_first_request_is_deleted(
    mesh: AgreeingMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer was lost with the router that was asked, and the client asks another one."""
    done("declare", "queue/x")
    decide = AgreeingMesh.decide

    def twice(self: AgreeingMesh, router: str, operation: Any) -> Any:
        assert isinstance(decide(self, router, operation), Done)
        return decide(self, router, operation)

    monkeypatch.setattr(AgreeingMesh, "decide", twice)
    assert done("delete", "queue/x") == "queue queue/x is deleted\n"


def test_a_mesh_without_queues_says_so(mesh: AgreeingMesh) -> None:
    mesh.map = SetMap([])
    assert failed("list") == "this mesh has no replica sets, expected the part `queues` in its topology"


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--limit-messages", "0"), "expected a whole number from 1 to"),
        (("--limit-messages", "many"), 'many", expected a whole number from 1 to 999999999999, or none for no limit'),
        (("--limit-bytes", "64MB"), "such as 100B, 64KiB or 16MiB, or none for no limit"),
        (
            ("--ttl", "5"),
            "is not a duration, expected a number above 0 and a unit, such as 200ms, 2s, 5m or 1h, or none",
        ),
        (("--limit-bytes", "0"), "limit_bytes of a queue is 0, expected a number from 1"),
        (("--limit-message", "5"), "--limit-messages"),
        (("--retry-factor", "2"), "retry-factor 2 has no effect without retry-after, expected both"),
        (("--retry-after", "5s", "--retry-most", "1s"), "retry-most 1s is below retry-after 5s, expected at least"),
        (
            ("--bind", "topic/#/x"),
            'bind of a queue has "topic/#/x", expected "#" as the last word only, or none for no',
        ),
        (
            (),
            "there is nothing to change, expected --limit-messages, --limit-bytes, --ttl, --bind, --dead-letter, "
            "--redeliveries, --lock, --retry-after, --retry-factor, --retry-most, --single-active or --exclusive",
        ),
    ],
)
def test_a_wrong_setting_is_told_with_what_was_expected(words: tuple[str, ...], what: str, mesh: AgreeingMesh) -> None:
    done("declare", "queue/x")
    mesh.changes.clear()
    result = queue("configure", "queue/x", *words)
    assert result.exit_code == 2 and what in result.output
    assert mesh.changes == []


def test_each_setting_of_a_queue_has_an_option() -> None:
    """All but those that a router sets for a client's temporary queue."""
    options = {param.name for param in commands.declare.params}
    assert {one.name for one in SETTINGS} - {"temporary", "held_by"} == {*commands.READERS, *commands.FLAGS} <= options


@pytest.mark.parametrize("name", commands.queue.commands)
def test_each_command_has_help_with_examples_that_can_be_typed(name: str) -> None:
    text = CliRunner().invoke(main, ["queue", name, "--help"]).output
    [examples] = re.findall(r"Examples?:\s+(.*?)\n\n", text, re.DOTALL)
    for line in examples.splitlines():
        oncemesh, group, command, *words = shlex.split(line.partition(" | ")[0])
        assert (oncemesh, group, command) == ("oncemesh", "queue", name)
        commands.queue.commands[name].make_context(name, words)


# replica sets


def test_the_sets_are_listed_with_their_voters(mesh: AgreeingMesh) -> None:
    mesh.absent.add("c")
    done("declare", "queue/eu/x")
    rows = [line.split() for line in done("sets").splitlines() if line.strip()]
    assert rows[0] == ["Set", "Prefix", "Leader", "Voters", "Needs", "Queues"]
    assert rows[2] == ["eu", "queue/eu/", "a", "a,", "b,", "c", "a,", "b", "1"]
    assert rows[3] == ["q0", "b", "b,", "c,", "d", "b,", "d", "0"]
    told = {row["name"]: row for row in json.loads(done("sets", "--json"))}
    assert told["eu"]["needs"] == ["a", "b"] and told["q0"]["leader"] == "b"


def test_an_operator_chooses_the_voters_of_a_set(mesh: AgreeingMesh) -> None:
    assert done("voters", "q0", "b", "a").startswith(
        "set q0 has the voters b, a\nwarning: a set of two voters needs both"
    )
    assert mesh.voters["q0"] == ("b", "a")
    assert failed("voters", "q1", "a").startswith("there is no replica set q1, expected eu or q0")
    assert failed("voters", "q0", "a", "z") == "set q0: there is no router {'z'}"
    del mesh.leaders["q0"]
    assert failed("voters", "q0", "a").startswith("no router leads set q0: a majority of its voters has to be")


def test_an_operator_gives_a_set_other_replicas(mesh: AgreeingMesh) -> None:
    told = "set q0 has the voters c, d, a\n"
    assert done("replicas", "q0", "--add", "a", "--remove", "b") == told
    assert mesh.voters["q0"] == ("c", "d", "a")
    assert done("replicas", "q0", "--add", "a", "--remove", "b") == told, "the command was interrupted"
    assert done("replicas", "q0", "--remove", "d", "--remove", "a") == "set q0 has the voters c\n"
    first, *more = done("replicas", "q0", "--add", "b", "--no-wait").splitlines()
    assert first.startswith("set q0 is changing its voters to c, b: see")
    assert more == ["warning: a set of two voters needs both: q0 stops if one of c, b does"]


def test_an_operator_has_routers_keep_asynchronous_copies(mesh: AgreeingMesh) -> None:
    assert done("replicas", "eu", "--async", "d") == "set eu has the voters a, b, c and asynchronous copies at d\n"
    assert mesh.copies["eu"] == ("d",) and mesh.voters["eu"] == ("a", "b", "c")
    assert "~d" in done("sets")
    assert failed("replicas", "eu", "--add", "d", "--async", "d").startswith("router d is in --add and in --async")
    assert done("replicas", "eu", "--async", "c").startswith(
        "set eu has the voters a, b and asynchronous copies at d, c"
    )
    assert done("replicas", "eu", "--add", "c", "--remove", "d") == "set eu has the voters a, b, c\n"
    assert not mesh.copies["eu"]


def test_replicas_that_cannot_be_are_refused(mesh: AgreeingMesh) -> None:
    former = dict(mesh.voters)
    assert queue("replicas", "q0").exit_code == 2
    assert failed("replicas", "q1", "--add", "a").startswith("there is no replica set q1, expected eu or q0")
    assert failed("replicas", "q0", "--add", "z") == 'there is no router "z" in this mesh, expected a, b, c or d'
    assert failed("replicas", "q0", "--remove", "z") == 'there is no router "z" in this mesh, expected a, b, c or d'
    assert failed("replicas", "q0", "--add", "b", "--remove", "b").startswith("router b is in --add and in --remove")
    assert failed("replicas", "q0", "--remove", "a").startswith("router a is no voter of set q0, expected b, c or d")
    assert failed("replicas", "q0", "--add", "a", "--remove", "d", "--remove", "c", "--remove", "a").startswith(
        "router a"
    )
    every = [word for router in "bcd" for word in ("--remove", router)]
    assert failed("replicas", "q0", *every).startswith("set q0 would have no voter")
    mesh.absent.add("a")
    assert failed("replicas", "q0", "--add", "a") == "router a does not answer: start it, or name another router"
    mesh.absent = {"d"}
    told = failed("replicas", "q0", "--remove", "c")
    assert told.startswith("set q0 would have the voters b, d, of which d do not answer: no majority would be left")
    mesh.changing["q0"] = ("b", "c")
    told = failed("replicas", "q0", "--add", "a")
    assert told.startswith("set q0 is changing its voters to b, c, d: wait until it is done, or name all voters with")
    mesh.changing.clear()
    del mesh.leaders["q0"]
    assert failed("replicas", "q0", "--add", "a").startswith("no router leads set q0: a majority of its voters has")
    assert mesh.voters == former


def test_it_is_told_how_much_a_new_replica_has(mesh: AgreeingMesh) -> None:
    done("declare", "queue/eu/x")
    mesh.copied["eu"] = {"c": 37}
    [eu] = [line.split() for line in done("sets").splitlines() if "queue/eu/" in line]
    assert eu[3:7] == ["a,", "b,", "c", "37%"]
    assert [line.split()[6] for line in done("show", "queue/eu/x").splitlines() if line.split()[:1] == ["c"]] == ["37%"]


def test_an_operator_moves_the_leader_of_a_set(mesh: AgreeingMesh) -> None:
    assert failed("move", "q0", "a") == "router a is no voter of set q0, expected b, c or d"
    for router in ("c", "d"):
        assert done("move", "q0", router) == f"set q0 is led by router {router}\n"
        [led] = [one for one in json.loads(done("sets", "--json")) if one["name"] == "q0"]
        assert led["leader"] == led["ring"][0] == router


def test_an_operator_replaces_a_voter_in_all_sets(mesh: AgreeingMesh) -> None:
    """Each set gets the first of the named routers that it lacks, also where the leader is replaced."""
    told = done("replace", "b", "d", "a")
    assert told == "set eu has the voters a, d, c\nset q0 has the voters a, c, d\n"
    assert mesh.voters == {"eu": ("a", "d", "c"), "q0": ("a", "c", "d")}
    assert failed("replace", "b", "a") == "router b is no voter of any replica set, expected a, c or d"


def test_a_replacement_that_was_interrupted_is_repeated(mesh: AgreeingMesh) -> None:
    done("voters", "eu", "a", "d", "c")
    assert done("replace", "b", "a") == "set q0 has the voters a, c, d\n"


def test_nothing_is_replaced_if_one_set_cannot(mesh: AgreeingMesh) -> None:
    former = dict(mesh.voters)
    already = "router d is a voter of replica set q0 already, for example use oncemesh queue replace c d a"
    assert failed("replace", "c", "d") == already
    already = "routers a, b are voters of replica set eu already, for example use oncemesh queue replace c d a"
    assert failed("replace", "c", "a", "b") == already
    assert failed("replace", "c", "z") == 'there is no router "z" in this mesh, expected a, b, c or d'
    mesh.absent.add("d")
    assert failed("replace", "c", "d", "a") == "router d does not answer: start it, or name another router"
    mesh.absent.clear()
    del mesh.leaders["q0"]
    assert failed("replace", "c", "d", "a").startswith("no router leads set q0: a majority of its voters has to be")
    assert mesh.voters == former


def test_where_each_router_is_a_voter_fewer_can_be_chosen(mesh: AgreeingMesh) -> None:
    done("voters", "eu", "a", "b", "c", "d")
    assert failed("replace", "c", "d").endswith("already, for example use oncemesh queue voters eu a b d")


def test_a_change_that_takes_long_is_told(mesh: AgreeingMesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_sets, "DONE_S", 0.01)
    monkeypatch.setattr(ShownSet, "has_members", lambda one, voters: False)
    told = failed("voters", "q0", "b", "a")
    assert told == "set q0 is changing its voters, and nothing has changed for 10ms: see oncemesh queue sets"


def test_an_operator_begins_a_set(mesh: AgreeingMesh) -> None:
    assert failed("begin", "eu") == "set eu has begun, and router a leads it"
    mesh.unbegun.add("eu")
    del mesh.leaders["eu"]
    mesh.absent.add("d")
    told = failed("begin", "eu")
    assert told == "router d does not answer and may have set eu already: start it, or use --may-lose"
    assert done("begin", "eu", "--may-lose") == "set eu has begun, led by router a\n"


def test_an_operator_begins_a_set_that_one_router_knows_without_an_entry(mesh: AgreeingMesh) -> None:
    """The other routers have lost their stores."""
    del mesh.leaders["eu"]
    mesh.empty["eu"] = "c"
    assert done("begin", "eu") == "set eu has begun, led by router c\n"


def test_an_operator_recovers_a_set_from_one_store(mesh: AgreeingMesh) -> None:
    assert failed("recover", "eu", "--from", "c", "--may-lose") == "router a leads set eu: it needs no recovery"
    del mesh.leaders["eu"]
    mesh.behind["c", "eu"] = Behind(SetState(), 0)
    told = failed("recover", "eu", "--from", "d", "--may-lose")
    assert told == "router d has no replica of set eu, expected a, b or c"
    told = failed("recover", "eu", "--from", "c")
    has = "a has term 3, 1 entries; b has term 3, 1 entries; c has term 3, 0 entries"
    assert told == f"{has}: what only other routers have will be lost, expected --may-lose to confirm that"
    assert "eu" not in mesh.leaders
    told = done("recover", "eu", "--from", "c", "--may-lose")
    assert told == "set eu goes on with the store of router c, led by router c\n"
