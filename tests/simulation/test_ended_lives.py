"""What the judge says of deliveries that come twice, or are forgotten, of a life that an older attach of the publisher
has ended."""

from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from tests.simulation.judge import Judge
from tests.simulation.parties import Message, Reader, Violation
from topic.directory.entry import LinkEntry, Role, Status
from topic.identity import NOWHERE, Epoch, LinkIdentity, link_name

TEXT, KEY = b"p0.1.1", b"key"
IDENTITY = LinkIdentity("p0", "link", "topic/0")
FIRST, LATE, LATER = Epoch(1, "b", 1), Epoch(1, "d", 1), Epoch(2, "c", 1)
"""Of the attach that began the life; of an older one that its router read later; of one that resumes the life."""


def entry(epoch: Epoch, generation: bytes) -> LinkEntry:
    return LinkEntry(Role.PUBLISHER, link_name(IDENTITY), IDENTITY, epoch, generation)


BEGUN, ENDED, RESUMED = entry(FIRST, b"life"), entry(LATE, b"other"), entry(LATER, b"life")


@pytest.fixture
def judge() -> Judge:
    """The older attach was read while its router was out of contact with the one where the publisher is."""
    schedule: Any = SimpleNamespace(now=0.0)
    knobs: Any = SimpleNamespace(redeliveries=0, grace=0.0)
    judge = Judge(schedule, {}, knobs, lambda who, what: None)
    link: Any = SimpleNamespace(client=SimpleNamespace(identity=IDENTITY))
    judge.messages[TEXT] = Message(TEXT, "p0", 1, 1, False, KEY, False, link)
    judge.readers["s0"] = Reader("topic/0", True, True, False, False)
    judge.lives.generations["p0", 1] = b"life"
    for begun in (BEGUN, ENDED):
        judge.lives.given("p0", begun.generation, begun.epoch)
    judge.memory.overtaken.add("p0")
    judge.applications.seen("s0", "a", TEXT, KEY, 0, False)
    return judge


def resume(judge: Judge, former: LinkEntry | None, seen: Epoch = FIRST) -> None:
    """At a router that knew the publisher by the former entry."""
    link = SimpleNamespace(epoch=LATER, echoed_epoch=seen, attached_at=0.0, in_doubt=False, life=1)
    publisher: Any = SimpleNamespace(name="p0", opened=[link])
    topic = SimpleNamespace(
        settings=SimpleNamespace(terminus=1.0), directory=SimpleNamespace(complete=False, contacts={})
    )
    router: Any = SimpleNamespace(name="c", incarnation=1, topic=topic)
    judge.lives.begins(router, publisher, RESUMED, former, 0)


def test_they_may_where_the_router_that_resumed_it_had_not_heard_of_the_ending(judge: Judge) -> None:
    resume(judge, BEGUN)
    judge.applications.seen("s0", "a", TEXT, KEY, 0, False)


@pytest.mark.parametrize("seen", [NOWHERE, FIRST])
def test_they_may_not_where_it_had(judge: Judge, seen: Epoch) -> None:
    """That attach and the one that began the life have the same clock; their routers' names say which is later."""
    resume(judge, ENDED, seen)
    with pytest.raises(Violation, match="1 exactly once"):
        judge.applications.seen("s0", "a", TEXT, KEY, 0, False)


def test_they_may_not_where_it_had_heard_of_the_close(judge: Judge) -> None:
    resume(judge, attrs.evolve(BEGUN, status=Status.CLOSED), NOWHERE)
    with pytest.raises(Violation, match="1 exactly once"):
        judge.applications.seen("s0", "a", TEXT, KEY, 0, False)


def test_they_may_not_where_nobody_has_resumed_it(judge: Judge) -> None:
    with pytest.raises(Violation, match="1 exactly once"):
        judge.applications.seen("s0", "a", TEXT, KEY, 0, False)


def test_they_may_not_where_it_was_not_ended(judge: Judge) -> None:
    judge.lives._given["p0"].pop(b"other")
    resume(judge, BEGUN)
    with pytest.raises(Violation, match="1 exactly once"):
        judge.applications.seen("s0", "a", TEXT, KEY, 0, False)


def late_close(judge: Judge, *, answered: bool = True, life: int = 0, resumes: bytes = b"life") -> None:
    """Of an attach that the publisher sent in that life; its router resumed another life with it."""
    judge.lives._given["p0"].pop(b"other")
    link: Any = SimpleNamespace(answered=answered, life=life, client=SimpleNamespace(name="p0", life=1))
    link.stream = SimpleNamespace(link=link, generation=resumes)
    judge.lives.closes(link)


def forget(judge: Judge) -> None:
    subscriber: Any = SimpleNamespace(name="s0", link=None)
    judge.applications.forgotten(subscriber, TEXT, 0, "left out of the router's map")


def test_what_a_late_close_has_ended_may_be_forgotten(judge: Judge) -> None:
    late_close(judge)
    forget(judge)
    with pytest.raises(Violation, match="1 exactly once"):
        judge.applications.seen("s0", "a", TEXT, KEY, 0, False)


@pytest.mark.parametrize("close", [{"answered": False}, {"life": 1}, {"resumes": b"another"}])
def test_a_close_excuses_nothing_if_it_ends_no_later_life(judge: Judge, close: dict[str, Any]) -> None:
    """The router had not answered the attach; the close is of the life itself; or the attach resumed another life."""
    late_close(judge, **close)
    with pytest.raises(Violation, match="3 forgets early"):
        forget(judge)


def test_what_a_late_close_has_ended_may_come_twice_if_resumed_by_who_had_not_heard_of_it(judge: Judge) -> None:
    late_close(judge)
    resume(judge, BEGUN)
    judge.applications.seen("s0", "a", TEXT, KEY, 0, False)
