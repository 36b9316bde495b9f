"""The anonymous terminus: a link to no address. Each of its messages names an address in `to`.

OASIS: Using the AMQP Anonymous Terminus for Message Routing 1.0. A message to an address that does not exist is
rejected. If the message is presettled, the publisher would not learn of this, so the link is detached.

The link is a separate publisher for each address. This publisher attaches when the first message for the address comes;
messages wait here until the attach is answered. All messages that the link holds count against one window, as with any
publisher (protocol 5).

This link resumes nothing. A map has no addresses, so a router could not tell to which publisher a tag belongs.
Deliveries that are in doubt when the link ends stay in doubt. The client sends them again, so subscribers get them at
least once.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress, groupby
from typing import Any, Final, Protocol

from router.amqp.batches import Dispositions, PostedMessage, ResumedTransfers, Transfers
from router.amqp.format.errors import INVALID_FIELD, NOT_FOUND, RESOURCE_LIMIT, AmqpError
from router.amqp.format.message import LOOKED_INTO, PROPERTIES, fields_of, section_of, simple
from router.amqp.format.sections import FIELDS
from router.amqp.format.values import EXPIRE_LINK, RCV_FIRST, Handle
from router.amqp.proton.link import Link
from router.edge.attach import FLEETING, LONGEST_ADDRESS, AttachRequest, Refusal, address_in, identity_of
from router.edge.ends import End
from router.edge.publisher_link import PublisherLink, grant, pass_through, refuse_all
from router.edge.signs import EchoedLink, ProvingConnection
from router.edge.transactions.parts import lose_part, posting
from topic.actions import AnswerDeliveries, AnswerPublisher, Detach
from topic.delivery.allowance import Allowance
from topic.delivery.window import window_of
from topic.ends.publishing import AFRESH
from topic.node import Node
from topic.settings import is_dynamic

CAPABILITY: Final = "ANONYMOUS-RELAY"
"""The capability that a container offers if it has an anonymous terminus."""
MOST_ADDRESSES: Final = 256
"""The highest number of addresses to which one link may have messages in doubt."""
TAG: Final = "delivery-tag"
"""The key, in the `info` of an error, of the delivery-tag of the message that the error is about (2.2.2)."""
_TO: Final = list(FIELDS["properties"]).index("to")

Transfer = tuple[Handle, bytes, bytes, bool]
"""A transfer: its handle, its tag, its message, and whether it is settled."""


def request_for(link: Link, address: str, prefixes: tuple[str, ...]) -> AttachRequest:
    """The request to attach a publisher to this address, as if the client had attached a link to it. The attach ends
    with the client's link to the anonymous terminus. Raises `Refusal`."""
    return AttachRequest(
        identity=identity_of(link, address, prefixes, receives=False),
        lifetime=FLEETING,
        settles_first=link.remote_rcv_settle_mode == RCV_FIRST,
        claim=AFRESH,
        told=False,
        filters={},
        wants=None,
    )


def destination(message: bytes) -> str:
    """The address in the message's `to`; empty if the message has none, or its properties are malformed or too long."""
    try:
        fields = fields_of(section_of(message, PROPERTIES), _TO + 1)
        to = simple(fields[_TO]) if len(fields) > _TO else None
    except AmqpError:
        return ""
    return address_in(to) if isinstance(to, str) else ""


class AddressPublishers(Protocol):
    """The node that attaches publishers: `router.edge.topics`."""

    def begin_publisher(self, end: "AnonymousLink", address: str) -> "AddressPublisher":
        """Attach a publisher to an address, for a link without one. Raises `Refusal`."""


class AnonymousLink(End):
    """The router's end of a link to the anonymous terminus."""

    __slots__ = ("_asked", "_asks", "_home", "_node", "_publishers", "_topics", "_window")

    def __init__(
        self, link: Link, node: Node, max_message: int, allowance: Allowance, topics: AddressPublishers
    ) -> None:
        super().__init__(link)
        self._node = node
        self._window = window_of(node.topic.settings, allowance)
        self._topics = topics
        self._publishers: dict[str, AddressPublisher] = {}
        self._home: dict[Handle, AddressPublisher] = {}
        """Maps each unsettled delivery to its publisher."""
        self._asked: dict[AddressPublisher, None] | None = None
        """The publishers that wait for the answer to the echo under way, as a sign of life. None if no echo is under
        way: some clients never answer."""
        self._asks: dict[AddressPublisher, None] = {}
        """The publishers that have asked for a sign of life since that echo was sent."""
        link.answer(expiry_policy=EXPIRE_LINK, max_message_size=max_message)
        self._grant()

    def _grant(self) -> None:
        credit = self._window.due()
        answers = credit < 0 and any(publisher.answers for publisher in self._publishers.values())
        grant(self.link, self._window, credit, answers=answers)

    # The methods from here on handle events of the link.

    def on_transfers(self, transfers: Transfers) -> None:
        if refuse_all(self.link, self._window, transfers.messages):
            return
        self._window.take(list(map(len, transfers.messages)))
        for address, group in groupby(transfers, lambda transfer: destination(transfer[2])):
            run = list(group)
            try:
                publisher = self._publishers.get(address) or self._attach(address)
            except Refusal as refusal:
                self._turn_away(run, refusal, at_once=not is_dynamic(address))
                if self.link.ended:
                    return
            else:
                self._home.update((handle, publisher) for handle, *_ in run if handle is not None)
                publisher.take(run)

    def on_resumed(self, resumed: ResumedTransfers) -> None:
        """Take resumed transfers as new ones if they have a message, because this link resumes nothing."""
        if (new := resumed.as_new()).handles:
            self.on_transfers(new)

    def on_posted(self, posted: PostedMessage) -> None:
        """Put a message into its transaction. A publisher is attached at the message's address first, because its
        attach checks that the client may publish there. If it may not, the transaction can only be rolled back."""
        address = destination(posted.message)
        try:
            publisher = self._publishers.get(address) or self._attach(address)
        except Refusal as refusal:
            info = {TAG: posted.tag}
            lose_part(self.link.connection, self._node, posted.transaction)
            if posted.handle is None or not self.link.takes_rejections:
                self.end(refusal.condition, str(refusal), info=info)
                return
            self.link.reject_provisionally(
                posted.handle, posted.transaction, refusal.condition, str(refusal), info=info
            )
            pass_through(self._window, len(posted.message))
            self._grant()
        else:
            if posting(self.link, self._node, publisher.identity.address, posted):
                pass_through(self._window, len(posted.message))
                self._grant()

    def _turn_away(self, run: list[Transfer], refusal: Refusal, *, at_once: bool) -> None:
        """Reject the messages, or end the link if its source does not support this outcome. If a message is presettled,
        its publisher cannot learn of a rejection: end the link if `at_once`, or else drop the message."""
        for handle, tag, *_ in run:
            if handle is None and not at_once:
                continue
            if handle is None or not self.link.takes_rejections:
                self.end(refusal.condition, str(refusal), info={TAG: tag})
                return
            self.link.reject(handle, refusal.condition, str(refusal), settle=True, info={TAG: tag})
        self.settled([len(message) for _, _, message, _ in run])

    def _attach(self, address: str) -> "AddressPublisher":
        if not address:
            needs = (
                f'a message on a link without an address needs an address in "to", in properties of {LOOKED_INTO} bytes'
            )
            raise Refusal(NOT_FOUND, f"{needs} at most")
        if "\0" in address or len(address) > LONGEST_ADDRESS:
            raise Refusal(INVALID_FIELD, f'"to": expected {LONGEST_ADDRESS} characters at most, and none of them NUL')
        if len(self._publishers) == MOST_ADDRESSES:
            idle = next((name for name, publisher in self._publishers.items() if not publisher.holds), None)
            if idle is None:
                raise Refusal(RESOURCE_LIMIT, f"messages to {MOST_ADDRESSES} other addresses wait on this link already")
            self._leave(idle)
        publisher = self._publishers[address] = self._topics.begin_publisher(self, address)
        return publisher

    def _leave(self, address: str) -> None:
        publisher = self._publishers.pop(address)
        for asking in (self._asked or {}, self._asks):
            asking.pop(publisher, None)
        publisher.gone(self._node.now(), closed=True)

    def on_dispositions(self, dispositions: Dispositions) -> None:
        settled = list(compress(dispositions.handles, dispositions.settled))
        for publisher, handles in groupby(settled, self._home.pop):
            publisher.settle(list(handles))

    def on_echo(self) -> None:
        answered, self._asked = self._asked or {}, None
        if self._asks:
            self._asked, self._asks = self._asks, {}
            self.link.echo()
        for publisher in answered:
            publisher.signs.answered()

    def gone(self, now: float, *, closed: bool) -> None:
        publishers, self._publishers = self._publishers, {}
        self._home, self._asked, self._asks = {}, None, {}
        for publisher in publishers.values():
            publisher.gone(now, closed=closed)
        self._window.close()

    # The link's publishers call the methods from here on.

    @property
    def connection(self) -> ProvingConnection:
        return self.link.connection

    def ask(self, publisher: "AddressPublisher") -> None:
        """Send an echo for this publisher. At most one echo is under way, so a later question waits for the next
        one.
        """
        if self._asked is not None:
            self._asks[publisher] = None
        else:
            self._asked = {publisher: None}
            self.link.echo()

    def answered(self, handles: Iterable[Handle]) -> None:
        """Forget deliveries that this router has settled for the client."""
        for handle in handles:
            self._home.pop(handle, None)

    def settled(self, sizes: Sequence[int]) -> None:
        """Give back the room in the window that messages of these sizes took."""
        self._window.give_back(sizes)
        self._grant()

    def end(self, condition: str, description: str, info: Mapping[str, Any] | None = None) -> None:
        """End the link, and all its publishers."""
        self.part()
        self.link.detach(condition, description, info=info)
        self.gone(self._node.now(), closed=True)


class AddressPublisher(PublisherLink):
    """The publisher of an anonymous link at one address."""

    def __init__(self, end: AnonymousLink, request: AttachRequest, node: Node, max_message: int) -> None:
        super().__init__(end.link, request, node, max_message)
        self._link_end = end
        self._waiting: list[Transfer] = []
        """Transfers that wait for the answer to the attach."""

    @property
    def echoed(self) -> EchoedLink:
        return self

    @property
    def connection(self) -> ProvingConnection:
        return self.link.connection

    def echo(self) -> None:
        self._link_end.ask(self)

    @property
    def holds(self) -> bool:
        """Whether any delivery of this publisher is unsettled."""
        return bool(self.records or self._waiting)

    @property
    def is_there(self) -> bool:
        return self._link_end.is_there

    def take(self, run: list[Transfer]) -> None:
        if self._waiting or not self.is_answered:
            self._waiting += run
            return
        self.on_transfers(Transfers(*map(list, zip(*run, strict=True))))
        self._link_end.settled([len(message) for _, _, message, settled in run if settled])

    def settle(self, handles: list[Handle]) -> None:
        """Settle deliveries that the client has settled. Drop messages of them that still wait for the answer to the
        attach."""
        known = [handle for handle in handles if handle in self.records]
        given_up = set(handles)
        waiting = {handle: len(message) for handle, _, message, _ in self._waiting if handle in given_up}
        sizes = [*waiting.values(), *(self.records[handle].size for handle in known)]
        self._waiting = [transfer for transfer in self._waiting if transfer[0] not in waiting]
        self.link.settle_many(list(waiting))
        self._settled(known)
        self._link_end.settled(sizes)

    def send_outcomes(self, action: AnswerDeliveries) -> None:
        handles = [self.open[record] for record in action.records]
        super().send_outcomes(action)
        if action.settle:
            self._link_end.answered(handles)
            self._link_end.settled([record.size for record in action.records])

    def begin(self, action: AnswerPublisher) -> None:
        self.signs.begin()
        self.node.later(self._take_waiting)

    def _take_waiting(self) -> None:
        run, self._waiting = self._waiting, []
        if run and self.is_there:
            self.take(run)

    def grant(self, count: int) -> None:
        """Do nothing: the anonymous link, not this publisher, has the window."""

    def detach(self, action: Detach) -> None:
        self._link_end.end(action.condition, action.description)
