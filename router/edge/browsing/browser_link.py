"""The end of a client that browses a queue: a source with distribution mode copy (AMQP 1.0 messaging 3.5.7; protocol
14.16).

This end sends the client all messages of the queue in order, settled, also messages that are reserved for consumers.
Browsing changes nothing: the queue does not know of the client, and no directory has its link. The end has one page of
messages at a time, and asks for the next one when the client has credit and reads.
"""

from collections import deque
from collections.abc import Mapping

from router.amqp.format.codec import Described
from router.amqp.format.values import EXPIRE_LINK
from router.amqp.proton.link import Link
from router.edge.ends import End
from router.edge.selector.selector import Selector
from topic.actions import Browsed, LinkAction
from topic.edge.subscriber import ROOM
from topic.node import Node
from topic.queues.operations import Browse
from topic.queues.positions import position_key


class BrowserLink(End):
    __slots__ = ("_is_asked", "_is_at_end", "_is_fresh", "_page", "_place", "_queue", "_selector", "node")

    def __init__(self, link: Link, node: Node, queue: str, selector: Selector | None) -> None:
        """`queue`: the name of the queue. `selector`: the end sends only messages for which it is true."""
        super().__init__(link)
        self.node = node
        self._queue = queue
        self._selector = selector
        self._page: deque[tuple[int, bytes]] = deque()
        """The messages of the page that wait for credit or room, each with its position."""
        self._place = 0
        """The position from which the next page begins."""
        self._is_asked = False
        self._is_fresh = False
        """Whether this end has asked the leader since the client's last flow."""
        self._is_at_end = False
        """Whether the leader had no more messages when this end asked last."""

    def begin(self, filters: Mapping[str, Described]) -> None:
        """Answer the attach. `filters`: the filters that are applied."""
        self.link.moves = False
        self.link.answer(expiry_policy=EXPIRE_LINK, filters=filters)
        self.on_credit()

    @property
    def awaits_writing(self) -> bool:
        return bool(self._page) and self.link.credit > 0

    def written(self) -> None:
        if self.is_there:
            self._go_on()

    def on_credit(self) -> None:
        self._is_at_end = self._is_fresh = False
        self._go_on()

    def perform(self, action: LinkAction) -> None:
        """Take a page of messages from the leader. The page is empty if no router has answered."""
        assert isinstance(action, Browsed)
        self._is_asked = False
        self._is_at_end = not action.messages and (self._is_fresh or action.messages is None)
        self._page.extend((at, message) for at, message in action.messages or () if self._passes(message))
        self._place = action.next
        self._go_on()

    def _passes(self, message: bytes) -> bool:
        fits = self.link.takes(message)
        return fits and (self._selector is None or self._selector.wants(self._selector.read(message)))

    def _go_on(self) -> None:
        while self._page and self.link.credit > 0 and self.link.unwritten < ROOM:
            position, message = self._page.popleft()
            self.link.send(position_key(position), message, settled=True)
        if self._page or self.link.credit <= 0:
            return
        if self._is_at_end:
            self.link.drained()
        if not self._is_asked and self.link.credit > 0:
            asked, is_new = Browse(self._queue, self._place), not self._is_at_end
            self._is_asked, self._is_fresh = is_new, True
            self.node.browse(self, asked, rests=not is_new)
