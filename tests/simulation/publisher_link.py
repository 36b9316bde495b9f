"""A publisher's link: it carries transfers and settlements one way, outcomes and credit the other."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from failover.client.state.comparison import ResumeStep
from router.edge.signs import EchoedLink, SignsOfLife
from tests.simulation.link import Link
from tests.simulation.ttl import taken, times_of
from topic.actions import AnswerDeliveries, AnswerPublisher, Credit, Echo, LinkAction
from topic.delivery.record import HomeStream, Record, State
from topic.identity import Epoch, link_name

if TYPE_CHECKING:
    from tests.simulation.publisher import Publisher
    from tests.simulation.router import Router

Sent = tuple[int, bytes, bytes, ResumeStep, bool]
"""(handle, delivery-tag, message, whether it is sent as new, resumed as a whole or aborted, whether it is settled)"""


class PublisherLink(Link):
    client: "Publisher"
    stream: HomeStream
    life_known: bool
    """Whether the link's router knew the client's life when the attach came."""
    life_bound: bool
    """Whether the router had agreed by then to let that life expire."""
    was_outlived: bool
    """Whether the client had been away for its timeout when it came, and no router in contact knew its present life."""
    home_was_around: bool
    """Whether the home of the echoed attach was in contact when this attach came, and the life outlives connections."""

    def __init__(self, router: "Router", client: "Publisher", number: int, first: bool) -> None:
        super().__init__(router, client, number, first)
        self._records: dict[int, Record] = {}
        self._handles: dict[Record, int] = {}
        self._texts: dict[int, bytes] = {}
        self._answered: set[Record] = set()
        self.life = client.life
        self.signs = SignsOfLife(self, answers=client.says_that_it_answers)

    def attach(self, generation: bytes | None, seen: Epoch, unsettled: dict[bytes, int] | None, complete: bool) -> None:
        topic, now, client = self.router.topic, self.router.schedule.now, self.client
        goes_on = unsettled is not None and topic.generations.knows(link_name(client.identity), generation)
        if self.hung_up and client.lifetime.timeout and not (goes_on or self.router.knobs.late_null):
            self.router.note(self.router.name, f"{self} is gone before it is certain that it was there")
            self.end()
            return
        self._arrived()
        self.afresh = unsettled is None
        self.in_doubt = unsettled is not None and (not complete or 0 in unsettled.values())
        self.router.judge.termini.watch(self.router)  # the router may have just booted, with the content of its store
        self.life_known = self.router.judge.termini.knows_life(self.router, self)
        self.life_bound = self.router.judge.termini.is_bound(self)
        self.was_outlived = self.router.judge.lives.is_outlived(self)
        lasts = client.lifetime.timeout > 0
        self.home_was_around = lasts and self.router.judge.lives.is_around(self.router, seen)
        self.stream = topic.attach_publisher(
            client.identity, self, now, generation=generation, seen=seen, first=self.first,
            lifetime=client.lifetime, unsettled=unsettled, complete=complete,
        )  # fmt: skip
        self._given(self.stream.epoch)

    def suspend(self) -> None:
        self.router.topic.suspend_publisher(self.stream, self, self.router.schedule.now)

    def detach(self) -> None:
        self.router.judge.lives.closes(self)
        self.router.topic.detach_publisher(self.stream, self.router.schedule.now)

    def transfers(self, sent: list[Sent]) -> None:
        """Handle transfers: new ones together, as far as all are settled or all unsettled, and resumed ones one
        by one."""
        start = 0
        while start < len(sent):
            handle, tag, text, step, settled = sent[start]
            end = start + 1
            if step is ResumeStep.NEW:
                end = next((i for i in range(start, len(sent)) if sent[i][3:] != (step, settled)), len(sent))
                self._publish(sent[start:end], settled)
            else:
                self._resume(handle, tag, text, aborted=step is ResumeStep.ABORTED, settled=settled)
            start = end

    def _publish(self, sent: list[Sent], settled: bool) -> None:
        tags, texts = [tag for _, tag, *_ in sent], [text for _, _, text, *_ in sent]
        self._comes(texts)
        self.router.judge.received(self, texts)
        until = times_of(self, texts)
        records = self.router.topic.publish(self.stream, tags, texts, presettled=settled, until=until)
        assert len(records) == len(sent)
        taken(self.router, records, texts)
        self.router.judge.withheld([record.message for record in records if record.n < 0])
        if not settled:
            for (handle, _, text, *_), record in zip(sent, records, strict=True):
                self._keep(handle, text, record)

    def _comes(self, texts: list[bytes]) -> None:
        """The publisher transfers these messages again. If a home had ended them because their time was over, the
        publisher has not read this.
        """
        for message in [self.router.judge.messages[text] for text in texts]:
            message.expired = False

    def _resume(self, handle: int, tag: bytes, text: bytes, *, aborted: bool, settled: bool) -> None:
        if aborted:
            self.router.topic.abort(self.stream, tag)
            self.to_client(self.client.credited, 1)  # the engine gives this credit back
            return
        self._comes([text])
        self.router.judge.republished(self, text)
        record = self.router.topic.transferred_again(self.stream, tag, settled=settled)
        self.check(record is not None, f"7 resume: {text.decode()}, which the router listed, it ignores")
        assert record is not None
        if not settled:
            self._keep(handle, text, record)

    def _keep(self, handle: int, text: bytes, record: Record) -> None:
        self._records[handle] = record
        self._handles[record] = handle
        self._texts[handle] = text

    def settle(self, handles: list[int]) -> None:
        records = [self._records.pop(handle) for handle in handles if handle in self._records]
        for record in records:
            reopened = record in self._answered and record.state is State.IN_DOUBT
            self.check(not reopened, f"5 one outcome: {record.message!r} was answered at {self}, and is in doubt again")
            del self._handles[record]
        if records:
            self.router.topic.settle(self.stream, records)

    # signs of life

    @property
    def connection(self) -> "PublisherLink":
        return self

    def echo(self) -> None:
        self.to_client(self.client.echo)

    def prove(self, told: Callable[[], None]) -> None:
        """The client's machine acknowledges data that its client has not read yet, which overtakes what the client has
        sent.
        """
        self.router.schedule.after(self._soon(self.router.knobs.client_delay), self._acknowledge, told)

    def _acknowledge(self, told: Callable[[], None]) -> None:
        if self.hung_up or self.router.schedule.now > self._until[1]:
            return
        if self.client.link is not self and not self.client.says_that_it_answers:
            self.router.judge.lives.lied(self)
        self.router.schedule.after(self._soon(self.router.knobs.client_delay), self._reach_router, told)

    @property
    def echoed(self) -> EchoedLink:
        return self

    def alive(self, answered: bool) -> None:
        self.router.topic.alive(self.stream, answered=answered)

    def carry_out(self, action: LinkAction) -> None:
        client = self.client
        if isinstance(action, AnswerPublisher):
            self.router.note(self.router.name, f"answers {self}: {action.unsettled}")
            self.check(not self.answered, "5 one answer: an attach is answered once")
            self.answered = True
            self.router.judge.termini.answered(self)
            self.check(action.epoch == self.epoch, f"2 epoch: {self} is answered with another one than it was given")
            ours, complete = self.fit(action.unsettled)
            self.to_client(client.attached, action.credit, action.generation, action.epoch, ours, complete)
            self.signs.begin()
        elif isinstance(action, Credit):
            assert action.count > 0
            self.to_client(client.credited, action.count)
        elif isinstance(action, Echo):
            self.signs.ask()
        else:
            assert isinstance(action, AnswerDeliveries)
            self._answer(action)

    def _answer(self, action: AnswerDeliveries) -> None:
        assert action.settle == self.first
        known = all(record in self._handles for record in action.records)
        self.check(known, f"5 one outcome: {self} is told of what it has not transferred, or was told before")
        self._answered.update(action.records)
        handles = [self._handles[record] for record in action.records]
        self.router.judge.answered(self, [self._texts[handle] for handle in handles], action.outcome)
        self.to_client(self.client.outcome, handles, action.outcome)
        if action.settle:
            for record in action.records:
                del self._records[self._handles.pop(record)]
