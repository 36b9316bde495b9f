"""Filters of subscribers: a subscriber wants messages of some colours. The text of a message determines its colour.

Which subscriber must get which message is judged in `judge`.
"""

from random import Random
from typing import TYPE_CHECKING
from zlib import crc32

import attrs

from tests.failures import alive
from topic.delivery.outcomes import DeliveryOutcome
from topic.edge.filters import NoLocal, Wants

if TYPE_CHECKING:
    from tests.simulation.judge import Judge
    from tests.simulation.parties import Message, Reader
    from tests.simulation.subscriber_link import SubscriberLink


CHANGED = "it has asked for another filter, which leaves it out"
"""The cause with which a promise ends that was made under an earlier filter."""
COLOURS = 3
CHOICES = ((0, 1), (0, 2), (1, 2), (0,), ())
"""The colours that a subscriber with a filter may want."""


@attrs.frozen
class Colours:
    """A filter, with the interface that the topic core uses."""

    wanted: tuple[int, ...]

    @property
    def cost(self) -> int:
        return len(self.wanted)

    def read(self, message: bytes) -> int:
        return crc32(message) % COLOURS

    def wants(self, content: int) -> bool:
        return content in self.wanted


def draw_filter(random: Random) -> Colours | None:
    return Colours(random.choice(CHOICES)) if random.random() < 0.8 else None


def is_left_out(reader: "Reader", text: bytes) -> bool:
    """Whether any filter that the subscriber ever asked for leaves the message out. Routers may apply an older filter
    while they do not know the last attach. If an older filter let a message through, they may have to deliver it in
    spite of a later filter."""
    return any(leaves_out(link, text) for link in reader.links)


def leaves_out(link: "SubscriberLink", text: bytes) -> bool:
    """Whether the filter of that attach leaves the message out."""
    colours, client, (text, _) = link.wants, link.client, alive(text)
    if not link.no_local and colours is None:
        return False
    publisher = link.router.judge.messages[text].sent_on.client
    is_own = link.no_local and publisher.identity.container == client.identity.container
    return is_own or (colours is not None and not colours.wants(colours.read(text)))


def as_asked(link: "SubscriberLink") -> Wants | None:
    """The filter of the attach, for the core."""
    return NoLocal(link.client.identity.container, "", link.wants) if link.no_local else link.wants


def check_refused(judge: "Judge", message: "Message", outcome: str) -> None:
    """If there are filters: a message is rejected only if a subscriber that got it has refused it."""
    readers = judge.readers.values()
    if outcome == "REJECTED" and any(as_asked(link) is not None for reader in readers for link in reader.links):
        refused = any(
            text == message.text and said != DeliveryOutcome.ACCEPTED
            for reader in readers
            for text, said in reader.outcomes
        )
        refused |= judge.queues.has_refused(message.text)
        judge.check(refused, f"2 refused: {message.text.decode()} is rejected, and nobody has refused it")


def is_named(reader: "Reader", key: bytes) -> bool:
    """Whether the map of the attach that was answered last names the key, and so do all maps that have reached a router
    since. A subscriber gets a delivery that it has whatever its filter says."""
    since = [link for link in reader.links if reader.link is not None and link.number >= reader.link.number]
    return bool(since) and all(key in link.named for link in since if link.named is not None)
