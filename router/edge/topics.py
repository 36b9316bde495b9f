"""The node for every address of a topic. It checks attaches, and answers them when the core has decided (protocol 1, 2,
6 and 7)."""

from collections.abc import Sequence

import attrs

from router.amqp.format.errors import NO_TRANSACTIONS, NOT_FOUND, NOT_IMPLEMENTED, RESOURCE_LIMIT
from router.amqp.format.values import SELECTOR, SELECTOR_CODE
from router.amqp.proton.link import Link
from router.edge.anonymous import AddressPublisher, AnonymousLink, request_for
from router.edge.attach import (
    FLEETING,
    AttachRequest,
    Refusal,
    check_modes,
    checked_address,
    is_anonymous,
    is_coordinator,
    is_dynamic_source,
    read_request,
    source_of,
    why_several_kinds,
)
from router.edge.browsing.browser_link import BrowserLink
from router.edge.dynamic import Answering, DynamicLink, new_address
from router.edge.ends import TopicEnd
from router.edge.guard import Guard
from router.edge.publisher_link import PublisherLink
from router.edge.queue_address import address_inside
from router.edge.selector.selector import Selector
from router.edge.subscriber_link import SubscriberLink
from router.edge.temporary.queues import (
    TemporaryAttach,
    TemporaryPublisher,
    TemporaryQueue,
    TemporarySubscriber,
    is_temporary_queue,
    policy_of,
)
from router.edge.transactions.coordinator import CoordinatorLink
from router.mesh.config import AddressRule
from topic.directory.entry import Role
from topic.edge.filters import NoLocal
from topic.ends.publishing import AFRESH
from topic.identity import link_name
from topic.node import Node
from topic.settings import is_dynamic


class Topics:
    def __init__(
        self,
        node: Node,
        addresses: Sequence[AddressRule],
        max_message: int,
        longest: float,
        guard: Guard,
        answering: Answering,
    ) -> None:
        """`longest`: the longest timeout of a terminus, in seconds."""
        self._node = node
        self._guard = guard
        self._prefixes = tuple(rule.prefix for rule in addresses)
        self._max_message = max_message
        self._longest = int(longest)
        self._answering = answering

    def attach(self, link: Link) -> None:
        if is_anonymous(link):
            check_modes(link)
            allowance = self._guard.allowance(link.connection)
            link.context = AnonymousLink(link, self._node, self._max_message, allowance, self)
            return
        if is_coordinator(link):
            self._attach_coordinator(link)
            return
        if link.is_sender and link.remote_source is None:
            link.recall(source_of(link, self._node.topic.directory.entries()))
        if is_temporary_queue(link):
            check_modes(link)
            link.context = pending = TemporaryAttach(link, self._node, self._attach_temporary)
            pending.begin()
            return
        now = self._node.now()
        if is_dynamic_source(link):
            policy_of(link)  # refuses a malformed policy; every other policy becomes delete-on-close
            address = new_address(self._node.name)
        else:
            address = checked_address(link)
        request = self._inside(read_request(link, address, self._prefixes, self._longest), receives=link.is_sender)
        if why := why_several_kinds(self._node.topic.kinds, address):
            raise Refusal(NOT_IMPLEMENTED, why)
        kind = self._node.topic.kinds.of(request.identity.address)
        if kind.is_of_set and link.browses:
            self._attach_browser(link, address, request)
            return
        if request.filters and not kind.takes_filters:
            raise Refusal(NOT_IMPLEMENTED, f"{address} is {kind.name} and takes no filter")
        self._guard.attaches(link.connection, address, receives=link.is_sender)
        if not link.is_sender:
            self._check_there(address)
        if request.wants is not None:
            asked = self._node.topic.edge.delivery.asked
            self._guard.selects(link.connection, asked.with_another(link.connection.user, request.wants))
        former, is_to_be_kept = self._former(link, request), self._is_to_be_kept(link, request)
        if is_to_be_kept:
            self._guard.keeps(link.connection, durable_of(self._node, link.connection.user))
            if self._node.unkept:
                raise self._refusal()
        if link.is_sender:
            assert former is None or isinstance(former, SubscriberLink)
            self._attach_subscriber(link, request, former, now)
        else:
            assert former is None or isinstance(former, PublisherLink)
            self._attach_publisher(link, request, former, now)
        if is_to_be_kept and not self._node.save():
            self._undo(link, now)

    def _inside(self, request: AttachRequest, *, receives: bool) -> AttachRequest:
        """The request with its address in the mesh. Raises `Refusal`."""
        address = address_inside(self._node, request.identity.address, receives=receives)
        return attrs.evolve(request, identity=attrs.evolve(request.identity, address=address))

    def _check_there(self, address: str) -> None:
        """Check the address of a dynamic node. Raises `Refusal` if the node does not exist, or exists no longer."""
        if is_dynamic(address) and not is_known_dynamic(self._node, address):
            raise Refusal(NOT_FOUND, f"no node {address!r}: the link for which it was created has ended")

    def _is_to_be_kept(self, link: Link, request: AttachRequest) -> bool:
        """Whether the link is durable and, as far as this router knows, in no router's store yet."""
        if not (request.lifetime.durable and request.lifetime.timeout):
            return False
        role = Role.SUBSCRIBER if link.is_sender else Role.PUBLISHER
        known = self._node.topic.directory.entry((role, link_name(request.identity)))
        return known is None or not (known.live and known.outlives_router)

    def _undo(self, link: Link, now: float) -> None:
        """Undo the attach, which no other router knows yet. Raises `Refusal`."""
        end: TopicEnd = link.context
        end.part()
        end.gone(now, closed=True)
        raise self._refusal()

    def _refusal(self) -> Refusal:
        return Refusal(RESOURCE_LIMIT, f"cannot remember a durable link: {self._node.unkept}")

    def _former(self, link: Link, request: AttachRequest) -> TopicEnd | None:
        """The end of the link that a re-attach continues. None if, as far as this router knows, the link has since been
        attached elsewhere."""
        end: TopicEnd | None = link.former.context if link.former is not None else None
        if end is None:
            return None
        known = end.known()
        goes_on = end.identity == request.identity and known is not None and known.epoch == end.epoch
        if goes_on:
            link.continue_former()
        link.former = None
        end.part()
        return end if goes_on else None

    def _attach_subscriber(self, link: Link, request: AttachRequest, former: SubscriberLink | None, now: float) -> None:
        if former is None and request.claim.unsettled:
            has_room = self._node.topic.generations.has_room_for(request.claim.unsettled)
            self._guard.resumes(link.connection, has_room)
        end: SubscriberLink
        if is_dynamic(request.identity.address):
            end, claim = DynamicLink(link, request, self._node, self._answering), AFRESH
        else:
            end, claim = SubscriberLink(link, request, self._node), request.claim
        link.context = end
        if former is not None:
            claim = end.go_on_from(former)
        end.attach(claim, now, told=request.told, wants=request.wants)

    def _attach_browser(self, link: Link, address: str, request: AttachRequest) -> None:
        """Attach a client that browses a queue. A selector is applied. No-local is not applied, because a queue does
        not know who has published a message."""
        selector = request.wants.other if isinstance(request.wants, NoLocal) else request.wants
        assert selector is None or isinstance(selector, Selector)
        self._guard.attaches(link.connection, address, receives=True)
        if selector is not None:
            asked = self._node.topic.edge.delivery.asked
            self._guard.selects(link.connection, asked.with_another(link.connection.user, selector))
        link.context = end = BrowserLink(link, self._node, address, selector)
        end.begin({name: one for name, one in request.filters.items() if one.descriptor in (SELECTOR, SELECTOR_CODE)})

    def _attach_coordinator(self, link: Link) -> None:
        check_modes(link)
        if self._node.transactions is None:
            raise Refusal(NOT_IMPLEMENTED, NO_TRANSACTIONS)
        allowance = self._guard.allowance(link.connection)
        link.context = end = CoordinatorLink(link, self._node, self._node.transactions, allowance)
        end.begin()

    def _attach_publisher(self, link: Link, request: AttachRequest, former: PublisherLink | None, now: float) -> None:
        end = link.context = PublisherLink(link, request, self._node, self._max_message)
        claim = request.claim if former is None else end.go_on_from(former)
        end.attach(claim, now, self._guard.allowance(link.connection))

    def _attach_temporary(self, link: Link, queue: TemporaryQueue) -> None:
        """Attach the link to the queue that was declared for it. Raises `Refusal`."""
        now = self._node.now()
        request = read_request(link, queue.name, self._prefixes, self._longest)
        request = self._inside(attrs.evolve(request, lifetime=FLEETING), receives=link.is_sender)
        if request.filters:
            raise Refusal(NOT_IMPLEMENTED, f"{queue.name} is a queue and takes no filter")
        self._guard.attaches(link.connection, queue.name, receives=link.is_sender)
        if link.is_sender:
            reader = link.context = TemporarySubscriber(queue, link, request, self._node)
            reader.attach(AFRESH, now)
        else:
            writer = link.context = TemporaryPublisher(queue, link, request, self._node, self._max_message)
            writer.attach(AFRESH, now, self._guard.allowance(link.connection))

    def begin_publisher(self, end: AnonymousLink, address: str) -> AddressPublisher:
        now = self._node.now()
        self._guard.begins(end.link.connection, now)
        request = self._inside(request_for(end.link, address, self._prefixes), receives=False)
        self._guard.attaches(end.link.connection, address, receives=False)
        self._check_there(address)
        publisher = AddressPublisher(end, request, self._node, self._max_message)
        publisher.attach(request.claim, now)
        return publisher


def is_known_dynamic(node: Node, address: str) -> bool:
    """Whether the address belongs to a dynamic node. All routers in contact know the node before its client does."""
    return is_dynamic(address) and bool(node.topic.directory.subscribers(address))


def durable_of(node: Node, user: str) -> int:
    """The number of durable links of a user in the part of the mesh that is in contact. Anonymous clients count as the
    user ""."""
    return node.topic.directory.kept.get(user, 0)
