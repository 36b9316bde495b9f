"""The management agent of one router: it executes requests, and writes the answers.

It works on one request at a time, and no request blocks the loop (`pace`). While it waits for a change that other
routers decide, it works on other requests. An answer to a QUERY has at most `MOST_ROWS` entities: a client asks for the
rest with an offset.

`node` checks permissions; `types` and `router.entities` define the entities.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from itertools import chain, islice, repeat
from typing import Any, Final

import trio

from router.amqp.format.codec import Raw, encode
from router.entities.table import DISPATCH
from router.management.entity import IDENTITY, NAME, TYPE, EntityType
from router.management.pace import LOOKS, WorkPace
from router.management.recent_events import RecentEvents
from router.management.recent_log import MOST_LINES, RecentLog
from router.management.requests import (
    BAD_REQUEST,
    CREATED,
    GOOD,
    NO_CONTENT,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    OK,
    ManagementError,
    Request,
    answer_message,
    error_message,
)
from router.management.types import full_name, other_names

MOST_ROWS: Final = 500
MOST_SEQUENCE: Final = 2**53
RESERVED: Final = frozenset({"CREATE", "UPDATE", "DELETE", "PURGE", "PEEK", "RETRY", "GET-LOG", "GET-EVENTS"})
"""The operations that need the operator's permission."""

Outcome = tuple[int, Any]
Kind = EntityType[Any]
Operation = Callable[[Request], Awaitable[Outcome]]


class Agent:
    def __init__(
        self,
        types: Iterable[Kind],
        management_nodes: Callable[[], list[str]],
        events: RecentEvents,
        report: Callable[[], bytes],
        looks: Callable[[float], Raw],
        turn: Callable[[], Awaitable[None]],
    ) -> None:
        """`management_nodes`: returns the addresses of all management nodes. `report`: makes the report of
        docs/status.md. `looks`: makes a look for a console, which is at most as old as the argument, in seconds.
        `turn`: the agent awaits it before each slice of work."""
        self.types = {kind.name: kind for kind in types}
        self._others = other_names(self.types)
        self._nodes = management_nodes
        self._events = events
        self._report = report
        self._look = looks
        self._pace = WorkPace(turn)
        self.log = RecentLog()
        self._lock = trio.Lock()
        others = chain.from_iterable(kind.may.others for kind in self.types.values())
        self._changes: dict[str, Operation] = {
            "CREATE": self._create,
            "UPDATE": self._update,
            "DELETE": self._delete,
            **dict.fromkeys(others, self._do_other),
        }
        self._looks: dict[str, Operation] = {
            "QUERY": self._query,
            "READ": self._read,
            "GET-TYPES": self._about(lambda kind: []),
            "GET-ATTRIBUTES": self._about(lambda kind: kind.attribute_names),
            "GET-OPERATIONS": self._about(lambda kind: kind.operations),
            "GET-ANNOTATIONS": self._about(lambda kind: []),
            "GET-SCHEMA": self._get_schema,
            "GET-MGMT-NODES": self._get_nodes,
            "GET-LOG": self._get_log,
            "GET-EVENTS": self._get_events,
            "GET-STATUS": self._get_status,
            "GET-LOOK": self._get_look,
        }

    async def answer(self, request: Request) -> bytes:
        """Execute the request. Returns the answer, as a message."""
        try:
            if (change := self._changes.get(request.operation)) is not None:
                return _answered(request, await change(request))
            async with self._at_pace():
                return _answered(request, await self._tell(request))
        except ManagementError as error:
            return error_message(request, error)

    @asynccontextmanager
    async def _at_pace(self) -> AsyncIterator[None]:
        """A context in which the agent does no other work. Afterwards the agent rests for as long as the
        pace demands."""
        async with self._lock:
            await self._pace.begin()
            try:
                yield
            finally:
                await self._pace.rest()

    async def _tell(self, request: Request) -> Outcome:
        operation = self._looks.get(request.operation)
        if operation is None:
            known = ", ".join((*self._looks, *self._changes))
            raise ManagementError(NOT_IMPLEMENTED, f"unknown operation {request.operation}, expected one of {known}")
        return await operation(request)

    # The methods from here on are about types.

    def _about(self, what: Callable[[Kind], list[str]]) -> Operation:
        async def tell(request: Request) -> Outcome:
            kinds = self._kinds(request, "entityType")
            others = self._others.values() if request.text("entityType") is None else ()
            return OK, {kind.name: what(kind) for kind in chain(kinds, others)}

        return tell

    async def _get_schema(self, request: Request) -> Outcome:
        """Returns the schema of the types, in the form of qpid-dispatch. In this form the names of qpid-dispatch's own
        types have no prefix."""
        return OK, {
            "prefix": DISPATCH.rstrip("."),
            "entityTypes": {
                name.removeprefix(DISPATCH): {
                    "attributes": kind.schema,
                    "operations": kind.operations,
                    "description": kind.says,
                    "fullyQualifiedType": name,
                }
                for name, kind in self.types.items()
            },
        }

    def _kinds(self, request: Request, field: str) -> list[Kind]:
        """The type that the request names, or all types. Raises ManagementError."""
        name = request.text(field)
        if name is None:
            return list(self.types.values())
        if name in self._others:
            return [self._others[name]]
        name = full_name(name, self.types)
        if name not in self.types:
            raise ManagementError(BAD_REQUEST, f"{field} is {name!r}, expected one of {', '.join(self.types)}")
        return [self.types[name]]

    async def _get_nodes(self, request: Request) -> Outcome:
        return OK, self._nodes()

    async def _get_log(self, request: Request) -> Outcome:
        return OK, self.log.last(request.number("limit", MOST_LINES))

    async def _get_events(self, request: Request) -> Outcome:
        since, limit = request.number("since", 0, MOST_SEQUENCE), min(request.number("limit", MOST_ROWS), MOST_ROWS)
        events = []
        for happened in self._events.since(since, limit):
            events.append(Raw(encode(happened)))
            await self._pace.breathe()
        return OK, events

    async def _get_status(self, request: Request) -> Outcome:
        return OK, self._report().decode()

    async def _get_look(self, request: Request) -> Outcome:
        return OK, self._look(request.number("age", 0) / 1000)

    # The methods from here on are about entities.

    async def _query(self, request: Request) -> Outcome:
        kinds = self._kinds(request, "entityType")
        names = _chosen(kinds, request.attribute_names())
        first, count = request.number("offset", 0), min(request.number("count", MOST_ROWS), MOST_ROWS)
        rows = []
        for kind, entity in list(islice(_entities(kinds), first, first + count)):
            rows.append(Raw(encode(kind.row(entity, names))))
            await self._pace.breathe()
        return OK, {"attributeNames": names, "results": rows}

    async def _read(self, request: Request) -> Outcome:
        kind, entity = await self._find(request)
        return OK, kind.told(entity)

    async def _create(self, request: Request) -> Outcome:
        name = request.text(NAME)
        if request.text(TYPE) is None or name is None:
            raise ManagementError(BAD_REQUEST, "the application properties lack type or name")
        async with self._at_pace():
            [kind] = self._kinds(request, TYPE)
        if kind.may.create is None:
            raise ManagementError(NOT_IMPLEMENTED, f"nothing of type {kind.name} can be created")
        return CREATED, kind.told(await kind.may.create(name, _attributes(request)))

    async def _update(self, request: Request) -> Outcome:
        kind, entity = await self._found(request)
        if kind.may.update is None:
            raise ManagementError(NOT_IMPLEMENTED, f"nothing of type {kind.name} can be changed")
        return OK, kind.told(await kind.may.update(entity, _attributes(request)))

    async def _delete(self, request: Request) -> Outcome:
        kind, entity = await self._found(request)
        if kind.may.delete is None:
            raise ManagementError(NOT_IMPLEMENTED, f"nothing of type {kind.name} can be deleted")
        await kind.may.delete(entity)
        return NO_CONTENT, {}

    async def _do_other(self, request: Request) -> Outcome:
        kind, entity = await self._found(request)
        do = kind.may.others.get(request.operation)
        if do is None:
            raise ManagementError(NOT_IMPLEMENTED, f"type {kind.name} has no operation {request.operation}")
        return OK, await do(entity, request)

    async def _found(self, request: Request) -> tuple[Kind, Any]:
        """The entity that the request is to change. Raises ManagementError."""
        async with self._at_pace():
            return self._named(request) or await self._find(request)

    def _named(self, request: Request) -> tuple[Kind, Any] | None:
        """The type and a stand-in for the entity that a request names. The request has to give type, identity and name,
        and the operations of the type have to accept unknown entities (`Operations.named`). None for any other
        request."""
        identity, name = request.text(IDENTITY), request.text(NAME)
        if request.text(TYPE) is None or identity is None or name is None:
            return None
        [kind] = self._kinds(request, TYPE)
        return (kind, kind.may.named(identity, name)) if kind.may.named is not None else None

    async def _find(self, request: Request) -> tuple[Kind, Any]:
        """The entity that a request names by its identity, or else by its name. Raises ManagementError."""
        by = IDENTITY if request.text(IDENTITY) is not None else NAME
        sought = request.text(by)
        if sought is None:
            raise ManagementError(BAD_REQUEST, "the application properties have neither identity nor name")
        found = []
        for kind in self._kinds(request, "type"):
            says, entities = kind.attributes[by], list(kind.entities())
            for at in range(0, len(entities), LOOKS):
                found += [(kind, entity) for entity in entities[at : at + LOOKS] if says(entity) == sought]
                await self._pace.breathe()
        if not found:
            raise ManagementError(NOT_FOUND, f"no entity has the {by} {sought!r}")
        if len(found) > 1:
            identities = ", ".join(f"{kind.attributes[IDENTITY](entity)}" for kind, entity in found[:10])
            raise ManagementError(
                BAD_REQUEST, f"{len(found)} entities have the {by} {sought!r}; name one by its identity: {identities}"
            )
        return found[0]


def _answered(request: Request, outcome: Outcome) -> bytes:
    status, body = outcome
    return answer_message(request, status, GOOD[status], body)


def _attributes(request: Request) -> Mapping[Any, Any]:
    """The attributes in the body of a request."""
    return request.body if isinstance(request.body, dict) else {}


def _entities(kinds: Iterable[Kind]) -> Iterator[tuple[Kind, Any]]:
    return chain.from_iterable(zip(repeat(kind), kind.entities(), strict=False) for kind in kinds)


def _chosen(kinds: list[Kind], asked: list[str]) -> list[str]:
    """The attributes of an answer: the requested attributes that at least one of the types has, or all attributes if
    none are requested. Unknown attributes cause no error if at least one is known, because tools also ask old routers
    for new attributes."""
    known = dict.fromkeys(chain.from_iterable(kind.attribute_names for kind in kinds))
    names = [name for name in dict.fromkeys(asked) if name in known] if asked else list(known)
    if not names:
        raise ManagementError(
            BAD_REQUEST, f"unknown attributes {', '.join(asked[:10])}, expected some of {', '.join(known)}"
        )
    return names
