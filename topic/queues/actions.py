"""What the replicas of a router ask of their shell, and what they show (protocol 13); see `topic.queues.sets`."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import attrs

from topic.journal import Event
from topic.queues.operations import Answer
from topic.queues.storing import ReadBodies, ReadPiece, Renew, Write


@attrs.frozen(slots=True)
class Tell:
    """Send this to another router in contact, in order."""

    router: str
    payload: bytes


@attrs.frozen(slots=True)
class Answered:
    """The answer to the request of this number (`ReplicaSets.ask`)."""

    number: int
    answer: Answer


@attrs.frozen(slots=True)
class SetNote:
    """Something about a set that the operator should read in the router's log."""

    text: str


class SetChange(Enum):
    """What has become of a set, as this router sees it."""

    LEADS = "leads"
    """This router leads it now."""
    LEADS_NO_MORE = "leads no more"
    """This router led it."""
    LEADERLESS = "leaderless"
    """No router has led it for `RaftLimits.tried` seconds."""
    ASIDE = "aside"
    """Its store at this router was set aside."""


@attrs.frozen(slots=True)
class SetEvent:
    """Something that has happened to a set, for the events of this router."""

    kind: SetChange
    set: str
    text: str
    """The event as a line of the router's log."""
    term: int = 0
    """The term in which this router leads, or led; else 0."""
    why: str = ""


@attrs.frozen(slots=True)
class Logged:
    """Append this entry to the delivery log, before any later action leaves the router."""

    event: Event
    columns: Mapping[str, Any]
    """As `topic.journal.Block.append` takes them."""


@attrs.frozen(slots=True)
class BodiesFound:
    """The answer to the read of this number (`ReplicaSets.read`)."""

    number: int
    bodies: Mapping[int, bytes]
    """By position: the messages that are still there."""


SetAction = Logged | Tell | Write | Renew | ReadPiece | ReadBodies | Answered | BodiesFound | SetNote | SetEvent


@attrs.frozen(slots=True)
class SetView:
    """One replica set, as one router knows it."""

    name: str
    prefix: str
    """The prefix of the names of its queues; empty for a hashed set."""
    ring: tuple[str, ...]
    """The routers that are to be voters: by this router's log; by the plan if the set has not begun. Empty at a proxy
    of a set that has begun."""
    life: int
    """0: the set has not begun, as far as this router knows."""
    term: int
    leader: str
    """The router that leads; empty if none is known."""
    role: str
    """The part of this router: leader, candidate, pre-candidate, follower, learner, or proxy if it has no replica."""
    voters: tuple[str, ...]
    """By this router's log; empty at a proxy."""
    learners: tuple[str, ...]
    commit: int
    """The last log index that is decided, as far as this router knows."""
    applied: int
    """The last log index that the queues here have."""
    behind: Mapping[str, int]
    """At the leader, by router: how many entries its disk lacks."""
    queues: int
    """How many are declared, as far as this router knows."""
    unstored: int
    """Bytes of the log that wait for a majority, or for the disk of this router."""
    asked: int
    """How many requests of this router wait for an answer of the set."""
    why_aside: str
    """Why the store here was set aside last; empty if it was not since the router started."""
    may_stop: tuple[str, ...]
    """The voters of which any one may be stopped: the others in contact with this router are still a majority."""
