"""Replica sets as this router knows them (protocol 13). For their queues, see `router.entities.queues`."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import trio

from router.entities.observed import ObservedRouter
from router.entities.table import OURS, Attribute, Entity, Metric, Type, Where
from router.mesh.quantities import format_duration
from topic.queues.actions import SetView
from topic.queues.messages import QueuedMessages
from topic.queues.moving.policy import SHARE, MovePolicy
from topic.raft.life import NO_LIFE, SetLife

LEADER: Final = "leader"
"""The role of the router that leads a set, as reports name it."""


def is_redundant(voters: Collection[str], may_stop: Collection[str]) -> bool:
    """Whether a set keeps its majority when any one of its voters stops, according to its leader's report."""
    return {*voters} <= {*may_stop}


def life_parts(shown: str | None) -> tuple[int, str]:
    """The parts of the name of a set's life, which compare as lives do. `shown`: the attribute `life` of the set."""
    return (SetLife.parse(shown) if shown else NO_LIFE).parts


def _moves(policy: MovePolicy) -> str:
    return f"{SHARE} {format_duration(policy.hold_s)}" if policy.kind == SHARE else policy.kind


def _measure(series: str, type_: Type, says: str, read: Callable[[ObservedRouter, SetView], Any]) -> Attribute[SetView]:
    """An attribute that only `/metrics` shows."""
    name = series.removeprefix("oncemesh_set_")
    return Attribute(name, type_, says, read, Where.NOWHERE, Metric(series, ("set",)))


def _at_leader(read: Callable[[SetView], Any]) -> Callable[[ObservedRouter, SetView], Any]:
    return lambda at, one: read(one) if one.role == LEADER else None


def _of_messages(read: Callable[[QueuedMessages], Any]) -> Callable[[ObservedRouter, SetView], Any]:
    """A figure about the set's messages that only the leader has."""

    def read_if_led(at: ObservedRouter, one: SetView) -> Any:
        sets = at.node.sets
        return read(sets.state(one.name).messages) if sets is not None and one.name in at.node.led else None

    return read_if_led


def _oldest_s(at: ObservedRouter, one: SetView) -> float | None:
    led = at.node.led.get(one.name)
    return round(led.oldest_s(None, trio.current_time()), 3) if led is not None else None


def _ages_s(since: Mapping[str, float]) -> dict[str, float]:
    now = trio.current_time()
    return {router: round(now - at, 1) for router, at in since.items()}


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
        Attribute("moves", Type.TEXT, "how the lead moves by itself, by this router's topology: `prefer`, `follow`, or "
            "`share` with the time for which a router leads, as in `share 10s`", lambda at, one: _moves(one.policy)),
        Attribute("life", Type.TEXT, "the life of the set: the clock at its beginning, in hexadecimal digits, and the "
            "router that began it; null if the set has not begun", lambda at, one: str(one.life) if one.life else None),
        Attribute("term", Type.NUMBER, "the present term", lambda at, one: one.term),
        Attribute("leader", Type.TEXT, "the router that leads; null if this router knows none",
            lambda at, one: one.leader or None),
        Attribute("role", Type.TEXT, "this router's part: `leader`, `follower`, `pre-candidate` or `candidate` (it "
            "stands for election), `learner`, or `proxy` if it has no replica", lambda at, one: one.role),
        Attribute("voters", Type.TEXTS, "the routers whose replicas have a vote, by this router's log",
            lambda at, one: one.voters),
        Attribute("learners", Type.TEXTS, "the routers whose replicas the leader brings up to date",
            lambda at, one: one.learners),
        Attribute("async", Type.TEXTS, "the routers that are to keep an asynchronous copy, which has no vote",
            lambda at, one: one.copies),
        Attribute("commit", Type.NUMBER, "the last log index that is decided, as far as this router knows",
            lambda at, one: one.commit, series=Metric("oncemesh_set_commit_index", ("set",))),
        Attribute("applied", Type.NUMBER, "the last log index that the list of queues here has",
            lambda at, one: one.applied),
        Attribute("behind", Type.NUMBERS, "at the leader: how many entries the disk of each other member lacks",
            lambda at, one: one.behind),
        Attribute("learning_s", Type.NUMBERS, "at the leader: for how many seconds it has brought each learner up to "
            "date that is to be a voter", lambda at, one: _ages_s(one.learning)),
        Attribute("away_s", Type.NUMBERS, "the members that are not in contact with this router: for how many "
            "seconds, or how long this router has run", lambda at, one: _ages_s(one.away)),
        Attribute("copied", Type.NUMBERS, "at the leader: how much of the set the disk of each learner has, or of a "
            "voter that gets the whole state anew, in per cent, about", lambda at, one: one.copied),
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
        Attribute("messages", Type.NUMBER, "at the leader: messages in the queues of the set",
            _of_messages(lambda messages: messages.count), series=Metric("oncemesh_set_messages", ("set",))),
        Attribute("message_bytes", Type.BYTES, "at the leader: the size of these messages and of those in the outbox",
            _of_messages(lambda messages: messages.size), series=Metric("oncemesh_set_message_bytes", ("set",))),
        Attribute("limit_bytes", Type.BYTES, "the size of messages with which the set is full: its publishers wait",
            lambda at, one: at.node.sets.limit if at.node.sets is not None else None,
            series=Metric("oncemesh_set_limit_bytes", ("set",))),
        _measure("oncemesh_set_reserved_messages", Type.NUMBER, "at the leader: how many of these messages a consumer "
            "has or is about to get",
            _of_messages(lambda messages: messages.reserved.count)),
        _measure("oncemesh_set_oldest_message_seconds", Type.SECONDS, "at the leader: how old the oldest of these "
            "messages is, at least; 0 if there is none", _oldest_s),
        _measure("oncemesh_set_enqueued_total", Type.COUNT, "at the leader: messages that came into the queues of the "
            "set since this router leads", _of_messages(lambda messages: messages.passed.enqueued)),
        _measure("oncemesh_set_dequeued_total", Type.COUNT, "at the leader: messages that consumers have accepted or "
            "rejected since this router leads", _of_messages(lambda messages: messages.passed.dequeued)),
        _measure("oncemesh_set_given_back_total", Type.COUNT, "at the leader: how often since this router leads a "
            "consumer gave a message back, or was gone with it",
            _of_messages(lambda messages: messages.passed.given_back)),
        _measure("oncemesh_set_purged_total", Type.COUNT, "at the leader: messages that operators have purged since "
            "this router leads", _of_messages(lambda messages: messages.passed.purged)),
        _measure("oncemesh_set_expired_total", Type.COUNT, "at the leader: messages that left the queues of the set "
            "since this router leads as their time was over, and that were no dead letters",
            _of_messages(lambda messages: messages.passed.expired)),
        Attribute("outbox", Type.NUMBER, "at the leader: dead letters of the queues of the set that no address has "
            "taken yet, and what an operator gives back", _of_messages(lambda messages: len(messages.outbox)),
            series=Metric("oncemesh_set_outbox_messages", ("set",))),
        _measure("oncemesh_set_dead_total", Type.COUNT, "at the leader: messages that have gone to another address "
            "since this router leads, as dead letters or back", _of_messages(lambda messages: messages.passed.dead)),
    ),
    status="sets",
    managed=f"{OURS}set",
)  # fmt: skip
