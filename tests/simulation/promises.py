"""Counts the promises of exactly once, and why some ended, when a run is over (protocol 1).

A promise is made to each subscriber that a publisher's router knows when it gets a message. `tests.simulation.judge`
says when the mesh need not keep it any more. The mesh may keep it all the same. If the publisher gave the message up,
or its life ended before it read an outcome, the message was promised to no subscriber in the end.
"""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tests.simulation.parties import APART, CLOSED, DELETED, GIVEN_UP, UNKNOWN, VOLATILE, Message, Reader
from topic.directory.entry import Status
from topic.identity import link_name

if TYPE_CHECKING:
    from tests.simulation.judge import Judge
    from tests.simulation.router import Router


class Promises:
    def __init__(self, readers: Mapping[str, Reader]) -> None:
        self._readers = readers
        self.made = 0
        self.ended: list[tuple[Message, str, str]] = []
        """(message, subscriber, cause)"""

    def causes(self) -> Counter[str]:
        """Why promises have ended that were not kept, with counts."""
        broken = [(message, cause) for message, name, cause in self.ended if not self._is_kept(message, name)]
        return Counter(cause if message.told else GIVEN_UP for message, cause in broken)

    def kept_all_the_same(self) -> int:
        return sum(self._is_kept(message, name) for message, name, _ in self.ended)

    def _is_kept(self, message: Message, name: str) -> bool:
        return message.text in self._readers[name].final


def why_unknown(judge: "Judge", home: "Router", message: Message, name: str) -> str:
    """Why no router around the home knows the subscriber. The home knows that it has ended; or all routers that knew it
    then have died, and it had not asked them to remember it; or a store was lost or is an older copy; or the routers
    that know it are out of contact."""
    client = next(client for client in judge.subscribers if client.name == name)
    entry = home.topic.directory.subscriber(link_name(client.identity))
    if entry is not None and not entry.live:
        return CLOSED if entry.status is Status.CLOSED else APART
    reader, routers = judge.readers[name], judge.routers.values()
    older = [router for router in routers if router.alive and router.booted_at <= message.promised_at]
    if not client.durable and not any(judge.termini.knows(router, name, reader) for router in older):
        return VOLATILE
    deleted = any((router.name, name) in judge.memory.deleted for router in judge.termini.around(home))
    return DELETED if deleted else UNKNOWN
