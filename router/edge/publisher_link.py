"""The router's end of a publisher's link, with the deliveries that it has received on it and not settled.

A re-attach (protocol 7.7) brings no unsettled map: the session has continued, so nothing was lost. The former end knows
what this map would contain, and the core handles the attach as one that resumes. A delivery that both sides still have
is not transferred again: the core's new record gets the old handle.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import compress, groupby
from typing import Final

from router.amqp.batches import Dispositions, PostedMessage, ResumedTransfers, Transfers
from router.amqp.format.errors import NOT_FOUND, PRECONDITION_FAILED, RESOURCE_LIMIT, TRANSFER_LIMIT, LimitError
from router.amqp.format.values import ACCEPTED, Handle
from router.amqp.inbox import OF_ALL
from router.amqp.proton.link import Link
from router.edge.attach import AttachRequest, answers_echoes
from router.edge.ends import ClientPublishingEnd, TopicEnd
from router.edge.signs import EchoedLink, SignsOfLife
from router.edge.transactions.parts import posting
from router.edge.ttl import times_of
from topic.actions import AnswerDeliveries, AnswerPublisher, Cause, Detach
from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import HomeStream, Record
from topic.delivery.window import OWN, CreditWindow
from topic.identity import is_ingress
from topic.node import Node
from topic.properties import ALONE, DELAYED_DELIVERY, EPOCH, GENERATION, SUBSCRIBERS
from topic.termini.attaches import Claim

PARTIAL_ACCEPTANCE: Final = "oncemesh:partial-acceptance"
EXPIRED: Final = "oncemesh:expired"
"""The keys that this project uses in the `info` of a rejection's error. The condition of the error is always a standard
one, because some decoders know no others."""
CONDITIONS: Final = {
    Cause.REFUSED: (PRECONDITION_FAILED, PARTIAL_ACCEPTANCE),
    Cause.EXPIRED: (PRECONDITION_FAILED, EXPIRED),
    Cause.FULL: (RESOURCE_LIMIT, ""),
    Cause.GONE: (NOT_FOUND, ""),
}
OF_LINK: Final = "the publisher has too many unsettled bytes"


def refuse_all(link: Link, window: CreditWindow, messages: list[bytes]) -> bool:
    """Whether these messages of the link are refused because they exceed its window. Then the link ends, and the
    messages count as not transferred. Raises LimitError if they exceed a limit of the connection or of all clients."""
    limit = window.refuses
    if not limit:
        return False
    if limit != OWN:
        raise LimitError(limit, OF_ALL)
    link.connection.expel(link, TRANSFER_LIMIT, OF_LINK, limit)
    link.keep(sum(map(len, messages)))
    return True


def grant(link: Link, window: CreditWindow, credit: int, *, answers: bool) -> None:
    """Grant credit; take credit back if `credit` is negative. A publisher that `answers` echoes keeps its credit,
    because its later flows would not count as answers (`router.amqp.frames.echo`). If such a publisher then exceeds the
    window, its messages are refused, and it resumes."""
    if credit < 0 and answers:
        window.keep(-credit)
    else:
        link.flow(credit)
    link.overdraft = window.reserve


def pass_through(window: CreditWindow, size: int) -> None:
    """Let a message pass through the window: count its size, and give its room back at once."""
    window.take([size])
    window.give_back([size])


class PublisherLink(TopicEnd, ClientPublishingEnd[Handle]):
    def __init__(self, link: Link, request: AttachRequest, node: Node, max_message: int) -> None:
        TopicEnd.__init__(self, link)
        ClientPublishingEnd.__init__(
            self, node, request.identity, request.lifetime, settles_first=request.settles_first
        )
        self.signs = SignsOfLife(self, answers=answers_echoes(link))
        self.records: dict[Handle, Record] = {}
        """Maps each open handle to its record. This is the inverse of `open`."""
        self.again: dict[Handle, Record] = {}
        """The open deliveries of the former link, which this link continues, with their records. Empty once the attach
        is answered."""
        self.kept: dict[Handle, bytes] = {}
        """The tags of deliveries that the client certainly still has, because it has not settled them. Keyed by
        handle."""
        self._told: set[Handle] = set()
        """The handles of deliveries whose outcome the client got before its re-attach. Such an outcome
        does not change."""
        self._former: HomeStream | None = None
        """The stream of the former link; None once the attach is answered."""
        self._max_message = max_message
        # The number of messages of this link that were accepted although there was no subscriber.
        self.alone = 0

    def go_on_from(self, former: "PublisherLink") -> Claim:
        """Continue the former link. Returns the `Claim` with the map that the client would have sent. The client may
        have lost outcomes that it has not settled, unless it has answered an echo since."""
        self._former, rows = former.stream, former.again | former.records
        self.again = {handle: record for handle, record in rows.items() if not record.known}
        self.kept = former.kept | {handle: record.tag for handle, record in rows.items() if record.known}
        self.signs.answers |= former.signs.answers
        doubted = [*(record.tag for record in self.again.values()), *former.stream.expected.values()]
        unsettled = {**dict.fromkeys(self.kept.values(), ACCEPTED), **dict.fromkeys(doubted, 0)}
        return self.claim(unsettled, complete=not former.stream.incomplete)

    def state(self) -> dict[str, int]:
        """The flow properties of the link: the number of subscribers, and the number of accepted messages that had none
        (protocol 5, Nobody)."""
        audience = self.node.topic.directory.audience(self.identity.address)
        return {SUBSCRIBERS: audience.size, ALONE: self.alone}

    @property
    def echoed(self) -> EchoedLink:
        return self.link

    # The methods from here on handle events of the link.

    def _let_keep(self) -> None:
        """Count the bytes of the link's unsettled messages after its end, because the engine keeps them for a while."""
        self.link.keep(sum(record.size for record in self.open))

    def detach(self, action: Detach) -> None:
        super().detach(action)
        self._let_keep()

    def gone(self, now: float, *, closed: bool) -> None:
        self._let_keep()
        self.leave(now, closed=closed)

    def on_transfers(self, transfers: Transfers) -> None:
        if refuse_all(self.link, self.stream.window, transfers.messages):
            return
        if True not in transfers.settled:
            until = times_of(transfers.messages, self.node)
            self.publish(transfers.handles, transfers.tags, transfers.messages, until)
            return
        start = 0
        # Messages are published in runs of equal `presettled`, so that the order of all messages stays.
        for presettled, run in groupby(transfers.settled):
            end = start + sum(1 for _ in run)
            tags, messages = transfers.tags[start:end], transfers.messages[start:end]
            until = times_of(messages, self.node)
            if presettled:
                self.node.topic.publish(self.stream, tags, messages, presettled=True, until=until)
            else:
                self.publish(transfers.handles[start:end], tags, messages, until)
            start = end

    def on_posted(self, posted: PostedMessage) -> None:
        """Put a message into its transaction. The core does not see the message, so the message takes no room in
        the window."""
        if posting(self.link, self.node, self.identity.address, posted):
            pass_through(self.stream.window, len(posted.message))
            self.grant(self.stream.window.due())

    def publish(
        self, known: Sequence[Handle], tags: list[bytes], messages: list[bytes], until: Sequence[float] | None = None
    ) -> list[Record]:
        records = super().publish(known, tags, messages, until)
        self.records.update(zip(known, records, strict=True))
        return records

    def on_resumed(self, resumed: ResumedTransfers) -> None:
        """Take transfers that resume deliveries of our map. If the answer to the attach had a null map, take all
        resumed transfers as new messages: the client resends only deliveries that this router does not have. Ignore all
        other resumed transfers."""
        if self.stream.reply is None:
            if (new := resumed.as_new()).handles:
                self.on_transfers(new)
            return
        for handle, tag, _, is_settled, _, is_aborted in resumed:
            if is_aborted:
                self.node.topic.abort(self.stream, tag)
                continue
            record = self.node.topic.transferred_again(self.stream, tag, settled=is_settled)
            if record is None:
                self._ignore([handle])
            elif handle is not None:
                self.records[handle] = record
                self.open[record] = handle

    def _ignore(self, handles: list[Handle]) -> None:
        """Drop transfers that resume a delivery unknown here (AMQP 1.0 2.7.5), and give their credit back."""
        self.link.settle_many([handle for handle in handles if handle is not None])
        if handles:
            self.link.flow(len(handles))

    def on_dispositions(self, dispositions: Dispositions) -> None:
        if False in dispositions.settled:
            self._settled(list(compress(dispositions.handles, dispositions.settled)))
        else:
            self._settled(dispositions.handles)

    def _settled(self, handles: Sequence[Handle]) -> None:
        if self.kept:
            self._settle_known(handle for handle in handles if handle in self.kept)
            handles = [handle for handle in handles if handle in self.records]
        records = [self.records.pop(handle) for handle in handles]
        for record in records:
            del self.open[record]
        if self._told:
            self._told.difference_update(handles)
        self.link.settle_many(handles)
        if records:
            self.node.topic.settle(self.stream, records)

    def _settle_known(self, handles: Iterable[Handle]) -> None:
        """Settle deliveries that the core has finished."""
        settled = list(handles)
        for handle in settled:
            del self.kept[handle]
        self.link.settle_many(settled)

    def on_echo(self) -> None:
        self.signs.answered()

    # The core calls the methods from here on.

    def send_outcomes(self, action: AnswerDeliveries) -> None:
        of_all = [self.open[record] for record in action.records]
        handles = of_all if not self._told else [handle for handle in of_all if handle not in self._told]
        if action.outcome is DeliveryOutcome.ACCEPTED:
            self.link.update_many(handles, ACCEPTED, action.settle)
            if action.alone:
                self.alone += action.alone
                # The client gets the count unasked, because it can no longer ask for it if this router is lost.
                self.link.answer_echo()
        else:
            condition, more = CONDITIONS[action.cause]
            info = {more: action.description} if more else None
            for handle in handles:
                self.link.reject(handle, condition, action.description, action.settle, info=info)
        if action.settle:
            if self._told:
                self.link.settle_many([handle for handle in of_all if handle in self._told])
                self._told.difference_update(of_all)
            for handle, record in zip(of_all, action.records, strict=True):
                del self.open[record], self.records[handle]

    def begin(self, action: AnswerPublisher) -> None:
        properties: dict[str, str | bytes] = {EPOCH: str(action.epoch), GENERATION: action.generation}
        former, self._former = self._former, None
        again, self.again = self.again, {}
        # The life of the former stream has ended meanwhile, so its deliveries are abandoned.
        if former is not None and former.generation != action.generation:
            self.link.settle_many(again)
            self._settle_known(self.kept)
            again = {}
        if is_ingress(self.identity.address):
            self.link.offers = DELAYED_DELIVERY
        self.answer(properties, action.unsettled if former is None else None, self._max_message)
        self.grant(action.credit - len(again))
        self.signs.begin()
        self._settle_known(handle for handle in self.kept if self.link.remote_state(handle)[1])
        # If a later attach has taken the stream, this link publishes nothing.
        if again and self.stream.link is self:
            self._publish_again(again)

    def grant(self, count: int) -> None:
        """Grant credit. A client that sends without credit may do so as long as its window has room."""
        grant(self.link, self.stream.window, count, answers=self.answers)

    def _publish_again(self, again: dict[Handle, Record]) -> None:
        """Publish the open deliveries again after a re-attach, because the client does not transfer them a second
        time."""
        messages = [record.message for record in again.values() if record.message is not None]
        assert len(messages) == len(again), "what its publisher has not settled is not forgotten"
        self._told = {handle for handle in again if self.link.local_state(handle)}
        self.publish(list(again), [record.tag for record in again.values()], messages)
        self.node.later(partial(self._settle_again, list(again)))

    def _settle_again(self, again: list[Handle]) -> None:
        """Settle the deliveries that the client settled while they were published again. By now, a delivery without an
        audience has its outcome, or is forgotten."""
        if self.is_there:
            self._settled([handle for handle in again if handle in self.records and self.link.remote_state(handle)[1]])
            self.node.perform()
