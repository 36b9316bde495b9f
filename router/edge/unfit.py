"""Refuses, in the name of a subscriber, messages that the subscriber cannot take (protocol 5, Unfit).

A message is larger than AMQP's max-message-size or MQTT's maximum packet size allows, or of a kind that the protocol
cannot carry. The kind of the address decides the outcome: for some kinds, another subscriber gets the message.
"""

import logging
from collections.abc import Sequence

from topic.delivery.record import Record
from topic.edge.subscriber import LocalSubscriber
from topic.node import Node

log = logging.getLogger("oncemesh.clients")


def refuse_for(node: Node, subscriber: LocalSubscriber, records: Sequence[Record], why: str) -> None:
    """Refuse these messages in the name of the subscriber, which did not get them. A presettled message is lost for the
    subscriber: at most once."""
    log.warning("a message was not sent to subscriber %s: %s", subscriber.identity, why)
    node.topic.outcomes(subscriber, list(records), subscriber.kind.unfit, final=True)
    node.perform()
