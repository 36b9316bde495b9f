"""A subscriber takes messages and answers each; it hands out no message twice (protocol 5 and 6).

In settle mode second, the subscriber writes an answer to the store, and then sends it to the router. When the router
has settled the delivery, the subscriber forgets it. Until then the unsettled map of every attach names the delivery. If
the router sends an answered delivery again, the subscriber does not hand it out, but repeats the answer. If the user
has not answered a delivery when the link is lost, the user keeps the delivery, and the answer goes over a later link.
If a router answers the attach with a null map, it knows none of these deliveries. The subscriber then forgets them,
too, and the router may send their messages again (*at least once*). In settle mode first, messages may
come again after each lost connection.

The subscriber grants new credit when a delivery is answered, not when it is settled: a settlement waits for other
subscribers, and these could wait for this subscriber.
"""

from collections import deque
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from functools import partial
from typing import ClassVar, Final, Literal, Unpack

import trio

from failover.client.attachment.attachment import LIVED_S
from failover.client.delivery import Delivery
from failover.client.endpoint import Endpoint, Options
from failover.client.errors import ClientError
from failover.client.link_events import Abandoned, Resumed
from failover.client.outcome import LOGGED, OF_STATE, STATE_OF, Outcome
from failover.client.state.comparison import TERMINAL
from failover.client.state.store import Decided, Ended, Removed, Role
from router.amqp.batches import Dispositions, ResumedTransfers, Transfers
from router.amqp.connection import Connection
from router.amqp.format.codec import Described
from router.amqp.format.values import MODIFIED, NO_STATE, RCV_FIRST, RCV_SECOND, REJECTED, RELEASED, SELECTOR
from router.amqp.format.values import Handle as EngineHandle
from router.amqp.proton.link import Link
from topic.journal import Event

# The longest pause before a further attach with an incomplete map, as a multiple of `LIVED_S`.
MOST_PAUSES = 10
# The seconds that the client waits at an orderly end for the router to settle the answered deliveries.
SETTLE_S = 2.0

GIVEN_BACK: Final = (RELEASED, MODIFIED)
"""The answers after which the message comes again."""


class Subscriber(Endpoint):
    """`async with Subscriber(urls, address, container=..., link=...) as s: async for delivery in s: ...`

    Leaving the block ends the subscription. With a store, the subscription stays instead, and can be resumed until its
    timeout, unless `end` was called.
    """

    role: ClassVar[Role] = "subscriber"

    def __init__(
        self,
        urls: Sequence[str],
        address: str,
        *,
        container: str,
        link: str,
        credit: int = 100,  # the highest number of deliveries that have come and are not answered
        settle: Literal["first", "second"] = "second",
        # A selector. Messages that do not match it do not come (docs/clients.md).
        filter: str | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(urls, address, container=container, link=link, **options)
        if credit < 1:
            raise ValueError(f"credit: expected at least 1, found {credit}")
        self._answers = self._answer  # the method `_answer`, bound once for all deliveries
        self._credit = credit
        self._owed = 0  # the credit that the subscriber has yet to grant again
        self._settle = settle
        self._filters = {"selector": Described(SELECTOR, filter)} if filter is not None else None
        self._waiting: deque[Delivery] = deque()  # the deliveries that have come and that the user has not taken yet
        self._unsettled: dict[bytes, Delivery] = {}  # the unsettled deliveries by key, in settle mode second only
        self._by_handle: dict[EngineHandle, Delivery] = {}
        self._is_to_end = False
        # The share of the whole unsettled map that the attaches with incomplete maps have carried so far.
        # When the share is 1.0, the router has read the whole map.
        self._parts = 0.0

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return self

    async def __anext__(self) -> Delivery:
        """Return the next message. Raises ConnectionError when the subscriber has given up finding a router."""
        await self._give_way()
        while not self._waiting:
            await self._change()
        delivery = self._waiting.popleft()
        self._note(Event.DELIVERED, [delivery.key])
        return delivery

    def here(self, most: int) -> list[Delivery]:
        """Return the messages that have come and wait, but at most `most` of them. The user may answer them together
        (`accept_all`)."""
        deliveries = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
        if deliveries:
            self._note(Event.DELIVERED, [delivery.key for delivery in deliveries])
        return deliveries

    async def accept_all(self, deliveries: Sequence[Delivery]) -> None:
        """State that these messages are processed, in this order. One commit makes all answers durable. Raises the
        errors that `Delivery.accept` raises."""
        await self._answer_all(deliveries, Outcome.ACCEPTED)

    def end(self) -> None:
        """Make the subscription end for good when the block ends, although it has a store."""
        self._is_to_end = True

    def _ends(self, error: BaseException | None) -> bool:
        return self._is_to_end or super()._ends(error)

    async def _finish(self) -> None:
        if self._ends(None):
            with trio.move_on_after(SETTLE_S):
                while self._error is None and any(delivery.answered for delivery in self._unsettled.values()):
                    await self._news.park()
        if self._is_to_end:
            await self._commits.commit((Ended(),), lambda: None)

    def _load(self) -> None:
        super()._load()
        if self._settle == "first":
            return
        kept = []
        for key, entry in self._kept.load().unsettled.items():
            delivery = self._unsettled[key] = Delivery(self._answers, key, b"")
            delivery.answered, delivery.state = True, entry.state
            kept.append((key, entry.state))
        if self._log is not None and self._resumes:
            self._log.kept(kept)

    # The methods from here on attach the link.

    def _attach(self, connection: Connection) -> Link:
        options = self._options()
        options["rcv_settle_mode"] = RCV_SECOND if self._settle == "second" else RCV_FIRST
        options["filters"] = self._filters
        link = connection.receiver(self.identity.link, self.identity.address, **options)
        link.flow(self._credit)
        return link

    def _map(self) -> Mapping[bytes, int] | None:
        if self._settle == "first":
            return None
        return {key: delivery.state for key, delivery in self._unsettled.items()}

    @property
    def _may_move(self) -> bool:
        return self._settle == "second" and super()._may_move

    def _granted(self, link: Link, generation: bytes | None) -> None:
        if self._log is not None:
            assert link.remote_source is not None
            afresh = self._ours is None or link.remote_unsettled is None
            self._log.attached(self._settle, link.remote_source.timeout, self.epoch, afresh=afresh)
        if self._ours is None:
            return
        if link.remote_unsettled is None:
            self._start_anew()
        else:
            self._resume(link, self._ours)

    def _resume(self, link: Link, ours: Mapping[bytes, int]) -> None:
        """Forget the deliveries that the router's map leaves out, because the router has settled them. If the
        router's map is incomplete, forget none. If either map is incomplete, start the task that attaches again with
        the rest of the subscriber's map."""
        assert link.remote_unsettled is not None
        theirs = link.remote_unsettled.keys()
        silent, omitted = link.remote_incomplete_unsettled, frozenset(link.omitted)
        if not silent:
            self._forget([self._unsettled[key] for key in ours if key not in theirs and key not in omitted])
        if not (silent or omitted):
            self._parts = 0.0
        else:
            named = [key for key in ours if key in theirs or (not silent and key not in omitted)]
            self._parts += max(len(named), 1) / max(len(ours), 1)
            self._beside.start_soon(self._attach_for_rest_of_map, link, named)
        if ours:
            self._tell(Resumed(len(self._unsettled)))

    def _start_anew(self) -> None:
        """Forget all deliveries: the router knows none of them, and may use the same tags for other messages."""
        before = len(self._waiting)
        self._waiting = deque(delivery for delivery in self._waiting if delivery.key not in self._unsettled)
        handed_out = len(self._unsettled) - (before - len(self._waiting))
        for delivery in list(self._unsettled.values()):
            self._drop(delivery)
        if handed_out:
            self._tell(Abandoned(handed_out))

    async def _attach_for_rest_of_map(self, link: Link, named: Collection[bytes]) -> None:
        """Attach the link again, so that the router reads the rest of the subscriber's map.

        While maps are incomplete, no new delivery comes. The subscriber first answers the deliveries that the maps
        named. It does not wait until these deliveries are settled: the settlement may wait for another subscriber, and
        the other subscriber may wait for deliveries that the map left out.

        The link lives for at least `LIVED_S`, so the subscriber attaches to the same router again. This router knows
        the parts of the map that it has read. When the attaches have carried the whole map, the subscriber waits longer
        before each further attach.
        """
        told = False
        while self._link is link and not told:
            await trio.sleep(LIVED_S * min(1 + int(self._parts), MOST_PAUSES))
            left = [key for key in named if key in self._unsettled]
            told = all(self._unsettled[key].state != NO_STATE for key in left)
        if self._link is link:
            # The deliveries of this map go behind the omitted ones, so that the next map begins with the omitted ones.
            for key in left:
                self._unsettled[key] = self._unsettled.pop(key)
            self._lose(ClientError(None, "the unsettled map does not fit into one frame"))

    def _parted(self) -> None:
        """Forget the deliveries that the user has given back, because the router delivers them again. Keep all other
        deliveries, but forget the engine's handles of them."""
        self._owed = 0
        if self._settle == "first":
            self._waiting = deque(delivery for delivery in self._waiting if delivery.handle is None)
        for delivery in self._by_handle.values():
            delivery.handle = None
        self._by_handle.clear()
        for delivery in [one for one in self._unsettled.values() if one.state in GIVEN_BACK]:
            self._drop(delivery)

    # The methods from here on take transfers.

    def on_transfers(self, link: Link, transfers: Transfers) -> None:
        if link is not self._link:
            super().on_transfers(link, transfers)
            return
        for handle, tag, message, _ in transfers:
            known = self._unsettled.get(tag)
            if handle is None or known is None or known.state in GIVEN_BACK:
                self._take(link, handle, tag, message)
            else:
                self._take_again(link, handle, known)
        link.connection.wake()
        self._news.unpark_all()

    def _take(self, link: Link, handle: EngineHandle, tag: bytes, message: bytes) -> None:
        delivery = Delivery(self._answers, tag, message)
        delivery.link = link
        self._waiting.append(delivery)
        if handle is not None:
            delivery.handle = handle
            self._by_handle[handle] = delivery
            if self._settle == "second":
                self._unsettled[tag] = delivery

    def _take_again(self, link: Link, handle: EngineHandle, delivery: Delivery) -> None:
        """Take a delivery that the router resumes and the subscriber knows. If the user has answered it, send the
        answer again."""
        self._by_handle[handle] = delivery
        delivery.handle, delivery.link = handle, link
        if delivery.state in TERMINAL:
            self._state(delivery)

    def on_resumed(self, link: Link, resumed: ResumedTransfers) -> None:
        if link is not self._link:
            return
        for handle, tag, message, _, state, _ in resumed:
            known = self._unsettled.get(tag)
            if handle is None:
                self._replenish(link)
                if known is not None:
                    self._forget([known])
            elif known is None:
                self._take_unknown(link, handle, tag, message, state)
            elif known.state in TERMINAL and state in TERMINAL and state != known.state:
                self._restate(link, handle, known, state)
            else:
                self._take_again(link, handle, known)
        link.connection.wake()
        self._news.unpark_all()

    def _take_unknown(self, link: Link, handle: EngineHandle, tag: bytes, message: bytes, state: int) -> None:
        """Take a delivery that the router resumes, but that the subscriber's map does not name. If it has a message and
        no outcome, treat it as new. Otherwise settle it."""
        if message and state not in TERMINAL:
            self._take(link, handle, tag, message)
        else:
            link.update(handle, state if state in TERMINAL else RELEASED, settle=True)
            self._replenish(link)

    def _restate(self, link: Link, handle: EngineHandle, delivery: Delivery, state: int) -> None:
        """Settle with the router's outcome, which differs from the subscriber's answer. The outcome of the sender of a
        link counts (AMQP 1.0 2.6.13)."""
        link.update(handle, state, settle=True)
        self._forget([delivery])
        self._replenish(link)

    # The methods from here on deal with answers.

    async def _answer(self, delivery: Delivery, outcome: Outcome) -> None:
        await self._answer_all((delivery,), outcome)

    async def _answer_all(self, deliveries: Sequence[Delivery], outcome: Outcome) -> None:
        if self._keeps:
            self._check()  # once the subscriber has given up, no task writes to the store
        for at, delivery in enumerate(deliveries):
            if delivery.answered:
                for marked in deliveries[:at]:
                    marked.answered = False
                raise RuntimeError("a message has one answer: this one is answered already")
            delivery.answered = True
        state = STATE_OF[outcome]
        decided = partial(self._decided, deliveries, state)
        if self._settle == "first" or state in GIVEN_BACK:
            decided()
        else:
            await self._commits.commit([Decided(delivery.key, state) for delivery in deliveries], decided)
        self._check()

    def _decided(self, deliveries: Sequence[Delivery], state: int) -> None:
        """Send answers, which are durable by now, to the router."""
        self._note(Event.PROCESSED, [delivery.key for delivery in deliveries], OF_STATE[state])
        for delivery in deliveries:
            delivery.state = state
            if self._settle == "second" and self._unsettled.get(delivery.key) is not delivery:
                self._commits.lazily(Removed(delivery.key))
            if self._link is not None and delivery.link is self._link:
                self._state(delivery)
        if self._link is not None:
            self._link.connection.wake()

    def _state(self, delivery: Delivery) -> None:
        """Send the answer on the link that transferred the delivery, and grant new credit in place of the credit that
        the delivery has used."""
        link, handle, first = delivery.link, delivery.handle, self._settle == "first"
        assert link is not None
        if handle is not None:
            if delivery.state == REJECTED:
                link.reject(handle, delivery.condition or "amqp:not-allowed", delivery.description, settle=first)
            elif delivery.state == MODIFIED:
                link.modify(handle, failed=True, undeliverable=False, settle=first)
            else:
                link.update(handle, delivery.state, settle=first)
            if first:
                self._forget([delivery])
        delivery.link = None
        self._replenish(link)

    def _replenish(self, link: Link) -> None:
        self._owed += 1
        if self._owed * 2 >= self._credit:
            link.flow(self._owed)
            self._owed = 0

    # The methods from here on deal with settlement.

    def on_dispositions(self, link: Link, dispositions: Dispositions) -> None:
        if link is not self._link:
            return
        done = [handle for handle, _, is_settled in dispositions if is_settled]
        self._forget([self._by_handle[handle] for handle in done])
        link.settle_many(done)
        self._news.unpark_all()

    def _forget(self, deliveries: Collection[Delivery]) -> None:
        """Forget deliveries that the router or the subscriber has settled, and log the settlement."""
        for delivery in deliveries:
            self._drop(delivery)
        if keys := [delivery.key for delivery in deliveries if delivery.answered]:
            self._note(Event.SETTLED, keys)

    def _drop(self, delivery: Delivery) -> None:
        self._by_handle.pop(delivery.handle, None)
        delivery.handle = None
        if self._unsettled.get(delivery.key) is delivery:
            del self._unsettled[delivery.key]
            if delivery.state in TERMINAL:
                self._commits.lazily(Removed(delivery.key))

    def _note(self, event: Event, keys: list[bytes], outcome: Outcome = Outcome.UNKNOWN) -> None:
        if self._log is not None:
            self._log.deliveries(event, keys, LOGGED[outcome])
