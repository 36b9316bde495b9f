"""Declared queues (protocol 13): all queues of which this router has a replica, and the deepest queues of the sets that
it leads.

A router may have many thousand queues. `$management` shows all of them, page by page. `$status` and `/metrics` have
only the `MOST_SHOWN` deepest, and the sums of each set (`router.entities.replicas`), so their size does not grow with
the queues.
"""

from collections.abc import Callable, Iterable
from heapq import nsmallest
from itertools import islice
from operator import itemgetter
from typing import Any, Final

import trio

from router.entities.observed import ObservedRouter
from router.entities.table import OURS, Attribute, Entity, Metric, Type, Where
from topic.identity import egress_address
from topic.queues.leader.egress import Resting
from topic.queues.messages import Passed, QueuedMessages
from topic.queues.state import Queue

MOST_SHOWN: Final = 100
"""The highest number of queues of a router that `$status` and `/metrics` show."""

Read = Callable[[ObservedRouter, Queue], Any]


def _setting(name: str, type_: Type, says: str) -> Attribute[Queue]:
    return Attribute(name, type_, says, lambda at, one: one.settings.values().get(name), Where.MANAGEMENT)


SETTINGS: Final = (
    _setting("limit_messages", Type.NUMBER, "how many messages the queue has at most; null: no limit"),
    _setting("limit_bytes", Type.BYTES, "how many bytes of messages the queue has at most; null: no limit"),
    _setting("ttl_ms", Type.NUMBER, "how many milliseconds a message is in the queue at most; null: no limit"),
    _setting("bind", Type.TEXTS, "topics, or patterns of topics, whose messages go into the queue, too; null: none"),
    _setting("dead_letter", Type.TEXT, "the address that its dead letters go to; null: none"),
    _setting(
        "redeliveries",
        Type.NUMBER,
        "how often a message comes back as failed before it is a dead letter, if there "
        "is an address for these; null: 20 times",
    ),
    _setting("single_active", Type.FLAG, "one consumer gets all messages until it has ended; null: no"),
    _setting("exclusive", Type.FLAG, "the queue has one consumer, and ends the links of others; null: no"),
    _setting("lock_ms", Type.NUMBER, "how many milliseconds a consumer may have a message; null: no limit"),
    _setting("retry_after_ms", Type.NUMBER, "how many milliseconds a message pauses after it has failed; null: not"),
    _setting("retry_factor", Type.NUMBER, "how many times longer it pauses after each further failure; null: equal"),
    _setting("retry_most_ms", Type.NUMBER, "how many milliseconds it pauses at most; null: a day"),
    _setting("temporary", Type.TEXT, "when a temporary queue is deleted, such as close; null: it is none"),
    _setting(
        "held_by", Type.TEXT, "router and incarnation with the link that has created the temporary queue; null: none"
    ),
)
"""The settings of a queue, keyed by their names in `QueueSettings`."""


def _set_of(at: ObservedRouter, queue: Queue) -> str | None:
    plan = at.node.sets.set_map.plan_of(queue.name) if at.node.sets is not None else None
    return plan.name if plan is not None else None


def _messages(at: ObservedRouter, queue: Queue) -> QueuedMessages:
    """The messages of the queue's set, in the replica that this router has."""
    name = _set_of(at, queue)
    assert at.node.sets is not None and name is not None
    return at.node.sets.state(name).messages


def _consumers(at: ObservedRouter, queue: Queue) -> int:
    directory = at.node.topic.directory
    return sum(map(directory.in_contact, directory.subscribers(egress_address(_set_of(at, queue) or "", queue.name))))


def _oldest_s(at: ObservedRouter, queue: Queue) -> float | None:
    led = at.node.led.get(_set_of(at, queue) or "")
    return round(led.oldest_s(queue.id, trio.current_time()), 3) if led is not None else None


def _passed(read: Callable[[Passed], int]) -> Read:
    """Read a figure that only the leader has; None at other routers."""
    return lambda at, one: read(_messages(at, one).passed_of(one.id)) if _set_of(at, one) in at.node.led else None


def _resting(read: Callable[[Resting], int]) -> Read:
    """Read a figure that only the leader has; None at other routers."""

    def at_leader(at: ObservedRouter, one: Queue) -> int | None:
        led = at.node.led.get(_set_of(at, one) or "")
        return read(led.resting(one.id)) if led is not None else None

    return at_leader


FIGURES: Final[tuple[tuple[str, Type, str, Read], ...]] = (
    ("messages", Type.NUMBER, "messages in the queue, as this replica knows",
        lambda at, one: len(_messages(at, one).of(one.id))),
    ("bytes", Type.BYTES, "the size of these messages", lambda at, one: _messages(at, one).size_of(one.id)),
    ("reserved", Type.NUMBER, "messages in the queue that a consumer has or is about to get",
        lambda at, one: _messages(at, one).reserved_of(one.id)),
    ("paused", Type.NUMBER, "at the leader: messages that have failed, and pause before a consumer gets them again",
        _resting(lambda resting: resting.paused)),
    ("scheduled", Type.NUMBER, "at the leader: messages whose delivery time has not come, among those that it has "
        "looked at for consumers", _resting(lambda resting: resting.scheduled)),
    ("consumers", Type.NUMBER, "its consumers at this router and at routers in contact, attached or suspended",
        _consumers),
    ("oldest_s", Type.SECONDS, "at the leader: how old its oldest message is, at least; 0 if it has none", _oldest_s),
    ("enqueued", Type.COUNT, "at the leader: messages that came into the queue since this router leads",
        _passed(lambda passed: passed.enqueued)),
    ("dequeued", Type.COUNT, "at the leader: messages that consumers have accepted or rejected since this router leads",
        _passed(lambda passed: passed.dequeued)),
    ("given_back", Type.COUNT, "at the leader: how often since this router leads a consumer gave a message back, "
        "or was gone with it", _passed(lambda passed: passed.given_back)),
    ("purged", Type.COUNT, "at the leader: messages that operators have purged since this router leads",
        _passed(lambda passed: passed.purged)),
    ("expired", Type.COUNT, "at the leader: messages that left as their time was over since this router leads, and "
        "that were no dead letters", _passed(lambda passed: passed.expired)),
    ("outbox", Type.NUMBER, "dead letters of the queue that no address has taken yet, and what an operator gives back",
        lambda at, one: _messages(at, one).outbox.count_of(one.id)),
    ("dead", Type.COUNT, "at the leader: messages that have gone to another address since this router leads, as dead "
        "letters or back", _passed(lambda passed: passed.dead)),
)  # fmt: skip
"""One figure of a queue: its name, its type, its meaning, and the function that reads it."""


def _series(name: str, type_: Type) -> Metric:
    ending = "_total" if type_.counts else "_seconds" if type_ is Type.SECONDS else ""
    return Metric(f"oncemesh_queue_{name.removesuffix('_s')}{ending}", ("queue",))


def _deepest(at: ObservedRouter) -> Iterable[Queue]:
    """The `MOST_SHOWN` queues with the highest numbers of messages, the deepest first. If there are fewer queues with
    messages, some without messages follow."""
    states = [at.node.sets.state(name) for name in at.node.led] if at.node.sets is not None else []
    filled = [(-count, id_.index, id_, state) for state in states for id_, count in state.messages.counts()]
    for *_, id_, state in nsmallest(MOST_SHOWN, filled, key=itemgetter(0, 1)):
        queue = state.get(state.name_of(id_) or "")
        assert queue is not None, "messages of a queue that is not there"
        yield queue
    idle = (queue for state in states for queue in state if not state.messages.of(queue.id))
    yield from islice(idle, max(0, MOST_SHOWN - len(filled)))


_NAME: Final = Attribute[Queue]("name", Type.TEXT, "its address", lambda at, one: one.name)
_SET: Final = Attribute[Queue]("set", Type.TEXT, "the replica set that has it", _set_of)

LED_QUEUE: Final = Entity[Queue](
    "led queue",
    f"queues of the replica sets that this router leads, the {MOST_SHOWN} deepest",
    _deepest,
    (
        _NAME,
        _SET,
        *(Attribute(name, type_, says, read, series=_series(name, type_)) for name, type_, says, read in FIGURES),
    ),
    status="queues",
)

DECLARED_QUEUE: Final = Entity[Queue](
    "queue",
    "declared queues of which this router has a replica",
    lambda at: at.node.sets.queues() if at.node.sets is not None else (),
    (
        Attribute("identity", Type.TEXT, "its id; a queue that is declared again has another one",
            lambda at, one: str(one.id)),
        _NAME,
        _SET,
        Attribute("version", Type.TEXT, "the version of its settings; each change makes another one",
            lambda at, one: str(one.version)),
        Attribute("last_position", Type.NUMBER, "the position of its last message, also in the outbox, as this "
            "replica knows; null: it has none", lambda at, one: _messages(at, one).last_of(one.id), Where.MANAGEMENT),
        *(Attribute(name, type_, says, read) for name, type_, says, read in FIGURES),
        *SETTINGS,
    ),
    managed=f"{OURS}queue",
)  # fmt: skip
