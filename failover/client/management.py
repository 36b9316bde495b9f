"""A client of `$management` (docs/management.md). It asks one router, and through this router all others.

The client has at most one request under way to each router. It recognises an answer by the correlation-id. If its
router is lost, or does not answer for `ANSWER_S` seconds, the client goes to another router, as all clients here do,
and asks again. So every request must be safe to repeat.
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, Final

import trio

from failover.client.endpoint import Endpoint
from failover.client.errors import ClientError
from failover.client.link_events import Listener
from router.amqp.batches import Transfers
from router.amqp.connection import Connection
from router.amqp.format.sections import read_message, write_message
from router.amqp.format.values import ErrorCondition
from router.amqp.proton.link import Link
from router.amqp.sasl.credentials import NOBODY, Credentials

NODE: Final = "$management"
CREDIT: Final = 16
"""The highest number of requests of one client that may wait for answers at a time. A router has the same limit for
each connection (`router.management.node.MOST_REQUESTS`)."""
ANSWER_S: Final = 30.0
"""The seconds that the client waits for an answer. The asked router may itself wait up to 10 s for each other router,
one after the other."""
GOOD: Final = range(200, 300)


class RefusedError(ClientError):
    """The router refuses a request. `status` is the code that AMQP Management gives the reason."""

    def __init__(self, status: int, description: str) -> None:
        ConnectionError.__init__(self, f"{status}: {description}")
        self.condition = None
        self.description = description
        self.status = status


class Management(Endpoint):
    """Sends requests to `$management`, and is used as an async context manager. For `timeout` seconds it looks for a
    router after a loss. `events` is called with each loss."""

    role = "subscriber"

    def __init__(
        self,
        urls: Sequence[str],
        credentials: Credentials = NOBODY,
        *,
        timeout: int = 0,
        events: Listener | None = None,
    ) -> None:
        super().__init__(
            urls,
            NODE,
            container=f"management-{secrets.token_hex(4)}",
            link="answers",
            timeout=timeout,
            credentials=credentials,
            events=events,
        )
        self._numbers = count(1)
        self._under_way = trio.CapacityLimiter(CREDIT)
        self._answered = 0.0  # the time when the last answer came
        self._turns: dict[str, trio.Lock] = {}
        self._senders: dict[str, Link] = {}
        self._refused: dict[str, ClientError] = {}
        self._answers: dict[int, dict[str, Any]] = {}

    async def ask(self, operation: str, router: str | None = None, body: Any = None, **asked: Any) -> Any:
        """Ask a router, and return the body of its answer. Without a name, ask the router that this client is connected
        to.

        Raises RefusedError if the router refuses, and ClientError if no answer comes.
        """
        address = f"_topo/0/{router}/{NODE}" if router is not None else NODE
        async with self._turns.setdefault(address, trio.Lock()), self._under_way:
            while True:
                while self._link is None:
                    await self._change()
                answer = await self._answer(self._link, address, {"operation": operation, **asked}, body or {})
                if answer is not None:
                    return _body(answer)

    async def _answer(self, link: Link, address: str, asked: Mapping[str, Any], body: Any) -> dict[str, Any] | None:
        """Send a request, and return the answer. None if the connection is lost first."""
        sender, number, source = self._sender(address), next(self._numbers), link.remote_source
        since = trio.current_time()
        sections = {
            "properties": {"reply-to": source.address if source is not None else "", "correlation-id": number},
            "application-properties": asked,
            "value": body,
        }
        while sender.credit < 1:
            if not await self._may_come(link, address, since):
                return None
        sender.send(number.to_bytes(8, "big"), write_message(sections), settled=True)
        sender.connection.wake()
        while number not in self._answers:
            if not await self._may_come(link, address, since):
                return None
        return self._answers.pop(number)

    async def query(self, kind: str, names: Sequence[str] = (), router: str | None = None) -> list[dict[str, Any]]:
        """Return all entities of a type, page by page. Each has the attributes in `names`, or all attributes if `names`
        is empty."""
        rows: list[dict[str, Any]] = []
        while True:
            body = {"attributeNames": list(names)}
            page = await self.ask("QUERY", router, body, entityType=kind, offset=len(rows))
            if not page["results"]:
                return rows
            rows += (dict(zip(page["attributeNames"], row, strict=True)) for row in page["results"])

    async def routers(self) -> list[str]:
        """The names of the routers that the client can ask. The router that it is connected to comes first."""
        nodes = await self.ask("GET-MGMT-NODES")
        return [node.rsplit("/", 2)[-2] for node in nodes]

    async def status(self, router: str | None = None) -> dict[str, Any]:
        """The status of a router, as docs/status.md describes it. The link on which this client gets answers is left
        out."""
        return self._without_own(await self.ask("GET-STATUS", router))

    async def look(self, router: str | None = None) -> dict[str, Any]:
        """The answer to `GET-LOOK` (docs/management.md). The link on which this client gets answers is left out of its
        `status`."""
        told: dict[str, Any] = await self.ask("GET-LOOK", router)
        return told | {"status": json.dumps(self._without_own(told["status"]))}

    def _without_own(self, told: str) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(told)
        report["subscribers"] = [one for one in report["subscribers"] if one["container"] != self.identity.container]
        return report

    def _sender(self, address: str) -> Link:
        if address not in self._senders:
            assert self._connection is not None
            # A refusal that is already here concerns a former link, so the client drops this refusal.
            self._refused.pop(address, None)
            self._senders[address] = self._connection.sender(f"requests {address}", address)
            self._connection.wake()
        return self._senders[address]

    async def _may_come(self, link: Link, address: str, since: float) -> bool:
        """Wait for a change. Returns whether an answer can still come on this link. If the router answers no request
        for `ANSWER_S` seconds, the client gives up the link. `since` is the time when this request began to wait."""
        if (refused := self._refused.pop(address, None)) is not None:
            raise refused
        with trio.move_on_at(max(since, self._answered) + ANSWER_S) as patience:
            await self._change()
        if patience.cancelled_caught and self._link is link:
            where = self._routers.current.url
            self._lose(
                ClientError(None, f"the router at {where} answered no request for {ANSWER_S:g} s"), elsewhere=True
            )
        return self._link is link

    # The methods from here on handle events of the connection.

    def _attach(self, connection: Connection) -> Link:
        link = connection.receiver("answers", "")
        link.flow(CREDIT)
        return link

    def _parted(self) -> None:
        self._senders.clear()
        self._refused.clear()
        self._answers.clear()

    def on_attached(self, link: Link) -> None:
        if link is self._attaching:
            super().on_attached(link)

    def on_detach(self, link: Link, closed: bool, condition: ErrorCondition | None) -> None:
        address = next((address for address, sender in self._senders.items() if sender is link), None)
        if address is None:
            super().on_detach(link, closed, condition)
            return
        del self._senders[address]
        said = condition or ErrorCondition("amqp:detach-forced", "")
        self._refused[address] = ClientError(said.name, said.description)
        self._news.unpark_all()

    def on_transfers(self, link: Link, transfers: Transfers) -> None:
        if link is not self._link:
            super().on_transfers(link, transfers)
            return
        self._answered = trio.current_time()
        for message in transfers.messages:
            sections = read_message(message)
            self._answers[sections.get("properties", {}).get("correlation-id")] = sections
        link.settle_many([handle for handle in transfers.handles if handle is not None])
        link.flow(len(transfers.messages))
        self._news.unpark_all()


def _body(sections: dict[str, Any]) -> Any:
    told = sections.get("application-properties", {})
    if (status := told.get("statusCode")) not in GOOD:
        raise RefusedError(status, str(told.get("statusDescription")))
    return sections.get("value")
