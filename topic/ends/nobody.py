"""An end without a client: what is attached with it is about to be closed."""

from topic.actions import LinkAction
from topic.directory.entry import LinkEntry, Role
from topic.ends.end import EndNode, InsideEnd


class Nobody(InsideEnd):
    """In the place of an end: what the core asks of it is left out of account."""

    def perform(self, action: LinkAction) -> None: ...


def end_link(node: EndNode, entry: LinkEntry, clock: int = 0) -> None:
    """Close it in its client's place, wherever that was: the link is attached here, later than everywhere, and closed.
    A client that is attached out of sight is told that its link was stolen. `clock`: of the attach, if the leader of a
    set makes it (14.2)."""
    topic, nobody = node.topic, Nobody()
    link, now, seen, lifetime = entry.identity, node.now(), entry.epoch, entry.lifetime
    if entry.role is Role.SUBSCRIBER:
        subscriber = topic.attach_subscriber(link, nobody, now, seen=seen, lifetime=lifetime, clock=clock)
        topic.detach_subscriber(subscriber, nobody, now)
    else:
        publisher = topic.attach_publisher(link, nobody, now, seen=seen, lifetime=lifetime, clock=clock)
        topic.detach_publisher(publisher, now)
    node.perform()
