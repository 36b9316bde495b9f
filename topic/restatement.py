"""Repeats, at the beginning of a segment of the delivery log, the facts that still hold: contacts, attached links,
joined subscribers and gates.

The router does this if it may delete earlier segments. A reader of the later segments then does not need the deleted
ones.
"""

import json

from topic.core import Topic
from topic.directory.entry import Role
from topic.journal import Event


def restate(topic: Topic, first: tuple[int, int] | None) -> None:
    """Write the repeated entries. `first`: the incarnation and number of the first segment that the router keeps; None
    if it has deleted none."""
    trace, directory = topic.outlet.trace, topic.directory
    trace(Event.CONTINUED, detail=json.dumps({"first": first, "dead": topic.settings.dead}))
    for router, incarnation in sorted(directory.contacts.items()):
        trace(Event.CONTACT, peer=router, detail=json.dumps({"incarnation": incarnation, "again": True}))
    for entry in directory.entries():
        if entry.role is Role.SUBSCRIBER and entry.live and (entry.lasts or entry.name not in directory.lapsed):
            custodian = None if directory.is_mine(entry) else entry.router
            columns = {"address": entry.identity.address, "epoch": str(entry.epoch), "peer": custodian}
            trace(Event.JOINED, subscriber=entry.name, **columns)
    for stream in topic.home.streams.values():
        for name in stream.gates:
            trace(Event.GATED, subscriber=name, publisher=stream.publisher)
    for stream in topic.home.streams.values():
        if stream.answered or stream.link is None:
            topic.attaches.trace(stream, again=True)
        if stream.link is None:
            trace(Event.SUSPENDED, publisher=stream.publisher, epoch=stream.label)
    for subscriber in topic.edge.subscribers.values():
        if subscriber.answered or subscriber.link is None:
            topic.attaches.trace(subscriber, again=True)
        if subscriber.link is None:
            trace(Event.SUSPENDED, subscriber=subscriber.name, epoch=str(subscriber.epoch))
