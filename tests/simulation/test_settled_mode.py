"""What the judge says of a subscriber in sender settle mode settled that is given a message twice (protocol 10)."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.judge import Judge
from tests.simulation.parties import Message, Reader, Violation
from tests.simulation.plain import RECENT
from topic.identity import Epoch

TEXT, KEY = b"p0.1.1", b"key"
FIRST, SAME, RESTARTED, ELSEWHERE = Epoch(1, "a", 1), Epoch(2, "a", 1), Epoch(2, "a", 2), Epoch(2, "b", 1)


def link(epoch: Epoch, *, closed: bool = False) -> Any:
    router = SimpleNamespace(name=epoch.router, incarnation=epoch.incarnation)
    return SimpleNamespace(epoch=epoch, router=router, closed=closed, ended=False, ended_at=0.0)


def judge_of(*links: Any, resumes: bool = True) -> Judge:
    """The subscriber has had the message on its first link, and has attached since."""
    schedule: Any = SimpleNamespace(now=0.0)
    knobs: Any = SimpleNamespace(redeliveries=0, grace=0.0)
    judge = Judge(schedule, {}, knobs, lambda who, what: None)
    client = SimpleNamespace(
        first=False, settles=False, changes_modes=False, plain=False, identity=SimpleNamespace(address="topic/0")
    )
    sent_on: Any = SimpleNamespace(epoch=FIRST, client=client)
    judge.messages[TEXT] = Message(TEXT, "p0", 1, 1, False, KEY, False, sent_on, published=1.0)
    reader = judge.readers["s0"] = Reader("topic/0", False, resumes, False, True)
    judge.lives.generations["p0", 1] = b"life"
    judge.lives.given("p0", b"life", FIRST)
    first = link(FIRST)
    reader.links, reader.recent = [first], [first]
    judge.applications.seen("s0", "a", TEXT, KEY, 0, False)
    reader.links += links
    reader.recent += links
    reader.on_link.clear()
    return judge


def test_it_is_given_nothing_twice_where_it_has_stayed() -> None:
    judge = judge_of(link(SAME))
    with pytest.raises(Violation, match="1 at most once"):
        judge.applications.seen("s0", "a", TEXT, KEY, 0, False)


@pytest.mark.parametrize("again", [link(RESTARTED), link(ELSEWHERE), link(SAME, closed=True)])
def test_it_may_be_where_nobody_knows_what_it_was_given(again: Any) -> None:
    judge_of(again).applications.seen("s0", again.router.name, TEXT, KEY, 0, False)


def test_it_may_be_where_it_came_long_ago_and_routers_have_lost_each_other_since() -> None:
    again = link(ELSEWHERE)
    judge = judge_of(again)
    judge.readers["s0"].links[0].ended = True
    judge.schedule.now = 2 * RECENT
    judge.plain.lost(again.router, "c")
    judge.applications.seen("s0", "b", TEXT, KEY, 0, False)


def test_it_may_be_where_its_terminus_ends_with_its_connection() -> None:
    judge_of(link(SAME), resumes=False).applications.seen("s0", "a", TEXT, KEY, 0, False)
