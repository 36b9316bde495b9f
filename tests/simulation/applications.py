"""Judges which messages the applications of subscribers get, and which they forget (protocol 9.1 and 9.3).

It does not judge which messages a subscriber must have before its publisher reads an outcome; `judge` does that.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tests.simulation.balanced import is_balanced
from tests.simulation.filters import is_left_out
from tests.simulation.parties import Message, Reader
from tests.simulation.ttl import transferred
from tests.simulation.wildcards import covers
from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import Record
from topic.edge.unconfirmed import FINAL
from topic.identity import NAME_LENGTH

if TYPE_CHECKING:
    from tests.simulation.judge import Judge
    from tests.simulation.subscriber import SubscriberClient
    from tests.simulation.subscriber_link import SubscriberLink


class Applications:
    def __init__(self, judge: "Judge") -> None:
        self._judge = judge

    def amnesia(self, name: str, unsettled: Iterable[bytes]) -> None:
        """The application has forgotten these messages. It may get them again."""
        reader, texts = self._judge.readers[name], list(unsettled)
        reader.may_repeat.update(texts)
        reader.lost.update(texts)
        self._judge.balanced.forgotten(name, texts)

    def left(self, name: str) -> None:
        """A subscriber no longer has a link."""

    def settles(self, name: str, text: bytes) -> None:
        """A subscriber settles a delivery itself."""

    def is_settled_for(self, text: bytes) -> bool:
        """Whether routers settle the message at a moment that its publisher cannot observe."""
        return self._judge.is_settled_for(text)

    def transferred(self, link: "SubscriberLink", record: Record, attempts: int) -> None:
        assert record.message is not None
        text = record.message
        transferred(self._judge, text)
        self._judge.balanced.rests.transferred(self._judge.messages[text])
        self._judge.note(link.router.name, f"transfers {text.decode()} to {link}{f' ({attempts})' if attempts else ''}")
        address = self._judge.messages[text].key[:NAME_LENGTH] == record.stream.publisher
        self._judge.check(
            address and covers(link.client.identity.address, record.stream.address), f"3 address: {text!r} to {link}"
        )

    def resumed(self, link: "SubscriberLink", record: Record, state: int, settled: bool) -> None:
        if not (state or settled) and record.message is not None:
            transferred(self._judge, record.message)
            self._judge.balanced.rests.over([record.message])
        self._judge.note(link.router.name, f"resumes {record.key[12:17].decode()} at {link}: {state}, {settled}")

    def restated(self, name: str, text: bytes, said: int, state: int) -> None:
        """A router resumes a delivery with a state instead of the payload. The state has to be what the subscriber says
        now. It may be an earlier outcome of the subscriber if the subscriber lost its memory, or settled or gave back
        the delivery and got it again."""
        reader = self._judge.readers[name]
        again = text in reader.lost or state not in FINAL or reader.first
        done = said == state or (again and (text, state) in reader.outcomes) or self._judge.has_twin(name)
        self._judge.check(done, f"1 resume: {name} said {said} of {text.decode()}, and is told {state}")

    def seen(self, name: str, router: str, text: bytes, key: bytes, attempts: int, resumed: bool) -> None:
        """The application gets a message."""
        reader, message = self._judge.readers[name], self._judge.messages[text]
        self._judge.seen_count += 1
        self._judge.balanced.seen(name, message)
        label = f"{text.decode()} at {name}"
        # No log of a router shows the key of a presettled delivery, so the judge has not followed it.
        is_right = message.key == key or (message.presettled and self._judge.lives.is_numbered(message, key))
        self._judge.check(is_right, f"1 key: {label} has another key")
        old = message.published <= reader.first_attach
        self._judge.check(
            reader.resumes or not old or is_balanced(message), f"3 joined: {label} is older than its first attach"
        )
        if message.presettled:
            self._judge.check(text not in reader.ever, f"1 at most once: {label} again, though presettled")
        if self._is_at_most_once(name, message):
            self._judge.check(text not in reader.ever, f"1 at most once: {label} again, where it has stayed")
        if self._is_exact(name, message):
            again = text in reader.had and text not in reader.may_repeat
            self._judge.check(not again, f"1 exactly once: {label} again")
            reader.had.add(text)
            reader.may_repeat.discard(text)
        elif not reader.first and not self.is_limited(name, message):
            self._check_on_link(reader, message, label, counted=attempts > 0 or resumed)
        reader.on_link[text] = False
        if not self.is_limited(name, message):
            self._check_order(reader, message, name, router, label)

    def _is_exact(self, name: str, message: Message) -> bool:
        """Whether both ends resume, in settle mode second, and neither has met a limit."""
        return self._judge.readers[name].exact and not message.plain and not self.is_limited(name, message)

    def _is_at_most_once(self, name: str, message: Message) -> bool:
        """Whether the subscriber takes everything settled, and its terminus has stayed at one router, which has not
        lost it (protocol 10).
        """
        reader = self._judge.readers[name]
        if not (reader.at_most_once and reader.resumes) or reader.first or self.is_limited(name, message):
            return False
        if message.plain or message.anew or self._judge.is_settled_for(message.text):
            return False
        routers = {link.epoch[1:] for link in reader.links if link.epoch is not None}
        has_ended = reader.expired is not None or reader.told is not None or any(link.closed for link in reader.links)
        return len(routers) == 1 and not has_ended

    def is_limited(self, name: str, message: Message) -> bool:
        spoken_for = self._judge.lives.is_spoken_for(message)
        is_doubtful = spoken_for or self._judge.lives.is_doubtful(message)
        return is_doubtful or message.publisher in self._judge.inexact or name in self._judge.inexact

    def _check_on_link(self, reader: Reader, message: Message, label: str, *, counted: bool) -> None:
        # the edge gave up deliveries of a lost home that remembers them, and gives them to subscribers that are still
        # known
        known = reader.resumes or message.plain or len({link.router.name for link in reader.recent}) > 1
        cut_off = message.home in reader.cut_off and known
        if message.text in reader.on_link and not cut_off:
            self._judge.check(reader.on_link[message.text], f"1 exactly once: {label} again on one link")
            self._judge.check(counted, f"1 delivery-count: {label} again, not counted")

    def _check_order(self, reader: Reader, message: Message, name: str, router: str, label: str) -> None:
        if message.text in reader.ever:
            return
        reader.ever.add(message.text)
        life = message.publisher, message.life
        last, before = reader.last.get(life, (0, ""))
        # a subscriber that moved between the sides of a partition gets messages that the other side had given up for it
        cut_off = before != router and message.home in reader.cut_off and not self._is_exact(name, message)
        unordered = cut_off or message.anew or reader.at_most_once or life in self._judge.lives.unordered
        unordered = unordered or is_left_out(reader, message.text) or is_balanced(message)
        self._judge.check(message.number > last or unordered, f"1 order: {label} after number {last}")
        reader.last[life] = max(message.number, last), router

    def forgotten(self, client: "SubscriberClient", text: bytes, said: int, how: str) -> None:
        """A subscriber considers a delivery settled."""
        reader, message = self._judge.readers[client.name], self._judge.messages[text]
        if text not in reader.accepted:
            self._judge.balanced.forgotten(client.name, [text])
        if is_balanced(message) and text not in reader.had:
            return  # the subscriber had given it back
        if self._is_exact(client.name, message) and reader.expired is None:
            over = message.over or self._judge.lives.is_over(message)
            given_up = (
                not over and client.link is not None and self._judge.termini.may_give_up(client.link.router, message)
            )
            over = over or given_up or self._is_of_first(client, message)
            self._judge.check(over, f"3 forgets early: {text.decode()} at {client.name}, {how}")

    def _is_of_first(self, client: "SubscriberClient", message: Message) -> bool:
        """The publisher sent a message again under its key. Returns whether the subscriber forgets the first of these
        two deliveries. Limit: it may also forget the second one, if its router still holds the first one as settled and
        applies the subscriber's map to that (protocol 10)."""
        reader, link = self._judge.readers[client.name], client.link
        if not message.anew or message.text not in reader.had:
            return message.anew
        if link is None or not (message.settled_on and link.settled_there.get(message.text) in message.former):
            return False
        self._judge.note(client.name, f"limit: its router holds {message.text.decode()} as it was sent first, settled")
        reader.had.discard(message.text)
        return True

    def outcome(self, name: str, text: bytes, outcome: DeliveryOutcome, final: bool) -> None:
        self._judge.balanced.outcome(name, text, outcome, final)
        self._judge.readers[name].finish(text, outcome, final, self._judge.redeliveries)
