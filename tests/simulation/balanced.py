"""Judges deliveries of balanced addresses: only one subscriber of the model has each of them at a time (protocol 12).

The judge sees all deliveries at once. While a subscriber has a message, no other subscriber may get it. The subscriber
has it until it gives it back, its router tells it to forget it, or its terminus ends. The limits of exactly once apply
here, too.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import attrs

from tests.simulation.rests import Rests
from topic.delivery.outcomes import GIVEN_BACK, DeliveryOutcome
from topic.identity import Epoch, link_name

if TYPE_CHECKING:
    from tests.simulation.judge import Judge
    from tests.simulation.parties import Message
    from tests.simulation.router import Router
    from tests.simulation.subscriber_link import SubscriberLink
    from tests.simulation.world import World

PREFIX = "balanced/"


def is_balanced(message: "Message") -> bool:
    return message.sent_on.client.identity.address.startswith(PREFIX)


@attrs.frozen
class Holder:
    name: str
    since: Epoch | None
    """The first attach of the subscriber's terminus at that time."""


class Balanced:
    def __init__(self, judge: "Judge") -> None:
        self._judge = judge
        self._holders: dict[bytes, Holder] = {}
        self._unknown: dict[bytes, set[str]] = {}
        """For each message, the subscribers that neither the home nor a router in contact with it knew when the home
        received the message."""
        self._said: dict[bytes, list[tuple[str, DeliveryOutcome, bool]]] = {}
        """Keyed by message: the outcomes of subscribers, and whether each subscriber refuses the message for good."""
        self.rests = Rests(judge)
        self.handed_on = 0
        """How often a message went to another subscriber after one had it."""

    def received(self, message: "Message", home: "Router") -> None:
        if is_balanced(message):
            self.rests.over([message.text])
            readers, termini = self._judge.readers.items(), self._judge.termini
            self._unknown[message.text] = {
                n for n, reader in readers if reader.resumes and not termini.known_around(home, n, reader)
            }

    def seen(self, name: str, message: "Message") -> None:
        """The application gets a message."""
        if not is_balanced(message) or message.presettled:
            return
        holder = self._holders.get(message.text)
        if holder is not None and holder.name != name:
            label = f"{message.text.decode()} comes to {name}, and {holder.name} has it"
            excused = self._is_over(holder, message) or self._is_out_of_reach(holder, name, message)
            self._judge.check(excused, f"1 one of many: {label}")
            self.handed_on += 1
        self._holders[message.text] = Holder(name, self._judge.readers[name].since)

    def _is_over(self, holder: Holder, message: "Message") -> bool:
        """Whether the holder is no longer promised exactly once for its message."""
        reader, judge = self._judge.readers[holder.name], self._judge
        is_same = reader.since is not None and reader.since == holder.since
        is_exact = reader.exact and not message.plain and not judge.applications.is_limited(holder.name, message)
        ended = reader.expired is not None or holder.name in judge.untold
        return not (is_same and is_exact) or ended or message.anew

    def _is_out_of_reach(self, holder: Holder, name: str, message: "Message") -> bool:
        """Whether a limit of protocol 10 applies: the home cannot have known the holder, one of the two subscribers is
        on the other side of a cut, or an older attach of the holder came later, with an older map."""
        around, readers = self._judge.termini.around(self._judge.routers[message.home]), self._judge.readers
        links = [link for link in (readers[holder.name].link, readers[name].link) if link is not None]
        is_cut = any(link.router.alive and link.router not in around for link in links)
        epochs = [link.epoch for link in readers[holder.name].links if link.epoch is not None]
        limit = holder.name in self._unknown.get(message.text, ()) or is_cut or epochs != sorted(epochs)
        if limit:
            self._judge.note("judge", f"limit: {holder.name}, which has {message.text.decode()}, is out of reach")
        return limit

    def outcome(self, name: str, text: bytes, outcome: DeliveryOutcome, final: bool) -> None:
        self._said.setdefault(text, []).append((name, outcome, final))
        if outcome in GIVEN_BACK:
            self.forgotten(name, [text])

    def asked(self, keys: Iterable[bytes]) -> None:
        """A home is asked about these keys, so it has to look for subscribers that have the deliveries."""
        self.rests.over(self._judge.by_key[key].text for key in keys if key in self._judge.by_key)

    def comes_back(self, link: "SubscriberLink", text: bytes) -> None:
        """The router of the link reads that the subscriber gives the message back, and would take it again. If a plain
        publisher's home was out of contact for a moment, that router no longer reports to it."""
        message = self._judge.messages.get(text)  # dead letters have other texts
        if message is not None and is_balanced(message) and not message.plain:
            self.rests.comes_back(link, message)

    def forgotten(self, name: str, texts: Iterable[bytes]) -> None:
        """The subscriber does not have these messages any more, or has forgotten that it has them."""
        for text in texts:
            holder = self._holders.get(text)
            if holder is not None and holder.name == name:
                del self._holders[text]

    def decided(self, message: "Message", outcome: str, home: "Router") -> None:
        if not is_balanced(message):
            return
        if outcome == "REJECTED":
            self._judge.check(
                self._is_refused(message, home), f"2 one of many: {message.text.decode()} is rejected too early"
            )
        elif outcome == "ACCEPTED":
            readers = self._judge.readers.values()
            had = any(reader.at_most_once or message.text in reader.accepted for reader in readers)
            self._judge.check(had, f"2 one of many: {message.text.decode()} is accepted, and nobody has it")

    def _is_refused(self, message: "Message", home: "Router") -> bool:
        """Whether a subscriber has rejected the message, or it was given back too often, or all subscribers that the
        home knows have refused it for themselves."""
        said, directory = self._said.get(message.text, []), home.topic.directory
        given_back = [name for name, outcome, _ in said if outcome in GIVEN_BACK]
        names = {client.name: link_name(client.identity) for client in self._judge.subscribers}
        there = {entry.name for entry in directory.subscribers(message.sent_on.client.identity.address)}
        refused = {names[name] for name, _, final in said if final}
        if any(outcome is DeliveryOutcome.REJECTED for _, outcome, _ in said):
            return True
        return len(given_back) > self._judge.redeliveries or there - directory.lapsed.keys() <= refused


def stranded(world: "World") -> set[str]:
    """Publishers whose messages wait because their address has no subscriber."""
    served = {client.identity.address for client in world.subscribers if not client.gone}
    publishers = [publisher for publisher in world.publishers if publisher.identity.address.startswith(PREFIX)]
    return {publisher.name for publisher in publishers if publisher.identity.address not in served}
