"""Writes delivery logs of any length, of a mesh that ran well, to measure the audit's throughput.

    python -m tests.failover.audit.synthetic DIR [--events N]

Six routers, five publishers and five subscribers that log. The logs look like those of routers and clients: an entry is
about a few deliveries, a block covers 50 ms, segments have their limit, deliveries overlap, and now and then a
publisher moves to the next router and sends its deliveries in doubt again. Memory use does not grow with the number of
events.

An event is one entry about one delivery; each delivery has about 50.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, cycle
from pathlib import Path
from typing import Any

import attrs

from router.journal import JournalFile
from topic.identity import Epoch, KeyMaker, LinkIdentity, link_name, new_generation
from topic.journal import Block, Event, LoggedOutcome

ADDRESS = "topic/news"
START_MS = 1_750_000_000_000
ROUTERS = "abcdef"
BATCHES = (1, 1, 2, 6, 2, 1, 3, 8)
"""The numbers of deliveries in one entry, in turn."""
TO_MOVE = 2_000
"""The number of batches after which a publisher moves."""
STEP_US = 10
"""Microseconds between two entries of all logs together, and between two rounds of batches."""
ROUND_US = 6_000
FLUSH_US = 50_000


class Clock:
    """One clock for all logs: every entry is later than the entries from which it follows."""

    def __init__(self) -> None:
        self.us = START_MS * 1000

    def step(self) -> int:
        self.us += STEP_US
        return self.us

    @property
    def hlc(self) -> int:
        return (self.us // 1000 << 16) + self.us % 1000 // STEP_US


class Log:
    """The log of one writer."""

    def __init__(self, directory: Path, folder: str, role: str, clock: Clock, incarnation: int = START_MS) -> None:
        self._block = Block(folder.rpartition("/")[2], role, incarnation, host="host")
        self._file = JournalFile(directory / folder / "log", incarnation, self._block)
        self._clock = clock
        self._hybrid = role == "router"
        self._flushed = 0
        self.events = 0
        self.add(Event.BOOT)

    def add(self, event: Event, **columns: Any) -> None:
        now = self._clock.step()
        self._block.append(event, time_us=now, hlc=self._clock.hlc if self._hybrid else 0, **columns)
        self.events += len(columns.get("keys", ()))
        if now - self._flushed >= FLUSH_US:
            self._file.flush()
            self._flushed = now

    def close(self) -> None:
        self.add(Event.STOPPED)
        self._file.close()


@attrs.define
class Batch:
    """Deliveries that travel together."""

    keys: Sequence[bytes]
    tags: Sequence[bytes]
    steps: int = 0
    """The steps that it has made."""
    holders: set[str] = attrs.field(factory=set)
    """Routers with a record of these deliveries."""


class Client:
    def __init__(self, number: int, role: str, router: str, directory: Path, clock: Clock) -> None:
        self.role = role
        self.router = router
        self.identity = LinkIdentity(f"{role}-{number}", "link", ADDRESS)
        self.name = link_name(self.identity)
        self.log = Log(directory, f"clients/{self.identity.container}", role, clock)
        self.generation: bytes | None = None
        self.epoch = ""
        self._clock = clock

    def attach(self, routers: Mapping[str, Log]) -> None:
        self.epoch = str(Epoch(self._clock.hlc, self.router, START_MS))
        detail = json.dumps({"role": self.role, **attrs.asdict(self.identity), "mode": "second", "timeout": 60})
        columns: dict[str, Any] = {self.role: self.name, "address": ADDRESS}
        if self.role == "subscriber":
            for name, log in routers.items():
                log.add(Event.JOINED, peer=None if name == self.router else self.router, epoch=self.epoch, **columns)
        columns |= {"generation": self.generation, "detail": detail}
        routers[self.router].add(Event.ATTACHED, epoch=self.epoch, **columns)
        self.log.add(Event.ATTACHED, **columns)


class Publisher(Client):
    def __init__(self, number: int, router: str, directory: Path, clock: Clock) -> None:
        super().__init__(number, "publisher", router, directory, clock)
        self.generation = new_generation(Epoch(START_MS << 16, router, START_MS))
        self.open: list[Batch] = []
        self.n = count()
        self._keys = KeyMaker(self.name, self.generation)
        self._numbers = count()

    def batch(self, size: int) -> Batch:
        tags = [next(self._numbers).to_bytes(8, "big") for _ in range(size)]
        batch = Batch([self._keys.key(tag) for tag in tags], tags)
        self.open.append(batch)
        return batch

    def move(self, routers: Mapping[str, Log]) -> None:
        former, epoch = self.router, self.epoch
        self.router = ROUTERS[(ROUTERS.index(former) + 1) % len(ROUTERS)]
        self.n = count()
        self.attach(routers)
        routers[former].add(Event.STOLEN, publisher=self.name, address=ADDRESS, epoch=epoch, peer=self.router)


class SyntheticMesh:
    def __init__(self, directory: Path) -> None:
        self.clock = Clock()
        self.routers = {name: Log(directory, name, "router", self.clock) for name in ROUTERS}
        self.publishers = [Publisher(i, ROUTERS[i], directory, self.clock) for i in range(5)]
        self.subscribers = [Client(i, "subscriber", ROUTERS[-1 - i], directory, self.clock) for i in range(5)]
        self._audience = json.dumps([client.name.decode() for client in self.subscribers])
        mesh = {"mesh": "synthetic", "routers": {name: {"pid": 1} for name in ROUTERS}}
        (directory / "mesh.json").write_text(json.dumps(mesh))
        for name, log in self.routers.items():
            for peer in sorted({*ROUTERS} - {name}):
                log.add(Event.CONTACT, peer=peer, detail=json.dumps({"incarnation": START_MS}))
        for client in (*self.subscribers, *self.publishers):
            client.attach(self.routers)

    @property
    def logs(self) -> list[Log]:
        return [*self.routers.values(), *(client.log for client in (*self.subscribers, *self.publishers))]

    @property
    def events(self) -> int:
        return sum(log.events for log in self.logs)

    def run(self, events: int) -> None:
        """Write at least this many events, until all deliveries are forgotten."""
        sizes, rounds = cycle(BATCHES), count(1)
        while self.events < events:
            self._round(next(rounds), sizes)
        while any(publisher.open for publisher in self.publishers):
            self._round(1, iter(()))
        for log in self.logs:
            log.close()

    def _round(self, number: int, sizes: Iterator[int]) -> None:
        """Each publisher sends a batch. Its earlier batches advance by a step."""
        for publisher in self.publishers:
            for batch in tuple(publisher.open):
                self._step(publisher, batch)
            if number % TO_MOVE == 0:
                self._move(publisher)
            if size := next(sizes, 0):
                batch = publisher.batch(size)
                publisher.log.add(
                    Event.PUBLISHED,
                    keys=batch.keys,
                    tags=batch.tags,
                    address=ADDRESS,
                    publisher=publisher.name,
                    generation=publisher.generation,
                )
                self._receive(publisher, batch)
        self.clock.us += ROUND_US

    def _step(self, publisher: Publisher, batch: Batch) -> None:
        steps = (self._hand_over, self._accept, self._settle)
        steps[batch.steps](publisher, batch)
        batch.steps += 1
        if batch.steps == len(steps):
            publisher.open.remove(batch)

    def _move(self, publisher: Publisher) -> None:
        """The publisher moves. Deliveries that its home has accepted are settled before; it sends the others again."""
        for batch in [batch for batch in publisher.open if batch.steps > 1]:
            self._step(publisher, batch)
        publisher.move(self.routers)
        for batch in publisher.open:
            self._receive(publisher, batch)

    def _about(self, publisher: Publisher, batch: Batch) -> dict[str, Any]:
        return {"keys": batch.keys, "address": ADDRESS, "publisher": publisher.name}

    def _receive(self, publisher: Publisher, batch: Batch) -> None:
        """A batch arrives at home, and at all routers with subscribers."""
        told = self._about(publisher, batch) | {"epoch": publisher.epoch}
        order = {"ns": [next(publisher.n) for _ in batch.keys]}
        home = self.routers[publisher.router]
        home.add(Event.RECEIVED, **told, **order, tags=batch.tags, generation=publisher.generation)
        home.add(Event.AUDIENCE, **told, detail=self._audience)
        edges = {client.router for client in self.subscribers} - {publisher.router}
        batch.holders |= {publisher.router, *edges}
        for edge in sorted(edges):
            home.add(Event.FORWARDED, **told, peer=edge)
            self.routers[edge].add(Event.RECEIVED, **told, **order, peer=publisher.router)

    def _hand_over(self, publisher: Publisher, batch: Batch) -> None:
        about = self._about(publisher, batch)
        for client in self.subscribers:
            told = about | {"epoch": publisher.epoch, "subscriber": client.name} | self._peer(publisher, client.router)
            own = about | {"subscriber": client.name}
            self.routers[client.router].add(Event.DELIVERED, **told)
            client.log.add(Event.DELIVERED, **own)
            client.log.add(Event.PROCESSED, **own, outcome=LoggedOutcome.ACCEPTED)
            self.routers[client.router].add(Event.OUTCOME, **told, outcome=LoggedOutcome.ACCEPTED)

    def _accept(self, publisher: Publisher, batch: Batch) -> None:
        about = self._about(publisher, batch)
        home = self.routers[publisher.router]
        home.add(Event.ACCEPTED, **about, epoch=publisher.epoch, outcome=LoggedOutcome.ACCEPTED)
        publisher.log.add(Event.OUTCOME, **about, outcome=LoggedOutcome.ACCEPTED)
        publisher.log.add(Event.SETTLED, **about)

    def _settle(self, publisher: Publisher, batch: Batch) -> None:
        about = self._about(publisher, batch)
        for router in sorted(batch.holders, key=lambda name: name != publisher.router):
            told = about | {"epoch": publisher.epoch} | self._peer(publisher, router)
            self.routers[router].add(Event.SETTLED, **told)
        for client in self.subscribers:
            client.log.add(Event.SETTLED, **about, subscriber=client.name)
        for router in sorted(batch.holders):
            told = about | {"epoch": publisher.epoch} | self._peer(publisher, router)
            self.routers[router].add(Event.FORGOTTEN, **told)

    def _peer(self, publisher: Publisher, router: str) -> dict[str, Any]:
        return {} if router == publisher.router else {"peer": publisher.router}


def write(directory: Path, events: int) -> int:
    """Write the logs. Returns the number of events."""
    directory.mkdir(parents=True, exist_ok=True)
    mesh = SyntheticMesh(directory)
    mesh.run(events)
    return mesh.events


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.failover.audit.synthetic", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--events", type=int, default=1_000_000)
    options = parser.parse_args()
    print(write(options.directory, options.events), "events")
