"""The temporary queues of one set, at the router that leads it (protocol 14.21).

A temporary queue belongs to a set like any other queue. Its settings name its lifetime policy (AMQP 1.0 3.5.10 to
3.5.13). As long as the link that has created the queue exists, the settings also name the router that has this link,
and the router's incarnation. Once a second, the leader checks the temporary queues, and deletes each queue whose time
is over.
"""

from collections.abc import Callable, Iterable
from typing import Final

from topic.directory.directory import Directory
from topic.directory.entry import Role
from topic.identity import egress_address, ingress_address
from topic.queues.operations import Delete, QueueId, Temporary
from topic.queues.state import Queue, SetState

LOOK_S: Final = 1.0
"""The seconds from one check of the temporary queues to the next."""
AWAY_S: Final = 60.0
"""The seconds out of contact after which the links of a router count as gone."""
LINGER_S: Final = 1.0
"""The seconds for which a queue stays after the leader has found it without links, if its policy deletes it without
links. The queue may be new, and its first link may not have attached yet."""


class TemporaryQueues:
    """The temporary queues of a set, in one term of its leader."""

    def __init__(self, set_: str, state: Callable[[], SetState], directory: Directory) -> None:
        self._set = set_
        self._state = state
        self._directory = directory
        self._away: dict[str, float] = {}
        """The incarnations of routers that settings of queues name, and that are out of contact. Maps each one to the
        time at which the leader first found it out of contact."""
        self._unlinked: dict[QueueId, float] = {}
        """Maps each queue that exists only while it has links, and that has none now, to the time at which the leader
        first found it without a link."""
        self._published: set[str] = set()
        """The addresses that had a publisher at the last check; empty if no queue's lifetime depends on its links."""

    def over(self, now: float) -> Iterable[Delete]:
        """The operations that delete the queues whose time is over."""
        temporary = [*self._state().temporary.values()]
        self._published = self._addresses_of_publishers() if any(map(_asks_for_links, temporary)) else set()
        held = {queue.settings.held_by or "" for queue in temporary}
        self._away = {holder: since for holder, since in self._away.items() if holder in held}
        ids = {queue.id for queue in temporary}
        self._unlinked = {id_: since for id_, since in self._unlinked.items() if id_ in ids}
        return [Delete(queue.name, queue.id) for queue in temporary if self._is_over(queue, now)]

    def _is_over(self, queue: Queue, now: float) -> bool:
        settings = queue.settings
        if settings.held_by is not None and self._is_there(settings.held_by, now):
            return False
        policy = settings.temporary
        has_links = _asks_for_links(queue) and self._may_have_links(queue, now)
        keeps = policy in (Temporary.NO_MESSAGES, Temporary.NO_LINKS_OR_MESSAGES)
        return not has_links and not (keeps and self._state().messages.of(queue.id))

    def _is_there(self, holder: str, now: float) -> bool:
        router, _, incarnation = holder.rpartition(" ")
        directory = self._directory
        known = directory.incarnation if router == directory.router else directory.contacts.get(router)
        if known is not None:
            self._away.pop(holder, None)
            return str(known) == incarnation
        return now - self._away.setdefault(holder, now) < AWAY_S

    def _may_have_links(self, queue: Queue, now: float) -> bool:
        """Whether the queue has links, or may have some. After the leader has found no link, the queue may have some
        for `LINGER_S`, or for `AWAY_S` if a router is out of contact."""
        if self._has_links(queue.name):
            self._unlinked.pop(queue.id, None)
            return True
        since = self._unlinked.setdefault(queue.id, now)
        return now - since < (LINGER_S if self._directory.complete else AWAY_S)

    def _has_links(self, name: str) -> bool:
        has_publisher = ingress_address(self._set, name) in self._published
        return has_publisher or bool(self._directory.subscribers(egress_address(self._set, name)))

    def _addresses_of_publishers(self) -> set[str]:
        entries = self._directory.entries()
        return {entry.identity.address for entry in entries if entry.live and entry.role is Role.PUBLISHER}


def _asks_for_links(queue: Queue) -> bool:
    return queue.settings.temporary in (Temporary.NO_LINKS, Temporary.NO_LINKS_OR_MESSAGES)
