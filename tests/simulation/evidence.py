"""Writes the logs that routers and clients of a simulated mesh would have kept, and audits them.

The judge of the simulation knows everything; the audit has only logs. If the judge finds no fault, the audit must
accuse nobody. The audit has to find each violation that a broken rule causes at a subscriber. `CALMER` clients behave
like ours: they resume, close nothing, and use no tag again. In their runs only processes of routers end, their stores
stay as they left them, and no wall clock is set. `STRANGERS` may close, come back with a null map and ask for no
timeout; half of them keep no log. `KINDS` lists what else may happen, one kind at a time.

python -m tests.simulation.evidence 4711 --count 1000     lists the seeds in whose logs the audit finds a violation
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

import attrs

from failover.audit import Report
from failover.audit.report.report import Verdict
from failover.client.outcome import LOGGED, OF_STATE
from tests.failover.audit.in_process import judge_files
from tests.garbage import collect_seldom
from tests.simulation.client import Client
from tests.simulation.publisher import Publisher
from tests.simulation.publisher_link import PublisherLink, Sent
from tests.simulation.router import START_US, Router, Silence
from tests.simulation.subscriber import SubscriberClient
from tests.simulation.world import World
from topic.delivery.outcomes import DeliveryOutcome
from topic.identity import Epoch, link_name
from topic.journal import Block, Event, LoggedOutcome, segment_name
from topic.tail import REGION, Tail

CALMER: Final[dict[str, Any]] = {
    "plain": 0.0, "durable": 1.0, "twins": False, "shared": False, "first": 0.0, "modes": 0.0, "settled": 0.0,
    "presettled": 0.0, "early": 0.0, "reorder": 0.0, "quitting": 0.0, "store_loss": 0.0, "set_back": 0.0,
    "old_store": 0.0, "clocks": 0.0, "answering": 1.0,
    "pranks": ("vanish", "break", "elsewhere", "stalled", "again", "sleep"),
}  # fmt: skip
"""Knobs: our own clients, which keep what they know."""
LATE: Final[dict[str, Any]] = {
    "late": 0.6, "restless": 1.0, "delay": 0.3, "client_delay": 0.001,
    "pranks": ("elsewhere", "elsewhere", "close", "stalled"),
}  # fmt: skip
"""Knobs: routers read many attaches late, and learn late of each."""
QUEUES: Final[dict[str, Any]] = {
    "sets": 2, "queues": 2, "asked": 5, "publishers": 3, "subscribers": 3, "messages": 25, "disk": 0.02,
    "turmoil": 8.0, "never_started": False,
}  # fmt: skip
"""Knobs: clients use queues."""
STRANGERS: Final = CALMER | {"plain": 0.5, "pranks": (*CALMER["pranks"], "close", "detach")}
"""Knobs: half of the clients are of another make."""


class Segment:
    """The only segment of a log."""

    def __init__(self, folder: str, block: Block) -> None:
        source, _, incarnation, _ = block.head
        self.block = block
        self.path = f"file:/run/{folder}/log/{segment_name(incarnation, 0)}"
        self._region = bytearray(REGION)
        Tail(self._region, block.head, f"boot of {source}", 0)

    def content(self) -> bytes:
        """The content after a clean end, with everything that was in the tail."""
        content = bytes(self._region) + self.block.encode()
        self.block.begin_next()
        return content


class Told(Silence):
    """A delivery log for the judge that also keeps its entries for the audit."""

    def append(self, event: Event, **columns: Any) -> None:
        Block.append(self, event, **columns)
        super().append(event, **columns)


class LoggedRouter(Router):
    journal = Told

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.files: dict[str, bytes] = {}

    def _log(self) -> Silence:
        block = super()._log()
        self._segment = Segment(self.name, block)
        return block

    def kill(self, late: float) -> None:
        if self.alive:  # it has saved everything that it has told another router or a client
            self._close()
        super().kill(late)

    def stop(self) -> None:
        """Stop cleanly, as the run is over."""
        if self.alive:
            self.topic.stop()
            self._close()

    def _close(self) -> None:
        self.files[self._segment.path] = self._segment.content()


class Diary:
    """The log of a client, in the format of `failover.client.log`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._generation: bytes | None = None
        self._role = "publisher" if isinstance(client, Publisher) else "subscriber"
        self._files: dict[str, bytes] = {}
        self._incarnation = 0
        self._begin()

    def _begin(self) -> None:
        self._incarnation = max(self._now_us() // 1000, self._incarnation + 1)
        block = Block(self._client.name, self._role, self._incarnation, host=self._client.name)
        self._segment = Segment(f"clients/{self._client.name}", block)
        self.write(Event.BOOT)

    def begin_again(self, kept: Mapping[bytes, int] | None, published: int | None = None) -> None:
        """The process of the client is killed. The next process has the unsettled map in its store, or has no store
        (None).
        """
        self._files[self._segment.path] = self._segment.content()
        self._begin()
        if kept is not None:
            self.write(Event.KEPT, detail=None if published is None else json.dumps({"published": published}))
            for key, state in kept.items():
                self.write(Event.KEPT, [key], outcome=state)

    def _now_us(self) -> int:
        return START_US + int(self._client.schedule.now * 1e6)

    def attached(self, epoch: Epoch, generation: bytes | None = None, *, afresh: bool = False) -> None:
        self._generation = generation
        detail: dict[str, object] = {"role": self._role, **self._client.identity.parts()}
        detail |= {"mode": "first" if self._client.first else "second", "timeout": self._client.lifetime.timeout}
        if generation is not None:
            detail["generation"] = generation.hex()
        if afresh:
            detail["afresh"] = True
        self.write(Event.ATTACHED, epoch=str(epoch), detail=json.dumps(detail))

    def write(
        self, event: Event, keys: Sequence[bytes] = (), *, outcome: int | None = None,
        tags: Sequence[bytes] | None = None, epoch: str | None = None, detail: str | None = None,
    ) -> None:  # fmt: skip
        name, publishes = link_name(self._client.identity), self._role == "publisher"
        self._segment.block.append(
            event,
            time_us=self._now_us(),
            hlc=0,
            keys=list(keys),
            address=self._client.identity.address,
            publisher=name if publishes else None,
            subscriber=None if publishes else name,
            generation=self._generation if tags is not None or event is Event.ATTACHED else None,
            epoch=epoch,
            outcome=LOGGED[OF_STATE[outcome]] if outcome else LoggedOutcome.NONE,
            tags=tags,
            detail=detail,
        )

    def end(self) -> dict[str, bytes]:
        """All files of the log."""
        self.write(Event.STOPPED)
        return self._files | {self._segment.path: self._segment.content()}


class LoggedPublisher(Publisher):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.diary = Diary(self)
        self._published = 0

    def vanish(self, what: str) -> None:
        super().vanish(what)
        if what == "crash":
            kept = {self._key(tag): state for tag, state in (self.unsettled or {}).items()}
            self.diary.begin_again(*((kept, self._published) if self.durable else (None,)))

    def attached(self, link: Any, credit: int, generation: bytes, epoch: Epoch, *answer: Any) -> None:
        is_current = link is self.link
        super().attached(link, credit, generation, epoch, *answer)
        if is_current:
            self.diary.attached(epoch, generation)

    def _send_new(self, link: PublisherLink, most: int) -> list[Sent]:
        sent = super()._send_new(link, most)
        if tags := [tag for _, tag, *_ in sent]:
            self._published += len(tags)
            self.diary.write(Event.PUBLISHED, [self._key(tag) for tag in tags], tags=tags)
        return sent

    def _free_tags(self, count: int) -> list[bytes]:
        """New tags: like our own clients, it uses no tag again."""
        return [b"u%d" % (self._number + 1 + place) for place in range(count)]

    def outcome(self, link: Any, handles: list[int], outcome: DeliveryOutcome) -> None:
        if link is self.link:
            known = [self._key(self.handles[handle]) for handle in handles if handle in self.handles]
            if known:
                self.diary.write(Event.OUTCOME, known, outcome=outcome)
        super().outcome(link, handles, outcome)

    def _forget(self, tag: bytes) -> None:
        self.diary.write(Event.SETTLED, [self._key(tag)])
        super()._forget(tag)

    def _key(self, tag: bytes) -> bytes:
        return self.judge.lives.key(self, tag)


class LoggedSubscriber(SubscriberClient):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.diary = Diary(self)
        self._processing: bytes | None = None
        """The key of the message whose outcome the application is about to draw."""

    def vanish(self, what: str) -> None:
        super().vanish(what)
        if what == "crash":
            self.diary.begin_again(self.unsettled if self.durable else None)

    def attached(self, link: Any, epoch: Epoch, ours: dict[bytes, int] | None, complete: bool) -> None:
        if link is self.link:
            self.diary.attached(epoch, afresh=self.said is None or ours is None)
        super().attached(link, epoch, ours, complete)

    def delivered(self, link: Any, handle: int, key: bytes, *transfer: Any) -> None:
        had = key in self.todo
        super().delivered(link, handle, key, *transfer)
        if key in self.todo and not had:
            self.diary.write(Event.DELIVERED, [key])

    def process(self, key: bytes, message: bytes) -> None:
        self._processing = key if self.todo.get(key) is message else None
        super().process(key, message)

    def _verdict(self) -> tuple[DeliveryOutcome, bool]:
        outcome, final = super()._verdict()
        if self._processing is not None:
            self.diary.write(Event.PROCESSED, [self._processing], outcome=outcome)
        return outcome, final

    def _close(self, link: Any) -> None:
        self.diary.write(Event.CLOSED)
        super()._close(link)

    def _forget(self, key: bytes, how: str, *, given_back: bool = False) -> None:
        if key in self.unsettled and not given_back:
            self.diary.write(Event.SETTLED, [key])
        super()._forget(key, how, given_back=given_back)


class ReusingPublisher(LoggedPublisher):
    _free_tags = Publisher._free_tags

    def _forgotten(self, tag: bytes) -> bool:
        """It writes keys into its log, so its home must not choose others (protocol 5, Reused tags)."""
        return self.judge.forgotten_everywhere(self, tag)


class LoggedWorld(World):
    router = LoggedRouter
    publisher: type[LoggedPublisher] = LoggedPublisher
    subscriber = LoggedSubscriber

    def files(self, publishers: float = 1.0, subscribers: float = 1.0) -> dict[str, bytes]:
        """All logs, by path, with this share of the clients that echo, as our own clients do. Routers and clients that
        run end cleanly.
        """
        random = Random(repr(self.seed))
        files = dict[str, bytes]()
        for router in self.routers.values():
            assert isinstance(router, LoggedRouter)
            router.stop()
            files |= router.files
        started = sorted({path.split("/")[2] for path in files})
        for client in self.clients:
            assert isinstance(client, LoggedPublisher | LoggedSubscriber)
            share = publishers if isinstance(client, Publisher) else subscribers
            if random.random() < share and not client.silent:
                files |= client.diary.end()
        mesh = {"mesh": "simulated", "routers": {name: {"pid": 1} for name in started}}
        return files | {"file:/run/mesh.json": json.dumps(mesh).encode()}


class ReusingWorld(LoggedWorld):
    publisher = ReusingPublisher


@attrs.frozen
class Kind:
    knobs: Mapping[str, Any]
    publishers: float = 1.0
    subscribers: float = 1.0
    """The share of the publishers and of the subscribers that keep a log."""
    world: type[LoggedWorld] = LoggedWorld

    def files(self, seed: int) -> dict[str, bytes]:
        """All logs of a run. Raises what the judge raises."""
        run = self.world(seed, knobs=self.knobs)
        run.run()
        return run.files(self.publishers, self.subscribers)


OURS: Final = Kind(CALMER)
KINDS: Final[Mapping[str, Kind]] = {
    "ours": OURS,
    "strangers": Kind(STRANGERS, 0.5, 0.5),
    "grace": Kind(STRANGERS | {"grace": 5.0}, 0.5, 0.5),
    "late": Kind(CALMER | LATE, 0.5, 0.5),
    "tags": Kind(CALMER, world=ReusingWorld),
    "close": Kind(CALMER | {"pranks": ("close", "close", "detach", "elsewhere", "vanish", "again")}),
    "presettled": Kind(CALMER | {"presettled": 0.3, "early": 0.2}, publishers=0.0),
    "first": Kind(CALMER | {"first": 0.5, "modes": 0.5}),
    "end": Kind(CALMER | {"durable": 0.5, "quitting": 0.2, "pranks": (*CALMER["pranks"], "crash", "crash", "crash")}),
    "stores": Kind(CALMER | {"durable": 0.5, "store_loss": 0.5, "old_store": 0.3}),
    "clocks": Kind(CALMER | {"clocks": 0.0005, "skew": 0.5}),
    "queues": Kind(CALMER | QUEUES),
    "letters": Kind(CALMER | QUEUES | {"dead_letters": 1.0, "refusing": 0.3, "settings": 2}),
    "consumers": Kind(STRANGERS | QUEUES | {"answering": 0.8, "disk_loss": 0.3}, 0.5, 0.5),
}
"""Keyed by what happens: routers wait for the clients of others, routers read attaches late, tags are used again,
clients close and come back, publishers settle at once or early, receivers settle first, processes end, stores of
routers are lost or old, clocks of routers are set, clients use queues, queues give their dead letters to each other,
and clients of others use queues."""


def witnessed(seed: int, kind: Kind = OURS) -> Report:
    """The audit's report on a run, in one bucket, as for any run of this length. Raises what the judge raises."""
    return judge_files(kind.files(seed), buckets=1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.evidence", description="audit simulated runs")
    parser.add_argument("seed", type=int)
    parser.add_argument("--count", type=int, default=1, help="how many seeds, from SEED on")
    parser.add_argument("--strangers", action="store_true", help="the same as --kind strangers")
    parser.add_argument("--kind", choices=KINDS, default="ours", help="what happens")
    options = parser.parse_args()
    collect_seldom()
    kind = KINDS["strangers" if options.strangers else options.kind]
    verdicts: dict[Verdict, int] = {}
    for seed in range(options.seed, options.seed + options.count):
        report = witnessed(seed, kind)
        verdicts[report.verdict] = verdicts.get(report.verdict, 0) + 1
        if report.verdict is Verdict.VIOLATED:
            print(seed, report.sentence, flush=True)
    print(", ".join(f"{count} {verdict.name.lower()}" for verdict, count in sorted(verdicts.items())))
    return 1 if Verdict.VIOLATED in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
