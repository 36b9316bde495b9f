"""Sends management requests to other routers, and brings back the answers. Requests and answers travel in payloads of
their own (protocol 3).

A router sends one request at a time to each other router; further requests wait. So two routers have at most one
request and one answer under way in each direction, however many requests clients make. The router that sends a request
has checked the permission of its client.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Final

import trio
from attrs import define

from router.amqp.format.errors import AmqpError
from router.management.requests import TIMEOUT, UNAVAILABLE, ManagementError, Request, read_request
from topic.errors import BreachError
from topic.node import Node

PATIENCE_S: Final = 10.0
"""The seconds to wait for an answer. After the loss of a contact, the next request to the router fails at once."""
ASK: Final = b"?"
ANSWER: Final = b"!"
NUMBER_BYTES: Final = 8


@define
class Awaited:
    number: int
    come: trio.Event
    answer: bytes = b""


class Relay:
    """The relay of one router. `receive` takes the payloads of the other routers; `run` answers them."""

    def __init__(self, node: Node, answer: Callable[[Request], Awaitable[bytes]]) -> None:
        self._node = node
        self._answer = answer
        self._numbers = 0
        self._turns: defaultdict[str, trio.Lock] = defaultdict(trio.Lock)
        self._awaited: dict[str, Awaited] = {}
        self._asked: dict[str, tuple[bytes, Request]] = {}
        self._answering: set[str] = set()
        self._come = trio.Event()

    async def ask(self, router: str, message: bytes) -> bytes:
        """Send a request to another router. Returns the answer. Raises ManagementError if there is none."""
        async with self._turns[router]:
            if router not in self._node.topic.directory.contacts:
                raise ManagementError(UNAVAILABLE, f"router {self._node.name} is not in contact with router {router}")
            self._numbers += 1
            awaited = self._awaited[router] = Awaited(self._numbers, trio.Event())
            self._tell(router, ASK, awaited.number.to_bytes(NUMBER_BYTES, "big"), message)
            with trio.move_on_after(PATIENCE_S):
                await awaited.come.wait()
                return awaited.answer
            raise ManagementError(TIMEOUT, f"router {router} has not answered within {PATIENCE_S:g} s")

    def receive(self, router: str, payload: bytes) -> None:
        """Handle a payload of the relay of another router. Raises BreachError."""
        kind, number, message = payload[:1], payload[1 : 1 + NUMBER_BYTES], payload[1 + NUMBER_BYTES :]
        if kind == ANSWER:
            awaited = self._awaited.get(router)
            if awaited is not None and awaited.number == int.from_bytes(number, "big"):
                awaited.answer = message
                awaited.come.set()
            return
        try:
            if kind != ASK:
                raise AmqpError(f"kind {kind!r}")
            # The new request replaces an older one, for whose answer the other router no longer waits.
            self._asked[router] = number, read_request(message)
        except AmqpError as error:
            raise BreachError(f"the peer sent an invalid management request: {error}") from None
        self._come.set()

    async def run(self) -> None:
        """Answer requests, for as long as the router runs: one at a time for each other router."""
        async with trio.open_nursery() as nursery:
            while True:
                await self._come.wait()
                self._come = trio.Event()
                for router in sorted(self._asked.keys() - self._answering):
                    self._answering.add(router)
                    nursery.start_soon(self._answer_all, router)

    async def _answer_all(self, router: str) -> None:
        while router in self._asked:
            number, request = self._asked.pop(router)
            self._tell(router, ANSWER, number, await self._answer(request))
        self._answering.remove(router)

    def _tell(self, router: str, *parts: bytes) -> None:
        self._node.now()
        self._node.send_to_shell(router, b"".join(parts))
        self._node.pump()
