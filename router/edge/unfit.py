"""Messages that a subscriber cannot be given: its router refuses them for it (protocol 5, Unfit).

They are larger than it takes, by AMQP's max-message-size or MQTT's maximum packet size, or of a kind that its protocol
cannot carry. The kind of the address says by which outcome: of some, another subscriber is given them.
"""

import logging
from collections.abc import Sequence

from topic.delivery.record import Record
from topic.edge.subscriber import LocalSubscriber
from topic.node import Node

log = logging.getLogger("oncemesh.clients")


def refuse_for(node: Node, subscriber: LocalSubscriber, records: Sequence[Record], why: str) -> None:
    """Answer for the subscriber, which was not sent these. Settled ones it just misses: at most once."""
    log.warning("a message was not sent to subscriber %s: %s", subscriber.identity, why)
    node.topic.outcomes(subscriber, list(records), subscriber.kind.unfit, final=True)
    node.perform()
