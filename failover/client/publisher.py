"""A publisher: sends messages, and is told what became of each (protocol sections 1, 2 and 5).

It attaches with receiver settle mode second: a delivery is settled by us, after its outcome has come. Deliveries are
named by their keys, the same in the whole mesh.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import trio

from failover.client.endpoint import Endpoint
from failover.client.outcome import LOGGED, OF_STATE, Outcome
from router.amqp import handler
from router.amqp.connection import Connection
from router.amqp.handler import RCV_SECOND, SND_UNSETTLED
from router.amqp.link import Link
from router.amqp.message import data_message
from topic.identity import KeyMaker, link_name
from topic.journal import Event

TURN = 64  # sends after which other tasks get theirs, if credit lasts that long


class Handle:
    """One delivery: its key in the mesh (None if the router is not of one), and its outcome to come."""

    __slots__ = ("_done", "_publisher", "_result", "detail", "key", "tag")

    def __init__(self, publisher: "Publisher", tag: bytes, key: bytes | None) -> None:
        self.tag = tag
        self.key = key
        self.detail = handler.Outcome()  # the outcome as AMQP has it
        self._publisher = publisher
        self._result: Outcome | None = None
        self._done: trio.Event | None = None

    async def outcome(self) -> Outcome:
        """What became of it. Raises ClientError if the link is lost before that is known: it is in doubt then."""
        while self._result is None:
            self._publisher._check()
            if self._done is None:
                self._done = trio.Event()
            await self._done.wait()
        return self._result

    def _tell(self, outcome: Outcome | None) -> None:
        self._result = outcome
        if self._done is not None:
            self._done.set()


class Publisher(Endpoint):
    """`async with Publisher(urls, address, container=..., link=...) as p: handle = await p.send(body)`

    Leaving the block waits for all outcomes; leaving it by an exception does not.
    """

    role: ClassVar[str] = "publisher"

    def __init__(
        self,
        urls: Sequence[str],
        address: str,
        *,
        container: str,
        link: str,
        log: Path | None = None,
        in_flight: int = 1000,  # deliveries without outcome before `send` waits
    ) -> None:
        super().__init__(urls, address, container=container, link=link, log=log)
        assert in_flight > 0
        self._in_flight = in_flight
        self._unsettled: dict[handler.Handle, Handle] = {}
        self._number = 0
        self._keys: KeyMaker | None = None

    def _attach(self, connection: Connection) -> Link:
        return connection.sender(
            self.identity.link, self.identity.address, snd_settle_mode=SND_UNSETTLED, rcv_settle_mode=RCV_SECOND
        )

    def _granted(self) -> None:
        if self.generation is not None:
            self._keys = KeyMaker(link_name(self.identity), self.generation)
        if self._log is not None:
            if self.generation is None:
                self._lost(handler.Condition("amqp:not-implemented", "a log needs a router that names generations"))
                return
            self._log.attached("second", 0, self.generation)

    async def send(self, body: bytes, properties: Mapping[str, Any] | None = None) -> Handle:
        """Send a message, as soon as the router has credit for it and not too many are under way."""
        self._check()
        if self._number % TURN == 0:
            await trio.lowlevel.checkpoint()
        while self._link.credit <= 0 or len(self._unsettled) >= self._in_flight:
            await self._change()
        tag = self._number.to_bytes(8, "big")
        self._number += 1
        delivery = Handle(self, tag, self._keys.key(tag) if self._keys is not None else None)
        if self._log is not None:
            assert delivery.key is not None
            self._log.published(delivery.key, tag)
        self._unsettled[self._link.send(tag, data_message(body, properties))] = delivery
        self._link.connection.wake()
        return delivery

    async def drain(self) -> None:
        """Wait until nothing is under way. Raises ClientError if the link is lost before."""
        while self._unsettled:
            await self._change()

    async def _finish(self) -> None:
        await self.drain()

    def on_dispositions(
        self, link: Link, deliveries: list[handler.Handle], states: list[int], settled: list[bool]
    ) -> None:
        final = [
            (handle, OF_STATE.get(state, Outcome.UNKNOWN))
            for handle, state, is_settled in zip(deliveries, states, settled, strict=True)
            if state in OF_STATE or is_settled
        ]
        for handle, outcome in final:
            delivery = self._unsettled.pop(handle)
            if outcome is not Outcome.ACCEPTED:
                delivery.detail = link.remote_outcome(handle)
            self._note(Event.OUTCOME, delivery, outcome)
            self._note(Event.SETTLED, delivery, None)
            delivery._tell(outcome)
        link.settle_many([handle for handle, _ in final])
        self._news.unpark_all()

    def _note(self, event: Event, delivery: Handle, outcome: Outcome | None) -> None:
        if self._log is not None and delivery.key is not None:
            self._log.deliveries(event, [delivery.key], LOGGED[outcome or Outcome.UNKNOWN])

    def _lost(self, condition: handler.Condition | None) -> None:
        super()._lost(condition)
        for delivery in self._unsettled.values():
            delivery._tell(None)
