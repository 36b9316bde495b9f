"""Lets an operator end links whose clients are gone for good, so that no router waits for their timeouts.

The router to which the link was last attached ends it. If that router is not in contact, any router may end the link.
If the link belongs to a session of MQTT, all links of the session end, because a session expires as a whole (protocol
8)."""

import logging
from operator import attrgetter

from router.entities.observed import ObservedRouter
from router.events.kind import EventKind, event
from router.management.requests import BAD_REQUEST, NOT_FOUND, ManagementError
from topic.directory.entry import Index
from topic.ends.nobody import end_link

log = logging.getLogger("oncemesh")


def forget(at: ObservedRouter, index: Index) -> None:
    """End the link. Raises ManagementError if it is unknown here, has a client, or was last attached to another
    router.
    """
    topic = at.node.topic
    directory = topic.directory
    entry = directory.entry(index)
    if entry is None or not entry.live:
        raise ManagementError(NOT_FOUND, "the link does not exist any more")
    links = [link for link in directory.of_session(entry.session) if link.live] if entry.session else [entry]
    last = max(links, key=attrgetter("epoch"))
    if directory.in_contact(last) and not directory.is_mine(last):
        raise ManagementError(
            BAD_REQUEST, f"{entry.identity} was last attached at router {last.router}; send the request there"
        )
    if any(map(topic.changes.is_here, links)):
        raise ManagementError(
            BAD_REQUEST, f"the client of {entry.identity} is attached here; stop the client, or close its connection"
        )
    for link in links:
        end_link(at.node, link)
        told = event(EventKind.FORGOTTEN, role=link.role.name.lower(), **link.identity.shown())
        log.warning("ending %s %s at the request of an operator", link.role.name.lower(), link.identity, extra=told)
    at.node.pump()
