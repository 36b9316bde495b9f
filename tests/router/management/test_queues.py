"""Operations on declared queues: what a request says, who decides, and what is answered."""

import logging
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from failover.client.management import RefusedError
from router.amqp.format.message import data_message
from router.entities.queues import DECLARED_QUEUE, SETTINGS
from router.entities.replicas import SET
from router.management.queues import PEEKED_BYTES, STATUS, QueueOperations, settings_in
from router.management.requests import ManagementError
from router.queues.dead_letter import dead_letter
from tests.router.agreeing import LIFE, AgreeingMesh, AskingMesh
from tests.topic.queues.test_messages import ONE
from topic.queues.operations import (
    Answer,
    Configure,
    Declare,
    Delete,
    Operation,
    QueueId,
    QueueSettings,
    Refused,
    RefusedFor,
)
from topic.queues.outgoing.outbox import Why
from topic.queues.proposals import Enqueue, Free, Reserve


async def refused(asking: AskingMesh, operation: str, body: Mapping[str, Any] | None = None, **asked: Any) -> str:
    with pytest.raises(RefusedError) as error:
        await asking.ask(operation, None, body, type=DECLARED_QUEUE.managed, **asked)
    return str(error.value)


async def test_a_queue_is_an_entity_that_can_be_created_read_changed_and_deleted() -> None:
    mesh = AgreeingMesh()
    asking = AskingMesh(mesh)
    assert (await asking.ask("GET-OPERATIONS"))[DECLARED_QUEUE.managed] == [
        "READ",
        "CREATE",
        "UPDATE",
        "DELETE",
        "PURGE",
        "PEEK",
        "RETRY",
    ]
    named = {"type": DECLARED_QUEUE.managed, "name": "queue/eu/x"}
    made = await asking.ask("CREATE", None, {"limitMessages": 5, "limitBytes": None}, **named)
    identity = f"{LIFE}-2"
    about: dict[str, Any] = {"type": DECLARED_QUEUE.managed, "identity": identity, "name": "queue/eu/x", "set": "eu"}
    about |= {"messages": 0, "bytes": 0, "reserved": 0, "consumers": 0, "paused": 0, "scheduled": 0}
    about |= {"oldestSeconds": 0.0, "enqueued": 0, "dequeued": 0, "givenBack": 0, "purged": 0, "expired": 0}
    about |= {"lastPosition": None, "ttlMs": None, "deadLetter": None, "redeliveries": None, "outbox": 0, "dead": 0}
    about |= {"singleActive": None, "exclusive": None, "lockMs": None}
    about |= {"retryAfterMs": None, "retryFactor": None, "retryMostMs": None, "temporary": None, "heldBy": None}
    assert made == {**about, "version": identity, "limitMessages": 5, "limitBytes": None, "bind": None}
    only_leader = dict.fromkeys(
        ("oldestSeconds", "enqueued", "dequeued", "givenBack", "purged", "expired", "dead", "paused", "scheduled")
    )
    assert await asking.ask("READ", "b", **named) == {**made, **only_leader}, "any replica has it"
    changed = await asking.ask("UPDATE", None, {"limitBytes": 2**40}, **named)
    about["version"] = f"{LIFE}-3"
    expected = {**about, "limitMessages": None, "limitBytes": 2**40, "bind": None}
    assert changed == expected, "what is left out is not set any more"
    assert await asking.ask("READ", **named) == changed
    assert await asking.ask("UPDATE", None, changed, **named) == changed, "a body may say all that it has read"
    assert await asking.ask("DELETE", **named) == {}
    assert [*map(type, dict(enumerate(one for _, one in mesh.changes)).values())] == [
        Declare,
        Configure,
        Configure,
        Delete,
    ]
    assert await refused(asking, "READ", name="queue/eu/x") == "404: no entity has the name 'queue/eu/x'"


async def test_a_declare_leaves_no_line_in_the_log_but_a_change_and_a_delete_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "oncemesh.management")
    asking = AskingMesh(AgreeingMesh())
    named = {"type": DECLARED_QUEUE.managed, "name": "queue/eu/x"}
    for _ in range(3):
        await asking.ask("CREATE", None, {"limitMessages": 5}, **named)
    assert caplog.messages == []
    await asking.ask("UPDATE", None, {"limitMessages": 6}, **named)
    await asking.ask("DELETE", **named)
    assert caplog.messages == [
        "an operator changed the settings of queue queue/eu/x",
        "queue queue/eu/x is deleted, at the request of an operator",
    ]


async def test_a_router_without_a_replica_changes_what_is_named_whole() -> None:
    mesh = AgreeingMesh()
    asking = AskingMesh(mesh, "d")
    made = await asking.ask("CREATE", None, {"limitMessages": 5}, type=DECLARED_QUEUE.managed, name="queue/eu/x")
    whole = {"name": "queue/eu/x", "identity": made["identity"]}
    assert "no entity has the name" in await refused(asking, "DELETE", name="queue/eu/x")
    told = await refused(asking, "UPDATE", {"limitMessages": 6}, **whole)
    assert told.startswith("400: version is None, expected that of the settings that are to be replaced")
    body = {"limitMessages": 6, "version": made["version"]}
    changed = await asking.ask("UPDATE", None, body, type=DECLARED_QUEUE.managed, **whole)
    assert changed == {**made, "limitMessages": 6, "version": f"{LIFE}-3"}
    told = await refused(asking, "UPDATE", {"limitMessages": 7, "version": made["version"]}, **whole)
    assert told == (
        f'409: queue "queue/eu/x" was changed meanwhile: it has limit-messages 6 (version {changed["version"]})'
    )
    await asking.ask("DELETE", type=DECLARED_QUEUE.managed, **whole)
    assert await refused(asking, "DELETE", **whole) == '404: there is no queue "queue/eu/x"'
    assert "is no id of a queue, expected one like" in await refused(asking, "DELETE", name="queue/x", identity="7")


async def test_a_queue_is_purged_up_to_a_position() -> None:
    mesh = AgreeingMesh()
    asking, named = AskingMesh(mesh), {"type": DECLARED_QUEUE.managed, "name": "queue/eu/x"}
    made = await asking.ask("CREATE", **named)
    mesh.propose("eu", Enqueue("queue/eu/x", (), (), [b"1", b"2"]))
    last = (await asking.ask("READ", **named))["lastPosition"]
    mesh.propose("eu", Enqueue("queue/eu/x", (), (), [b"3", b"4"]))
    assert await asking.ask("PURGE", **named, position=last) == {"purged": 2}
    assert await asking.ask("PURGE", "d", **named, identity=made["identity"], position=last) == {"purged": 0}
    assert await asking.ask("PURGE", **named) == {"purged": 2}, "up to the last one"
    assert (await asking.ask("READ", **named))["purged"] == 4
    whole = {"name": "queue/eu/x", "identity": made["identity"]}
    with pytest.raises(RefusedError, match="400: this router has no replica of queue queue/eu/x"):
        await asking.ask("PURGE", "d", type=DECLARED_QUEUE.managed, **whole)
    for position in (-1, "one", True):
        assert "position is" in await refused(asking, "PURGE", name="queue/eu/x", position=position)
    with pytest.raises(RefusedError, match=f"501: type {SET.managed} has no operation PURGE"):
        await asking.ask("PURGE", type=SET.managed, name="eu")


async def test_dead_letters_go_back_where_they_came_from() -> None:
    """Not those that name no queue, nor those that a consumer has."""
    mesh = AgreeingMesh()
    asking, named = AskingMesh(mesh), {"type": DECLARED_QUEUE.managed, "name": "queue/eu/x"}
    made = await asking.ask("CREATE", **named)
    origins = "queue/eu/y", "queue/b", None, "topic/a", "queue/eu/x", "queue/*", "queue/eu/y"
    plain = data_message(b"1")
    texts = [dead_letter(plain, origin, Why.EXPIRED, 0) if origin else plain for origin in origins]
    mesh.propose("eu", Enqueue("queue/eu/x", (), (), [text for text in texts if text is not None]))
    told = await asking.ask("RETRY", **named, count=2)
    assert (told["went"], told["stayed"]) == (2, 0)
    assert await asking.ask("RETRY", **named, **{"from": told["next"]}) == {"went": 1, "stayed": 4, "next": None}
    row = await asking.ask("READ", **named)
    assert (row["messages"], row["outbox"]) == (4, 3)
    with pytest.raises(RefusedError, match="400: this router has no replica of queue queue/eu/x"):
        await asking.ask("RETRY", "d", type=DECLARED_QUEUE.managed, name="queue/eu/x", identity=made["identity"])


async def test_the_first_messages_of_a_queue_are_shown_within_bounds() -> None:
    mesh = AgreeingMesh()
    asking, named = AskingMesh(mesh), {"type": DECLARED_QUEUE.managed, "name": "queue/eu/x"}
    await asking.ask("CREATE", **named)
    [queue] = mesh.lists["eu"]
    long = data_message(b"x" * 10_000)
    mesh.propose("eu", Enqueue("queue/eu/x", (), (), [data_message(b"1"), b"no message", *[long] * 50]))
    first, second, third, *_ = mesh.lists["eu"].messages.of(queue.id)
    mesh.propose("eu", Reserve(queue.id, ONE, [(first, second)]))
    mesh.propose("eu", Free(queue.id, [(first, first)], failed=True))
    body = await asking.ask("PEEK", **named, count=2)
    assert body == {"messages": [
        {"position": first, "size": 9, "failed": 1, "consumer": None, "message": data_message(b"1")},
        {"position": second, "size": 10, "failed": 0, "consumer": "one", "message": b"no message"},
    ]}  # fmt: skip
    begin: dict[str, Any] = {"from": third}
    beyond: dict[str, Any] = {"from": third + 50}
    [row] = (await asking.ask("PEEK", **named, **begin, count=1))["messages"]
    assert row["position"] == third and 4000 < len(row["message"]) < 4200
    rows = (await asking.ask("PEEK", **named))["messages"]
    assert PEEKED_BYTES <= sum(len(row["message"]) for row in rows) < PEEKED_BYTES + 4200
    assert (await asking.ask("PEEK", **named, **beyond))["messages"] == []
    elsewhere = named | {"name": "queue/x", "identity": f"{LIFE}-2"}
    with pytest.raises(RefusedError, match="400: this router has no replica of queue queue/x"):
        await asking.ask("PEEK", **elsewhere)
    assert len(mesh.lists["eu"].messages.of(queue.id)) == 52, "it takes nothing"


async def test_a_queue_that_was_declared_anew_is_not_deleted_for_another() -> None:
    mesh = AgreeingMesh()
    asking, named = AskingMesh(mesh), {"type": DECLARED_QUEUE.managed, "name": "queue/eu/x"}
    first = await asking.ask("CREATE", **named)
    await asking.ask("DELETE", **named)
    await asking.ask("CREATE", **named)
    told = await refused(asking, "DELETE", name="queue/eu/x", identity=first["identity"])
    assert told.startswith("404: ") and "it was declared anew" in told and len(mesh.lists["eu"]) == 1


async def test_what_is_not_decided_is_answered_with_the_reason() -> None:
    mesh = AgreeingMesh()
    asking = AskingMesh(mesh)
    await asking.ask("CREATE", None, {"limitMessages": 5}, type=DECLARED_QUEUE.managed, name="queue/eu/x")
    told = await refused(asking, "CREATE", name="queue/eu/x")
    assert told == '409: queue "queue/eu/x" exists with limit-messages 5, expected no settings'
    assert await refused(asking, "CREATE", name="topic/x") == '400: no replica set may have a queue "topic/x"'
    assert "expected a text of 1 to 255 bytes" in await refused(asking, "CREATE", name="queue/" + "x" * 255)
    assert await refused(asking, "CREATE", name="queue/#") == "400: queue/# is a pattern, and a queue has one name"
    del mesh.leaders["eu"]
    for operation in ("CREATE", "UPDATE", "DELETE"):
        assert await refused(asking, operation, name="queue/eu/x") == "504: no router led set eu, for 10 s"


@pytest.mark.parametrize("reason", RefusedFor)
async def test_each_reason_of_a_refusal_has_a_status(reason: RefusedFor) -> None:
    async def ask(operation: Operation) -> Answer:
        return Refused(reason, "because")

    async def nobody(set_: str, queue: QueueId, positions: Sequence[int]) -> Mapping[int, bytes]:
        raise AssertionError("nothing is read")

    at: Any = SimpleNamespace()
    with pytest.raises(ManagementError, match="because") as error:
        await QueueOperations(ask, nobody, at).declare("queue/x", {})
    assert error.value.status == STATUS[reason] >= 400


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ({"limitMesages": 5}, "a queue has no setting 'limitMesages', expected .*; did you mean \"limitMessages\"?"),
        (
            {"limit_messages": 5},
            "a queue has no setting 'limit_messages', expected limitMessages, limitBytes, ttlMs, bind, deadLetter, "
            "redeliveries, singleActive, exclusive, lockMs, retryAfterMs, retryFactor, retryMostMs, temporary "
            "or heldBy",
        ),
        ({7: 5}, "a queue has no setting 7, expected limitMessages, .*"),
        ({"limitMessages": "5"}, "limit_messages of a queue is '5', expected a number from 1"),
        ({"limitMessages": True}, "limit_messages of a queue is True, expected a number from 1"),
        ({"retryFactor": 2}, "retry-factor 2 has no effect without retry-after, expected both"),
        ({"limitBytes": 2**63}, "limit_bytes of a queue is 9223372036854775808, expected a number from 1"),
    ],
)
def test_a_wrong_setting_is_told_with_what_was_expected(said: Mapping[Any, Any], what: str) -> None:
    with pytest.raises(ManagementError, match=what) as error:
        settings_in(said)
    assert error.value.status == 400


def test_the_table_has_each_setting_of_a_queue() -> None:
    others: dict[str, Any] = {"bind": ["topic/x"], "dead_letter": "queue/dead", "single_active": True}
    others |= {"exclusive": True, "temporary": "close", "held_by": "a 1"}
    given = {one.name: others.get(one.name, 5) for one in SETTINGS}
    assert QueueSettings.of(given).values() == given
    assert settings_in({one.managed_name: given[one.name] for one in SETTINGS}) == QueueSettings.of(given)
    assert QueueId.parse(f"{LIFE}-2") == QueueId(LIFE, 2)


async def test_a_set_is_an_entity_with_what_its_router_knows() -> None:
    mesh = AgreeingMesh()
    rows = {row["name"]: row for row in await AskingMesh(mesh).query(SET.managed, (), "d")}
    assert (rows["eu"]["role"], rows["eu"]["leader"], rows["eu"]["voters"]) == ("proxy", "a", [])
    assert (rows["q0"]["role"], rows["q0"]["leader"], rows["q0"]["life"]) == ("follower", "b", f"{LIFE}")


@pytest.mark.parametrize("body", [{}, {"ring": "ab"}, {"ring": [1]}, {"begin": False}, {"begin": True, "ring": ["a"]}])
async def test_a_word_about_a_set_is_one_of_three(body: Mapping[str, Any]) -> None:
    with pytest.raises(RefusedError) as error:
        await AskingMesh(AgreeingMesh()).ask("UPDATE", None, body, type=SET.managed, name="eu")
    assert str(error.value).startswith(
        "400: set eu: expected ring (a list of routers; with it perhaps the list async), begin (true) or recover"
    )


@pytest.mark.parametrize(
    ("at", "body", "why"),
    [
        ("b", {"ring": ["a"]}, "409: set eu: this replica is not the leader"),
        ("a", {"ring": ["z"]}, "400: set eu: there is no router"),
        ("a", {"begin": True}, "409: set eu cannot begin: it has begun"),
        ("a", {"recover": True}, "409: set eu: somebody leads"),
    ],
)
async def test_a_word_about_a_set_that_cannot_be_taken_is_refused(at: str, body: Mapping[str, Any], why: str) -> None:
    with pytest.raises(RefusedError) as error:
        await AskingMesh(AgreeingMesh(), at).ask("UPDATE", None, body, type=SET.managed, name="eu")
    assert str(error.value).startswith(why)


async def test_a_word_about_a_set_is_logged_as_an_event(caplog: pytest.LogCaptureFixture) -> None:
    mesh = AgreeingMesh()
    row = await AskingMesh(mesh).ask("UPDATE", None, {"ring": ["a", "d"]}, type=SET.managed, name="eu")
    assert row["ring"] == ["a", "d"]
    [record] = [one for one in caplog.records if "operator" in one.getMessage()]
    assert record.getMessage() == "set eu: an operator has a, d be the voters"
    assert record.event == ("set-changed", {"set": "eu", "what": "has a, d be the voters"})  # type: ignore[attr-defined]
