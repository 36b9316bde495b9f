"""The story of one delivery: complete, in order, in plain words, and found by any unique start of its key."""

import json
from pathlib import Path

from click.testing import CliRunner, Result

from failover.audit.job import tell_story
from failover.audit.read.entries import KEYS_LISTED
from failover.audit.report.story import DeliveryStory
from router.cli.main import main
from tests.failover.audit.runs import MID, NEAR, ONE, ROUTERS, TWO, Run
from topic.journal import Event, LoggedOutcome

WHOLE = """
publisher one   published
router a        received from one/link as number 1; this router is its home
router a        owed to near/link, mid/link, far/link
router a        forwarded to router b
router b        received from its home a
router a        forwarded to router c
router c        received from its home a
router a        sent to near/link
subscriber near handed it to the application
subscriber near processed it and answered: accepted
router a        near/link answered: accepted
router b        sent to mid/link
subscriber mid  handed it to the application
subscriber mid  processed it and answered: accepted
router b        mid/link answered: accepted
router c        sent to far/link
router c        far/link answered: accepted
router a        told one/link: accepted
publisher one   learned its outcome: accepted
publisher one   settled it
router a        settled by one/link
router b        settled, as its home a said
router b        forgotten
router c        settled, as its home a said
router c        forgotten
router a        forgotten
"""


def told(found: DeliveryStory) -> str:
    return "".join(f"\n{step.where:15} {step.text}" for step in found.steps) + "\n"


def key(run: Run, tag: int = 1) -> str:
    return run.key(ONE, tag).decode()


def test_a_story_is_told_across_routers_and_clients(tmp_path: Path) -> None:
    run = Run()
    found = tell_story([str(run.write(tmp_path))], key(run))
    assert told(found) == WHOLE
    assert (found.publisher, found.address, found.notes) == (str(ONE.identity), "topic/news", ())
    assert [step.time for step in found.steps] == sorted(step.time for step in found.steps)


def test_a_unique_start_of_the_key_is_enough(tmp_path: Path) -> None:
    run = Run()
    directory = str(run.write(tmp_path))
    assert tell_story([directory], key(run)[:20]) == tell_story([directory], key(run))


def test_several_run_directories_belong_to_one_mesh(tmp_path: Path) -> None:
    run = Run()
    directory = run.write(tmp_path / "run")
    parts = [str(directory / part) for part in ("clients", *ROUTERS)]
    assert told(tell_story(parts, key(run))) == WHOLE


def test_what_happened_to_links_routers_and_the_mesh_meanwhile_is_part_of_it(tmp_path: Path) -> None:
    run = Run()
    accepted = run.find("a", Event.ACCEPTED, run.key(ONE, 1))
    run.before("a", accepted, Event.LOST, peer="c")
    run.before("a", accepted, Event.SUSPENDED, publisher=ONE.name)
    run.before("a", accepted, Event.SUSPENDED, publisher=TWO.name)  # had nothing to do with it
    directory = run.write(tmp_path)
    at_us = accepted["time_us"]
    fault = {"fault": "kill", "targets": ["c"], "at_us": at_us, "until_us": None, "text": "kill c"}
    chaos = {"script": "s", "seed": 1, "mesh": "line", "began_us": 0, "ended_us": None, "faults": [fault]}
    (directory / "chaos.json").write_text(json.dumps(chaos))
    asides = [f"{step.where}: {step.text}" for step in tell_story([str(directory)], key(run)).steps if step.aside]
    assert sorted(asides) == [
        "fault: kill c",
        "router a: lost contact with router c",
        "router a: one/link lost its connection",
    ]


def test_a_log_that_breaks_off_is_told_where_it_does(tmp_path: Path) -> None:
    run = Run()
    outcome = run.find("b", Event.OUTCOME, run.key(ONE, 1), subscriber=MID.name)
    del run.logs["b"][run.logs["b"].index(outcome) + 1 :]
    found = tell_story([str(run.write(tmp_path))], key(run))
    assert ("router b", "its log breaks off here; its next steps are unknown") in {
        (step.where, step.text) for step in found.steps
    }


def test_clocks_of_other_hosts_do_not_disorder_it(tmp_path: Path) -> None:
    """b is an hour behind; its hybrid clock is not."""
    run = Run()
    run.hosts = dict.fromkeys(("b", "clients/mid"), "other")
    for log in run.hosts:
        for row in run.logs[log]:
            row["time_us"] -= 3600_000_000
    found = tell_story([str(run.write(tmp_path))], key(run))
    assert told(found) == WHOLE
    assert "different hosts (host, other)" in found.notes[0]
    assert "the order is an estimate" in found.notes[1]


def test_a_clock_that_is_wrong_on_its_own_host_does_not_disorder_routers(tmp_path: Path) -> None:
    """Its clients' entries may be some ms off."""
    run = Run()
    for row in run.logs["b"]:
        row["time_us"] -= 5_000_000
    found = tell_story([str(run.write(tmp_path))], key(run))
    steps, whole = told(found).splitlines(), WHOLE.splitlines()
    assert [line for line in steps if line.startswith("router")] == [
        line for line in whole if line.startswith("router")
    ]
    assert sorted(steps) == sorted(whole)
    assert "clocks differ" in found.notes[0]


def test_the_uses_of_a_tag_are_told_apart(tmp_path: Path) -> None:
    run = Run(messages=4, tags=2)
    found = tell_story([str(run.write(tmp_path))], key(run))
    assert [step.use for step in found.steps] == [1] * 26 + [2] * 26


def test_what_was_said_of_many_subscribers_at_once_is_one_step(tmp_path: Path) -> None:
    run = Run(messages=1)
    sent = run.find("a", Event.DELIVERED, run.key(ONE, 0))
    names = [f"subscriber{number:02}" for number in range(12)]
    run.find("a", Event.AUDIENCE)["detail"] = json.dumps(names)
    place = run.logs["a"].index(sent)
    run.logs["a"][place : place + 1] = [sent | {"subscriber": name} for name in names]
    texts = [step.text for step in tell_story([str(run.write(tmp_path))], key(run, 0)).steps]
    assert f"sent to {', '.join(names[:8])} and 4 more" in texts
    assert f"owed to {', '.join(names[:8])} and 4 more" in texts


def test_a_refusal_and_what_a_client_kept_are_in_words(tmp_path: Path) -> None:
    run = Run(messages=1)
    run.find("clients/near", Event.PROCESSED, run.key(ONE, 0))["outcome"] = LoggedOutcome.REJECTED
    row = run.find("clients/near", Event.DELIVERED, run.key(ONE, 0))
    run.after("clients/near", row, event=Event.KEPT, subscriber=NEAR.name)
    texts = [step.text for step in tell_story([str(run.write(tmp_path))], key(run, 0)).steps]
    assert "processed it and answered: rejected" in texts
    assert "found it in its store after a restart, without an outcome" in texts


def run_command(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["story", *arguments])


def test_one_argument_may_lack_the_key_or_the_directory() -> None:
    result = run_command("run/triangle")
    assert result.exit_code == 2 and "expected RUN_DIR and KEY, got only 'run/triangle'" in result.output


def test_the_command_tells_it_on_the_terminal_and_as_json(tmp_path: Path) -> None:
    run = Run()
    directory = str(run.write(tmp_path))
    shown = run_command(directory, key(run))
    assert shown.exit_code == 0, shown.output
    assert "received from its home a" in shown.stdout
    as_json = json.loads(run_command("--json", directory, key(run)).stdout)
    assert as_json["key"] == key(run) and len(as_json["steps"]) == 26
    assert as_json["steps"][0]["event"] == "published"


def test_a_key_may_begin_with_a_hyphen(tmp_path: Path) -> None:
    directory = str(Run().write(tmp_path))
    for start in ("-h", "--json-no-key", "-"):
        result = run_command(directory, start)
        assert result.exit_code == 1 and f"begins with {start}\n" in result.stderr, result.output


def test_errors_say_what_to_do(tmp_path: Path) -> None:
    run = Run(messages=30)
    directory = str(run.write(tmp_path / "run"))
    (tmp_path / "empty").mkdir()
    ambiguous = run_command(directory, ONE.name).stderr
    assert ambiguous.startswith(f"Error: several keys begin with {ONE.name}:\n  {ONE.name}")
    assert len(ambiguous.splitlines()) == KEYS_LISTED + 2 and ambiguous.endswith("and more\n")
    assert "these logs have no delivery with a key that begins with zz" in run_command(directory, "zz").stderr
    assert "expected at most 32 characters" in run_command(directory, "z" * 33).stderr
    assert "no such directory" in run_command(str(tmp_path / "nowhere"), "zz").stderr
    assert "nor delivery logs" in run_command(str(tmp_path / "empty"), "zz").stderr
