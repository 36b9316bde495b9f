"""A publisher sends messages and learns the outcome of each, even if routers die meanwhile (protocol 5 and 7).

For each delivery, the publisher takes these steps: it writes the delivery to the store; transfers it when the link has
credit; writes the outcome to the store; reports the outcome and settles the delivery; forgets the delivery.

When the link is attached again, the unsettled maps of both ends show the states of the deliveries between transfer and
settlement (`comparison`). The publisher transfers these deliveries again, in their old order and before any new one. If
the router does not know the link's former life, it returns another generation or a null map. Then the outcome of these
deliveries is `IN_DOUBT`; or, with `resend_in_doubt`, the publisher sends them as new ones, at least once.

While a map is incomplete, the publisher goes on only with deliveries that both maps name; then it attaches the link
again.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Unpack

import trio

from failover.client.endpoint import Endpoint, Options
from failover.client.errors import ClientError
from failover.client.handle import Answer, Handle
from failover.client.link_events import Abandoned, Resumed
from failover.client.outcome import LOGGED, OF_STATE, Outcome
from failover.client.state.comparison import TERMINAL, ResumeStep, agreed_state, step
from failover.client.state.store import Added, Change, Decided, Ended, Removed, Role, tag_of
from failover.client.subscriber_count import SubscriberCount
from router.amqp.batches import Dispositions
from router.amqp.connection import Connection
from router.amqp.format.message import data_message
from router.amqp.format.values import ACCEPTED, NO_STATE, RCV_SECOND, SND_MIXED
from router.amqp.format.values import Handle as EngineHandle
from router.amqp.proton.link import Link
from topic.identity import KeyMaker, link_name
from topic.journal import Event
from topic.properties import ANSWERS


class Publisher(Endpoint):
    """`async with Publisher(urls, address, container=..., link=...) as p: handle = await p.send(body)`

    At the end of the block the publisher waits for all outcomes and ends the link. If an exception ends the block, the
    publisher waits for nothing, and with a store the link stays and can be resumed. `resumed` has the deliveries that
    the store held.
    """

    role: ClassVar[Role] = "publisher"

    def __init__(
        self,
        urls: Sequence[str],
        address: str,
        *,
        container: str,
        link: str,
        in_flight: int = 1000,  # `send` waits while this many deliveries are unsettled
        resend_in_doubt: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(urls, address, container=container, link=link, **options)
        if in_flight < 1:
            raise ValueError(f"in_flight: expected at least 1, found {in_flight}")
        self.resumed: tuple[Handle, ...] = ()
        self._in_flight = in_flight
        self._resend = resend_in_doubt
        self._checks = self._check  # the method `_check`, bound once for all handles
        self._next = 0
        self._storing = 0
        self._queueing = trio.Lock()  # a change wakes only the sender that has this lock
        self._keys: KeyMaker | None = None
        self._deliveries: dict[bytes, Handle] = {}  # the unsettled deliveries by tag, in the order of sending
        self._queue: deque[Handle] = deque()  # the deliveries that wait to be transferred on this link
        self._under_way: dict[EngineHandle, Handle] = {}  # deliveries transferred on this link, without an outcome
        self._theirs: Mapping[bytes, int] = {}  # the unsettled map that the router sent on this link
        self._incomplete = False  # whether the router's map or the client's map is incomplete
        self._count = SubscriberCount(self._news)

    @property
    def alone(self) -> int:
        """How many deliveries routers have accepted although there was no subscriber, as far as routers have reported
        it."""
        return self._count.alone

    async def subscribers(self) -> int:
        """The number of subscribers that the address has. From now on the mesh waits for each of them with each
        message. Raises ClientError if the router does not report the number."""
        while not await self._count.ask():
            if self._link is None:
                await self._change()
        return self._count.subscribers()

    def on_echo(self, link: Link) -> None:
        self._count.answered(link)
        self._news.unpark_all()

    @property
    def sent(self) -> int:
        """How many messages `send` has ever taken on this link. With a store, the lives of earlier processes count,
        too. A program that numbers its messages continues with this number."""
        return self._next

    async def send(self, body: bytes, properties: Mapping[str, Any] | None = None) -> Handle:
        """Send a message, as soon as a router has credit for it and fewer than `in_flight` deliveries are unsettled.
        Raises ConnectionError if the publisher gives up first: the message is not sent."""
        return await self.send_message(data_message(body, properties))

    async def send_message(self, message: bytes) -> Handle:
        """Send a whole message, in AMQP's encoding, as `send` does."""
        self._check()
        await self._give_way()
        if self._queueing.locked() or not self._has_room():
            async with self._queueing:
                while not self._has_room():
                    await self._change()
        number, self._next = self._next, self._next + 1
        delivery = self._remember(tag_of(number), message)
        self._storing += 1
        self._commits.add((Added(number, delivery.message),), partial(self._stored, delivery))
        return delivery

    def _has_room(self) -> bool:
        link, few = self._link, len(self._deliveries) < self._in_flight
        return few and link is not None and not self._incomplete and link.credit > len(self._queue) + self._storing

    def _remember(self, tag: bytes, message: bytes) -> Handle:
        key = self._keys.key(tag) if self._keys is not None else None
        delivery = self._deliveries[tag] = Handle(self._checks, tag, key, message)
        return delivery

    async def drain(self) -> None:
        """Wait until no delivery is unsettled. Raises ConnectionError if the publisher gives up first."""
        while self._deliveries:
            await self._change()

    async def _finish(self) -> None:
        await self.drain()
        if self.epoch is not None:  # this router belongs to a mesh, so it reports the number
            await self._count.ask()
        await self._commits.commit((Ended(),), lambda: None)

    def _ends(self, error: BaseException | None) -> bool:
        return error is None or super()._ends(error)

    def _load(self) -> None:
        super()._load()
        saved = self._kept.load()
        self._next = saved.next_number
        self._name_keys(self.generation)
        for tag, entry in saved.unsettled.items():
            assert entry.message is not None
            delivery = self._remember(tag, entry.message)
            # an earlier process may have transferred the delivery
            delivery.stored = delivery.transferred = delivery.logged = True
            if entry.state in TERMINAL:
                delivery.decide(entry.state)
        self.resumed = tuple(self._deliveries.values())
        if self._log is not None and self._keys is not None:
            key = self._keys.key
            self._log.kept([(key(tag), entry.state) for tag, entry in saved.unsettled.items()], saved.next_number)

    def _name_keys(self, generation: bytes | None) -> None:
        self._keys = KeyMaker(link_name(self.identity), generation) if generation is not None else None

    # The methods from here on attach the link.

    def _attach(self, connection: Connection) -> Link:
        options = self._options()
        options["snd_settle_mode"], options["rcv_settle_mode"] = SND_MIXED, RCV_SECOND
        options["properties"] = {**(options["properties"] or {}), ANSWERS: True}
        return connection.sender(self.identity.link, self.identity.address, **options)

    def _map(self) -> Mapping[bytes, int]:
        return {tag: delivery.state for tag, delivery in self._deliveries.items() if delivery.transferred}

    def _granted(self, link: Link, generation: bytes | None) -> None:
        if self._log is not None:
            if generation is None:
                self._lose(
                    ClientError(
                        "amqp:not-implemented",
                        "the delivery log needs an oncemesh router: this one returned no generation",
                    ),
                    fatal=True,
                )
                return
            assert link.remote_target is not None
            self._log.attached("second", link.remote_target.timeout, self.epoch, generation)
        self._name_keys(generation)
        self._count.attached(link)
        if self._ours is not None:
            if link.remote_unsettled is None or generation != self.generation:
                self._abandon(self._ours)
            else:
                self._resume(link, self._ours)
        if not self._incomplete:
            self._queue_new()
        self._go_on(link)

    def _resume(self, link: Link, ours: Mapping[bytes, int]) -> None:
        assert link.remote_unsettled is not None
        self._theirs = {tag: theirs.state for tag, theirs in link.remote_unsettled.items()}
        silent, omitted = link.remote_incomplete_unsettled, frozenset(link.omitted)
        self._incomplete = silent or bool(omitted)
        for delivery in [self._deliveries[tag] for tag in ours if tag in self._deliveries]:
            proven = not silent and delivery.tag not in omitted
            delivery.step = step(delivery.state, self._theirs.get(delivery.tag), proven=proven)
            if delivery.step is ResumeStep.FORGET:
                self._forget(delivery)
            elif delivery.step is not ResumeStep.WAIT:
                self._queue.append(delivery)
        if ours:
            self._tell(Resumed(sum(delivery.state == NO_STATE for delivery in self._queue)))

    def _abandon(self, ours: Mapping[bytes, int]) -> None:
        """Give up the deliveries that were transferred, because the router knows none of them. The publisher reports
        them as in doubt or, with `resend_in_doubt`, sends them again as new ones."""
        in_doubt = 0
        for delivery in [self._deliveries[tag] for tag in ours if tag in self._deliveries]:
            if delivery.state in TERMINAL:
                self._forget(delivery)
                continue
            in_doubt += 1
            if self._resend:
                delivery.transferred = delivery.logged = False
            else:
                self._drop(delivery)
                delivery.tell(Outcome.IN_DOUBT)
        if in_doubt:
            self._tell(Abandoned(in_doubt))

    def _queue_new(self) -> None:
        for delivery in self._deliveries.values():
            if not delivery.transferred:
                delivery.key = self._keys.key(delivery.tag) if self._keys is not None else None
                delivery.step = ResumeStep.NEW
                if delivery.stored:
                    self._queue.append(delivery)

    def _asked(self, link: Link) -> None:
        """Answer an echo once all outcomes so far are in the store. The answer shows the router that the publisher
        knows these outcomes, so the publisher never transfers these deliveries again."""
        self._commits.add((), partial(super()._asked, link))

    def _parted(self) -> None:
        self._count.parted()
        self._queue.clear()
        self._under_way.clear()
        self._incomplete = False

    def _give_up(self, error: ConnectionError) -> None:
        super()._give_up(error)
        for delivery in self._deliveries.values():
            delivery.tell(None)

    # The methods from here on transfer deliveries.

    def _stored(self, delivery: Handle) -> None:
        self._storing -= 1
        delivery.stored = True
        link = self._link
        if link is not None and not self._incomplete:
            self._queue.append(delivery)
            self._go_on(link)

    def on_credit(self, link: Link) -> None:
        if link is self._link:
            self._go_on(link)
        self._news.unpark_all()

    def _go_on(self, link: Link) -> None:
        queue = self._queue
        while queue and link.credit > 0:
            self._transfer(link, queue.popleft())
        link.connection.wake()
        if self._incomplete:
            self._attach_again()

    def _transfer(self, link: Link, delivery: Handle) -> None:
        match delivery.step:
            case ResumeStep.NEW | ResumeStep.WHOLE:
                if self._log is not None and not delivery.logged:
                    assert delivery.key is not None
                    self._log.published(delivery.key, delivery.tag)
                    delivery.logged = True
                delivery.transferred = True
                resume = delivery.step is ResumeStep.WHOLE
                self._under_way[link.send(delivery.tag, delivery.message, resume=resume)] = delivery
            case ResumeStep.ABORTED:
                link.send(delivery.tag, b"", resume=True, aborted=True)
                self._forget(delivery)
            case ResumeStep.STATE | ResumeStep.SETTLED:
                self._transfer_state(link, delivery)

    def _transfer_state(self, link: Link, delivery: Handle) -> None:
        """Resume a delivery whose outcome the router knows. The transfer carries a state and no message. If the
        publisher knows another outcome than the router, the transfer carries the publisher's outcome, and the router
        has to answer."""
        theirs = self._theirs[delivery.tag]
        state = agreed_state(delivery.state, theirs)
        handle = link.send(delivery.tag, b"", resume=True, state=state)
        if state == theirs:
            self._answered(link, [Answer(handle, delivery, state, settled=False)])
        else:
            self._under_way[handle] = delivery

    def _attach_again(self) -> None:
        """Give up the link if all deliveries that were transferred before have the step WAIT. The client then attaches
        the link again."""
        if all(delivery.step is ResumeStep.WAIT or not delivery.transferred for delivery in self._deliveries.values()):
            self._lose(ClientError(None, "the unsettled map does not fit into one frame"))

    # The methods from here on deal with outcomes.

    def on_dispositions(self, link: Link, dispositions: Dispositions) -> None:
        if link is not self._link:
            return
        take = self._under_way.pop
        answers = [
            Answer(handle, delivery, state, is_settled)
            for handle, state, is_settled in dispositions
            if (state in OF_STATE or is_settled) and (delivery := take(handle, None)) is not None
        ]
        for answer in answers:
            if answer.state != ACCEPTED:
                answer.delivery.detail = link.remote_outcome(answer.handle)
        if answers:
            self._answered(link, answers)

    def _answered(self, link: Link, answers: list[Answer]) -> None:
        """Write outcomes to the store before the deliveries are settled.

        If the publisher settled first and then forgot an outcome, it might send the message again, and no router would
        know the delivery.
        """
        changes: list[Change] = [
            Removed(answer.delivery.tag) if answer.settled else Decided(answer.delivery.tag, answer.state)
            for answer in answers
            if not answer.delivery.told
        ]
        self._commits.add(changes, partial(self._conclude, link, answers))

    def _conclude(self, link: Link, answers: list[Answer]) -> None:
        """Report outcomes to the user, and settle the deliveries. If the link is gone, the next attach settles them."""
        for _, delivery, state, _ in answers:
            if not delivery.told:
                delivery.decide(state)
                self._note(Event.OUTCOME, delivery, OF_STATE.get(state, Outcome.UNKNOWN))
        live = link is self._link
        if live:
            link.settle_many([answer.handle for answer in answers])
        for _, delivery, _, settled in answers:
            if live or settled:
                self._forget(delivery)
        if live:
            self._go_on(link)
        self._news.unpark_all()

    def _forget(self, delivery: Handle) -> None:
        """Drop a delivery that is settled, and log the settlement."""
        if delivery.tag in self._deliveries:
            self._drop(delivery)
            self._note(Event.SETTLED, delivery, Outcome.UNKNOWN)

    def _drop(self, delivery: Handle) -> None:
        del self._deliveries[delivery.tag]
        delivery.message = b""
        self._commits.lazily(Removed(delivery.tag))

    def _note(self, event: Event, delivery: Handle, outcome: Outcome) -> None:
        if self._log is not None and delivery.key is not None:
            self._log.deliveries(event, [delivery.key], LOGGED[outcome])
