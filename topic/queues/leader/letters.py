"""The publisher that sends messages of a set's outbox to one address, at the leader's router (protocol 14.11).

    outbox ── publish ─▶ home ─▶ the address
    home ── accepted ─▶ Letters ── Posted ─▶ log of the set

The address is a topic, a balanced address, or a queue of any set. If the address does not take a message, the message
stays in the outbox, and the publisher publishes it again after a pause. This is another delivery, with another key: its
tag has the number of times that the message has come back.

This module does not choose dead letters, and does not change the state of the set.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import islice, takewhile
from typing import Final

from topic.actions import AnswerDeliveries, Note
from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import Record
from topic.ends.end import EndNode
from topic.identity import CONTAINER, LinkIdentity, is_egress
from topic.queues.bodies.message_rows import QueueRows, SentRows
from topic.queues.leader.log import Marking, Proposer
from topic.queues.leader.publisher import AHEAD, AT_ONCE, Proposed, SetPublisher, Wanted
from topic.queues.messages import QueuedMessages
from topic.queues.operations import QueueId
from topic.queues.outgoing.outbox import Letter, Why
from topic.queues.proposals import Posted, Settled
from topic.raft.life import SetLife

MOST_OPEN: Final = 100
"""The highest number of unsettled deliveries of dead letters to one address."""
MOST_BYTES: Final = 256 << 10
"""The highest number of bytes of unsettled deliveries to one address. A single message may be larger."""
PAUSE_S: Final = 5
"""The seconds after which a message that its address has not taken is published again. The time doubles with each
further failure."""
LONGEST_PAUSE_S: Final = 320


def letters_to(set_: str, inside: str) -> LinkIdentity:
    """The link by which a set publishes to an address in the mesh."""
    return LinkIdentity(CONTAINER, set_, inside)


def is_of_letters(identity: LinkIdentity, set_: str) -> bool:
    """Whether this publisher's link is one that `letters_to` makes for the set."""
    return (identity.container, identity.link) == (CONTAINER, set_) and not is_egress(identity.address)


class Letters(SetPublisher):
    """Publishes messages of the outbox to one address, in one term in which this router leads."""

    def __init__(
        self,
        node: EndNode,
        identity: LinkIdentity,
        address: str,
        name_of: Callable[[QueueId], str | None],
        messages: QueuedMessages,
        log: Proposer,
        marking: Marking,
    ) -> None:
        """`address`: the address as in the settings of queues. `name_of`: a function that returns the name of a queue
        of the set."""
        super().__init__(node, identity, messages, log, marking)
        self._address = address
        self._name_of = name_of
        self._known: set[int] = set()
        """The positions of all messages for the address that this publisher has found in the outbox."""
        self._left: deque[int] = deque()
        """The positions of messages that are still to be published."""
        self._doubted: dict[int, bytes] = {}
        """Maps the position of each message in the map of this attach to the message's delivery-tag. Messages that this
        publisher has published again since are left out."""
        self._paused: list[tuple[float, int]] = []
        """A heap of paused messages: when to publish the message again, and its position."""
        self._tries: dict[int, int] = {}
        """Maps the position of a message to the number of times that the address has not taken the message in this
        term."""
        self._taken: list[Record] = []
        self._refused: list[Record] = []

    def attach_as_leader(self, life: SetLife, clock: int, now: float, *, doubts: bool) -> None:
        """Attach the link, because this router begins to lead. `life`: the life of the set. `doubts`: whether an
        earlier leader may already have published the messages."""
        self._find_new()
        self._doubted = {position: self._tag(position) for position in self._left} if doubts else {}
        self._come(life, self._doubted, clock, now)

    def outbox_changed(self) -> None:
        """Follow a change of the outbox: messages have come into it, or have left it."""
        letters = self._messages.outbox.letters
        if len(self._known) > 2 * len(letters) + MOST_OPEN:
            self._known &= letters.keys()
        self._withdraw({position for position in self.open.values() if position not in letters})
        self._find_new()
        self.go_on()

    def _find_new(self) -> None:
        """Find the new messages in the outbox. They come after all messages that are already known."""
        there = self._messages.outbox.to(self._address)
        fresh = [*takewhile(lambda position: position not in self._known, reversed(there))]
        self._known.update(fresh)
        self._left.extend(reversed(fresh))

    @property
    def deadline(self) -> float:
        """When `handle_timer` is due; infinite if never."""
        return self._paused[0][0] if self._paused else math.inf

    def handle_timer(self, now: float) -> None:
        while self.deadline <= now:
            self._left.append(heappop(self._paused)[1])
        self.go_on()

    def _publish(self) -> None:
        positions: list[int] = []
        texts: list[bytes] = []
        count, size = len(self.open), sum(record.size for record in self.open)
        while self._left and count < MOST_OPEN and (size < MOST_BYTES or not count):
            position = self._left[0]
            letter, text = self._messages.outbox.letters.get(position), None
            if letter is not None:
                message = self._messages.sent[position] or self._read.get(position)
                if message is None:
                    self._read_bodies(islice(self._left, AT_ONCE), AHEAD)
                    break
                annotations = self._messages.returns(position).annotations
                message = self._marking.annotated(message, annotations) if annotations else message
                text = self._text(letter, message, annotations)
            self._forget_body(self._left.popleft())
            tag = self._doubted.pop(position, None)
            # An earlier leader may have published the message, so routers may ask about this delivery.
            if text is None and tag is not None:
                self.node.topic.abort(self.stream, tag)
            if text is not None:
                positions.append(position)
                texts.append(text)
                count, size = count + 1, size + len(text)
        if positions:
            self.publish(positions, [*map(self._tag, positions)], texts)

    @property
    def _rows(self) -> QueueRows | SentRows:
        return self._messages.sent

    def _text(self, letter: Letter, message: bytes, added: bytes) -> bytes | None:
        """The message as a dead letter, as it is published; None if it was a dead letter too often."""
        if letter.sending.why is Why.RETRIED:
            return message
        queue = self._name_of(letter.queue)
        assert queue is not None, "what is in the outbox goes with its queue"
        now_ms = self.node.topic.outlet.time_ms
        text = self._marking.dead_letter(message, queue, letter.sending.why, now_ms, added)
        if text is None:
            what = f"a message of queue {queue} was a dead letter too often, so {self._address} does not get it"
            todo = f"it stays in the outbox until queue {queue} is purged or deleted"
            self.node.topic.outlet.actions.append(Note(f"set {self.identity.link}: {what}: {todo}"))
        return text

    def _wanted(self) -> Wanted:
        if not self._is_due:
            return []
        wanted: Wanted = []
        for records, taken in ((self._taken, True), (self._refused, False)):
            for queue, some in self._by_queue(records).items():
                wanted.append((Posted(queue, self._runs(some), taken), Proposed(some)))
        if self._is_asked:  # this end answers the core's echo when the entry is decided
            wanted.append((Settled(()), Proposed([], answers_echo=True)))
        return wanted

    def _by_queue(self, records: Iterable[Record]) -> dict[QueueId, list[Record]]:
        found: dict[QueueId, list[Record]] = {}
        for record in records:
            found.setdefault(self._messages.outbox.letters[self.open[record]].queue, []).append(record)
        return found

    def _was_proposed(self, *, is_due: bool) -> None:
        self._taken, self._refused, self._is_asked, self._is_due = [], [], False, False

    def _waiting(self) -> Iterable[list[Record]]:
        return self._taken, self._refused

    def _ended(self, position: int) -> None:
        """Handle the end of a delivery. If the message is still in the outbox, its address has not taken it, so it is
        published again after a pause."""
        if position not in self._messages.outbox.letters:
            self._known.discard(position)
            self._tries.pop(position, None)
            return
        tries = self._tries[position] = self._tries.get(position, 0) + 1
        pause = min(PAUSE_S << min(tries - 1, 16), LONGEST_PAUSE_S)
        heappush(self._paused, (self.node.now() + pause, position))

    # The methods from here on are called for the core.

    def send_outcomes(self, action: AnswerDeliveries) -> None:
        """The home reports which messages the address has taken. A message with an empty audience counts as not
        taken."""
        for record in filter(self.open.__contains__, action.records):
            is_for_nobody = bool(action.alone) and not record.routers and not record.locals
            is_taken = action.outcome is DeliveryOutcome.ACCEPTED and not is_for_nobody
            (self._taken if is_taken else self._refused).append(record)
        self._log.wait(self)
