"""Logs of a run that went well, as lists of entries that a test may corrupt before they are written.

publisher one at a ─┐         ┌─ subscriber far at c (plain client: no log of its own)
                    a ── b ── c
publisher two at b ─────┘ └── subscriber mid at b (logs, receiver settle mode first)
subscriber near at a (logs)
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs

from topic.identity import Epoch, KeyMaker, LinkIdentity, link_name, new_generation
from topic.journal import Block, Event, LoggedOutcome, segment_name

ADDRESS = "topic/news"
START_MS = 1_750_000_000_000
ROUTERS = ("a", "b", "c")


@attrs.frozen
class Client:
    container: str
    router: str
    role: str
    logs: bool = True
    mode: str = "second"

    @property
    def identity(self) -> LinkIdentity:
        return LinkIdentity(self.container, "link", ADDRESS)

    @property
    def name(self) -> str:
        return link_name(self.identity).decode()

    @property
    def detail(self) -> str:
        fields = {"role": self.role, **attrs.asdict(self.identity), "mode": self.mode, "timeout": 60}
        return json.dumps(fields)


ONE = Client("one", "a", "publisher")
TWO = Client("two", "b", "publisher", logs=False)
NEAR = Client("near", "a", "subscriber")
MID = Client("mid", "b", "subscriber", mode="first")
FAR = Client("far", "c", "subscriber", logs=False)
PUBLISHERS = (ONE, TWO)
SUBSCRIBERS = (NEAR, MID, FAR)

Row = dict[str, Any]


class Run:
    """The entries of every log, in order, at intervals of 1 ms."""

    def __init__(self, messages: int = 4, *, tags: int = 1000) -> None:
        """`tags`: the number of tags of a publisher, which then starts again with the first."""
        self.tags = tags
        self.logs: dict[str, list[Row]] = {}
        self._ms = START_MS
        self.hosts: dict[str, str] = {}
        self.again: dict[str, list[Row]] = {}
        """The log of a writer's second life."""
        for router in ROUTERS:
            self.add(router, Event.BOOT)
        for router in ROUTERS:
            for peer in sorted({*ROUTERS} - {router}):
                self.add(router, Event.CONTACT, peer=peer, detail=json.dumps({"incarnation": START_MS}))
        for client in (*SUBSCRIBERS, *PUBLISHERS):
            self.attach(client)
        for tag in range(messages):
            for publisher in PUBLISHERS:
                self.deliver(publisher, tag)
        for subscriber in SUBSCRIBERS:
            self.add(subscriber.router, Event.CLOSED, subscriber=subscriber.name, epoch=self.epoch(subscriber))
        self._ms += 5_000
        for log in self.logs.values():
            log.append({"event": Event.STOPPED} | self._clock())

    def _clock(self) -> Row:
        self._ms += 1
        return {"time_us": self._ms * 1000, "hlc": self._ms << 16}

    def add(self, log: str, event: Event, **columns: Any) -> None:
        self.logs.setdefault(log, []).append({"event": event} | self._clock() | columns)

    def epoch(self, client: Client) -> str:
        return str(Epoch(START_MS << 16, client.router, START_MS))

    def generation(self, client: Client) -> bytes:
        return new_generation(Epoch(START_MS << 16, client.router, START_MS))

    def key(self, publisher: Client, tag: int) -> bytes:
        return KeyMaker(link_name(publisher.identity), self.generation(publisher)).key(b"%d" % (tag % self.tags))

    def attach(self, client: Client) -> None:
        columns: Row = {client.role: client.name, "address": ADDRESS, "epoch": self.epoch(client)}
        if client.role == "subscriber":
            for router in ROUTERS:
                peer = None if router == client.router else client.router
                self.add(router, Event.JOINED, peer=peer, **columns)
        else:
            columns["generation"] = self.generation(client)
        self.add(client.router, Event.ATTACHED, detail=client.detail, **columns)
        if client.logs:
            log = f"clients/{client.container}"
            self.add(log, Event.BOOT)
            self.add(log, Event.ATTACHED, detail=client.detail, **columns)

    def deliver(self, publisher: Client, tag: int) -> None:
        """The life of one delivery, in a causal order."""
        home = publisher.router
        about: Row = {"keys": [self.key(publisher, tag)], "address": ADDRESS, "publisher": publisher.name}
        told = about | {"epoch": self.epoch(publisher)}
        new = {"generation": self.generation(publisher), "tags": [b"%d" % (tag % self.tags)]}
        audience = json.dumps([subscriber.name for subscriber in SUBSCRIBERS])
        if publisher.logs:
            self.add(f"clients/{publisher.container}", Event.PUBLISHED, **about, **new)
        self.add(home, Event.RECEIVED, n=tag, **told, **new)
        self.add(home, Event.AUDIENCE, detail=audience, **told)
        for router in ROUTERS:
            if router != home:
                self.add(home, Event.FORWARDED, peer=router, **told)
                self.add(router, Event.RECEIVED, peer=home, n=tag, **told)
        for subscriber in SUBSCRIBERS:
            self.hand_over(subscriber, about, told)
        self.add(home, Event.ACCEPTED, outcome=LoggedOutcome.ACCEPTED, **told)
        if publisher.logs:
            log = f"clients/{publisher.container}"
            self.add(log, Event.OUTCOME, outcome=LoggedOutcome.ACCEPTED, **about)
            self.add(log, Event.SETTLED, **about)
        self.add(home, Event.SETTLED, **told)
        for router in ROUTERS:
            if router != home:
                self.add(router, Event.SETTLED, peer=home, **told)
                self.add(router, Event.FORGOTTEN, peer=home, **told)
        self.add(home, Event.FORGOTTEN, **told)

    def hand_over(self, subscriber: Client, about: Row, told: Row) -> None:
        name = {"subscriber": subscriber.name}
        self.add(subscriber.router, Event.DELIVERED, **told, **name)
        if subscriber.logs:
            log = f"clients/{subscriber.container}"
            self.add(log, Event.DELIVERED, **about, **name)
            self.add(log, Event.PROCESSED, outcome=LoggedOutcome.ACCEPTED, **about, **name)
        self.add(subscriber.router, Event.OUTCOME, outcome=LoggedOutcome.ACCEPTED, **told, **name)

    # methods to inspect and corrupt the run

    def find(self, log: str, event: Event, key: bytes | None = None, **columns: Any) -> Row:
        """The one entry with these values."""
        found = [
            row
            for row in self.logs[log]
            if row["event"] is event
            and (key is None or row.get("keys") == [key])
            and all(row.get(name) == value for name, value in columns.items())
        ]
        assert len(found) == 1, found
        return found[0]

    def all(self, log: str, event: Event, **columns: Any) -> list[Row]:
        """All entries with these values, in the order of the log."""
        rows = [row for row in self.logs[log] if row["event"] is event]
        return [row for row in rows if all(row.get(name) == value for name, value in columns.items())]

    def drop(self, log: str, *rows: Row) -> None:
        """Remove these very entries."""
        self.logs[log] = [row for row in self.logs[log] if not any(row is other for other in rows)]

    def remove(self, condition: Callable[[Row], bool], *logs: str) -> None:
        for log in logs or tuple(self.logs):
            self.logs[log] = [row for row in self.logs[log] if not condition(row)]

    def swap(self, log: str, one: Row, other: Row) -> None:
        """Exchange two entries. Each gets the time of its new place."""
        rows = self.logs[log]
        i, j = rows.index(one), rows.index(other)
        clock = ("time_us", "hlc")
        rows[i] = other | {name: one[name] for name in clock}
        rows[j] = one | {name: other[name] for name in clock}

    def after(self, log: str, row: Row, **changes: Any) -> None:
        """Repeat an entry, changed, right before the end of the log."""
        last = self.logs[log][-1]
        assert last["event"] is Event.STOPPED
        late = {"time_us": last["time_us"] - 1000, "hlc": last["hlc"] - 1}
        self.logs[log].insert(-1, row | late | changes)

    def before(self, log: str, row: Row, event: Event, **columns: Any) -> None:
        """Add a new entry right before another one of the log."""
        early = {"time_us": row["time_us"] - 1, "hlc": row["hlc"] - 1}
        self.logs[log].insert(self.logs[log].index(row), {"event": event} | early | columns)

    def leave_out(self, subscriber: Client, publisher: Client, *tags: int, audience: bool = True) -> None:
        """Remove these deliveries from the subscriber's logs. If `audience` is False, its homes did not intend them for
        it.
        """
        keys = [[self.key(publisher, tag)] for tag in tags]
        self.remove(lambda row: row.get("keys") in keys and row.get("subscriber") == subscriber.name)
        for row in self.logs[publisher.router]:
            if row.get("keys") in keys and row["event"] is Event.AUDIENCE and not audience:
                row["detail"] = json.dumps([name for name in json.loads(row["detail"]) if name != subscriber.name])

    def kill(self, log: str, *, lost: int = 0) -> None:
        """Remove the clean end of the log, and the last `lost` entries before it."""
        del self.logs[log][-1 - lost :]

    def files(self, rows_per_block: int = 16) -> Iterator[tuple[str, bytes]]:
        """The files, as (path below the run directory, content)."""
        lives = [(START_MS, self.logs), (START_MS + 1, self.again)]
        for incarnation, log, rows in ((life, log, rows) for life, logs in lives for log, rows in logs.items()):
            source = log.rpartition("/")[2]
            roles = (json.loads(row["detail"])["role"] for row in rows if row["event"] is Event.ATTACHED)
            role = next(roles, "subscriber") if log.startswith("clients/") else "router"
            block = Block(source, role, incarnation, host=self.hosts.get(log, "host"))
            data = b""
            for start in range(0, len(rows), rows_per_block):
                for row in rows[start : start + rows_per_block]:
                    block.append(**row)
                data += block.encode()
                block.begin_next()
            yield f"{log}/log/{segment_name(incarnation, 0)}", data

    def write(self, directory: Path) -> Path:
        """Write the run. Returns its directory."""
        for name, data in self.files():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        mesh = {"mesh": "line", "routers": {router: {"pid": 1} for router in ROUTERS}}
        (directory / "mesh.json").write_text(json.dumps(mesh))
        return directory
