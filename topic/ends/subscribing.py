"""The router's end of a subscriber's link (protocol 5, 6).

    attach ──▶ begin ──▶ deliver, redeliver, resume, settle … ──▶ leave, detach
      ▲                                                             │
      ╰───────────── with the map of what is unsettled ─────────────╯

An end gives credit, room and outcomes to the core directly (`Topic.credit`, `Topic.room`, `Topic.outcomes`).

This module knows neither how a protocol encodes a message, nor how much a client takes.
"""

from collections.abc import Sequence

from topic.actions import (
    AnswerSubscriber,
    Deliver,
    Detach,
    Drained,
    Echo,
    LinkAction,
    Redeliver,
    Resume,
    RetirementsOver,
    SettleSubscriber,
)
from topic.delivery.record import Record
from topic.directory.entry import Lifetime, Role
from topic.edge.filters import Wants
from topic.edge.subscriber import LocalSubscriber
from topic.ends.end import EndNode, LinkEnd
from topic.identity import LinkIdentity
from topic.termini.attaches import Claim


class SubscribingEnd(LinkEnd):
    role = Role.SUBSCRIBER
    subscriber: LocalSubscriber
    """The core's object for the last attach. It exists whenever `epoch` is set."""

    def __init__(
        self, node: EndNode, identity: LinkIdentity, lifetime: Lifetime, *, settles_first: bool, sends_settled: bool
    ) -> None:
        LinkEnd.__init__(self, node, identity, lifetime, settles_first=settles_first)
        self.sends_settled = sends_settled
        """Whether the end sends deliveries already settled. They count as accepted once they are sent."""
        self.options = 0
        """The options of the subscription, as in `LinkEntry`."""
        self.named: dict[bytes, int] = {}
        """The deliveries in the map of the last attach that are neither resumed nor settled yet, by delivery key, with
        their states in the map."""

    # The subscriber calls the methods from here on.

    def attach(self, claim: Claim, now: float, *, told: bool = False, wants: Wants | None = None) -> None:
        """Attach the link. `told`: the client states that it knows that routers have ended its last link (protocol 8,
        Apart). `wants`: the subscriber's filter."""
        self.is_answered = False
        self.named = dict(claim.unsettled or {})
        self.subscriber = self.node.topic.attach_subscriber(
            self.identity,
            self,
            now,
            seen=claim.seen,
            first=self.settles_first,
            sends_settled=self.sends_settled,
            lifetime=self.lifetime,
            unsettled=claim.unsettled,
            complete=claim.complete,
            told=told,
            wants=wants,
            clock=claim.clock,
            options=self.options,
        )
        self.epoch = self.subscriber.epoch

    def leave(self, now: float, *, closed: bool) -> None:
        self.is_answered = False
        if self.is_detached or self.epoch is None:
            return
        if closed:
            self.node.topic.detach_subscriber(self.subscriber, self, now)
        else:
            self.node.topic.suspend_subscriber(self.subscriber, self, now)

    # The methods from here on are called for the core.

    def perform(self, action: LinkAction) -> None:
        match action:
            case Deliver():
                self.deliver(action.records)
            case SettleSubscriber():
                self.settle(action.records)
            case Redeliver():
                self.redeliver(action.record)
            case Resume():
                self.named.pop(action.record.key, None)
                self.resume(action)
            case Drained():
                self.drained(action)
            case RetirementsOver():
                self.retirements_over(action)
            case Echo():
                self.ask()
            case AnswerSubscriber():
                self.is_answered = True
                self._drop_what_is_over(action.unsettled or {})
                self.begin(action)
            case Detach():
                if not self.is_detached:
                    self.is_detached = True
                    self.detach(action)
            case _:
                raise AssertionError(f"the end of a subscriber cannot perform {action}")

    def _drop_what_is_over(self, ours: dict[bytes, int]) -> None:
        """Settle the deliveries of the client's map that the router's map leaves out (protocol 6.8)."""
        over = [key for key in self.named if key not in ours]
        # A new dict is made, because a dict frees no memory when keys are deleted.
        self.named = {key: state for key, state in self.named.items() if key in ours}
        self.forget(over)

    def begin(self, action: AnswerSubscriber) -> None:
        """Handle the core's answer to the attach. From now on the deliveries in the client's map are resumed, and its
        credit counts."""
        raise NotImplementedError

    def forget(self, keys: Sequence[bytes]) -> None:
        """Settle these deliveries, which the map of the attach named. The method `settle` may already have settled some
        of them."""
        raise NotImplementedError

    def deliver(self, records: list[Record]) -> None:
        """Transfer these records in this order. If the first one is presettled, all are, and the transfers are sent
        settled."""
        raise NotImplementedError

    def redeliver(self, record: Record) -> None:
        """Settle the delivery that the subscriber gave back, and transfer it anew."""
        raise NotImplementedError

    def resume(self, action: Resume) -> None:
        raise NotImplementedError

    def drained(self, action: Drained) -> None:
        """End the client's drain, because the subscriber has got all messages for it. Called only if this end has
        called `Topic.drain`."""
        raise NotImplementedError

    def retirements_over(self, action: RetirementsOver) -> None:
        """A transaction has ended. Called only if this end has given it outcomes."""
        raise NotImplementedError

    def settle(self, records: Sequence[Record]) -> None:
        """Settle these deliveries, because their publisher has settled them."""
        raise NotImplementedError

    def ask(self) -> None:
        """Ask the subscriber whether it has read all frames so far. When it answers, the end calls `Topic.echoed`."""
        raise NotImplementedError

    def detach(self, action: Detach) -> None:
        """Detach the link, which the core has already forgotten."""
        raise NotImplementedError
