"""Transactions at the leader of a set: it makes a `Transact` of each `Commit` that routers ask for (protocol 14.20).

    router of the client ── Commit ─▶ leader ── Transact ─▶ log of the set ── decided ─▶ answer, and the egresses

A router names the deliveries that its client has retired by their keys, because it knows no positions. The leader finds
the positions. The state decides whether the client still has the messages. If the leader knows that the transaction
cannot be carried out, it proposes an entry that says so, and does not answer by itself: an earlier entry may have
carried out the transaction already.

The state of the set makes the changes and keeps the answers.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from topic.queues.leader.egress import Egress
from topic.queues.operations import Commit, Declare, QueueId, Refused, RefusedFor, Retirement
from topic.queues.positions import runs_of
from topic.queues.proposals import Enqueue, Retire, Transact
from topic.queues.sets import ReplicaSets


class TransactingLog(Protocol):
    """The log of one set that this router leads: `topic.queues.leader.leaders`."""

    @property
    def egresses(self) -> Mapping[QueueId, Egress]: ...
    @property
    def is_full(self) -> bool:
        """Whether the set takes no more messages."""

    def timed(self, asked: Enqueue) -> Enqueue:
        """Return the `Enqueue` with the time at which each message expires."""

    def transact(self, number: int, proposal: Transact) -> bool:
        """Append the entry to the log. When it is decided, the router gets the answer to its request with this number.
        Returns False if the leader is busy, or leads no longer."""


class Commits:
    """The transactions of one set, in one term in which this router leads."""

    def __init__(self, sets: ReplicaSets, name: str, log: TransactingLog) -> None:
        self._sets = sets
        self._name = name
        self._log = log

    def take(self, router: str, number: int, asked: Commit) -> None:
        """Propose the transaction that a router requests. If the leader is busy, tell this to the router, which then
        asks again."""
        why = self._why_not(asked)
        retires = [self._retire(one) for one in asked.retirements] if not why else []
        why = why or ("its client has a message no longer that it takes" if None in retires else "")
        posts = [self._log.timed(Enqueue(post.queue, (), (), post.messages)) for post in asked.posts] if not why else []
        found = [one for one in retires if one is not None] if not why else []
        self._declare([post.queue for post in posts])
        transact = Transact(router, asked.incarnation, asked.number, asked.floor, why, posts, found)
        if not self._log.transact(number, transact):
            self._sets.answer(self._name, router, number, Refused(RefusedFor.BUSY, "the leader of the set is busy"))

    def _why_not(self, asked: Commit) -> str:
        """The reason for which the set cannot carry out the transaction now; empty if it can."""
        queues = (*(post.queue for post in asked.posts), *(one.queue for one in asked.retirements))
        plans = [self._sets.set_map.plan_of(queue) for queue in queues]
        if any(plan is None or plan.name != self._name for plan in plans):
            return f"set {self._name} does not have all queues of the transaction"
        return f"set {self._name} is full" if asked.posts and self._log.is_full else ""

    def _declare(self, queues: Iterable[str]) -> None:
        state = self._sets.state(self._name)
        if missing := [Declare(queue) for queue in queues if state.get(queue) is None]:
            self._sets.propose(self._name, missing)

    def _retire(self, asked: Retirement) -> Retire | None:
        """The `Retire` for the messages of these deliveries. None if the consumer no longer has one of the messages."""
        state = self._sets.state(self._name)
        queue = state.get(asked.queue)
        egress = self._log.egresses.get(queue.id) if queue is not None else None
        if egress is None:  # a queue without an egress has no message at a consumer
            return None
        positions = egress.positions_of(asked.keys, asked.consumer)
        if not positions:
            return None
        annotations = egress.annotations_of(dict(zip(positions, asked.annotations, strict=False)))
        return Retire(egress.queue, asked.consumer, asked.rejected, runs_of(sorted(positions)), annotations)
