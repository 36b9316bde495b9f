"""The node `$routers`: sends clients the list of other routers, and sends it again whenever it has changed.

A message is the current `failover-server-list`, as in the router's open. If this router has too many links (`balance`),
it sets `oncemesh:move` in some messages. Such a message asks its client to move to the first router of the list. A
client may ignore this. The router asks only clients that have a link here. It does not ask a connection that is new,
was asked a short time ago, or has a link that would end with the connection. A connection has at most one link to this
node.

`alternates` makes the list.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from router.amqp.format.errors import NOT_ALLOWED, RESOURCE_LIMIT
from router.amqp.format.sections import write_message
from router.amqp.proton.link import Host, Link
from router.edge.attach import Refusal
from router.edge.ends import End
from router.plan.alternates import Alternates
from router.plan.balance import Balance
from router.turns import next_look
from topic.properties import MOVE, ROUTERS

log = logging.getLogger("oncemesh")

LOOK_S: Final = 1.0
PATIENCE: Final = 5
"""Links have to be uneven for this many times `timing.dead` before the router asks a client to move."""
YOUNG: Final = 30
"""A client has to be here for this many times `timing.dead` before the router asks it to move: a newer client may soon
leave."""
AGAIN_S: Final = 60.0
"""The router waits this many seconds before it asks the same client again."""


class RoutersNode:
    """The node of one router. `run` sends the lists."""

    def __init__(self, alternates: Alternates, dead: float, turn: Callable[[], Awaitable[None]]) -> None:
        """`dead`: the mesh's `timing.dead`, in seconds. `turn` returns when the router may send to the next client."""
        self.alternates = alternates
        self._turn = turn
        self._young = YOUNG * dead
        self._balance = Balance(alternates.router, PATIENCE * dead, trio.current_time())
        self._ends: dict[Host, RoutersEnd] = {}
        """Connection -> the end of its link here, in the order of the attaches."""
        self._known = alternates.known()

    def attach(self, link: Link) -> None:
        if not link.is_sender:
            raise Refusal(NOT_ALLOWED, f"{ROUTERS} accepts no messages, expected a receiver")
        former = self._ends.get(link.connection)
        # A second link is allowed only if the first has ended: the client attaches again, and its detach comes next.
        if former is not None and not former.link.ended:
            raise Refusal(RESOURCE_LIMIT, f"this connection has a link to {ROUTERS} already")
        end = link.context = self._ends[link.connection] = RoutersEnd(link, self, trio.current_time() + self._young)
        link.answer()
        end.on_credit()

    def leave(self, end: "RoutersEnd") -> None:
        if self._ends.get(end.link.connection) is end:
            del self._ends[end.link.connection]

    def message(self, first: str = "") -> bytes:
        """The encoded list. `first`: the router to which the client should move; empty for no move."""
        asked = {"application-properties": {MOVE: True}} if first else {}
        return write_message({**asked, "value": self.alternates(first)})

    async def run(self) -> None:
        """Send lists and ask clients to move, as long as the router runs."""
        while True:
            await next_look(LOOK_S)
            if (known := self.alternates.known()) != self._known:
                self._known = known
                await self._tell()
            now = trio.current_time()
            self._ask(self._balance.takers(self.alternates.loads(), now), now)

    async def _tell(self) -> None:
        message = self.message()
        for end in list(self._ends.values()):
            await self._turn()
            end.send_list(message)

    def _ask(self, takers: list[str], now: float) -> None:
        """Ask clients to move. `takers` has a router for each link that is to move."""
        asked, named = 0, set[str]()
        for end in self._ends.values():
            if asked == len(takers):
                break
            links = end.movable if end.askable <= now and end.link.credit > 0 else 0
            if 0 < links <= len(takers) - asked:
                end.askable = now + AGAIN_S
                end.send_list(self.message(takers[asked]))
                named.add(takers[asked])
                asked += links
        if asked:
            others = ", ".join(sorted(named))
            log.info("this router has too many links: it asked the clients of %d links to move to %s", asked, others)


class RoutersEnd(End):
    """Our end of a link from `$routers`."""

    __slots__ = ("_is_behind", "_node", "_sent", "askable")

    def __init__(self, link: Link, node: RoutersNode, askable: float) -> None:
        """`askable`: the time from which on the router may ask this connection to move."""
        super().__init__(link)
        self._node = node
        self._sent = 0
        self._is_behind = True
        """True while the client does not have the current list."""
        self.askable = askable

    @property
    def movable(self) -> int:
        """The number of links that would move with the client of this connection. 0 if one of them would end, because
        its terminus does not outlive the connection."""
        ends: list[End | None] = [link.context for link in self.link.connection.links if link is not self.link]
        return len(ends) if all(end is not None and end.lasts for end in ends) else 0

    def on_credit(self) -> None:
        if self._is_behind:
            self.send_list(self._node.message())
        self.link.drained()

    def send_list(self, message: bytes) -> None:
        """Send a new list. A client without credit gets the list when it gives credit."""
        self._is_behind = self.link.credit <= 0
        if not self._is_behind and self.link.takes(message):
            self._sent += 1
            self.link.send(self._sent.to_bytes(8, "big"), message, settled=True)
            self.link.connection.wake()

    def gone(self, now: float, *, closed: bool) -> None:
        self._node.leave(self)
