"""The router's end of a subscriber's link, with the deliveries that it has sent on it and that are not settled.

A re-attach (protocol 6.11) brings no unsettled map: the session has continued, so nothing was lost. The former end
knows what this map would contain, and the core handles the attach as one that resumes. A delivery that both sides still
have is not transferred again: the core's new record gets the old handle.
"""

from collections.abc import Sequence
from contextlib import suppress
from itertools import compress
from typing import Final

from router.amqp.batches import Dispositions
from router.amqp.format.codec import Symbol, encode
from router.amqp.format.errors import NOT_IMPLEMENTED, AmqpError
from router.amqp.format.message import annotation, merged, modified
from router.amqp.format.values import (
    ACCEPTED,
    MODIFIED,
    RECEIVED,
    REJECTED,
    RELEASED,
    SND_SETTLED,
    TRANSACTIONAL,
    Handle,
    OutcomeDetails,
)
from router.amqp.proton.link import Link
from router.edge.attach import AttachRequest
from router.edge.ends import ClientSubscribingEnd, TopicEnd
from router.edge.transactions.parts import lose_part
from router.edge.transactions.retired import RetiredDeliveries
from router.edge.unfit import refuse_for
from topic.actions import ENDINGS, AnswerSubscriber, Detach, Drained, Resume, RetirementsOver
from topic.delivery.outcomes import MOST_ANNOTATIONS, DeliveryOutcome
from topic.delivery.record import Record
from topic.directory.addresses import is_pattern
from topic.edge.filters import Wants
from topic.edge.subscriber import ROOM
from topic.node import Node
from topic.properties import ADDRESS, DEAD_DESCRIPTION, DEAD_ERROR, EPOCH
from topic.termini.attaches import Claim

NOTHING: Final = b"\x00\x53\x75\xa0\x00"
"""An empty data section, for resumed transfers without payload: some clients fail on transfers without any section."""
OUTCOMES: Final = {int(outcome): outcome for outcome in DeliveryOutcome}
MOST_CONDITION, MOST_DESCRIBED = 255, 512
"""The highest number of characters of the condition and of the description of an error that a dead letter keeps."""
NOT_MODIFIED: Final = OutcomeDetails()


def error_of(condition: str, description: str) -> bytes:
    """The annotations that a dead letter gets from the error with which a consumer of a queue has
    rejected the message."""
    said = {DEAD_ERROR: Symbol(condition[:MOST_CONDITION]), DEAD_DESCRIPTION: description[:MOST_DESCRIBED]}
    return encode({Symbol(name): value for name, value in said.items()})


class SubscriberLink(TopicEnd, ClientSubscribingEnd):
    def __init__(self, link: Link, request: AttachRequest, node: Node) -> None:
        TopicEnd.__init__(self, link)
        ClientSubscribingEnd.__init__(
            self,
            node,
            request.identity,
            request.lifetime,
            settles_first=request.settles_first,
            sends_settled=link.remote_snd_settle_mode == SND_SETTLED,
        )
        self.filters = request.filters  # the filters that are applied
        self.handles: dict[Record, Handle] = {}
        self.records: dict[Handle, Record] = {}
        self.again: dict[bytes, Handle] = {}
        """The handles, on the former link, of the deliveries in `named` that the client already has, keyed by the
        delivery's key."""
        # Whether the answer to the attach has our map. It has none after a null map of the client.
        self._says_map = True
        self.modified: dict[Record, tuple[int, bytes]] = {}
        """The changes that the client's modified outcomes make to a message before it is offered again: the number of
        failed deliveries to add, and annotations."""
        self.retired = RetiredDeliveries(self.node)
        self._has_all = False
        """Whether the draining client got all messages that its homes had for it."""
        self._left = 0
        """About how many messages the homes still had, beyond the messages that the client was given."""
        self.of_pattern = is_pattern(request.identity.address)

    def go_on_from(self, former: "SubscriberLink") -> Claim:
        """Continue the former link. Returns the `Claim` with the map that the client would have sent. The map lacks the
        deliveries that the client has released. The answer has our map only if the former link had not yet resumed all
        deliveries of a map that the client had sent; otherwise its map is null."""
        # If the engine has freed the former link, no delivery on it was unsettled.
        if former.link.pointer in self.link.continued:
            former.forget_unsent()
        named = {key: state for key, state in former.named.items() if key not in former.again}
        self._says_map = bool(named)
        for key, handle in (former.again | {record.key: handle for record, handle in former.handles.items()}).items():
            state, settled = self._state_of(handle)
            if state in (ACCEPTED, REJECTED) or not (settled or state in (RELEASED, MODIFIED)):
                self.again[key] = handle
                named[key] = state
            else:
                self.link.settle(handle)
        return self.claim(named, complete=not former.subscriber.incomplete)

    def _state_of(self, handle: Handle) -> tuple[int, bool]:
        """The last state that the client has sent for a delivery, and whether the client has settled the delivery. A
        state within a transaction does not count, because the transaction ended with the former link."""
        state, settled = self.link.remote_state(handle)
        return 0 if state == TRANSACTIONAL else state, settled

    def attach(self, claim: Claim, now: float, *, told: bool = False, wants: Wants | None = None) -> None:
        super().attach(claim, now, told=told, wants=wants)
        self.link.moves = not self.subscriber.kind.is_for_all

    # The methods from here on handle events of the link.

    def gone(self, now: float, *, closed: bool) -> None:
        self.retired.drop_all()
        self.leave(now, closed=closed)

    def forget_unsent(self) -> None:
        """Forget the last transfers of the former link, which were never written, so that the client does not have
        them. The end of the link is too early for this call, because proton may still write transfers until it writes
        our detach. Some of the transfers may have been settled meanwhile."""
        count = self.link.unsent
        for handle in list(self.records)[-count:] if count else ():
            if self.link.is_unsent(handle) or not self.records[handle].size:
                del self.handles[self.records.pop(handle)]

    def on_credit(self) -> None:
        self.node.topic.credit(self.subscriber, self.link.credit)
        if self.link.draining:
            self._has_all = False
            self.node.topic.drain(self.subscriber)
        self.node.perform()
        self._drain()

    def _take_first_credit(self) -> None:
        """Take the credit that the link has when the attach is answered."""
        if self.is_there:
            self.on_credit()

    def _drain(self) -> None:
        """Use up the rest of the credit of a draining link, once the homes have given all their messages and all of
        these were sent, so that none waits for room."""
        waits = self.subscriber.room <= 0 and self.subscriber.ready
        if self.link.draining and self.subscriber.answered and self._has_all and not waits and self.is_there:
            self.link.drained(self._left)
            self.node.topic.credit(self.subscriber, 0)

    def written(self) -> None:
        if self.is_there:
            self.node.topic.room(self.subscriber, ROOM - self.link.unwritten)
            self.node.perform()
            self._drain()

    @property
    def awaits_writing(self) -> bool:
        return self.subscriber.room < ROOM // 2

    def on_echo(self) -> None:
        self.node.topic.echoed(self.subscriber)

    def on_dispositions(self, dispositions: Dispositions) -> None:
        """Pass outcomes to the core in runs of the same state, so that redeliveries keep the client's order."""
        handles, states, settled = dispositions.handles, dispositions.states, dispositions.settled
        found = list(map(self.records.get, handles))
        # A delivery without a record here is settled, or the core has not resumed it yet.
        # If the core resumes such a delivery later, the core then reads the delivery's state from the engine.
        if None in found:
            known = [record is not None for record in found]
            for handle, state, is_known in zip(handles, states, known, strict=True):
                if state == TRANSACTIONAL and not is_known:
                    lose_part(self.link.connection, self.node, self.link.remote_transaction(handle)[0])
            handles, states, settled = (list(compress(column, known)) for column in (handles, states, settled))
        records = [record for record in found if record is not None]
        if TRANSACTIONAL in states:
            told = [state == TRANSACTIONAL for state in states]
            if not self.retired.take(self, compress(handles, told), compress(records, told), compress(settled, told)):
                return
            rest = [not one for one in told]
            handles, states, settled = (list(compress(column, rest)) for column in (handles, states, settled))
            records = list(compress(records, rest))
        if (state := max(states, default=0)) > MODIFIED:
            why = f"the subscriber sent the unknown outcome {state:#x}"
            self.link.connection.expel(self.link, NOT_IMPLEMENTED, why)
            return
        if self.retired:
            self.retired.replace(records, states, settled)
        gone = [record for record, is_settled in zip(records, settled, strict=True) if is_settled]
        details = self._details(handles, records, states) if REJECTED in states or MODIFIED in states else {}
        if gone:
            self.settle_here(gone)
        if states.count(ACCEPTED) == len(states) and len(gone) in (0, len(records)):
            self.node.topic.outcomes(self.subscriber, records, DeliveryOutcome.ACCEPTED, settled=bool(gone))
            return
        for record, modification in details.items():
            if modification.state == MODIFIED:
                self._modify(record, modification)
        for record, state, is_settled in zip(records, states, settled, strict=True):
            if state in (0, RECEIVED) and not is_settled:
                continue
            modification = details.get(record, NOT_MODIFIED)
            # If the client settles without an outcome, our default-outcome, released, counts.
            outcome = OUTCOMES.get(state, DeliveryOutcome.RELEASED)
            self.node.topic.outcomes(
                self.subscriber,
                [record],
                outcome,
                final=modification.undeliverable,
                failed=modification.failed,
                settled=is_settled,
                annotations=self.added(modification),
            )

    def _details(self, handles: list[Handle], records: list[Record], states: list[int]) -> dict[Record, OutcomeDetails]:
        """The details of outcomes, read while the handles are valid: the details of *modified*, and at a queue the
        errors of *rejected*."""
        shown = (MODIFIED, REJECTED) if self.subscriber.kind.is_of_set else (MODIFIED,)
        rows = zip(records, handles, states, strict=True)
        return {record: self.link.remote_outcome(handle) for record, handle, state in rows if state in shown}

    def _release_unanswered(self, records: Sequence[Record]) -> None:
        """Send *released* for deliveries that a queue takes back: the client has not answered them."""
        handles = [handle for record in records if (handle := self.handles.get(record)) is not None]
        taken = [handle for handle in handles if not self.link.remote_state(handle)[0]]
        if taken:
            self.link.update_many(taken, RELEASED)

    def settle_here(self, records: Sequence[Record]) -> None:
        """Settle the records that are still unsettled on this link."""
        take = self.handles.pop
        handles = [handle for record in records if (handle := take(record, None)) is not None]
        for handle in handles:
            del self.records[handle]
        self.link.settle_many(handles)

    def _modify(self, record: Record, outcome: OutcomeDetails) -> None:
        """Remember what a modified outcome of the client changes in the message (AMQP 1.0 3.4.5)."""
        failures, annotations = self.modified.get(record, (0, b""))
        # If the annotations are malformed, they change nothing.
        with suppress(AmqpError):
            annotations = merged(annotations, outcome.annotations)
        if outcome.failed or annotations:
            self.modified[record] = failures + outcome.failed, annotations

    def added(self, outcome: OutcomeDetails) -> bytes:
        """The annotations of this outcome for the next consumer of a queue, or for a dead letter; empty elsewhere, or
        if they are too long."""
        if outcome.condition is not None:
            return error_of(outcome.condition, outcome.description)
        is_kept = self.subscriber.kind.is_of_set and len(outcome.annotations) <= MOST_ANNOTATIONS
        return outcome.annotations if is_kept else b""

    def message_again(self, record: Record) -> bytes:
        """The message as it is offered again: unchanged, if it was released (AMQP 1.0 3.4.4)."""
        return modified(self.message(record), *self.modified.get(record, (0, b"")))

    def message(self, record: Record) -> bytes:
        """The message; for a subscriber to a pattern, with its address as an annotation."""
        assert record.message is not None
        return (
            modified(record.message, 0, annotation(ADDRESS, record.stream.address))
            if self.of_pattern
            else record.message
        )

    # The core calls the methods from here on.

    def begin(self, action: AnswerSubscriber) -> None:
        ours = action.unsettled if self._says_map else None
        if ours is not None:
            ours = {key: state for key, state in ours.items() if key not in self.again}
        self.answer({EPOCH: str(action.epoch)}, ours, filters=self.filters)
        self.node.later(self._take_first_credit)

    def forget(self, keys: Sequence[bytes]) -> None:
        """Settle deliveries that the client already has. The client learns from our map that the others are settled."""
        for key in keys:
            if (handle := self.again.pop(key, None)) is not None:
                self.link.settle(handle)

    def ask(self) -> None:
        self.link.echo()

    def drained(self, action: Drained) -> None:
        self._has_all, self._left = True, action.left
        # Drain only after the next actions of the core: one of them may be a delivery, which needs credit.
        self.node.later(self._drain)

    def deliver(self, records: list[Record]) -> None:
        settled = self.sends_settled or records[0].presettled
        if self.of_pattern:
            messages = list(map(self.message, records))
        else:
            messages = [record.message for record in records if record.message is not None]
            assert len(messages) == len(records)
        if self.link.remote_max_message_size and not all(fits := list(map(self.link.takes, messages))):
            self._refuse([record for record, is_one in zip(records, fits, strict=True) if not is_one])
            records, messages = list(compress(records, fits)), list(compress(messages, fits))
            if not records:
                return
        handles = self.link.send_many([record.key for record in records], messages, settled=settled)
        if handles:
            self.records.update(zip(handles, records, strict=True))
            self.handles.update(zip(records, handles, strict=True))

    def _refuse(self, records: Sequence[Record]) -> None:
        """Refuse messages that are too large for the client. They use neither its credit nor room on its link."""
        if records:
            self._give_back(records)
            refuse_for(
                self.node,
                self.subscriber,
                records,
                f"it takes messages of at most {self.link.remote_max_message_size} bytes",
            )

    def _give_back(self, records: Sequence[Record]) -> None:
        """Give back the credit and the room that the core has counted for these records."""
        self.node.topic.credit(self.subscriber, self.subscriber.credit + len(records))
        self.node.topic.room(self.subscriber, self.subscriber.room + sum(record.size for record in records))

    def redeliver(self, record: Record) -> None:
        message = self.message_again(record)
        self.settle_here([record])
        if not self.link.takes(message):
            self._refuse([record])
            return
        handle = self.link.send(record.key, message, self.sends_settled)
        if handle is not None:
            self.records[handle] = record
            self.handles[record] = handle

    def resume(self, action: Resume) -> None:
        record = action.record
        in_hand = self.again.pop(record.key, None)
        if in_hand is not None:
            self._take_up(action, in_hand)
            return
        aborted = action.settled and not action.state
        message = NOTHING if action.state or aborted else self.message(record)
        # On this link the client takes only smaller messages than on its former link.
        if not self.link.takes(message):
            self.link.send(record.key, NOTHING, settled=True, resume=True, aborted=True)
            refuse_for(
                self.node,
                self.subscriber,
                [record],
                f"it takes messages of at most {self.link.remote_max_message_size} bytes",
            )
            return
        handle = self.link.send(record.key, message, action.settled, resume=True, state=action.state, aborted=aborted)
        if handle is not None:
            self.records[handle] = record
            self.handles[record] = handle

    def _take_up(self, action: Resume, handle: Handle) -> None:
        """Resume a delivery that the client already has: it is not transferred again, and takes neither credit nor
        room.
        """
        state, settled = self._state_of(handle)
        if action.settled:
            self.link.settle(handle)
        else:
            self.records[handle] = action.record
            self.handles[action.record] = handle
            if settled or state != action.state:
                self.on_dispositions(Dispositions([handle], [state], [settled]))
        self._give_back([action.record])

    def settle(self, records: Sequence[Record]) -> None:
        if self.subscriber.kind.is_of_set:
            self._release_unanswered(records)
        self.settle_here(records)
        if self.retired:
            self.retired.forget(records)
        if self.modified:
            for record in records:
                self.modified.pop(record, None)

    def retirements_over(self, action: RetirementsOver) -> None:
        self.retired.over(self, action)

    def detach(self, action: Detach) -> None:
        self.retired.drop_all()
        self.part()
        answered = self._told if action.condition in ENDINGS else None
        self.link.detach(action.condition, action.description, answered=answered)

    def _told(self) -> None:
        """Tell the core that the client has learnt that its link lapsed or expired (protocol 8, Apart)."""
        self.node.now()
        self.node.topic.ending_known(self.subscriber)
        self.node.perform()
