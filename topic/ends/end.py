"""Our end of a link at a topic, of whatever protocol. The core has it for the `link` of its actions (`topic.actions`).

The core names a delivery by its record. A client knows it by something else: a handle of AMQP, an identifier of MQTT, a
position of a queue. An end translates, and decides nothing about a delivery. `PublishingEnd` and `SubscribingEnd` are
the two kinds. Each has one method for each thing that the core asks for. An end of a protocol says what that is there.

The shell has a client's end do what the core asks: it knows the client's connection. An end inside the router
(`InsideEnd`) has no connection: its node has it do that.

Never here: a protocol, a connection, time.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import ClassVar, Protocol

from topic.actions import LinkAction
from topic.core import Topic
from topic.directory.entry import Index, Lifetime, LinkEntry, Role
from topic.identity import NOWHERE, Epoch, LinkIdentity, link_name
from topic.termini.attaches import Claim


class EndNode(Protocol):
    """What an end needs of its node (`topic.node.Node`)."""

    topic: Topic

    def now(self) -> float: ...
    def perform(self) -> None: ...
    def later(self, act: Callable[[], None]) -> None: ...


class InsideEnd:
    """It is a part of this router, and no client's."""

    def perform(self, action: LinkAction) -> None:
        """Do what the core asks."""
        raise NotImplementedError


class LinkEnd:
    """Of either kind. One end may attach again and again, or there is one for each attach."""

    role: ClassVar[Role]

    def __init__(self, node: EndNode, identity: LinkIdentity, lifetime: Lifetime, *, settles_first: bool) -> None:
        self.node = node
        self.identity = identity
        self.lifetime = lifetime
        """Of the next attach."""
        self.settles_first = settles_first
        """Receiver settle mode first: what is told an outcome is settled by that."""
        self.epoch: Epoch | None = None
        """Of its last attach here, whatever has become of the link since; None if there was none."""
        self.is_answered = False
        """The core has answered that attach, and the link is still there."""
        self.is_detached = False
        """By the core: the link is attached elsewhere, or has ended."""

    @cached_property
    def index(self) -> Index:
        return self.role, link_name(self.identity)

    def known(self) -> LinkEntry | None:
        """What the mesh knows of the link."""
        return self.node.topic.directory.entry(self.index)

    @property
    def is_current(self) -> bool:
        """Whether the link is where this end left it: it was not elsewhere since, as far as the mesh knows, nor has it
        ended."""
        if self.epoch is None:
            return True
        known = self.known()
        return known is not None and known.live and known.epoch == self.epoch

    def claim(self, unsettled: Mapping[bytes, int] | None, *, complete: bool = True) -> Claim:
        """What an attach brings that goes on with this map where the link is now, for all that is known here. With a
        null one it begins afresh."""
        known = self.known()
        generation = known.generation if known is not None and unsettled is not None else None
        return Claim(generation, unsettled, complete, known.epoch if known is not None else NOWHERE)

    @property
    def is_there(self) -> bool:
        """Whether something may be said on the link."""
        raise NotImplementedError

    def perform(self, action: LinkAction) -> None:
        """Do what the core asks."""
        raise NotImplementedError

    def leave(self, now: float, *, closed: bool) -> None:
        """The link is over; `closed`: its terminus, too. After a `Detach` the core knows that."""
        raise NotImplementedError
