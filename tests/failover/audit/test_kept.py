"""Writers that are killed, where others know what their logs could not say any more."""

import json

import pytest

from failover.audit import Report, Verdict
from tests.failover.audit.in_process import Judged
from tests.failover.audit.runs import ADDRESS, FAR, MID, NEAR, ONE, START_MS, TWO, Client, Row, Run
from topic.identity import Epoch
from topic.journal import BY_MAP, Event, LoggedOutcome

LAST = 3


def moves_to_b(run: Run, subscriber: Client) -> str:
    """It attaches at b, after everything else: its epoch there."""
    last = run.logs["b"][-1]
    epoch = str(Epoch(last["hlc"] - 10, "b", START_MS))
    columns = {"subscriber": subscriber.name, "address": ADDRESS, "epoch": epoch}
    run.after("b", {"event": Event.JOINED}, **columns)
    run.after("b", {"event": Event.ATTACHED}, detail=subscriber.detail, **columns)
    return epoch


def router_is_killed(run: Run, subscriber: Client = NEAR) -> None:
    """What it heard from the subscriber of the last delivery of publisher two, and all after it, is lost with it."""
    key = run.key(TWO, LAST)
    rows = run.logs[subscriber.router]
    del rows[rows.index(run.find(subscriber.router, Event.OUTCOME, key, subscriber=subscriber.name)) :]


def b_is_told_again(run: Run, subscriber: Client = NEAR) -> None:
    """By the subscriber's unsettled map, when it comes."""
    moves_to_b(run, subscriber)
    outcome = {"event": Event.OUTCOME, "outcome": LoggedOutcome.ACCEPTED, "subscriber": subscriber.name}
    about = {"keys": [run.key(TWO, LAST)], "address": ADDRESS, "publisher": TWO.name, "epoch": run.epoch(TWO)}
    run.after("b", outcome, **about)


def test_what_a_killed_router_was_told_and_the_next_was_told_again_is_not_too_early(judged: Judged) -> None:
    run = Run()
    router_is_killed(run)
    b_is_told_again(run)
    report = judged(run)
    assert report.violations == {} and not any("near" in doubt for doubt in report.doubts), report.doubts


def test_nor_is_it_for_a_subscriber_without_a_log(judged: Judged) -> None:
    run = Run()
    router_is_killed(run, FAR)
    b_is_told_again(run, FAR)
    report = judged(run)
    assert report.violations == {} and report.verdict is Verdict.UNDECIDED, report.sentence


def test_a_map_that_tells_again_what_its_router_was_told_is_no_duplicate(judged: Judged) -> None:
    """A client that was killed before it had stored the settlement."""
    run = Run()
    key = run.key(TWO, LAST)
    told = run.find("c", Event.OUTCOME, key, subscriber=FAR.name)
    run.after("c", told, detail=BY_MAP)
    assert judged(run).verdict is Verdict.HOLDS
    run.after("c", told)
    assert judged(run).violations == {"duplicated": 1}


@pytest.mark.parametrize("subscriber", [NEAR, FAR])
def test_what_a_router_was_told_that_lived_is_too_early(judged: Judged, subscriber: Client) -> None:
    run = Run()
    last = run.find(subscriber.router, Event.OUTCOME, run.key(TWO, LAST), subscriber=subscriber.name)
    run.drop(subscriber.router, last)
    b_is_told_again(run, subscriber)
    assert judged(run).violations == {"accepted too early": 1}


def near_comes_back(run: Run, *kept: bytes) -> None:
    """In a process of its own, so with a log of its own: two entries and what it kept."""
    stop = run.logs["clients/mid"][-1]
    clock = {"time_us": stop["time_us"] - 1000, "hlc": stop["hlc"] - 1}
    about = {"subscriber": NEAR.name, "address": ADDRESS}
    rows: list[Row] = [{"event": Event.BOOT}, {"event": Event.KEPT}]
    rows += [{"event": Event.KEPT, "keys": [key], "outcome": LoggedOutcome.ACCEPTED} | about for key in kept]
    rows += [{"event": Event.ATTACHED, "detail": NEAR.detail} | about, {"event": Event.STOPPED}]
    run.again["clients/near"] = [row | clock for row in rows]


def processed(run: Run) -> list[bytes]:
    """The last two that near processed."""
    return [row["keys"][0] for row in run.all("clients/near", Event.PROCESSED)][-2:]


def test_a_killed_subscriber_that_kept_what_it_had_processed_leaves_no_doubt(judged: Judged) -> None:
    run = Run()
    keys = processed(run)
    run.kill("clients/near", lost=4)
    near_comes_back(run, *keys)
    report = judged(run)
    assert report.verdict is Verdict.HOLDS, (report.doubts, report.findings)


def test_what_it_kept_no_longer_its_router_knows(judged: Judged) -> None:
    run = Run()
    run.kill("clients/near", lost=4)
    near_comes_back(run)
    report = judged(run)
    assert report.verdict is Verdict.HOLDS, (report.doubts, report.findings)


def test_what_neither_knows_is_lost(judged: Judged) -> None:
    run = Run()
    last = processed(run)[-1]
    run.kill("clients/near", lost=4)
    run.remove(lambda row: row.get("keys") == [last] and row.get("subscriber") == NEAR.name, "a")
    near_comes_back(run)
    assert judged(run).violations == {"lost": 1}


def test_what_it_had_kept_and_processed_again_is_doubled(judged: Judged) -> None:
    run = Run()
    last = processed(run)[-1]
    run.kill("clients/near", lost=4)
    near_comes_back(run, *processed(run), last)
    again = {"event": Event.PROCESSED, "keys": [last], "outcome": LoggedOutcome.ACCEPTED}
    rows = run.again["clients/near"]
    rows.insert(-1, rows[-1] | again | {"subscriber": NEAR.name, "address": ADDRESS})
    assert judged(run).violations["duplicated"] == 1


@pytest.mark.parametrize("kept", [True, False])
def test_a_killed_subscriber_that_keeps_nothing_leaves_a_doubt(judged: Judged, kept: bool) -> None:
    run = Run()
    run.kill("clients/near", lost=4)
    if kept:
        near_comes_back(run)
        run.again["clients/near"] = [row for row in run.again["clients/near"] if row["event"] is not Event.KEPT]
    assert judged(run).verdict is Verdict.UNDECIDED


def one_is_killed(run: Run, *, lost: int = 3, router: bool = True) -> None:
    """With the router that it was at, a, or alone: the last entries of its log are gone, that is all that it says of
    the last."""
    for row in run.all("clients/one", Event.ATTACHED):
        row["detail"] = json.dumps(json.loads(ONE.detail) | {"generation": run.generation(ONE).hex()})
    run.kill("clients/one", lost=lost)
    if router:
        run.kill("a")


def one_comes_back(
    run: Run,
    *kept: bytes,
    published: object = LAST + 1,
    generation: object = None,
    outcome: LoggedOutcome = LoggedOutcome.NONE,
) -> None:
    """With what its store has, at b, and publishes nothing more."""
    stop = run.logs["clients/mid"][-1]
    clock = {"time_us": stop["time_us"] - 1000, "hlc": stop["hlc"] - 1}
    about = {"publisher": ONE.name, "address": ADDRESS}
    told = json.loads(ONE.detail) | {"generation": generation or run.generation(ONE).hex()}
    attached = {"event": Event.ATTACHED, "detail": json.dumps(told), "generation": run.generation(ONE)}
    rows: list[Row] = [{"event": Event.BOOT}, {"event": Event.KEPT, "detail": json.dumps({"published": published})}]
    rows += [{"event": Event.KEPT, "keys": [key], "outcome": outcome} for key in kept]
    rows += [attached, {"event": Event.STOPPED}]
    run.again["clients/one"] = [row | clock | about for row in rows]


def answer_is_lost(run: Run) -> bytes:
    """Of the last delivery of publisher one: the key."""
    key = run.key(ONE, LAST)
    run.remove(lambda row: row.get("keys") == [key] and row["event"] is Event.ACCEPTED)
    return key


def doubts_about(report: Report, *words: str) -> list[str]:
    return [doubt for doubt in report.doubts if all(word in doubt for word in words)]


def test_a_publisher_killed_with_its_router_leaves_no_doubt_if_all_it_published_left_traces(judged: Judged) -> None:
    run = Run()
    one_is_killed(run)
    one_comes_back(run)
    report = judged(run)
    assert not doubts_about(report, "one") and report.violations == {}, report.doubts


@pytest.mark.parametrize(
    ("published", "generation"),
    [(LAST + 2, None), (None, None), ([], None), (LAST + 1, "0000000000000000"), (LAST + 1, ["x"])],
)
def test_it_does_if_there_are_too_few_traces_or_it_does_not_say_or_has_another_life(
    judged: Judged, published: object, generation: object
) -> None:
    run = Run()
    one_is_killed(run)
    one_comes_back(run, published=published, generation=generation)
    assert doubts_about(judged(run), "publisher one")


def test_it_does_if_it_had_published_before_its_first_log(judged: Judged) -> None:
    run = Run()
    one_is_killed(run)
    one_comes_back(run)
    boot = run.logs["clients/one"][0]
    about = {"publisher": ONE.name, "address": ADDRESS}
    kept = {"event": Event.KEPT, "detail": json.dumps({"published": 0})}
    run.logs["clients/one"].insert(1, boot | kept | about)
    assert doubts_about(judged(run), "publisher one")


def test_a_key_that_only_a_map_names_is_no_trace(judged: Judged) -> None:
    run = Run()
    one_is_killed(run)
    one_comes_back(run, published=LAST + 2)
    key = run.key(ONE, LAST + 1)
    row = run.find("b", Event.DELIVERED, run.key(ONE, LAST), subscriber=MID.name)
    run.after("b", row, event=Event.PLACEHOLDER, keys=[key])
    assert doubts_about(judged(run), "publisher one")


def test_an_answer_that_no_log_tells_is_no_doubt_if_all_had_it_before(judged: Judged) -> None:
    run = Run()
    one_is_killed(run, lost=2)  # it was published before the end of the log
    one_comes_back(run)
    key = answer_is_lost(run)
    (sent,) = [row for row in run.all("clients/one", Event.PUBLISHED) if row["keys"] == [key]]
    sent["time_us"] = run.find("a", Event.FORGOTTEN, key)["time_us"]  # nothing was told until then
    report = judged(run)
    assert not doubts_about(report, "one") and report.violations == {}, report.doubts


def refuses(run: Run, key: bytes) -> None:
    for log in ("clients/mid", "b"):
        for row in run.logs[log]:
            if row.get("keys") == [key] and row.get("subscriber") == MID.name and "outcome" in row:
                row["outcome"] = LoggedOutcome.REJECTED


@pytest.mark.parametrize("spoil", ["missed", "refused", "late", "audience", "late, audience", "home refused"])
def test_an_answer_that_no_log_tells_is_a_doubt_if_somebody_may_not_have_had_it(judged: Judged, spoil: str) -> None:
    run = Run()
    one_is_killed(run, lost=2)
    one_comes_back(run)
    key = run.key(ONE, LAST)
    (sent,) = [row for row in run.all("clients/one", Event.PUBLISHED) if row["keys"] == [key]]
    sent["time_us"] = run.find("a", Event.FORGOTTEN, key)["time_us"]
    if spoil == "home refused":
        run.find("a", Event.ACCEPTED, key)["outcome"] = LoggedOutcome.REJECTED
    else:
        answer_is_lost(run)
    if "late" in spoil:
        run.find("clients/mid", Event.PROCESSED, key)["time_us"] = run.again["clients/one"][-1]["time_us"] + 500
    elif spoil == "refused":
        refuses(run, key)
    else:
        run.leave_out(MID, ONE, LAST)
    if "audience" in spoil:
        run.remove(lambda row: row.get("keys") == [key] and row["event"] is Event.AUDIENCE)
    assert doubts_about(judged(run), "mid") or doubts_about(judged(run), "no log shows whether")


@pytest.mark.parametrize("outcome", [LoggedOutcome.NONE, LoggedOutcome.ACCEPTED])
def test_what_is_in_doubt_in_its_store_is_owed_to_nobody(judged: Judged, outcome: LoggedOutcome) -> None:
    run = Run()
    one_is_killed(run)
    one_comes_back(run, answer_is_lost(run), outcome=outcome)
    run.leave_out(FAR, ONE, LAST)
    assert bool(doubts_about(judged(run), "from one", "to far")) is (outcome is LoggedOutcome.ACCEPTED)


def order_is_doubted(report: Report) -> bool:
    return bool(doubts_about(report, "from one", "in an unknown order"))


def test_what_no_log_says_was_published_has_the_place_that_its_home_gave_it(judged: Judged) -> None:
    run = Run()
    one_is_killed(run, lost=6, router=False)  # all of the last two
    one_comes_back(run, run.key(ONE, LAST - 1))  # the last was settled before the one before it
    report = judged(run)
    assert not order_is_doubted(report) and report.violations == {}, report.doubts
    first, last = (run.find("clients/near", Event.PROCESSED, run.key(ONE, tag)) for tag in (LAST - 1, LAST))
    handed = [run.find("clients/near", Event.DELIVERED, row["keys"][0]) for row in (first, last)]
    run.swap("clients/near", *handed)
    assert judged(run).violations == {"out of order": 1}


def test_its_place_is_not_known_if_its_home_is_on_another_host(judged: Judged) -> None:
    run = Run()
    run.hosts["a"] = run.hosts["b"] = run.hosts["c"] = "elsewhere"
    one_is_killed(run)
    one_comes_back(run)
    assert order_is_doubted(judged(run))


def test_it_says_that_more_was_published_than_there_are_traces_of_even_if_all_routers_are_whole(judged: Judged) -> None:
    run = Run()
    one_is_killed(run)
    run.logs["a"].append(run.logs["b"][-1])
    one_comes_back(run, published=LAST + 2)
    assert doubts_about(judged(run), "publisher one", "1 of its published deliveries", "appear in no log")


def test_what_a_whole_home_refused_is_owed_to_nobody(judged: Judged) -> None:
    run = Run()
    one_is_killed(run, lost=2)
    run.logs["a"].append(run.logs["b"][-1])
    one_comes_back(run)
    key = run.key(ONE, LAST)
    run.find("a", Event.ACCEPTED, key)["outcome"] = LoggedOutcome.REJECTED
    refuses(run, key)
    report = judged(run)
    assert not doubts_about(report, "one") and report.violations == {}, report.doubts


@pytest.mark.parametrize("client", [ONE, NEAR])
def test_a_life_that_could_only_say_that_it_began_is_its_clients(judged: Judged, client: Client) -> None:
    run = Run()
    named = {client.role: client.name, "address": ADDRESS}
    log = f"clients/{client.container}"
    run.again[log] = [run.logs[log][-1] | {"event": Event.BOOT} | named]
    assert judged(run).violations == {}


@pytest.mark.parametrize("order", [1, -1])
def test_a_place_does_not_depend_on_which_router_is_read_first(judged: Judged, order: int) -> None:
    run = Run()
    run.hosts["b"] = run.hosts["c"] = "elsewhere"
    run.logs = dict(list(run.logs.items())[::order])
    one_is_killed(run, lost=6)
    one_comes_back(run, run.key(ONE, LAST - 1), run.key(ONE, LAST))
    report = judged(run)
    assert not order_is_doubted(report) and "out of order" not in report.violations


@pytest.mark.parametrize("stored", [True, False])
def test_a_publisher_knows_an_outcome_that_its_store_had_and_its_log_not_yet(judged: Judged, stored: bool) -> None:
    """It was killed between the two."""
    run = Run()
    key = run.key(ONE, LAST)
    run.drop("clients/one", *(run.find("clients/one", event, key) for event in (Event.OUTCOME, Event.SETTLED)))
    one_comes_back(run, key, outcome=LoggedOutcome.ACCEPTED if stored else LoggedOutcome.NONE)
    assert ("settled by nobody" in judged(run).violations) is not stored
