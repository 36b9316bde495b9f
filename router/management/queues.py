"""Operations of `$management` on declared queues and their replica sets (protocol 13). The leader of a queue's set
decides each operation on the queue.

A router answers an operation when a majority of the set's disks has it, or with an error when this takes too long. A
client may repeat a declare: if the queue exists with the same settings, the declare succeeds.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Protocol

import attrs
import trio

from router.amqp.format.message import annotations_of, shortened
from router.entities.observed import ObservedRouter
from router.entities.queues import DECLARED_QUEUE, SETTINGS
from router.events.kind import EventKind, event
from router.management.bounds import bounded
from router.management.entity import TYPE, Operations
from router.management.requests import (
    BAD_REQUEST,
    CONFLICT,
    NOT_FOUND,
    TIMEOUT,
    UNAVAILABLE,
    ManagementError,
    Request,
)
from router.mesh.reading import expected
from router.text.printable import printable
from topic.directory.addresses import is_pattern
from topic.properties import DEAD_FROM
from topic.queues.actions import Answered, BodiesFound, SetView
from topic.queues.operations import (
    MOST,
    MOST_NAME,
    Answer,
    Configure,
    Declare,
    Delete,
    Done,
    Operation,
    Purge,
    QueueId,
    QueueSettings,
    RefusedFor,
    Retry,
)
from topic.queues.positions import runs_of
from topic.queues.sets import ReplicaSets
from topic.queues.state import Queue, SetState
from topic.raft.errors import BusyError, NotLeaderError, NotReadyError
from topic.raft.life import NO_LIFE

log = logging.getLogger("oncemesh.management")

AskSets = Callable[[Operation], Awaitable[Answer]]
"""Sends an operation to the leader of its set, and returns the leader's answer. Raises ValueError if no queue may have
that name."""
ReadSet = Callable[[str, QueueId, Sequence[int]], Awaitable[Mapping[int, bytes]]]
"""Reads the bodies of the messages at these positions of a queue. Returns the bodies of the messages that exist. Raises
TooSlowError."""
STATUS: Final = {
    RefusedFor.DIFFERS: CONFLICT,
    RefusedFor.CHANGED: CONFLICT,
    RefusedFor.TOO_MANY: CONFLICT,
    RefusedFor.NOT_FOUND: NOT_FOUND,
    RefusedFor.NO_SET: BAD_REQUEST,
    RefusedFor.MALFORMED: BAD_REQUEST,
    RefusedFor.BUSY: UNAVAILABLE,
    RefusedFor.ROLLED_BACK: CONFLICT,
    RefusedFor.NO_ANSWER: TIMEOUT,
}
"""Maps the reason of a refusal to the status code of the answer."""
ASKED: Final = {one.managed_name: one.name for one in SETTINGS}
"""The settings of a queue, keyed by their names in a request."""
VERSION: Final = "version"
POSITION: Final = "position"
MOST_PEEKED: Final = 100
"""The highest number of messages in one answer to PEEK."""
MOST_RETRIED: Final = 1000
"""The highest number of messages that one RETRY reads."""
MESSAGE_BYTES: Final = 4096
"""The highest number of bytes of a message that an answer shows."""
READ_BYTES: Final = 4 << 20
"""PEEK and RETRY read no further message once they have read this many bytes of messages in all."""
READ_S: Final = 10.0
"""The seconds for which an answer waits for the disk of this router."""
PEEKED_BYTES: Final = 64 << 10
"""PEEK shows no further message once the answer has this many bytes of messages."""
BESIDE: Final = {TYPE, *(one.managed_name for one in DECLARED_QUEUE.attributes if one not in SETTINGS)}
"""The attributes of a queue that are not settings. The body of a request may have them; the router ignores them."""
UNKNOWN: Final = QueueId(NO_LIFE, 0)
"""The version of settings in a stand-in for a queue. It says that this router does not know the settings."""


class AskedNode(Protocol):
    """The node of the router, as this module uses it."""

    def ask(self, operation: Operation) -> int: ...

    def read(self, set_: str, queue: QueueId, positions: Sequence[int]) -> int: ...

    def pump(self) -> None: ...


@attrs.define
class _Awaited:
    answer: Answer | BodiesFound | None = None
    come: trio.Event = attrs.field(factory=trio.Event)


class SetRequests:
    """The requests of one router to its replica sets. The node's pump passes the sets' answers to `answered`."""

    def __init__(self) -> None:
        self._awaited: dict[int, _Awaited] = {}

    async def ask(self, node: AskedNode, operation: Operation) -> Answer:
        """Let a set decide an operation, and wait for its answer, at most `RaftLimits.tried` seconds. Raises ValueError
        if no queue may have that name, or the mesh has no queues."""
        answer = await self._wait(node, node.ask(operation))
        assert not isinstance(answer, BodiesFound)
        return answer

    async def read(self, node: AskedNode, set_: str, queue: QueueId, positions: Sequence[int]) -> Mapping[int, bytes]:
        """Read the bodies of messages. Returns the bodies of the messages that exist. Raises TooSlowError."""
        with trio.fail_after(READ_S):
            found = await self._wait(node, node.read(set_, queue, positions))
        assert isinstance(found, BodiesFound)
        return found.bodies

    async def _wait(self, node: AskedNode, number: int) -> Answer | BodiesFound:
        awaited = self._awaited[number] = _Awaited()
        try:
            node.pump()
            await awaited.come.wait()
        finally:
            del self._awaited[number]
        assert awaited.answer is not None
        return awaited.answer

    def answered(self, answered: Answered) -> None:
        """Pass an answer to the task that waits for it, if that task still waits."""
        self._come(answered.number, answered.answer)

    def found(self, found: BodiesFound) -> None:
        """Pass the bodies to the task that waits for them, if that task still waits."""
        self._come(found.number, found)

    def _come(self, number: int, answer: Answer | BodiesFound) -> None:
        awaited = self._awaited.get(number)
        if awaited is not None:
            awaited.answer = answer
            awaited.come.set()


class QueueOperations:
    """The operations on queues at one router."""

    def __init__(self, ask: AskSets, read: ReadSet, at: ObservedRouter) -> None:
        self._ask = ask
        self._read = read
        self._at = at

    @property
    def all(self) -> Operations[Queue]:
        return Operations(
            self.declare,
            self.configure,
            self.delete,
            {"PURGE": self.purge, "PEEK": self.peek, "RETRY": self.retry},
            self.named,
        )

    async def declare(self, name: str, said: Mapping[Any, Any]) -> Queue:
        if is_pattern(name):
            raise ManagementError(BAD_REQUEST, f"{printable(name)} is a pattern, and a queue has one name")
        settings = settings_in(said)
        found = await self._decide(Declare(name, settings))
        # A declare is logged at debug level, because clients may declare their queue at each start.
        log.debug("queue %s is declared, at the request of an operator", printable(name))
        return Queue(name, found.id, found.version, settings)

    async def configure(self, queue: Queue, said: Mapping[Any, Any]) -> Queue:
        """Replace all settings of the queue by the settings in the request. The leader refuses this if the version of
        the queue's settings is no longer the version that the request names."""
        settings, former = settings_in(said), self._former(queue, said)
        found = await self._decide(Configure(queue.name, queue.id, former, settings))
        log.info("an operator changed the settings of queue %s", printable(queue.name))
        return attrs.evolve(queue, version=found.version, settings=settings)

    @staticmethod
    def _former(queue: Queue, said: Mapping[Any, Any]) -> QueueId:
        """The version of the settings that a request replaces. If the request names no version, the result is the
        version that this router knows."""
        version = said.get(VERSION)
        if version is None and queue.version != UNKNOWN:
            return queue.version
        try:
            return QueueId.parse(str(version))
        except ValueError:
            what = f"version is {version!r}, expected that of the settings that are to be replaced, as READ tells it"
            raise ManagementError(BAD_REQUEST, what) from None

    async def delete(self, queue: Queue) -> None:
        await self._decide(Delete(queue.name, queue.id))
        log.info("queue %s is deleted, at the request of an operator", printable(queue.name))

    async def purge(self, queue: Queue, request: Request) -> dict[str, int]:
        """Purge the queue up to the position in the request. Without one, purge it up to the last message that this
        router knows."""
        position = self._last(queue) if request.asked.get(POSITION) is None else request.number(POSITION, 0, MOST)
        done = await self._decide(Purge(queue.name, queue.id, position))
        log.info("an operator purged queue %s of %d messages", printable(queue.name), done.count)
        return {"purged": done.count}

    async def peek(self, queue: Queue, request: Request) -> dict[str, Any]:
        """The messages of a queue from a position on, as this router knows them. There are as many as fit into the
        answer."""
        first, most = request.number("from", 0, MOST), min(request.number("count", MOST_PEEKED), MOST_PEEKED)
        messages, found, size = self._state(queue).messages, list[dict[str, Any]](), 0
        rows, bodies, whole = messages.of(queue.id), dict[int, bytes | None](), 0
        for position in islice(rows.after(first), most):
            if whole >= READ_BYTES:
                break
            bodies[position] = rows[position]
            whole += rows.about(position)[0]
        if lacking := [position for position, body in bodies.items() if body is None]:
            bodies |= await self._bodies(queue, lacking)
        consumers = {one.name: one.identity.container for one in messages.reserved.consumers}
        for position, message in bodies.items():
            if size >= PEEKED_BYTES:
                break
            # The message has left the queue meanwhile.
            if message is None or position not in messages.of(queue.id):
                continue
            shown = shortened(message, MESSAGE_BYTES)
            size += len(shown)
            consumer = consumers[messages.reserved.at(position)] if messages.reserved.has(position) else None
            about = {"position": position, "size": len(message), "failed": messages.returns(position).failed}
            found.append(about | {"consumer": bounded(consumer), "message": shown})
        return {"messages": found}

    async def retry(self, queue: Queue, request: Request) -> dict[str, int | None]:
        """Return dead letters in a queue to the queues from which they came. Looks at no more than `count` messages
        after the position `from`, as this router knows them. Returns `went`, the number of messages that have gone
        back; `stayed`, the number of messages that stay; and `next`, the position to continue from (null if no messages
        follow)."""
        first, most = request.number("from", 0, MOST), min(request.number("count", MOST_RETRIED), MOST_RETRIED)
        messages, looked, following = self._state(queue).messages, 0, None
        origins: dict[str, list[int]] = {}
        rows, bodies, size = messages.of(queue.id), dict[int, bytes | None](), 0
        for position in islice(rows.after(first), most + 1):
            if len(bodies) == most or size >= READ_BYTES:
                following = position
                break
            bodies[position] = rows[position]
            size += rows.about(position)[0]
        if lacking := [position for position, body in bodies.items() if body is None]:
            bodies |= await self._bodies(queue, lacking)
        for position, message in bodies.items():
            # The message has left the queue meanwhile.
            if message is None or position not in messages.of(queue.id):
                continue
            looked += 1
            origin = annotations_of(message).get(DEAD_FROM) if not messages.reserved.has(position) else None
            if isinstance(origin, str) and origin != queue.name and self._is_queue(origin):
                origins.setdefault(origin, []).append(position)
        went = 0
        for origin, positions in origins.items():
            went += (await self._decide(Retry(queue.name, queue.id, origin, tuple(runs_of(positions))))).count
        log.info("%d dead letters go back from queue %s, at the request of an operator", went, printable(queue.name))
        return {"went": went, "stayed": looked - went, "next": following}

    def _is_queue(self, address: str) -> bool:
        """Whether the address belongs to a queue. The address may be any text, because it comes from an annotation of
        the message, which a publisher can write, too."""
        node = self._at.node
        is_in_a_set = (
            node.topic.kinds.of(address).in_sets and not is_pattern(address) and len(address.encode()) <= MOST_NAME
        )
        return is_in_a_set and node.sets is not None and node.sets.set_map.plan_of(address) is not None

    async def _bodies(self, queue: Queue, positions: Sequence[int]) -> Mapping[int, bytes]:
        sets = self._at.node.sets
        plan = sets.set_map.plan_of(queue.name) if sets is not None else None
        assert plan is not None
        try:
            return await self._read(plan.name, queue.id, positions)
        except trio.TooSlowError:
            why = f"the disk of this router has not read the messages within {READ_S:g} s"
            raise ManagementError(TIMEOUT, why) from None

    def _last(self, queue: Queue) -> int:
        """The position of the last message of a queue; 0 if it has none."""
        return self._state(queue, f", or name the {POSITION} of the last message").messages.last_of(queue.id) or 0

    def _state(self, queue: Queue, or_else: str = "") -> SetState:
        """The state of the set that has the queue. Raises ManagementError if this router has no replica of the set.
        `or_else`: the end of the error text, which tells the client of an alternative."""
        sets = self._at.node.sets
        plan = sets.set_map.plan_of(queue.name) if sets is not None else None
        state = sets.state(plan.name) if sets is not None and plan is not None else None
        if state is None or state.name_of(queue.id) is None:
            what = f"this router has no replica of queue {printable(queue.name)}"
            raise ManagementError(BAD_REQUEST, f"{what}: ask the leader of its set{or_else}")
        return state

    def named(self, identity: str, name: str) -> Queue:
        """A stand-in for a queue, with which a client can change a queue that this router does not know. The settings
        in the stand-in are defaults, not the queue's own settings. Raises ManagementError."""
        try:
            return Queue(name, QueueId.parse(identity), UNKNOWN, QueueSettings())
        except ValueError as error:
            raise ManagementError(BAD_REQUEST, str(error)) from None

    async def _decide(self, operation: Operation) -> Done:
        try:
            answer = await self._ask(operation)
        except ValueError as error:
            raise ManagementError(BAD_REQUEST, str(error)) from None
        if isinstance(answer, Done):
            return answer
        raise ManagementError(STATUS[answer.reason], answer.why)


def settings_in(said: Mapping[Any, Any]) -> QueueSettings:
    """The settings that the body of a request names. A setting that is null stays unset. Raises ManagementError."""
    for name in said:
        if name not in ASKED and name not in BESIDE:
            raise ManagementError(BAD_REQUEST, f"a queue has no setting {name!r}, {expected(str(name), ASKED)}")
    given = {ASKED[name]: value for name, value in said.items() if name in ASKED and value is not None}
    try:
        settings = QueueSettings.of(given)
    except ValueError as error:
        raise ManagementError(BAD_REQUEST, str(error)) from None
    if settings.conflict:
        raise ManagementError(BAD_REQUEST, settings.conflict)
    return settings


class SetOperations:
    """An operator's changes to the sets of one router. Each UPDATE asks for one change:

    | body | does | at which router |
    | --- | --- | --- |
    | `{ring: [ROUTER, …]}` | makes these routers the voters | the leader |
    | `{ring: [ROUTER, …], async: [ROUTER, …]}` | also makes the latter keep an asynchronous copy | the leader |
    | `{begin: true}` | begins a set that does not begin by itself | a router of the ring |
    | `{recover: true}` | continues the set with the store of this router, and loses all others | one with a replica |

    The router answers when it has begun the change. The row of the set shows the result.
    """

    def __init__(self, at: ObservedRouter) -> None:
        self._at = at

    @property
    def all(self) -> Operations[SetView]:
        return Operations(update=self.change)

    async def change(self, one: SetView, said: Mapping[Any, Any]) -> SetView:
        """Begin the change that the operator asks for. Returns the set once this router has begun the change. Raises
        ManagementError."""
        what, do = _word(one.name, said)
        node = self._at.node
        assert node.sets is not None
        try:
            do(node.sets, node.now())
        except NotLeaderError as error:
            raise ManagementError(CONFLICT, f"set {one.name}: {error}") from None
        except NotReadyError as error:
            raise ManagementError(CONFLICT, f"set {one.name} cannot begin: {error}") from None
        except BusyError as error:
            raise ManagementError(UNAVAILABLE, f"set {one.name}: {error}: try again later") from None
        except ValueError as error:
            raise ManagementError(BAD_REQUEST, f"set {one.name}: {error}") from None
        told = event(EventKind.SET_CHANGED, set=one.name, what=what)
        log.warning("set %s: an operator %s", one.name, what, extra=told)
        node.pump()
        return next(view for view in node.sets.overview() if view.name == one.name)


def _word(name: str, said: Mapping[Any, Any]) -> tuple[str, Callable[[ReplicaSets, float], None]]:
    """A text for the log about the operator's request, and the action that carries the request out. Raises
    ManagementError."""
    match said:
        case {"ring": list(ring)} if len(said) == 1 and _are_texts(ring):
            return f"has {', '.join(ring)} be the voters", lambda sets, now: sets.choose(name, ring, now)
        case {"ring": list(ring), "async": list(copies)} if len(said) == 2 and _are_texts(ring) and _are_texts(copies):
            what = (
                f"has {', '.join(ring)} be the voters, and {', '.join(copies) or 'no router'} keep an asynchronous copy"
            )
            return what, lambda sets, now: sets.choose(name, ring, now, copies)
        case {"begin": True} if len(said) == 1:
            return "begins it", lambda sets, now: sets.begin_anew(name)
        case {"recover": True} if len(said) == 1:
            return "recovers it from the store of this router", lambda sets, now: sets.recover(name, now)
    what = (
        "expected ring (a list of routers; with it perhaps the list async), begin (true) or recover (true) in the body"
    )
    raise ManagementError(BAD_REQUEST, f"set {name}: {what}")


def _are_texts(values: list[Any]) -> bool:
    return all(isinstance(value, str) for value in values)
