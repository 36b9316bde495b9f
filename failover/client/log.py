"""A client's delivery log (docs/architecture.md): the messages that the client published or processed, for the audit.

`topic.journal` defines the format. The client saves each entry before it sends the bytes that the entry is about, so
that the entry survives a kill of the client. The client gathers entries into blocks, and writes them at intervals, into
its own segments. The log changes nothing in the behaviour of a client. A client without a directory logs nothing.
"""

import json
import socket
import time
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

import trio

from failover.client.outcome import LOGGED, OF_STATE, Outcome
from router.journal import FLUSH_S, JournalFile
from topic.identity import LinkIdentity, link_name
from topic.journal import Block, Event, LoggedOutcome

RUN_US = 1000
"""The microseconds within which several publications make one entry, with the time of the first one. The audit measures
latencies from this time."""


class ClientLog:
    """The log of one link, in one life of its client. `role` is "publisher" or "subscriber"."""

    def __init__(self, directory: Path, role: str, identity: LinkIdentity) -> None:
        incarnation = time.time_ns() // 1_000_000
        self._block = Block(identity.container, role, incarnation, host=socket.gethostname())
        self._file = JournalFile(directory, incarnation, self._block)
        self._identity = identity
        self._role = role
        self._name = link_name(identity)
        self._generation: bytes | None = None
        self._published: tuple[list[bytes], list[bytes]] = ([], [])
        self._published_us = 0
        self._append(Event.BOOT)
        self.flush()

    def attached(
        self, mode: str, timeout: int, epoch: str | None, generation: bytes | None = None, *, afresh: bool = False
    ) -> None:
        """Log an attach. `afresh` says that the unsettled map of the subscriber, or of its router, was null."""
        self._generation = generation
        detail: dict[str, object] = {
            "role": self._role,
            **self._identity.parts(),
            "mode": mode,
            "timeout": timeout,
        }
        if generation is not None:
            detail["generation"] = generation.hex()
        if afresh:
            detail["afresh"] = True
        self._append(Event.ATTACHED, epoch=epoch, detail=json.dumps(detail))

    def published(self, key: bytes, tag: bytes) -> None:
        """Log a publication. Several publications in direct succession become one entry."""
        now = _now_us()
        if now - self._published_us > RUN_US:
            self._end_run()
        keys, tags = self._published
        if not keys:
            self._published_us = now
        keys.append(key)
        tags.append(tag)

    def deliveries(self, event: Event, keys: Sequence[bytes], outcome: LoggedOutcome = LoggedOutcome.NONE) -> None:
        self._append(event, keys, outcome=outcome)

    def kept(self, unsettled: Iterable[tuple[bytes, int]], published: int | None = None) -> None:
        """Log the content of the client's store at the start. The entries have the keys of the unsettled deliveries
        with their states, and the number of messages that the publisher has ever published. The keys of a publisher are
        in the publisher's order. The entries replace entries that an earlier life of the client could no longer
        write."""
        self._append(Event.KEPT, detail=None if published is None else json.dumps({"published": published}))
        for state, run in groupby(unsettled, lambda kept: kept[1]):
            outcome = LOGGED[OF_STATE.get(state, Outcome.UNKNOWN)]
            self._append(Event.KEPT, [key for key, _ in run], outcome=outcome)

    def closed(self) -> None:
        self._append(Event.CLOSED)

    def _append(
        self,
        event: Event,
        keys: Sequence[bytes] = (),
        *,
        outcome: LoggedOutcome = LoggedOutcome.NONE,
        epoch: str | None = None,
        detail: str | None = None,
    ) -> None:
        self._end_run()
        self._write(event, _now_us(), keys, outcome=outcome, epoch=epoch, detail=detail)

    def _end_run(self) -> None:
        keys, tags = self._published
        if keys:
            self._published = ([], [])
            self._write(Event.PUBLISHED, self._published_us, keys, tags=tags)

    def _write(
        self,
        event: Event,
        time_us: int,
        keys: Sequence[bytes],
        *,
        outcome: LoggedOutcome = LoggedOutcome.NONE,
        tags: Sequence[bytes] | None = None,
        epoch: str | None = None,
        detail: str | None = None,
    ) -> None:
        publishes = self._role == "publisher"
        self._block.append(
            event,
            time_us=time_us,
            hlc=0,
            keys=keys,
            address=self._identity.address,
            publisher=self._name if publishes else None,
            subscriber=None if publishes else self._name,
            generation=self._generation if tags is not None or event is Event.ATTACHED else None,
            epoch=epoch,
            outcome=outcome,
            tags=tags,
            detail=detail,
        )

    def save(self) -> None:
        """Make all entries so far outlive this process. The client calls this before each write to a router."""
        self._end_run()
        self._file.save()

    def flush(self) -> None:
        self._end_run()
        self._file.flush()

    async def run(self) -> None:
        """Write the gathered entries every `FLUSH_S` seconds, until cancelled."""
        while True:
            await trio.sleep(FLUSH_S)
            self.flush()

    def close(self) -> None:
        """Log the orderly end of the client, and close the file."""
        self._append(Event.STOPPED)
        self.flush()
        self._file.close()


def _now_us() -> int:
    return time.time_ns() // 1000
