"""The actions that a router's replicas ask of their shell, and the view of a set that operators get (protocol 13).
`topic.queues.sets` explains how the shell performs actions."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import attrs

from topic.journal import Event
from topic.queues.moving.policy import PREFERS, MovePolicy
from topic.queues.operations import Answer, MessagePage
from topic.queues.storing import ReadBodies, ReadPiece, Renew, Write
from topic.raft.life import SetLife


@attrs.frozen(slots=True)
class Tell:
    """Send this payload to another router in contact. Payloads keep their order."""

    router: str
    payload: bytes


@attrs.frozen(slots=True)
class Answered:
    """The answer to the request with this number (`ReplicaSets.ask`)."""

    number: int
    answer: Answer


@attrs.frozen(slots=True)
class PageFound:
    """The answer to the request with this number, which asked for a page of messages (`ReplicaSets.ask`)."""

    number: int
    page: MessagePage


@attrs.frozen(slots=True)
class SetNote:
    """A line about a set for the operator, in the router's log."""

    text: str


class SetChange(Enum):
    """A change of a set, as this router sees it."""

    LEADS = "leads"
    """This router has begun to lead the set."""
    LEADS_NO_MORE = "leads no more"
    """This router has ceased to lead the set."""
    LEADERLESS = "leaderless"
    """For `RaftLimits.tried` seconds, no router has led the set."""
    ASIDE = "aside"
    """This router has set its store of the set aside: it keeps the store under another name, and begins with an empty
    one."""


@attrs.frozen(slots=True)
class SetEvent:
    """An event of a set, for the list of this router's events."""

    kind: SetChange
    set: str
    text: str
    """The event of the set as a line for the router's log."""
    term: int = 0
    """The term in which this router leads or led; 0 for other events."""
    why: str = ""


@attrs.frozen(slots=True)
class Logged:
    """Append this entry to the delivery log before the shell performs any later action."""

    event: Event
    columns: Mapping[str, Any]
    """The arguments of `topic.journal.Block.append`."""


@attrs.frozen(slots=True)
class BodiesFound:
    """The answer to the read with this number (`ReplicaSets.read`)."""

    number: int
    bodies: Mapping[int, bytes]
    """The bodies of the messages that still exist, keyed by position."""


SetAction = (
    Logged | Tell | Write | Renew | ReadPiece | ReadBodies | Answered | PageFound | BodiesFound | SetNote | SetEvent
)


@attrs.frozen(slots=True)
class SetView:
    """One replica set of the mesh, as one router sees it."""

    name: str
    prefix: str
    """The prefix of the names of the set's queues; empty for a hashed set."""
    ring: tuple[str, ...]
    """The routers that are to be voters. They come from this router's log, or from the plan if the set has not begun.
    Empty at a proxy of a set that has begun."""
    life: SetLife
    """The life of the set; `NO_LIFE` if the set has not begun, as far as this router knows."""
    term: int
    leader: str
    """The router that leads the set; empty if this router knows none."""
    role: str
    """The role of this router in the set: leader, candidate, pre-candidate, follower, learner, or proxy (without a
    replica)."""
    voters: tuple[str, ...]
    """The present voters, according to this router's log; empty at a proxy."""
    learners: tuple[str, ...]
    copies: tuple[str, ...]
    """The routers that are to keep an asynchronous copy: learners for good."""
    commit: int
    """The last log index that is decided, as far as this router knows."""
    applied: int
    """The last log index that this router has applied to the queues."""
    behind: Mapping[str, int]
    """Only at the leader: for each router, how many entries its disk lacks."""
    learning: Mapping[str, float]
    """Only at the leader: for each learner that is to become a voter, since when this leader has been bringing it up to
    date."""
    away: Mapping[str, float]
    """Maps each member that is out of contact with this router to the time when the contact ended. If the two were
    never in contact, this is the start of this router."""
    copied: Mapping[str, int]
    """Only at the leader: for each router that is a learner or is being sent the snapshot, about how many per cent of
    snapshot and log its disk has."""
    queues: int
    """The number of the set's declared queues that this router knows."""
    unstored: int
    """The bytes of the log that are not yet on a majority of disks, or not yet on this router's disk."""
    asked: int
    """The number of requests of this router that the set has not answered yet."""
    why_aside: str
    """The reason for which this router last set its store of the set aside; empty if it has not done so since its
    start."""
    may_stop: tuple[str, ...]
    """Whether the set can lose any one of these voters: the other voters in contact with this router are still a
    majority."""
    policy: MovePolicy = PREFERS
    """The policy by which the leader of the set changes, according to this router's topology."""
