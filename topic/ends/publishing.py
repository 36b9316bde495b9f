"""The router's end of a publisher's link (protocol 5, 6.6, 7).

    attach ──▶ begin ──▶ publish, tell, grant … ──▶ leave, detach
      ▲                                               │
      ╰────── with the map of what is unsettled ──────╯

This module knows neither the contents of messages, nor when they are published, nor how a protocol reports outcomes.
"""

from collections.abc import Sequence
from typing import Generic, TypeVar

from topic.actions import AnswerDeliveries, AnswerPublisher, Chosen, Credit, Detach, Echo, Forget, LinkAction, Wanted
from topic.delivery.allowance import Allowance
from topic.delivery.record import HomeStream, Record
from topic.directory.entry import Lifetime, Role
from topic.ends.end import EndNode, LinkEnd
from topic.identity import NOWHERE, LinkIdentity
from topic.termini.attaches import Claim

AFRESH = Claim(None, None, True, NOWHERE)
"""The `Claim` in the attach of a publisher that begins a new life."""

Known = TypeVar("Known")


class PublishingEnd(LinkEnd, Generic[Known]):
    """The router's end of a publisher's link. `Known` is the type by which the publisher names a delivery."""

    role = Role.PUBLISHER
    stream: HomeStream
    """The core's stream for the last attach. It exists whenever `epoch` is set."""

    def __init__(self, node: EndNode, identity: LinkIdentity, lifetime: Lifetime, *, settles_first: bool) -> None:
        LinkEnd.__init__(self, node, identity, lifetime, settles_first=settles_first)
        self.open: dict[Record, Known] = {}
        """The unsettled deliveries that were transferred on this attach, in order."""

    # The publisher calls the methods from here on.

    def attach(self, claim: Claim, now: float, allowance: Allowance | None = None) -> None:
        """Attach the link. `allowance`: the limit against which the deliveries in the publisher's map count."""
        self.is_answered = False
        self.stream = self.node.topic.attach_publisher(
            self.identity,
            self,
            now,
            generation=claim.generation,
            seen=claim.seen,
            first=self.settles_first,
            lifetime=self.lifetime,
            unsettled=claim.unsettled,
            complete=claim.complete,
            allowance=allowance,
            clock=claim.clock,
        )
        self.epoch = self.stream.epoch

    def publish(
        self, known: Sequence[Known], tags: list[bytes], messages: list[bytes], until: Sequence[float] | None = None
    ) -> list[Record]:
        """Publish a batch of unsettled transfers (`Topic.publish`). Deliveries that the publisher's map has in doubt
        are published again by this method, too."""
        records = self.node.topic.publish(self.stream, tags, messages, presettled=False, until=until)
        self.open.update(zip(records, known, strict=True))
        return records

    def alive(self, answered: bool) -> None:
        """Report a sign of life that came after the last echo. `answered`: the publisher itself has answered; otherwise
        its machine has acknowledged the bytes."""
        if self.is_there:
            self.node.now()
            self.node.topic.alive(self.stream, answered=answered)
            self.proven()
            self.node.perform()

    def leave(self, now: float, *, closed: bool) -> None:
        self.is_answered = False
        if self.is_detached or self.epoch is None:
            return
        if closed:
            self.node.topic.detach_publisher(self.stream, now)
        else:
            self.node.topic.suspend_publisher(self.stream, self, now)

    # The methods from here on are called for the core.

    def perform(self, action: LinkAction) -> None:
        match action:
            case AnswerDeliveries():
                self.send_outcomes(action)
            case Credit() | Echo() if not self.is_answered:
                # The action is for an earlier attach, and was under way when this attach began.
                pass
            case Credit():
                self.grant(action.count)
            case Chosen():
                self.choose(action)
            case Forget():
                self.forget_refusals(action.subscriber)
            case Wanted():
                self.want()
            case Echo():
                self.ask()
            case AnswerPublisher():
                self.is_answered = True
                self.begin(action)
            case Detach():
                if not self.is_detached:
                    self.is_detached = True
                    self.detach(action)
            case _:
                raise AssertionError(f"the end of a publisher cannot perform {action}")

    def begin(self, action: AnswerPublisher) -> None:
        """Handle the core's answer to the attach. The publisher first publishes again, in order, the deliveries that
        its map has in doubt."""
        raise NotImplementedError

    def send_outcomes(self, action: AnswerDeliveries) -> None:
        """Send the publisher the outcomes of these records. Some records may no longer be open if the end has attached
        again meanwhile."""
        raise NotImplementedError

    def grant(self, count: int) -> None:
        """Grant the publisher credit for `count` more deliveries."""
        raise NotImplementedError

    def choose(self, action: Chosen) -> None:
        """Handle the home's choice of a subscriber for these deliveries. Only a queue overrides this, because only a
        queue has to agree."""
        raise AssertionError(f"the end of a publisher that is no queue cannot perform {action}")

    def forget_refusals(self, subscriber: bytes) -> None:
        """Let the home offer this subscriber again the deliveries that it had refused. Only a queue overrides this."""
        raise AssertionError("the end of a publisher that is no queue is not told of its subscribers")

    def want(self) -> None:
        """Handle the news that subscribers take more deliveries, or that deliveries wait again. Only a queue overrides
        this."""
        raise AssertionError("the end of a publisher that is no queue is not told what subscribers take")

    def ask(self) -> None:
        """Ask the publisher for a sign of life. When the sign comes, the end calls `alive`."""
        raise NotImplementedError

    def proven(self) -> None:
        """Handle the sign of life for which `ask` has asked."""

    def detach(self, action: Detach) -> None:
        """Detach the link, which the core has already forgotten."""
        raise NotImplementedError

    @property
    def answers(self) -> bool:
        """Whether only an answer of the publisher itself counts as a sign of life. If False, an acknowledgement of its
        machine counts, too."""
        raise NotImplementedError
