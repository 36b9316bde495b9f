"""The clients of the bench. Each of their acts is an event at their router. When the act returns, all its effects have
arrived."""

from typing import TYPE_CHECKING, Any

from topic.actions import (
    AnswerDeliveries,
    AnswerPublisher,
    AnswerSubscriber,
    Credit,
    Deliver,
    Detach,
    Echo,
    LinkAction,
    Redeliver,
    Resume,
    SettleSubscriber,
)
from topic.delivery.outcomes import DeliveryOutcome
from topic.delivery.record import HomeStream, Record
from topic.edge.subscriber import LocalSubscriber
from topic.identity import KeyMaker, LinkIdentity

if TYPE_CHECKING:
    from tests.topic.bench import Bench

NEWS = "topic/news"


class Party:
    """A client at work."""

    bench: "Bench"
    router: str

    def hear(self, action: LinkAction) -> None:
        """Take an action of the router on the client's link."""

    def mine(self, kind: type[Any]) -> list[Any]:
        return [a for a in self.bench.actions[self.router] if isinstance(a, kind) and a.link is self]

    @property
    def map(self) -> dict[bytes, int] | None:
        """The router's unsettled map in its answer to the attach."""
        (answer,) = [*self.mine(AnswerPublisher), *self.mine(AnswerSubscriber)]
        unsettled: dict[bytes, int] | None = answer.unsettled
        return unsettled


class Pen(Party):
    """A publisher."""

    stream: HomeStream

    def __init__(
        self, bench: "Bench", router: str, name: str, *, address: str = NEWS, lively: bool = True, **options: Any
    ) -> None:
        """A `lively` publisher answers echoes by itself."""
        self.bench, self.router, self.name, self.lively = bench, router, name, lively
        self.sent: dict[bytes, Record] = {}
        identity = LinkIdentity(name, "link", address)
        self.stream = bench.tick(router).attach_publisher(identity, self, bench.now, **options)
        bench.flow()

    def hear(self, action: LinkAction) -> None:
        if isinstance(action, Echo) and self.lively:
            self.bench.lively.append(self)

    def send(
        self,
        *messages: bytes,
        tags: list[bytes] | None = None,
        presettled: bool = False,
        until: list[float] | None = None,
    ) -> None:
        tags = tags or list(messages)
        core = self.bench.tick(self.router)
        records = core.publish(self.stream, tags, list(messages), presettled=presettled, until=until)
        self.sent.update(zip(messages, records, strict=True))
        self.bench.flow()

    def send_again(self, *tags: bytes) -> None:
        """Transfer deliveries again with resume=true."""
        for tag in tags:
            record = self.bench.tick(self.router).transferred_again(self.stream, tag)
            assert record is not None and record.message is not None
            self.sent[record.message] = record
            self.bench.flow()

    def vanish(self) -> None:
        """The client's connection ends without a word."""
        self.bench.tick(self.router).suspend_publisher(self.stream, self, self.bench.now)
        self.bench.flow()

    def answer_echo(self) -> None:
        assert self.mine(Echo), "it was asked"
        self.bench.tick(self.router).alive(self.stream)
        self.bench.flow()

    def acknowledge(self) -> None:
        """The client's machine acknowledges; the client answers no echoes."""
        assert self.mine(Echo), "it was asked"
        self.bench.tick(self.router).alive(self.stream, answered=False)
        self.bench.flow()

    def settle(self, *messages: bytes) -> None:
        self.bench.tick(self.router).settle(self.stream, [self.sent[message] for message in messages])
        self.bench.flow()

    def close(self) -> None:
        self.bench.tick(self.router).detach_publisher(self.stream, self.bench.now)
        self.bench.flow()

    @property
    def outcomes(self) -> dict[bytes, DeliveryOutcome]:
        return {record.tag: answer.outcome for answer in self.mine(AnswerDeliveries) for record in answer.records}

    @property
    def credit(self) -> int:
        return sum(action.count for action in self.mine(Credit))


class Reader(Party):
    """A subscriber."""

    end: LocalSubscriber

    def __init__(
        self, bench: "Bench", router: str, name: str, credit: int, *, address: str = NEWS, **options: Any
    ) -> None:
        self.bench, self.router, self.name = bench, router, name
        self.handed: list[tuple[Record, bytes | None]] = []
        self.resumed: list[tuple[bytes | None, int, bool]] = []
        """Deliveries transferred with resume=true: (message if it has one, state, settled)."""
        identity = LinkIdentity(name, "link", address)
        self.end = bench.tick(router).attach_subscriber(identity, self, bench.now, **options)
        bench.flow()
        if credit:
            self.grant(credit)

    def hear(self, action: LinkAction) -> None:
        if isinstance(action, Deliver):
            self.handed += [(record, record.message) for record in action.records]
        elif isinstance(action, Resume):
            message = None if action.state else action.record.message
            self.resumed.append((message, action.state, action.settled))

    def answer_detach(self) -> None:
        """The client answers a detach that it did not ask for."""
        assert self.mine(Detach), "it was detached"
        self.bench.tick(self.router).ending_known(self.end)
        self.bench.flow()

    def vanish(self) -> None:
        """The client's connection ends without a word."""
        self.bench.tick(self.router).suspend_subscriber(self.end, self, self.bench.now)
        self.bench.flow()

    def grant(self, credit: int) -> None:
        self.bench.tick(self.router).credit(self.end, credit)
        self.bench.flow()

    def answer(
        self,
        outcome: DeliveryOutcome,
        *messages: bytes,
        final: bool = False,
        failed: bool = False,
        settled: bool = False,
        annotations: bytes = b"",
    ) -> None:
        """Send the outcome of the latest delivery of each of these messages. `settled`: settle the delivery, too."""
        delivered = {message: record for record, message in self.handed if message in messages}
        assert len(delivered) == len(messages), "answers what was delivered"
        records = [*delivered.values()]
        topic = self.bench.tick(self.router)
        topic.outcomes(self.end, records, outcome, final=final, failed=failed, settled=settled, annotations=annotations)
        self.bench.flow()

    def accept(self, *messages: bytes, settled: bool = False) -> None:
        self.answer(DeliveryOutcome.ACCEPTED, *messages, settled=settled)

    def answer_echo(self) -> None:
        self.bench.tick(self.router).echoed(self.end)
        self.bench.flow()

    def close(self) -> None:
        self.bench.tick(self.router).detach_subscriber(self.end, self, self.bench.now)
        self.bench.flow()

    @property
    def answered(self) -> bool:
        return bool(self.mine(AnswerSubscriber))

    @property
    def delivered(self) -> list[bytes | None]:
        return [message for _, message in self.handed]

    @property
    def redelivered(self) -> list[int]:
        return [action.attempts for action in self.mine(Redeliver)]

    @property
    def settled(self) -> list[Record]:
        return [record for action in self.mine(SettleSubscriber) for record in action.records]

    @property
    def settled_messages(self) -> list[bytes | None]:
        """The settled messages, as they were delivered."""
        messages = dict(self.handed)
        return [messages[record] for record in self.settled]


def key_of(pen: Pen, tag: bytes) -> bytes:
    return KeyMaker(pen.stream.publisher, pen.stream.generation).key(tag)
