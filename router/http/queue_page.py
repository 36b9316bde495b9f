"""One queue for the console: its settings and its first messages, from the leader of its set.

The page asks the leader by `READ` and `PEEK` of `$management`. `PEEK` needs the operator's permission, so this page
needs the same permission.
"""

import json
from typing import Any, Final

import trio

from router.amqp.format.errors import AmqpError
from router.amqp.format.message import annotations_of, sections_of
from router.entities.observed import ObservedRouter
from router.entities.queues import DECLARED_QUEUE, SETTINGS
from router.http.exchange import WebAnswer, WebCaller, WebRefusal, WebRequest
from router.management.node import ManagementNodes
from router.management.requests import ManagementError
from topic.properties import DEAD_FROM, DEAD_WHY

PATIENCE_S: Final = 8.0
MOST_MESSAGES: Final = 20
MOST_TEXT: Final = 500
"""The highest number of characters of a message's body that the page shows."""
BODIES: Final = (0x75, 0x76, 0x77)
"""The descriptors of the sections that make up a message's body: data, sequence, value."""


class QueuePage:
    """The page of one router."""

    def __init__(self, at: ObservedRouter, management: ManagementNodes) -> None:
        self._at = at
        self._management = management

    async def show(self, request: WebRequest, caller: WebCaller) -> WebAnswer:
        """Answer with a JSON object: `name`, `leader`, `settings`, `messages`. Raises WebRefusal."""
        if not caller.reads_events:
            raise WebRefusal(403, "only operators of the mesh may look at the messages of a queue")
        name = request.query.get("name", "")
        leader = self._leader_of(name)
        of_queue = {"type": DECLARED_QUEUE.managed, "name": name}
        try:
            with trio.fail_after(PATIENCE_S):
                row = await self._management.ask(leader, "READ", **of_queue)
                told = await self._management.ask(leader, "PEEK", count=MOST_MESSAGES, **of_queue)
        except ManagementError as error:
            raise WebRefusal(error.status, str(error)) from None
        except trio.TooSlowError:
            raise WebRefusal(504, f"router {leader} has not answered in time") from None
        settings = {one.name: row[one.managed_name] for one in SETTINGS if row[one.managed_name] is not None}
        messages = [_shown(one) for one in told["messages"]]
        answer = {"name": name, "leader": leader, "settings": settings, "messages": messages}
        return WebAnswer(200, json.dumps(answer).encode(), "application/json")

    def _leader_of(self, name: str) -> str:
        sets = self._at.node.sets
        plan = sets.set_map.plan_of(name) if sets is not None else None
        if sets is None or plan is None:
            raise WebRefusal(400, "expected ?name=, the address of a queue")
        leader = next((one.leader for one in sets.overview() if one.name == plan.name), "")
        if not leader:
            raise WebRefusal(503, f"set {plan.name} has no leader now, so nobody knows what is in the queue")
        return leader


def _shown(one: dict[str, Any]) -> dict[str, Any]:
    message = one["message"]
    about = {key: one[key] for key in ("position", "size", "failed", "consumer")}
    try:
        annotations = annotations_of(message)
        text = " ".join(_text(value) for code, value in sections_of(message) if code in BODIES)
    except AmqpError:
        return about | {"dead": None, "text": "cannot be read as an AMQP message"}
    came_from = annotations.get(DEAD_FROM)
    dead = {"from": str(came_from), "why": str(annotations.get(DEAD_WHY, ""))} if came_from is not None else None
    return about | {"dead": dead, "text": text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}…"}


def _text(value: Any) -> str:
    return bytes(value).decode(errors="replace") if isinstance(value, bytes | memoryview) else str(value)
