"""Our end of a link that is received from: a publisher's (protocol 5, 6.6, 7).

    attach ──▶ begin ──▶ publish, tell, grant … ──▶ leave, detach
      ▲                                               │
      ╰────── with the map of what is unsettled ──────╯

Never here: what is published, when, and in which words it is told its outcome.
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
"""Of a publisher that says nothing of what was before."""

Known = TypeVar("Known")


class PublishingEnd(LinkEnd, Generic[Known]):
    """`Known` is what its publisher knows a delivery by."""

    role = Role.PUBLISHER
    stream: HomeStream
    """Of its last attach: there once `epoch` is."""

    def __init__(self, node: EndNode, identity: LinkIdentity, lifetime: Lifetime, *, settles_first: bool) -> None:
        LinkEnd.__init__(self, node, identity, lifetime, settles_first=settles_first)
        self.open: dict[Record, Known] = {}
        """What was transferred on this attach, and is not settled, in its order."""

    # what the publisher does

    def attach(self, claim: Claim, now: float, allowance: Allowance | None = None) -> None:
        """What it has unsettled counts against the `allowance`."""
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
        """Take a batch of unsettled transfers (`Topic.publish`), also of what the map of this attach has."""
        records = self.node.topic.publish(self.stream, tags, messages, presettled=False, until=until)
        self.open.update(zip(records, known, strict=True))
        return records

    def alive(self, answered: bool) -> None:
        """The publisher was there after it was last asked. It has `answered`, or its machine has acknowledged it."""
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

    # what the core asks

    def perform(self, action: LinkAction) -> None:
        match action:
            case AnswerDeliveries():
                self.tell(action)
            case Credit() | Echo() if not self.is_answered:
                pass  # of an attach before this one: it was still to be done as its answer brought this one about
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
        """The attach is answered. First what is in doubt by its map is published again, in its order."""
        raise NotImplementedError

    def tell(self, action: AnswerDeliveries) -> None:
        """These have an outcome. Some may not be open any more, if the end has attached again meanwhile."""
        raise NotImplementedError

    def grant(self, count: int) -> None:
        """So many more may be published."""
        raise NotImplementedError

    def choose(self, action: Chosen) -> None:
        """Home has chosen a subscriber for these. Only a queue is asked to agree."""
        raise AssertionError(f"the end of a publisher that is no queue cannot perform {action}")

    def forget_refusals(self, subscriber: bytes) -> None:
        """What the subscriber of this name has refused for itself it may be offered. Only a queue is told."""
        raise AssertionError("the end of a publisher that is no queue is not told of its subscribers")

    def want(self) -> None:
        """Subscribers take more. Only a queue is told."""
        raise AssertionError("the end of a publisher that is no queue is not told what subscribers take")

    def ask(self) -> None:
        """The publisher is to show that it is there: `alive` is called when it has."""
        raise NotImplementedError

    def proven(self) -> None:
        """It has shown that."""

    def detach(self, action: Detach) -> None:
        """The core has forgotten the link."""
        raise NotImplementedError

    @property
    def answers(self) -> bool:
        """Whether only its own word shows that it is there, not that of its machine."""
        raise NotImplementedError
