"""The actions that the replicas of a router ask of their shell, and the view of a set for the operator (protocol 13);
see `topic.queues.sets`."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import attrs

from topic.journal import Event
from topic.queues.moving.policy import PREFERS, MovePolicy
from topic.queues.operations import Answer, MessagePage
from topic.queues.storing import ReadBodies, ReadPiece, Renew, Write


@attrs.frozen(slots=True)
class Tell:
    """Send this payload to another router in contact, in order."""

    router: str
    payload: bytes


@attrs.frozen(slots=True)
class Answered:
    """The answer to the request of this number (`ReplicaSets.ask`)."""

    number: int
    answer: Answer


@attrs.frozen(slots=True)
class PageFound:
    """The page for the request of this number (`ReplicaSets.ask`)."""

    number: int
    page: MessagePage


@attrs.frozen(slots=True)
class SetNote:
    """A line about a set for the operator, in the router's log."""

    text: str


class SetChange(Enum):
    """A change of a set, as this router sees it."""

    LEADS = "leads"
    """This router leads the set now."""
    LEADS_NO_MORE = "leads no more"
    """This router leads the set no longer."""
    LEADERLESS = "leaderless"
    """No router has led the set for `RaftLimits.tried` seconds."""
    ASIDE = "aside"
    """The set's store at this router was set aside."""


@attrs.frozen(slots=True)
class SetEvent:
    """An event of a set, for the list of this router's events."""

    kind: SetChange
    set: str
    text: str
    """The event as a line of the router's log."""
    term: int = 0
    """The term in which this router leads or led; 0 for other events."""
    why: str = ""


@attrs.frozen(slots=True)
class Logged:
    """Append this entry to the delivery log, before any later action leaves the router."""

    event: Event
    columns: Mapping[str, Any]
    """The arguments of `topic.journal.Block.append`."""


@attrs.frozen(slots=True)
class BodiesFound:
    """The answer to the read of this number (`ReplicaSets.read`)."""

    number: int
    bodies: Mapping[int, bytes]
    """Keyed by position: the bodies of the messages that still exist."""


SetAction = (
    Logged | Tell | Write | Renew | ReadPiece | ReadBodies | Answered | PageFound | BodiesFound | SetNote | SetEvent
)


@attrs.frozen(slots=True)
class SetView:
    """One replica set, as one router knows it."""

    name: str
    prefix: str
    """The prefix of the names of its queues; empty for a hashed set."""
    ring: tuple[str, ...]
    """The routers that are to be voters, by this router's log, or by the plan if the set has not begun. Empty at a
    proxy of a set that has begun."""
    life: int
    """The life of the set; 0 if it has not begun, as far as this router knows."""
    term: int
    leader: str
    """The router that leads; empty if none is known."""
    role: str
    """The role of this router: leader, candidate, pre-candidate, follower, learner, or proxy if it has no replica."""
    voters: tuple[str, ...]
    """The voters by this router's log; empty at a proxy."""
    learners: tuple[str, ...]
    commit: int
    """The last log index that is decided, as far as this router knows."""
    applied: int
    """The last log index that this router has applied to the queues."""
    behind: Mapping[str, int]
    """At the leader, keyed by router: how many entries the router's disk lacks."""
    learning: Mapping[str, float]
    """At the leader, keyed by learner: since when this leader brings it up to date."""
    away: Mapping[str, float]
    """Keyed by member that is not in contact with this router: since when. It is the start of this router if the two
    have not been in contact."""
    copied: Mapping[str, int]
    """At the leader, keyed by router that is a learner or is sent the snapshot: how much of snapshot and log its disk
    has, in per cent, about."""
    queues: int
    """How many queues are declared, as far as this router knows."""
    unstored: int
    """Bytes of the log that wait for a majority or for this router's disk."""
    asked: int
    """How many requests of this router wait for the set's answer."""
    why_aside: str
    """Why the store here was last set aside; empty if it was not since the router started."""
    may_stop: tuple[str, ...]
    """The voters of which the operator may stop any one: the others in contact with this router are still a
    majority."""
    policy: MovePolicy = PREFERS
    """How the lead moves by itself, by this router's topology."""
