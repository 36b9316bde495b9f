"""Our end of a link that is sent to: a subscriber's (protocol 5, 6).

    attach ──▶ begin ──▶ deliver, redeliver, resume, settle … ──▶ leave, detach
      ▲                                                             │
      ╰───────────── with the map of what is unsettled ─────────────╯

Credit, room and outcomes an end gives the core directly (`Topic.credit`, `Topic.room`, `Topic.outcomes`).

Never here: what is made of a message, and how much a client takes.
"""

from collections.abc import Sequence

from topic.actions import AnswerSubscriber, Deliver, Detach, Echo, LinkAction, Redeliver, Resume, SettleSubscriber
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
    """Of its last attach: there once `epoch` is."""

    def __init__(
        self, node: EndNode, identity: LinkIdentity, lifetime: Lifetime, *, settles_first: bool, sends_settled: bool
    ) -> None:
        LinkEnd.__init__(self, node, identity, lifetime, settles_first=settles_first)
        self.sends_settled = sends_settled
        """What is sent counts as accepted."""
        self.named: dict[bytes, int] = {}
        """By key: what the map of its last attach has with which state, if it is neither resumed nor settled yet."""

    # what the subscriber does

    def attach(self, claim: Claim, now: float, *, told: bool = False, wants: Wants | None = None) -> None:
        """`told`: it knows that its last link has ended without its doing (protocol 8, Apart). `wants`: its filter."""
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

    # what the core asks

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
        """What our map leaves out of that of the attach is settled (protocol 6.8)."""
        over = [key for key in self.named if key not in ours]
        self.named = {key: state for key, state in self.named.items() if key in ours}  # deleting would free no memory
        self.forget(over)

    def begin(self, action: AnswerSubscriber) -> None:
        """The attach is answered: what its map named is resumed, and credit counts from now on."""
        raise NotImplementedError

    def forget(self, keys: Sequence[bytes]) -> None:
        """These, which the map of the attach named, are settled. `settle` may have been told of some before."""
        raise NotImplementedError

    def deliver(self, records: list[Record]) -> None:
        """Transfer these, in this order; settled ones if the first is presettled."""
        raise NotImplementedError

    def redeliver(self, record: Record) -> None:
        """Settle what was given back, and transfer it anew."""
        raise NotImplementedError

    def resume(self, action: Resume) -> None:
        raise NotImplementedError

    def settle(self, records: Sequence[Record]) -> None:
        """Their publisher has settled these."""
        raise NotImplementedError

    def ask(self) -> None:
        """Ask whether it has read all that was written so far: `Topic.echoed` is called when it has."""
        raise NotImplementedError

    def detach(self, action: Detach) -> None:
        """The core has forgotten the link."""
        raise NotImplementedError
