"""The link by which a router publishes a will.

Each will has a link of its own, one life of it, and one delivery-tag. So if a second router publishes the will because
the first one has died, its attach resumes the same delivery (protocol 7.2), and no subscriber gets the will twice.
"""

from typing import Final, Protocol

from topic.actions import AnswerDeliveries, AnswerPublisher, Detach
from topic.delivery.outcomes import DeliveryOutcome
from topic.directory.entry import Lifetime
from topic.ends.end import EndNode, InsideEnd
from topic.ends.publishing import PublishingEnd
from topic.home.ttl import OVER
from topic.identity import NOWHERE
from topic.termini.attaches import Claim
from topic.wills.will import NO_EXPIRY, Will

TAG: Final = b"will"


class WillOwner(Protocol):
    """Decides about the wills that one router knows; `topic.wills.wills` implements it."""

    def may_publish(self, will: Will) -> bool:
        """Whether this router still keeps the will. It has forgotten the will if a router has announced that the will
        is over."""

    def published(self, will: Will, refused: str) -> None:
        """Called when the will is published: it was presettled, or all subscribers have answered it. `refused`: why not
        all have accepted it; empty if all have."""

    def taken(self, will: Will) -> None:
        """Called when another router publishes the will."""


class WillPublisher(PublishingEnd[None], InsideEnd):
    def __init__(self, node: EndNode, will: Will, timeout: int, owner: WillOwner) -> None:
        """`timeout`: the seconds for which other routers keep the link if this router dies."""
        super().__init__(node, will.identity, Lifetime(timeout, "connection-close"), settles_first=False)
        self._will = will
        self._owner = owner

    def come(self, *, again: bool) -> None:
        """Attach the link. `again`: another router may have published the will."""
        self.attach(self.claim_of(again), self.node.now())
        self.node.perform()

    def claim_of(self, again: bool) -> Claim:
        known = self.known()
        seen, unsettled = (known.epoch, {TAG: 0}) if known is not None else (NOWHERE, {TAG: 0} if again else {})
        return Claim(self._will.generation, unsettled, True, seen)

    def give_up(self) -> None:
        """End the link, because the will is over."""
        self.leave(self.node.now(), closed=True)
        self.node.perform()

    @property
    def is_there(self) -> bool:
        return self.epoch is not None and not self.is_detached

    @property
    def answers(self) -> bool:
        return True

    def _publish(self) -> None:
        """Publish the will, unless it is over. Called when all routers in contact know the link, and have sent what
        they knew about the will before."""
        if not self.is_there or self.open:
            return
        if not self._owner.may_publish(self._will):
            return self.give_up()
        expiry, now = self._will.expiry, self.node.now()
        until = None if expiry == NO_EXPIRY else [now + expiry if expiry else OVER]
        if self._will.presettled:
            self.node.topic.publish(self.stream, [TAG], [self._will.message], presettled=True, until=until)
            self._end("")
        else:
            self.publish([None], [TAG], [self._will.message], until)
            self.node.perform()

    def _end(self, refused: str) -> None:
        """Report that the will is published, and close the link. The closed link ends the delivery at all routers, so
        no router has to send a message for this."""
        self._owner.published(self._will, refused)
        self.leave(self.node.now(), closed=True)
        self.node.perform()

    # The methods from here on carry out actions of the core.

    def begin(self, action: AnswerPublisher) -> None:
        self.node.later(self._publish)

    def send_outcomes(self, action: AnswerDeliveries) -> None:
        if self.is_there and self.open:
            is_accepted = action.outcome is DeliveryOutcome.ACCEPTED
            self.open.clear()
            self._end("" if is_accepted else action.description or action.outcome.name.lower())

    def grant(self, count: int) -> None:
        """Ignore the credit, because one delivery is always allowed."""

    def ask(self) -> None:
        self.alive(answered=True)

    def detach(self, action: Detach) -> None:
        self.open.clear()
        self._owner.taken(self._will)
