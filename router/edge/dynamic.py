"""Dynamic nodes: a source without an address is granted an address of its own (AMQP 1.0 messaging 3.5.3, 3.5.10;
protocol 12.8).

The link is an ordinary subscriber. Every client that may publish can send to the address, from any router, and no other
client can receive from it. The node ends with the link, whatever the link asks for. Management answers on these links,
too.
"""

import secrets
from typing import Protocol

from router.amqp.format.values import EXPIRE_LINK
from router.amqp.proton.link import Host, Link
from router.edge.attach import AttachRequest
from router.edge.subscriber_link import SubscriberLink
from topic.actions import AnswerSubscriber
from topic.node import Node
from topic.properties import EPOCH
from topic.settings import DYNAMIC


def new_address(router: str) -> str:
    """A new address that no client can guess."""
    return f"{DYNAMIC}{router}/{secrets.token_urlsafe(15)}"


class Answering(Protocol):
    """The node that sends answers on dynamic sources: `router.management.node`. Messages that clients publish to the
    address of such a source are also sent there, without this node."""

    def awaits_credit(self, connection: Host) -> bool:
        """Whether there is an answer to send on a dynamic source of this connection. Called when such a source may have
        credit.
        """


class DynamicLink(SubscriberLink):
    """The end of a dynamic source."""

    def __init__(self, link: Link, request: AttachRequest, node: Node, answering: Answering) -> None:
        super().__init__(link, request, node)
        self._answering = answering

    def begin(self, action: AnswerSubscriber) -> None:
        properties = {EPOCH: str(action.epoch)}
        self.link.answer(expiry_policy=EXPIRE_LINK, properties=properties, address=self.identity.address)
        self.node.later(self._take_first_credit)

    def _drain(self) -> None:
        if not self._answering.awaits_credit(self.link.connection):
            super()._drain()

    # The methods from here on are about answers of management.

    @property
    def can_say(self) -> bool:
        """Whether the link has credit for an answer, beyond the credit that published messages use."""
        return self.is_there and bool(self.subscriber.spare)

    def send_answer(self, tag: bytes, message: bytes) -> None:
        """Send an answer, settled. Does nothing if the client does not take so large a message."""
        assert self.can_say
        if not self.link.takes(message):
            return
        self.node.now()
        self.node.topic.credit(self.subscriber, self.subscriber.credit - 1)
        self.link.send(tag, message, settled=True)
        self.node.perform()
        self._drain()


def dynamic_source(connection: Host, address: str) -> DynamicLink | None:
    """The link with that address, if it is a link of this connection; else None."""
    for link in connection.links:
        end = link.context
        if isinstance(end, DynamicLink) and end.is_there and end.identity.address == address:
            return end
    return None
