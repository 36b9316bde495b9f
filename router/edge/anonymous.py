"""The anonymous terminus: a link to no address, each of whose messages says in `to` where it goes.

OASIS: Using the AMQP Anonymous Terminus for Message Routing 1.0. A message that goes nowhere is rejected; the link of
one that is settled, so that its sender would not hear of it, is detached.

Towards each address it is a publisher of its own, which attaches when the first message for it comes; until that is
answered its messages wait here. What the link holds counts against one window, as that of any publisher (protocol 5).

Never here: resumption. A map has no addresses, so nobody could tell whose its tags are: what such a link has in doubt
when it ends stays so, and its client sends it again, at least once.
"""

from collections.abc import Iterable, Sequence
from itertools import compress, groupby
from typing import Final, Protocol

from router.amqp.batches import Dispositions, ResumedTransfers, Transfers
from router.amqp.format.errors import INVALID_FIELD, NOT_FOUND, RESOURCE_LIMIT, AmqpError
from router.amqp.format.message import LOOKED_INTO, PROPERTIES, fields_of, section_of, simple
from router.amqp.format.sections import FIELDS
from router.amqp.format.values import EXPIRE_LINK, RCV_FIRST, Handle
from router.amqp.proton.link import Link
from router.edge.attach import FLEETING, LONGEST_ADDRESS, AttachRequest, Refusal, address_in, identity_of
from router.edge.ends import End
from router.edge.publisher_link import PublisherLink, grant, refuse_all
from router.edge.signs import EchoedLink, ProvingConnection
from topic.actions import AnswerDeliveries, AnswerPublisher, Detach
from topic.delivery.allowance import Allowance
from topic.delivery.window import window_of
from topic.ends.publishing import AFRESH
from topic.node import Node
from topic.settings import is_dynamic

CAPABILITY: Final = "ANONYMOUS-RELAY"
"""Of a container that has such a terminus."""
MOST_ADDRESSES: Final = 256
"""That one link may have messages in doubt to."""
_TO: Final = list(FIELDS["properties"]).index("to")

Transfer = tuple[Handle, bytes, bytes, bool]
"""Handle, tag, message, and whether it is settled."""


def request_for(link: Link, address: str, prefixes: tuple[str, ...]) -> AttachRequest:
    """What a client would ask for that attached to this address, for as long as its link lasts; raises `Refusal`."""
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
    """The address in the message's `to`; empty if there is none that can be read, or is looked for."""
    try:
        fields = fields_of(section_of(message, PROPERTIES), _TO + 1)
        to = simple(fields[_TO]) if len(fields) > _TO else None
    except AmqpError:
        return ""
    return address_in(to) if isinstance(to, str) else ""


class AddressPublishers(Protocol):
    """Who attaches publishers: `router.edge.topics`."""

    def begin_publisher(self, end: "AnonymousLink", address: str) -> "AddressPublisher":
        """Towards an address, of a link to none. Raises `Refusal`."""


class AnonymousLink(End):
    """Our end of such a link."""

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
        """Of what is not settled."""
        self._asked: dict[AddressPublisher, None] | None = None
        """Whose question the echo that is under way answers; None if there is none. Some clients answer none ever."""
        self._asks: dict[AddressPublisher, None] = {}
        """Who has asked since."""
        link.answer(expiry_policy=EXPIRE_LINK, max_message_size=max_message)
        self._grant()

    def _grant(self) -> None:
        credit = self._window.due()
        answers = credit < 0 and any(publisher.answers for publisher in self._publishers.values())
        grant(self.link, self._window, credit, answers=answers)

    # what happens on the link

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
        """Nothing is resumed: every transfer that has a message is new."""
        if (new := resumed.as_new()).handles:
            self.on_transfers(new)

    def _turn_away(self, run: list[Transfer], refusal: Refusal, *, at_once: bool) -> None:
        """Settled ones end the link, or, if it is not to end `at_once`, are dropped."""
        for handle, *_ in run:
            if handle is None and not at_once:
                continue
            if handle is None:
                self.end(refusal.condition, str(refusal))
                return
            self.link.reject(handle, refusal.condition, str(refusal), settle=True)
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

    # what its publishers ask

    @property
    def connection(self) -> ProvingConnection:
        return self.link.connection

    def ask(self, publisher: "AddressPublisher") -> None:
        """Never more than one echo is under way: who asks meanwhile has the next."""
        if self._asked is not None:
            self._asks[publisher] = None
        else:
            self._asked = {publisher: None}
            self.link.echo()

    def answered(self, handles: Iterable[Handle]) -> None:
        """These are settled by us."""
        for handle in handles:
            self._home.pop(handle, None)

    def settled(self, sizes: Sequence[int]) -> None:
        """Messages of these sizes are held no longer."""
        self._window.give_back(sizes)
        self._grant()

    def end(self, condition: str, description: str) -> None:
        """And all publishers with it."""
        self.part()
        self.link.detach(condition, description)
        self.gone(self._node.now(), closed=True)


class AddressPublisher(PublisherLink):
    """Such a link towards one address."""

    def __init__(self, end: AnonymousLink, request: AttachRequest, node: Node, max_message: int) -> None:
        super().__init__(end.link, request, node, max_message)
        self._link_end = end
        self._waiting: list[Transfer] = []
        """For the answer to its attach."""

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
        """Whether anything of it is not settled."""
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
        """The client has settled these: what waits is given up."""
        known = [handle for handle in handles if handle in self.records]
        given_up = set(handles)
        waiting = {handle: len(message) for handle, _, message, _ in self._waiting if handle in given_up}
        sizes = [*waiting.values(), *(self.records[handle].size for handle in known)]
        self._waiting = [transfer for transfer in self._waiting if transfer[0] not in waiting]
        self.link.settle_many(list(waiting))
        self._settled(known)
        self._link_end.settled(sizes)

    def tell(self, action: AnswerDeliveries) -> None:
        handles = [self.open[record] for record in action.records]
        super().tell(action)
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
        """It is the link that has a window."""

    def detach(self, action: Detach) -> None:
        self._link_end.end(action.condition, action.description)
