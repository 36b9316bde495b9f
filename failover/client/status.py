"""Asks a router for its status over AMQP. The router's node `$status` sends one message, whose body is JSON."""

import json
import secrets
from typing import Any

import trio

from failover.client.attachment.routers import RouterAddress
from failover.client.endpoint import Endpoint
from router.amqp.batches import Transfers
from router.amqp.connection import Connection
from router.amqp.format.message import body_of
from router.amqp.proton.link import Link
from router.amqp.sasl.credentials import NOBODY, Credentials

STATUS_ADDRESS = "$status"


async def fetch_status(
    host: str, port: int, timeout: float, credentials: Credentials = NOBODY, scheme: str = "amqp"
) -> dict[str, Any]:
    """Return the status of a router. Raises OSError if the router cannot be reached, and trio.TooSlowError if it does
    not answer within `timeout` seconds."""
    with trio.fail_after(timeout):
        async with _Inquiry(RouterAddress(host, port, scheme).url, credentials, timeout) as inquiry:
            return await inquiry.answer()


class _Inquiry(Endpoint):
    role = "subscriber"

    def __init__(self, url: str, credentials: Credentials, patience: float) -> None:
        """For `patience` seconds the client waits, even if the router is silent: a router that is too busy for a
        heartbeat may still answer."""
        container = f"status-{secrets.token_hex(4)}"
        super().__init__(
            [url], STATUS_ADDRESS, container=container, link="status", timeout=0, idle=patience, credentials=credentials
        )
        self._answer: bytes | None = None

    def _attach(self, connection: Connection) -> Link:
        link = connection.receiver("status", STATUS_ADDRESS)
        link.flow(1)
        return link

    async def answer(self) -> dict[str, Any]:
        while self._answer is None:
            await self._change()
        status: dict[str, Any] = json.loads(body_of(self._answer))
        return status

    def on_transfers(self, link: Link, transfers: Transfers) -> None:
        self._answer = transfers.messages[0]
        link.settle_many([handle for handle in transfers.handles if handle is not None])
        self._news.unpark_all()
