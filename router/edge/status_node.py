"""The node `$status`: a client that attaches to it and gives credit gets the router's report (docs/status.md).

The cost to the router is bounded, however many clients watch and however much credit they give. The router makes at
most ten reports a second, in at most a tenth of its time; one report serves all links that wait. A connection gets one
copy of it, on the link that waits longest, and the next copy only when this one is written. A report is never older
than the credit that it answers. A link that does not take so large a message is detached.

`router.entities.report` makes the report.
"""

from typing import Final, Protocol

import trio

from router.amqp.format.errors import MESSAGE_SIZE, NOT_ALLOWED
from router.amqp.format.message import data_message
from router.amqp.proton.link import Link
from router.edge.attach import Refusal
from router.edge.ends import End

STATUS_ADDRESS: Final = "$status"
PAUSE_S: Final = 0.1
# The pause after a report, as a multiple of the time that the report took.
SHARE: Final = 9


class StatusReports(Protocol):
    """The function that makes reports: `router.entities.report`."""

    def __call__(self) -> bytes: ...


class Views(Protocol):
    """The object that knows what a user may see: `router.process`."""

    def view(self, report: bytes, user: str) -> bytes:
        """The part of a report that the user may see."""


class StatusNode:
    def __init__(self, report: StatusReports, views: Views) -> None:
        self._report = report
        self._views = views
        self._waiting: dict[Link, None] = {}  # links with credit, in the order in which they began to wait
        self._asked = trio.Event()
        self._sent = 0

    def attach(self, link: Link) -> None:
        if not link.is_sender:
            raise Refusal(NOT_ALLOWED, f"{STATUS_ADDRESS} accepts no messages, expected a receiver")
        end = link.context = StatusEnd(link, self)
        link.answer()
        end.on_credit()

    def wait(self, link: Link) -> None:
        self._waiting[link] = None
        self._asked.set()

    async def run(self) -> None:
        """Send reports, for as long as the router runs."""
        while True:
            await self._asked.wait()
            began = trio.current_time()
            self._tell()
            await trio.sleep(max(PAUSE_S, SHARE * (trio.current_time() - began)))
            if not self._waiting:
                self._asked = trio.Event()

    def _tell(self) -> None:
        waiting, self._waiting = [link for link in self._waiting if link.credit > 0], {}
        served = {link.connection: link for link in reversed(waiting) if not link.unsent}
        report = self._report() if served else b""
        seen = {user: data_message(self._views.view(report, user)) for user in {host.user for host in served}}
        for link in served.values():
            self._sent += 1
            message = seen[link.connection.user]
            if link.takes(message):
                link.send(self._sent.to_bytes(8, "big"), message, settled=True)
                link.drained()
            else:
                link.detach(
                    MESSAGE_SIZE, f"the report has {len(message)} bytes, more than the max-message-size of this link"
                )
            link.connection.wake()
        for link in (*(link for link in waiting if served.get(link.connection) is not link), *served.values()):
            if link.credit > 0:
                self._waiting[link] = None


class StatusEnd(End):
    __slots__ = ("_node",)

    def __init__(self, link: Link, node: StatusNode) -> None:
        super().__init__(link)
        self._node = node

    def on_credit(self) -> None:
        if self.link.credit > 0:
            self._node.wait(self.link)
