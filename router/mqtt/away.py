"""The sessions of MQTT clients that are away: since when, and which are forgotten.

Never here: what comes of a client that comes back (`edge`).
"""

import logging
from typing import Final

from router.mqtt.connection import MqttConnection
from router.mqtt.session import MqttSession, SessionKeeper

log = logging.getLogger("oncemesh.mqtt")

MOST_EMPTY: Final = 1000
"""Sessions without topics that are kept of a user's clients that are away, where all who have not proven who they are
count as one."""


class Away:
    """Sessions without a client. One that has topics counts with these; of the others so many are kept. That these are
    kept at all is for a client whose first message was lost with its connection: without a session it would give it up.
    """

    def __init__(self, keeper: SessionKeeper) -> None:
        self.since: dict[MqttSession, float] = {}
        """When they were left, in this order."""
        self._keeper = keeper
        self._empty: dict[str, dict[MqttSession, None]] = {}
        """Those without topics, by user, in the same order."""

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
        """It has a client again, or another one is in its place."""
        self.since.pop(session, None)
        if (empty := self._empty.get(session.user)) is not None:
            empty.pop(session, None)
            if not empty:
                del self._empty[session.user]

    def expire(self, until: float) -> None:
        """Those that were left before that. The core has let their links expire."""
        while self.since and (oldest := next(iter(self.since.items())))[1] < until:
            self._end(oldest[0])

    def _end(self, session: MqttSession) -> None:
        self.discard(session)
        self._keeper.forget(session)
        if session.connection is None:
            self.end(session)

    def end(self, session: MqttSession) -> None:
        """Nobody comes back to it. It and its ends, and what is under way there, know each other no more: else they
        would wait for Python's search for cycles, which is rare (`router.garbage`)."""
        self.discard(session)
        for publisher in session.publishers.values():
            publisher.forget()
        for known in (session.publishers, session.presettled, session.subscribers, session.received, session.sent):
            known.clear()


def is_kept(session: MqttSession, connection: MqttConnection, *, said_goodbye: bool) -> bool:
    """Whether the client, which has gone, knows of this session, and has it here."""
    if session.told is None:
        return connection.has_spoken or session.is_expected
    return session.was_here if session.resumes else connection.has_spoken or said_goodbye
