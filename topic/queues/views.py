"""What a router tells of its replicas, as values: `ReplicaSets.overview` makes them, the entities of the router show them.

Nobody decides by them: they are of the moment at which they were made.
"""

from collections.abc import Mapping

import attrs


@attrs.frozen(slots=True)
class SetView:
    """One replica set, as this router knows it."""

    name: str
    prefix: str
    """Of the names of its queues; empty for a hashed set."""
    life: int
    """0: the set has not begun."""
    term: int
    role: str
    """What this router is in the set: a `RaftRole`, `learner`, `none` if it is no member, or `set aside`."""
    leader: str | None
    """The router that leads, as far as this one knows."""
    voters: tuple[str, ...]
    """Routers, by the configuration in this router's log."""
    learners: tuple[str, ...]
    commit: int
    applied: int
    behind: Mapping[str, int]
    """At the leader: how many entries the disk of each other member lacks, by router. A router that is out of contact
    lacks at least so many."""
    unstored: int
    """Bytes of entries that wait for this router's disk or, at the leader, for a majority."""
    queues: int
    why_aside: str
    """Why the store of this set was set aside last; empty if it was not."""
    may_stop: bool | None
    """Whether the set keeps its majority if this router stops now. None if this router cannot tell: only the leader
    knows which voters are there."""
