"""The router's end of a publisher's link (protocol 5, 6.6, 7).

    attach ──▶ begin ──▶ publish, tell, grant … ──▶ leave, detach
      ▲                                               │
      ╰────── with the map of what is unsettled ──────╯

Never here: the contents of messages, the time of publishing, the form in which a protocol reports outcomes.
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
"""The claim of a publisher that does not resume an earlier life."""

Known = TypeVar("Known")


class PublishingEnd(LinkEnd, Generic[Known]):
    """The router's end of a publisher's link. `Known` is the type of the publisher's own name for a delivery."""

    role = Role.PUBLISHER
    stream: HomeStream
    """The stream of the last attach; set once `epoch` is set."""

    def __init__(self, node: EndNode, identity: LinkIdentity, lifetime: Lifetime, *, settles_first: bool) -> None:
        LinkEnd.__init__(self, node, identity, lifetime, settles_first=settles_first)
        self.open: dict[Record, Known] = {}
        """The deliveries that were transferred on this attach and are not settled, in order."""

    # actions of the publisher

    def attach(self, claim: Claim, now: float, allowance: Allowance | None = None) -> None:
        """Attach the link. The deliveries of the publisher's map count against the `allowance`."""
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
        """Publish a batch of unsettled transfers (`Topic.publish`). The deliveries of the attach's map are published
        again this way, too."""
        records = self.node.topic.publish(self.stream, tags, messages, presettled=False, until=until)
        self.open.update(zip(records, known, strict=True))
        return records

    def alive(self, answered: bool) -> None:
        """Report a sign of life after the last echo: the publisher has `answered`, or its machine has acknowledged the
        bytes."""
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

    # actions of the core

    def perform(self, action: LinkAction) -> None:
        match action:
            case AnswerDeliveries():
                self.send_outcomes(action)
            case Credit() | Echo() if not self.is_answered:
                pass  # of an earlier attach: it was still waiting when this attach began
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
        """The core has answered the attach. The publisher first publishes the deliveries in doubt of its map again, in
        order."""
        raise NotImplementedError

    def send_outcomes(self, action: AnswerDeliveries) -> None:
        """Send the outcomes of these records. If the end has attached again meanwhile, some records may no longer be
        open."""
        raise NotImplementedError

    def grant(self, count: int) -> None:
        """Grant credit for `count` more deliveries."""
        raise NotImplementedError

    def choose(self, action: Chosen) -> None:
        """The home has chosen a subscriber for these deliveries. Only a queue has to agree."""
        raise AssertionError(f"the end of a publisher that is no queue cannot perform {action}")

    def forget_refusals(self, subscriber: bytes) -> None:
        """The home may offer this subscriber again the deliveries that it had refused. Only a queue needs this."""
        raise AssertionError("the end of a publisher that is no queue is not told of its subscribers")

    def want(self) -> None:
        """The subscribers take more deliveries. Only a queue needs this."""
        raise AssertionError("the end of a publisher that is no queue is not told what subscribers take")

    def ask(self) -> None:
        """Ask the publisher for a sign of life. When it comes, `alive` is called."""
        raise NotImplementedError

    def proven(self) -> None:
        """The publisher has given the sign of life that `ask` asked for."""

    def detach(self, action: Detach) -> None:
        """The core has forgotten the link."""
        raise NotImplementedError

    @property
    def answers(self) -> bool:
        """Whether only an answer of the publisher itself is a sign of life, not an acknowledgement of its machine."""
        raise NotImplementedError
