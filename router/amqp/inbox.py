"""Gathers the transfers, dispositions and flows of one input, event by event, and hands them to the owner in batches.

This is the receiving half of the hot path. Transfers and dispositions become parallel lists, one batch for each link
and input. The inbox reads the state of a delivery when it hands the batch over, so several changes in one input are
reported as one. The inbox also makes the checks that proton lacks: of credit, of tags, of the size of messages, and of
the direction of transfers.

`connection` and `endpoints` handle attaches and closes.
"""

from itertools import compress
from typing import Any, Final, Protocol

from router.amqp.batches import Dispositions, PostedMessage, ResumedTransfers, Transfers
from router.amqp.format.errors import (
    INVALID_FIELD,
    MESSAGE_SIZE,
    NOT_ALLOWED,
    TRANSFER_LIMIT,
    AmqpError,
    LimitError,
)
from router.amqp.format.message import ENVELOPE, in_envelope
from router.amqp.format.notes import TransactionalDisposition
from router.amqp.format.values import MAX_TAG, TRANSACTIONAL, Handle
from router.amqp.proton.library import MEMORY, SCRATCH_SIZE, lib, tag_of
from router.amqp.proton.link import Link
from router.amqp.proton.loops import LOOPS, Came
from router.amqp.proton.restated import Restated

WITHOUT_CREDIT: Final = "the publisher sent messages without credit"
MOST_EXCESS: Final = 10_000
"""The highest number of transfers without credit on a link that we have detached. A peer may send some before it has
read our detach. If it sends more, its connection is closed."""
DELIVERY_BYTES: Final = 512
"""Bytes that proton keeps for each transfer without credit, until the link is freed."""
OF_ALL: Final = "this connection, its user or all clients together have too many unsettled bytes at this router"


class Recipient(Protocol):
    """Receives the batches: the owner of the connection (`router.amqp.handler` describes the calls)."""

    def on_transfers(self, link: Link, transfers: Transfers) -> None: ...
    def on_resumed(self, link: Link, resumed: ResumedTransfers) -> None: ...
    def on_posted(self, link: Link, posted: PostedMessage) -> None: ...
    def on_part_lost(self, connection: Any, transaction: bytes) -> None: ...
    def on_dispositions(self, link: Link, dispositions: Dispositions) -> None: ...
    def on_credit(self, link: Link) -> None: ...


class Inbox:
    """The inbox of one connection. `gather`, `frame` and `flow` take events in; `hand_over` calls the handler and
    empties it."""

    __slots__ = ("_connection", "_flows", "_news", "_recipient", "_restated", "_resumed", "_settling", "_transfers")

    def __init__(self, connection: Any, recipient: Recipient, settling: set[Handle], restated: Restated) -> None:
        """`connection`: the connection, for `Recipient.on_part_lost`."""
        self._connection = connection
        self._recipient = recipient
        self._restated = restated
        # Deliveries that we have settled. The owner gets no more dispositions of them.
        self._settling = settling
        # The batches of each link, in the order in which the links first appear in the input.
        self._transfers: dict[Link, Transfers] = {}
        # All resumed deliveries here arrived before the transfers in `_transfers`.
        self._resumed: dict[Link, ResumedTransfers] = {}
        self._news: dict[Link, dict[Handle, None]] = {}
        self._flows: dict[Link, None] = {}

    def gather(self, link: Link, pointer: Any, collector: Any) -> bool:
        """If the next event concerns a delivery of this link, or of the former link with this pointer, take it off the
        collector, together with the events of the same kind that follow. Returns False if `frame` has to handle the
        event.
        """
        if link.ended:
            return False
        if link.quick and not link.is_sender and not link.partial:
            came = LOOPS.transfers(collector, link.pointer, link.quick)
            if came.handles:
                if max(came.messages) >= ENVELOPE:
                    messages = [in_envelope(one, 0) if one >= ENVELOPE else one for one in came.messages]
                    came = came._replace(messages=messages)
                self._add(link, came)
                return True
        news = LOOPS.news(collector, pointer, sends=link.is_sender)
        if link in self._news:
            self._news[link].update(dict.fromkeys(news))
        elif news:
            self._news[link] = dict.fromkeys(news)
        self._restated.told += len(news)
        return bool(news)

    def frame(self, link: Link, delivery: Any) -> None:
        """Handle an event that `gather` has not taken: the link has ended, the message is incomplete or large, or the
        delivery is resumed or aborted."""
        if link.ended:
            self._discard(link, delivery)
        else:
            self._assemble(link, delivery)

    def _add(self, link: Link, came: Came) -> None:
        handles, tags, messages, settled = came
        if True in settled:
            self._settling.update(compress(handles, settled))
            handles = [None if is_over else handle for handle, is_over in zip(handles, settled, strict=True)]
        batch = self._transfers.get(link)
        if batch is None:
            self._transfers[link] = Transfers(handles, tags, messages, settled)
        else:
            batch.handles += handles
            batch.tags += tags
            batch.messages += messages
            batch.settled += settled

    def _complete(self, link: Link, delivery: Any, message: bytes) -> None:
        if message >= ENVELOPE or link.format:
            message = in_envelope(message, link.format)
            link.expect_any()
        tag, settled = tag_of(delivery), lib.pn_delivery_settled(delivery)
        if lib.pn_delivery_remote_state(delivery) == TRANSACTIONAL:
            self._complete_posted(link, delivery, tag, message)
            return
        if settled:
            # If a delivery is settled, proton makes the next delivery of the link the current one, too.
            lib.pn_delivery_settle(delivery)
        else:
            lib.pn_link_advance(link.pointer)
        self._add(link, Came([delivery], [tag], [message], [settled]))

    def _complete_posted(self, link: Link, delivery: Any, tag: bytes, message: bytes) -> None:
        link.expect_any()
        transaction, settled = link.remote_transaction(delivery)[0], lib.pn_delivery_settled(delivery)
        if settled:
            self._settling.add(delivery)
            lib.pn_delivery_settle(delivery)
        else:
            lib.pn_link_advance(link.pointer)
        # Hand over first the events that came before this message.
        self.hand_over()
        if self._are_fit(link, [tag]):
            self._recipient.on_posted(link, PostedMessage(None if settled else delivery, message, transaction, tag))
        else:
            link.keep(len(message))
            self._lose_part(link, delivery)

    def _lose_part(self, link: Link, delivery: Any) -> None:
        """A message is not taken. If it belongs to a transaction, the owner has to know: the discharge may be on its
        way already."""
        if lib.pn_delivery_remote_state(delivery) == TRANSACTIONAL:
            self._recipient.on_part_lost(self._connection, link.remote_transaction(delivery)[0])

    def _assemble(self, link: Link, delivery: Any) -> None:
        """Take the parts of a message of several frames out of proton as they come, so that its session never fills."""
        link.gather_partial()
        if lib.pn_delivery_aborted(delivery):
            link.drop_partial()
            self._abort(link, delivery)
        elif link.max_message and len(link.partial) > link.max_message:
            self._reject_oversized(link, delivery)
        elif lib.pn_delivery_partial(delivery):
            if limit := link.connection.account.refuses:
                raise LimitError(limit, OF_ALL)
            if link.balance <= 0:
                link.flow(0)
        elif link.resumed and lib.pn_delivery_remote_state(delivery) != TRANSACTIONAL:
            self._complete_resumed(link, delivery, link.take_partial(), aborted=False)
        else:
            self._complete(link, delivery, link.take_partial())

    def _reject_oversized(self, link: Link, delivery: Any) -> None:
        """Reject the delivery by its handle, settled, so that the sender does not send it again in its next attach."""
        self.hand_over()
        self._lose_part(link, delivery)
        if not link.ended:
            reason = f"a message exceeds the limit of {link.max_message} bytes"
            link.reject(delivery, MESSAGE_SIZE, reason, settle=True)
            link.connection.expel(link, MESSAGE_SIZE, reason, "max_message")

    def _abort(self, link: Link, delivery: Any) -> None:
        """Give back the credit that an aborted transfer has used (AMQP 1.0 2.7.5). The owner learns the tag, because a
        sender may abort a delivery of an earlier attach, with or without `resume`."""
        self._complete_resumed(link, delivery, b"", aborted=True)
        if link.ended:
            return
        if link.balance >= -link.overdraft:
            lib.pn_link_flow(link.pointer, 1)
        else:
            # A transfer without credit ends its link when it is handed over.
            self.hand_over()

    def _complete_resumed(self, link: Link, delivery: Any, message: bytes, aborted: bool) -> None:
        # The gathered transfers go to the owner first, because they came before the resumed one.
        if self._transfers:
            self._hand_over_transfers()
            if link.ended:
                self._discard(link, delivery)
                return
        if message and (message >= ENVELOPE or link.format):
            message = in_envelope(message, link.format)
        link.expect_any()
        batch = self._resumed.setdefault(link, ResumedTransfers([], [], [], [], [], []))
        batch.tags.append(tag_of(delivery))
        batch.messages.append(message)
        batch.states.append(lib.pn_delivery_remote_state(delivery))
        batch.aborted.append(aborted)
        settled = lib.pn_delivery_settled(delivery)
        batch.settled.append(settled)
        batch.handles.append(None if settled else delivery)
        if settled:
            lib.pn_delivery_settle(delivery)
            self._settling.add(delivery)
        else:
            lib.pn_link_advance(link.pointer)

    def _discard(self, link: Link, delivery: Any) -> None:
        """Discard a transfer on a link that has ended: the peer may not have read our detach yet. The delivery stays
        unsettled, so it is in doubt and not lost, even if the peer sent it without credit."""
        pointer = lib.pn_delivery_link(delivery)
        if link.is_sender:
            self._check_direction(link, pointer)
        elif lib.pn_delivery_readable(delivery):
            self._lose_part(link, delivery)
            while (size := lib.pn_link_recv(pointer, MEMORY.scratch, SCRATCH_SIZE)) > 0:
                link.keep(size)
            if not lib.pn_delivery_partial(delivery):
                lib.pn_link_advance(pointer)
                self._count_excess(link, -link.overdraft - lib.pn_link_credit(pointer))
            if limit := link.connection.account.refuses:
                raise LimitError(limit, OF_ALL)

    @staticmethod
    def _count_excess(link: Link, excess: int) -> None:
        """Check the number of transfers that have come without credit on a link that has ended."""
        if excess > MOST_EXCESS:
            raise AmqpError(TRANSFER_LIMIT, f"the peer sent messages without credit on link {link.name}")
        if excess > 0:
            link.keep(DELIVERY_BYTES)

    def flow(self, link: Link) -> None:
        """Take in a flow event."""
        self._flows[link] = None

    def hand_over(self) -> None:
        """Call the owner with all batches. A callback may end links; the batches of these links are dropped."""
        if self._transfers or self._resumed:
            self._hand_over_transfers()
        if self._news:
            self._hand_over_news()
        if self._flows:
            self._hand_over_flows()

    def hand_over_outcomes(self, told: TransactionalDisposition) -> None:
        """Hand over the outcomes in this disposition; the inbox has no others. If the disposition names a delivery that
        this end has settled, tell the owner that the transaction lacks an outcome (`on_part_lost`)."""
        news = (handle for link, all_ in self._news.items() if link.answered and not link.ended for handle in all_)
        if sum(handle not in self._settling for handle in news) < told.deliveries:
            self._recipient.on_part_lost(self._connection, told.transaction)
        self.hand_over()

    def _hand_over_transfers(self) -> None:
        transfers, self._transfers = self._transfers, {}
        if self._resumed:
            resumed, self._resumed = self._resumed, {}
            for link, batch in resumed.items():
                if self._are_fit(link, batch.tags):
                    self._recipient.on_resumed(link, batch)
        for link, came in transfers.items():
            if not self._are_fit(link, came.tags):
                link.keep(sum(map(len, came.messages)))
            else:
                self._recipient.on_transfers(link, came)

    @staticmethod
    def _are_fit(link: Link, tags: list[bytes]) -> bool:
        """Whether transfers with these tags are valid. They are not if the peer sent them without credit, or before we
        have answered its attach; then the link is detached. Raises AmqpError if a tag is too long."""
        if max(map(len, tags)) > MAX_TAG:
            raise AmqpError(INVALID_FIELD, f"a delivery-tag is longer than {MAX_TAG} bytes")
        if link.ended:
            return False
        link.credit = link.balance
        if link.credit < -link.overdraft or not link.answered:
            link.connection.expel(link, TRANSFER_LIMIT, WITHOUT_CREDIT)
            return False
        return True

    def _hand_over_news(self) -> None:
        all_news, self._news = self._news, {}
        for link, news in all_news.items():
            if link.is_sender and not link.ended:
                self._check_direction(link, link.pointer)
            handles = [handle for handle in news if handle not in self._settling]
            if handles and link.answered and not link.ended:
                states, settled = LOOPS.states(handles)
                self._recipient.on_dispositions(link, Dispositions(handles, states, settled))

    def _hand_over_flows(self) -> None:
        flows, self._flows = self._flows, {}
        for link in flows:
            if link.ended:
                continue
            before = link.credit, link.draining
            link.credit = link.read_credit()
            if link.is_sender:
                link.draining = lib.pn_link_get_drain(link.pointer) and link.credit > 0
                if link.answered and before != (link.credit, link.draining):
                    link.available = None
                    self._recipient.on_credit(link)

    @staticmethod
    def _check_direction(link: Link, pointer: Any) -> None:
        """Check that the peer sent no transfer on a link on which we send. Raises AmqpError if it did. We always send
        whole deliveries, so an incomplete delivery on such a link came from the peer."""
        if lib.pn_link_current(pointer):
            raise AmqpError(NOT_ALLOWED, f"the peer, which is the receiver of link {link.name}, sent a transfer on it")
