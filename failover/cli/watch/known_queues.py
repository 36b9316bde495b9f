"""The declared queues of a mesh, and their replica sets, as `$management` of its routers reports them.

Routers may report different facts about a set, because a follower may not know the latest entries that are decided. So
the commands use the report of the set's leader. If no leader answers, they use the report of the router in the latest
term.
"""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import frozen

from failover.cli.watch.mesh_client import of_each, planned
from failover.client.management import Management, RefusedError
from router.entities.queues import DECLARED_QUEUE, SETTINGS
from router.entities.replicas import SET
from router.entities.table import Entity, Where
from router.mesh.errors import RunError
from router.mesh.reading import expected
from router.mesh.shown.sets import ShownSet, in_words, sets_in
from router.text.printable import printable
from topic.queues.operations import QueueSettings

NOT_FOUND: Final = 404
MOST_MEANT: Final = 3
"""If a name is unknown, the error proposes at most this number of similar names."""
LIKE: Final = 0.8
"""A name is proposed only if its similarity is at least this, on a scale from 0 to 1. The limit is high because names
of queues often begin with the same words."""

COUNTED: Final = (
    "messages",
    "bytes",
    "reserved",
    "paused",
    "scheduled",
    "consumers",
    "oldest_s",
    "enqueued",
    "dequeued",
    "given_back",
    "purged",
    "expired",
    "outbox",
    "dead",
)
"""The figures of a queue, with the names that they have both in `KnownQueue` and in the table of entities."""

Row = Mapping[str, Any]


@frozen
class KnownQueue:
    """A queue of the mesh, as a router reports it."""

    name: str
    id: str
    set: ShownSet
    version: str
    """The version of the queue's settings."""
    settings: QueueSettings
    messages: int
    bytes: int
    """The number of bytes that all messages in the queue have."""
    reserved: int
    """The number of messages that are not free. A message is not free while a consumer has it or is about to get it. If
    the consumer gives the message back, the message is not free until another consumer has got it."""
    paused: int | None
    """The number of messages that have failed, and rest before a consumer gets them again. None if no leader of the set
    answers."""
    scheduled: int | None
    """The number of messages whose delivery time has not come, among the messages that the leader has looked at. None
    if no leader answers."""
    consumers: int
    oldest_s: float | None
    """The oldest message is at least this old, in seconds. None if no leader of the set answers."""
    enqueued: int | None
    """The number of messages that came into the queue since the present leader began to lead; None if no leader
    answers. `dequeued`, `given_back`, `purged`, `expired` and `dead` count from the same time."""
    dequeued: int | None
    """The number of messages that consumers accepted or rejected, since the leader began to lead."""
    given_back: int | None
    """How often a consumer gave a message back, or ended while it had a message."""
    purged: int | None
    """The number of messages that operators purged, since the leader began to lead."""
    expired: int | None
    """The number of messages that left the queue because their time was over, without becoming dead letters."""
    outbox: int
    """The number of messages in the queue's outbox: dead letters that no address has taken yet, and messages that an
    operator gives back."""
    dead: int | None
    """The number of messages that went to another address, as dead letters or because an operator gave them back."""
    last_position: int | None
    """The position of the last message in the queue. None if the queue is empty."""

    @property
    def leader(self) -> str | None:
        return self.set.leader

    def as_json(self) -> dict[str, Any]:
        about = {"name": self.name, "id": self.id, "set": self.set.name, "leader": self.leader}
        return about | {name: getattr(self, name) for name in COUNTED} | {"settings": self.settings.values()}


async def sets_of_mesh(management: Management) -> dict[str, ShownSet]:
    """Return the replica sets by name, from the reports of all routers that answer. Raises RunError if the mesh has no
    queues."""
    answers = await of_each(await planned(management, ()), lambda router: management.query(SET.managed, (), router))
    found = sets_in((router, _in_words(SET, row)) for router, rows in answers.items() for row in rows)
    if not found:
        raise RunError("this mesh has no replica sets, expected the part `queues` in its topology")
    return {one.name: one for one in found}


async def set_named(management: Management, name: str) -> ShownSet:
    """Return the replica set that has this name. Raises RunError if there is none."""
    sets = await sets_of_mesh(management)
    if name not in sets:
        raise RunError(f"there is no replica set {printable(name)}, {expected(name, sorted(sets))}")
    return sets[name]


async def all_queues(management: Management, sets: Mapping[str, ShownSet]) -> list[KnownQueue]:
    """Return the queues of all sets, sorted by name."""

    async def ask(router: str) -> Sequence[Row]:
        return await management.query(DECLARED_QUEUE.managed, (), router)

    answers = await of_each(sorted({one.by for one in sets.values()}), ask)
    found = [queue for router, rows in answers.items() for row in rows for queue in _known(row, router, sets)]
    return sorted(found, key=lambda queue: queue.name)


async def queue_named(management: Management, name: str) -> KnownQueue:
    """Return the queue that has this name. Raises RunError if no set has it."""
    sets = await sets_of_mesh(management)

    async def read(router: str) -> Row | None:
        try:
            row: Row = await management.ask("READ", router, type=DECLARED_QUEUE.managed, name=name)
        except RefusedError as error:
            if error.status == NOT_FOUND:
                return None
            raise
        return row

    answers = await of_each(sorted({one.by for one in sets.values()}), read)
    found = [queue for router, row in answers.items() if row is not None for queue in _known(row, router, sets)]
    if not found:
        if leaderless := without_leader(sets):
            raise RunError(f"no router that answers knows queue {printable(name)}, and no router leads {leaderless}")
        names = [queue.name for queue in await all_queues(management, sets)]
        raise RunError(f"there is no queue {printable(name)}; {_hint(name, names)}")
    return found[0]


def without_leader(sets: Mapping[str, ShownSet]) -> str:
    """The names of the sets that no router leads, in words; empty if all sets have leaders. The routers of a set
    without a leader may not know all its queues: a router that has just started does not know how much of its log is
    decided."""
    names = [one.name for one in sets.values() if one.leader is None]
    return in_words(names) if names else ""


def _known(row: Row, router: str, sets: Mapping[str, ShownSet]) -> list[KnownQueue]:
    """Return the queue that a router's row reports, in a list. The list is empty if the commands use another router's
    report about the queue's set."""
    of = sets.get(row["set"])
    if of is None or of.by != router:
        return []
    settings = {one.name: value for one in SETTINGS if (value := row[one.managed_name]) is not None}
    said = _in_words(DECLARED_QUEUE, row)
    counted = {name: said[name] for name in (*COUNTED, "last_position")}
    return [KnownQueue(row["name"], row["identity"], of, row["version"], QueueSettings.of(settings), **counted)]


def _hint(name: str, names: list[str]) -> str:
    if not names:
        return "no queue is declared: use oncemesh queue declare"
    like = difflib.get_close_matches(name, names, MOST_MEANT, LIKE)
    if like:
        return f"did you mean {' or '.join(map(printable, like))}?"
    return f"oncemesh queue list shows {'the only one' if len(names) == 1 else f'all {len(names)}'}"


def _in_words(entity: Entity[Any], row: Row) -> Row:
    """A row of `$management` whose fields have the names that `$status` uses."""
    return {one.name: row.get(one.managed_name) for one in entity.shown(Where.MANAGEMENT)}
