"""The judge of queues: checks the promises about their messages by what clients see (protocol 14, queues.md).

1. An accepted message is in the queue, and is processed once, by one consumer. It is processed *at least once* if a
   plain client was in doubt of it, or a consumer was away for longer than its timeout.
2. A consumer does not get a message again after it has accepted it and read that it is settled.
3. No two consumers have a message at a time, unless the first one is in doubt.
4. No message comes that no publisher has sent.
5. A message's delivery-count is how often a consumer has reported a failure, or has gone with the message.
6. A dead letter is an accepted message of its own: it comes once, and is not lost. It comes from a message that may
   have died.

The caller says which clients are in doubt (`Holder`, `Judge.loosen`), as it knows links, contacts and clocks. If the
caller also reports the log of a set (`enqueued`, `taken`), the judge checks one more rule:

7. A message is enqueued once. It is taken out of its queue when it is processed, and not before, unless its time is
   over, or an operator ends it (`left`).
"""

from collections.abc import Callable, Iterable
from typing import Protocol

import attrs

from tests.failures import alive, died
from topic.delivery.outcomes import DeliveryOutcome


class Holder(Protocol):
    """The judge's view of a consumer."""

    name: str

    def has(self, text: bytes) -> bool:
        """Whether it has the message, and has not given it back."""

    @property
    def is_in_doubt(self) -> bool:
        """Whether other consumers may get its messages."""


@attrs.define(eq=False)
class Message:
    may_be_refused: bool = False
    """Its queue may have no room for it."""
    may_be_gone: bool = False
    """It may be lost: its queue is deleted now and then, an operator has purged it, its time is over, or a consumer has
    taken it settled."""
    is_told: bool = False
    """Whether its publisher has read that it is accepted."""
    is_loose: bool = False
    """It is promised only *at least once*."""
    enqueued: int = 0
    """How often it was enqueued."""
    failed: int = 0
    """How often a delivery of it was settled as failed, to the consumer's knowledge."""
    released: int = 0
    """How often a delivery of it was settled as given back without failure."""
    processed: list[str] = attrs.Factory(list)
    """The consumers that have processed it."""
    is_refused: bool = False
    """The log of the set says that its queue had no room for it, or a home has ended it for its time."""
    has_left: bool = False
    """The log of the set says that it has left its queue without being processed: its time was over, an operator has
    purged its queue, or the queue was deleted."""
    is_dead: bool = False
    """Its queue has given it to another address as a dead letter, which is another message here."""


def former(text: bytes) -> bytes:
    """The message of which this one is a dead letter; this one if it is no dead letter."""
    parent, deaths = alive(text)
    for _ in range(deaths - 1):
        parent = died(parent) or parent
    return parent if deaths else text


class Judge:
    def __init__(
        self, check: Callable[[bool, str], None], note: Callable[[str], None], holders: Callable[[], Iterable[Holder]]
    ) -> None:
        """`check` raises if its condition is false."""
        self._check = check
        self._note = note
        self._holders = holders
        self.messages: dict[bytes, Message] = {}
        self._settled: set[tuple[str, bytes]] = set()

    def loosen(self, texts: Iterable[bytes]) -> None:
        """The state of these messages is unknown, as a client that had them has gone."""
        for text in texts:
            self.messages[text].is_loose = True

    # events of publishers

    def sent(self, text: bytes, message: Message) -> None:
        self.messages[text] = message

    def told(self, text: bytes, outcome: DeliveryOutcome) -> None:
        """A publisher reads the outcome of a message."""
        message = self.messages[text]
        accepted = outcome is DeliveryOutcome.ACCEPTED
        may_be_refused = message.is_refused or message.may_be_refused or message.may_be_gone
        is_refused = outcome is DeliveryOutcome.REJECTED and may_be_refused
        self._check(accepted or is_refused, f"{text.decode()} is {outcome.name.lower()}")
        message.is_told = accepted

    # events of consumers

    def handed(self, consumer: Holder, text: bytes) -> None:
        self._note(f"{consumer.name} has {text.decode()}")
        message = self.messages.get(text)
        if message is None and (parent := former(text)) in self.messages:
            message = self.died(parent, "redeliveries")
        self._check(message is not None, f"{consumer.name} is given {text!r}, which nobody has sent")
        assert message is not None
        for other in self._holders():
            if other.has(text):
                excused = other.is_in_doubt or message.is_loose
                self._check(excused, f"{consumer.name} is given {text.decode()}, and {other.name} has it")
                message.is_loose = True
        is_new = (consumer.name, text) not in self._settled or message.is_loose
        self._check(is_new, f"{consumer.name} is given {text.decode()} again")

    def processed(self, consumer: Holder, text: bytes) -> None:
        message = self.messages[text]
        message.is_loose |= consumer.is_in_doubt
        message.processed.append(consumer.name)
        who = " and ".join(message.processed)
        self._check(len(message.processed) == 1 or message.is_loose, f"{text.decode()} is processed by {who}")

    def settled(self, consumer: Holder, text: bytes) -> None:
        """The consumer has accepted or rejected the message, and reads that this is settled."""
        self._settled.add((consumer.name, text))

    def came_back(self, text: bytes, failed: bool) -> None:
        """A consumer has given the message back, and its router settles that delivery."""
        message = self.messages[text]
        message.failed += failed
        message.released += not failed

    def transferred(self, text: bytes, failures: int, times: int) -> None:
        """A router transfers the message with `failures` as its delivery-count, after it came back this many
        `times`."""
        message = self.messages.get(text)
        if message is None or message.is_loose or message.may_be_gone:
            return
        self._check(failures >= message.failed, f"{text.decode()} has failed {message.failed} times, not {failures}")
        most = times - message.released
        self._check(failures <= most, f"{text.decode()} comes with {failures} failures, and has {most} at most")

    def died(self, text: bytes, why: str) -> Message:
        """The set has the message in its outbox for this reason (`topic.queues.outgoing.outbox.Why`)."""
        message = self.messages.get(text)
        self._check(message is not None, f"{text!r} is a dead letter, which nobody has sent")
        assert message is not None
        may_be = {"rejected": bool(message.processed), "expired": b"!" in text, "redeliveries": True}
        self._check(may_be[why], f"{text.decode()} is a dead letter: {why}")
        child = died(text)
        assert child is not None
        message.is_dead = True
        known = self.messages.setdefault(child, Message(may_be_gone=message.may_be_gone, is_told=True))
        known.is_loose |= message.is_loose and not message.processed
        return known

    # events in the log of the set

    def enqueued(self, text: bytes, *, may_repeat: bool) -> None:
        """`may_repeat`: whether its publisher is promised only *at least once*."""
        message = self.messages.get(text)
        self._check(message is not None, f"{text!r} is enqueued, which nobody has sent")
        assert message is not None
        message.enqueued += 1
        message.is_loose |= message.enqueued > 1
        self._check(message.enqueued == 1 or may_repeat, f"{text.decode()} is enqueued {message.enqueued} times")

    def taken(self, text: bytes) -> None:
        message = self.messages[text]
        is_over = bool(message.processed) or message.may_be_gone
        self._check(is_over, f"{text.decode()} is taken out of its queue, and nobody has processed it")

    def left(self, text: bytes) -> None:
        """The message has left its queue for a reason that the caller has checked."""
        self.messages[text].has_left = True

    # in the end

    @property
    def missing(self) -> list[str]:
        """The messages that were accepted and are not processed."""
        owed = {text: one for text, one in self.messages.items() if one.is_told and not one.is_dead}
        owed = {text: one for text, one in owed.items() if not (one.may_be_gone or one.has_left)}
        return [text.decode() for text, one in owed.items() if not one.processed]
