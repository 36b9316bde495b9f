"""Replica sets as this router knows them, and the declared queues that its replicas have (protocol 13)."""

from collections.abc import Callable, Collection
from typing import Any, Final

from router.entities.observed import ObservedRouter
from router.entities.table import OURS, Attribute, Entity, Metric, Type, Where
from topic.queues.actions import SetView
from topic.queues.messages import QueuedMessages
from topic.queues.state import Queue

LEADER: Final = "leader"
"""The role of the router that leads a set."""


def is_redundant(voters: Collection[str], may_stop: Collection[str]) -> bool:
    """Whether a set keeps its majority whichever voter stops, by what its leader says."""
    return {*voters} <= {*may_stop}


def _measure(series: str, type_: Type, says: str, read: Callable[[ObservedRouter, SetView], Any]) -> Attribute[SetView]:
    """That only `/metrics` has."""
    name = series.removeprefix("oncemesh_set_")
    return Attribute(name, type_, says, read, Where.NOWHERE, Metric(series, ("set",)))


def _at_leader(read: Callable[[SetView], Any]) -> Callable[[ObservedRouter, SetView], Any]:
    return lambda at, one: read(one) if one.role == LEADER else None


SET: Final = Entity[SetView](
    "replica set",
    "replica sets of the mesh, as this router knows them (protocol.md, 13)",
    lambda at: at.node.sets.overview() if at.node.sets is not None else (),
    (
        Attribute("identity", Type.TEXT, "the name of the set", lambda at, one: one.name, Where.MANAGEMENT),
        Attribute("name", Type.TEXT, "the name of the set", lambda at, one: one.name),
        Attribute("prefix", Type.TEXT, "what the names of its queues begin with; empty for a hashed set, to which a "
            "hash of their names leads", lambda at, one: one.prefix),
        Attribute("ring", Type.TEXTS, "the routers that are to be voters; empty at a proxy of a set that has begun",
            lambda at, one: one.ring),
        Attribute("life", Type.TEXT, "the life of the set, in hexadecimal digits; null if the set has not begun",
            lambda at, one: f"{one.life:x}" if one.life else None),
        Attribute("term", Type.NUMBER, "the present term", lambda at, one: one.term),
        Attribute("leader", Type.TEXT, "the router that leads; null if this router knows none",
            lambda at, one: one.leader or None),
        Attribute("role", Type.TEXT, "this router's part: `leader`, `follower`, `pre-candidate` or `candidate` (it "
            "stands for election), `learner`, or `proxy` if it has no replica", lambda at, one: one.role),
        Attribute("voters", Type.TEXTS, "the routers whose replicas have a vote, by this router's log",
            lambda at, one: one.voters),
        Attribute("learners", Type.TEXTS, "the routers whose replicas the leader brings up to date",
            lambda at, one: one.learners),
        Attribute("commit", Type.NUMBER, "the last log index that is decided, as far as this router knows",
            lambda at, one: one.commit, series=Metric("oncemesh_set_commit_index", ("set",))),
        Attribute("applied", Type.NUMBER, "the last log index that the list of queues here has",
            lambda at, one: one.applied),
        Attribute("behind", Type.NUMBERS, "at the leader: how many entries the disk of each other member lacks",
            lambda at, one: one.behind),
        Attribute("may_stop", Type.TEXTS, "voters any one of which may be stopped: the others in contact with this "
            "router are a majority", lambda at, one: one.may_stop),
        Attribute("queues", Type.NUMBER, "how many queues are declared, as far as this router knows",
            lambda at, one: one.queues, series=Metric("oncemesh_set_queues", ("set",))),
        Attribute("unstored_bytes", Type.BYTES, "entries that wait for a majority, or for the disk of this router",
            lambda at, one: one.unstored, series=Metric("oncemesh_set_unstored_bytes", ("set",))),
        Attribute("asked", Type.NUMBER, "requests of this router's clients that wait for an answer of the set",
            lambda at, one: one.asked),
        Attribute("why_aside", Type.TEXT, "why the store of the set here was set aside since the router started; "
            "empty if it was not", lambda at, one: one.why_aside),
        _measure("oncemesh_set_leads", Type.FLAG, "whether this router leads the set",
            lambda at, one: one.role == LEADER),
        _measure("oncemesh_set_redundant", Type.FLAG, "at the leader: whether the set keeps its majority whichever "
            "voter stops", _at_leader(lambda one: is_redundant(one.voters, one.may_stop))),
        _measure("oncemesh_set_behind_entries", Type.NUMBER, "at the leader: how many entries the slowest of the "
            "other disks lacks", _at_leader(lambda one: max(one.behind.values(), default=0))),
        _measure("oncemesh_set_aside", Type.FLAG, "whether the store of the set here was set aside since the router "
            "started", lambda at, one: one.why_aside != ""),
    ),
    status="sets",
    managed=f"{OURS}set",
)  # fmt: skip


def _setting(name: str, type_: Type, says: str) -> Attribute[Queue]:
    return Attribute(name, type_, says, lambda at, one: getattr(one.settings, name), Where.MANAGEMENT)


SETTINGS: Final = (
    _setting("limit_messages", Type.NUMBER, "how many messages the queue has at most; null: no limit"),
    _setting("limit_bytes", Type.BYTES, "how many bytes of messages the queue has at most; null: no limit"),
)
"""The settings of a queue, by their names in `QueueSettings`."""


def _set_of(at: ObservedRouter, queue: Queue) -> str | None:
    plan = at.node.sets.set_map.plan_of(queue.name) if at.node.sets is not None else None
    return plan.name if plan is not None else None


def _messages(at: ObservedRouter, queue: Queue) -> QueuedMessages:
    """All messages of the set of a queue that this router has a replica of."""
    name = _set_of(at, queue)
    assert at.node.sets is not None and name is not None
    return at.node.sets.state(name).messages


def _reserved(at: ObservedRouter, queue: Queue) -> int:
    messages = _messages(at, queue)
    return sum(map(messages.reserved.has, messages.of(queue.id)))


DECLARED_QUEUE: Final = Entity[Queue](
    "queue",
    "declared queues of which this router has a replica",
    lambda at: at.node.sets.queues() if at.node.sets is not None else (),
    (
        Attribute("identity", Type.TEXT, "its id; a queue that is declared again has another one",
            lambda at, one: str(one.id), Where.MANAGEMENT),
        Attribute("name", Type.TEXT, "its address", lambda at, one: one.name, Where.MANAGEMENT),
        Attribute("set", Type.TEXT, "the replica set that has it", _set_of, Where.MANAGEMENT),
        Attribute("version", Type.TEXT, "the version of its settings; each change makes another one",
            lambda at, one: str(one.version), Where.MANAGEMENT),
        Attribute("messages", Type.NUMBER, "messages in the queue, as this replica knows",
            lambda at, one: len(_messages(at, one).of(one.id)), Where.MANAGEMENT),
        Attribute("bytes", Type.BYTES, "the size of these messages",
            lambda at, one: _messages(at, one).size_of(one.id), Where.MANAGEMENT),
        Attribute("reserved", Type.NUMBER, "messages in the queue that a consumer has, or is about to get",
            _reserved, Where.MANAGEMENT),
        *SETTINGS,
    ),
    managed=f"{OURS}queue",
)  # fmt: skip
