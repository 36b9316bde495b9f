"""Messages that a subscriber processed more than once, where that is not promised not to be (protocol 1)."""

import json
from collections.abc import Callable

import pytest

from failover.audit import Report, Verdict
from tests.failover.audit.runs import ADDRESS, FAR, NEAR, ONE, START_MS, TWO, Client, Row, Run
from topic.identity import Epoch
from topic.journal import Event

AGAIN = (
    "1 delivery was processed more than once by {}/link on topic/news, which attached without a map or in settle mode "
    "first meanwhile"
)


def attached(run: Run, client: Client, log: str, **details: object) -> None:
    """The client attaches again at its router, as this log has it."""
    row = next(row for row in run.logs[log] if row["event"] == Event.ATTACHED and client.name in row.values())
    epoch = str(Epoch((START_MS + 1) << 16, client.router, START_MS))
    detail = json.loads(client.detail) | details
    run.after(log, row, epoch=epoch, detail=json.dumps(detail))


def processed_again(run: Run, **details: object) -> None:
    attached(run, NEAR, "clients/near", **details)
    run.after("clients/near", run.find("clients/near", Event.PROCESSED, run.key(ONE, 1)))


def sent_again(run: Run, **details: object) -> None:
    attached(run, FAR, "c", **details)
    for event in (Event.DELIVERED, Event.OUTCOME):
        run.after("c", row_of(run, event))


def row_of(run: Run, event: Event) -> Row:
    return run.find("c", event, run.key(TWO, 1))


@pytest.mark.parametrize("details", [{"afresh": True}, {"mode": "first"}], ids=["with a null map", "and settles first"])
@pytest.mark.parametrize(
    ("again", "who"), [(processed_again, "near"), (sent_again, "far")], ids=["its log", "routers'"]
)
def test_across_an_attach_that_began_afresh_it_is_told_and_no_violation(
    judged: Callable[[Run], Report], again: Callable[..., None], who: str, details: dict[str, object]
) -> None:
    run = Run()
    again(run, **details)
    report = judged(run)
    assert report.violations == {} and report.verdict is Verdict.QUALIFIED
    (said,) = report.exceptions
    assert said.startswith(AGAIN.format(who))


@pytest.mark.parametrize("again", [processed_again, sent_again], ids=["its log", "routers'"])
def test_across_an_attach_with_a_map_it_is_a_violation(
    judged: Callable[[Run], Report], again: Callable[..., None]
) -> None:
    run = Run()
    again(run)
    assert judged(run).violations["duplicated"] == 1


@pytest.mark.parametrize(
    ("followed_by", "went_on_as", "is_promised"),
    [
        ("other", "own", False),
        (None, "own", True),  # its publisher has abandoned it, or has closed
        ("own", "own", True),  # it was given up for the life that it is of
        ("other", "other", True),  # the other life sent it
        ("other", None, True),  # nobody sent it again
    ],
)
def test_what_was_given_up_for_another_life_that_its_publisher_never_began_may_come_again(
    judged: Callable[[Run], Report], followed_by: str | None, went_on_as: str | None, *, is_promised: bool
) -> None:
    """A router had read an attach of its publisher late, and its publisher went on elsewhere (protocol 10)."""
    run, lives = Run(), {"own": None, "other": b"another!"}
    lives["own"] = run.generation(ONE)
    attached(run, NEAR, "clients/near")
    run.after("clients/near", run.find("clients/near", Event.PROCESSED, run.key(ONE, 1)))
    received = run.find("a", Event.RECEIVED, run.key(ONE, 1))
    told = {name: received[name] for name in ("keys", "address", "publisher", "epoch")}
    followed = lives.get(followed_by or "")
    accepted = run.find("a", Event.ACCEPTED, run.key(ONE, 1))
    run.before("a", accepted, Event.ABANDONED, detail=followed and followed.hex(), **told)
    if went_on_as is not None:
        epoch = str(Epoch((START_MS << 16) + 1, "b", START_MS))
        link = {"publisher": ONE.name, "address": ADDRESS, "detail": ONE.detail, "epoch": epoch}
        sent = run.find("b", Event.SETTLED, run.key(ONE, 1))
        run.before("b", sent, Event.ATTACHED, generation=lives[went_on_as], **link)
        run.before("b", sent, Event.RECEIVED, n=0, **told | {"epoch": epoch})
    report = judged(run)
    assert report.violations.get("duplicated", 0) == is_promised, report.sentence


def test_what_is_sent_to_a_link_that_its_client_has_left_is_no_repetition(judged: Callable[[Run], Report]) -> None:
    run = Run()
    attached(run, FAR, "c")
    run.after("c", row_of(run, Event.DELIVERED))
    assert judged(run).verdict is Verdict.HOLDS


def test_a_router_whose_clock_is_behind_is_seen_to_send_it_again(judged: Callable[[Run], Report]) -> None:
    """By the clocks of both it was sent twice before anybody had accepted it."""
    run, told = Run(), dict[str, Row]()
    for event in (Event.DELIVERED, Event.OUTCOME):
        told[event.name] = {name: of for name, of in row_of(run, event).items() if name not in ("time_us", "hlc")}
    moved = {"subscriber": FAR.name, "address": ADDRESS, "detail": FAR.detail, "event": Event.ATTACHED}
    epoch = str(Epoch((START_MS + 1) << 16, "a", START_MS))
    came, settled = (run.find("a", event, run.key(TWO, 1)) for event in (Event.RECEIVED, Event.SETTLED))
    for there, row in ((came, moved | {"epoch": epoch}), (came, told["DELIVERED"]), (settled, told["OUTCOME"])):
        run.before("a", there, **row)
    assert judged(run).violations["duplicated"] == 1
