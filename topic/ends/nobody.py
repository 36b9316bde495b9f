"""An end without a client. The router uses it to close a link in place of the client."""

from topic.actions import LinkAction
from topic.directory.entry import LinkEntry, Role
from topic.ends.end import EndNode, InsideEnd


class Nobody(InsideEnd):
    """An end that ignores all actions of the core."""

    def perform(self, action: LinkAction) -> None: ...


def end_link(node: EndNode, entry: LinkEntry, clock: int = 0) -> None:
    """Close a link in place of its client. To do so, attach the link here with the latest epoch, and then close it.

    If the client is attached at a router out of reach, this router later tells it that its link was stolen. `clock`:
    the clock of the attach if the leader of a set makes it (14.2); 0 otherwise.
    """
    topic, nobody = node.topic, Nobody()
    link, now, seen, lifetime = entry.identity, node.now(), entry.epoch, entry.lifetime
    if entry.role is Role.SUBSCRIBER:
        subscriber = topic.attach_subscriber(link, nobody, now, seen=seen, lifetime=lifetime, clock=clock)
        topic.detach_subscriber(subscriber, nobody, now)
    else:
        publisher = topic.attach_publisher(link, nobody, now, seen=seen, lifetime=lifetime, clock=clock)
        topic.detach_publisher(publisher, now)
    node.perform()
