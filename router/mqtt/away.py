"""The sessions whose MQTT clients are away.

Keeps since when each client has been away, and decides which sessions the router forgets. `edge` decides what happens
when a client comes back."""

import logging
from typing import Final

from router.mqtt.connection import MqttConnection
from router.mqtt.session import MqttSession, SessionKeeper

log = logging.getLogger("oncemesh.mqtt")

MOST_EMPTY: Final = 1000
"""The highest number of sessions without topics that the router keeps for one user while their clients are away. All
clients without a proven user count as one user."""


class Away:
    """The sessions whose clients are away. The limit on links bounds the number of sessions with topics. The router
    keeps a bounded number of sessions without topics, for clients whose first message was lost with the connection: if
    the next CONNACK reported no session, the client would not send the message again."""

    def __init__(self, keeper: SessionKeeper) -> None:
        self.since: dict[MqttSession, float] = {}
        """Maps each session to the time at which its client left it, oldest first."""
        self._keeper = keeper
        self._empty: dict[str, dict[MqttSession, None]] = {}
        """Maps a user to its sessions without topics, oldest first."""

    def add(self, session: MqttSession, now: float) -> None:
        self.since.setdefault(session, now)
        if session.ends:
            return
        empty = self._empty.setdefault(session.user, {})
        empty[session] = None
        if len(empty) > MOST_EMPTY:
            first = next(iter(empty))
            why = "it has no topics, and the router keeps only the last %d such sessions of a user"
            log.info(f"%s: the session was forgotten: {why}", first, MOST_EMPTY)
            self._end(first)

    def discard(self, session: MqttSession) -> None:
        """Remove a session, because it has a client again, or another session has replaced it."""
        self.since.pop(session, None)
        if (empty := self._empty.get(session.user)) is not None:
            empty.pop(session, None)
            if not empty:
                del self._empty[session.user]

    def expire(self, until: float) -> None:
        """End each session whose client left it before `until`. The core has let their links expire."""
        while self.since and (oldest := next(iter(self.since.items())))[1] < until:
            self._end(oldest[0])

    def _end(self, session: MqttSession) -> None:
        self.discard(session)
        self._keeper.forget(session)
        if session.connection is None:
            self.end(session)

    def end(self, session: MqttSession) -> None:
        """End a session for good. This removes the references between the session, its ends and its messages; otherwise
        their memory would wait for Python's cycle search, which is rare (`router.garbage`)."""
        self.discard(session)
        for publisher in session.publishers.values():
            publisher.forget()
        for known in (session.publishers, session.presettled, session.subscribers, session.received, session.sent):
            known.clear()


def is_kept(session: MqttSession, connection: MqttConnection, *, said_goodbye: bool) -> bool:
    """Whether the client that has just gone knows of this session, and whether the session is still at this router."""
    if session.told is None:
        return connection.has_spoken or session.is_expected
    return session.was_here if session.resumes else connection.has_spoken or said_goodbye
