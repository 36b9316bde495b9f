"""The router's end of a link at a topic, for any protocol. The core's actions (`topic.actions`) name it as their
`link`.

The core names a delivery by its record. A client names it differently: by an AMQP handle, an MQTT identifier, or a
position of a queue. An end translates between the two, and decides nothing about a delivery. There are two kinds,
`PublishingEnd` and `SubscribingEnd`. Each has one method for each request of the core, and a subclass for each protocol
implements these methods.

If the end belongs to a client, the shell passes the core's actions to it, because the shell knows the client's
connection. An end inside the router (`InsideEnd`) has no connection, so its node passes the actions to it.

The modules of this package know no protocol and no connection, and read no clock.
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
    """The methods of a node (`topic.node.Node`) that an end calls."""

    topic: Topic

    def now(self) -> float: ...
    def perform(self) -> None: ...
    def later(self, act: Callable[[], None]) -> None: ...


class InsideEnd:
    """An end of a link that belongs to the router itself and has no client."""

    def perform(self, action: LinkAction) -> None:
        """Perform an action that the core asks of this link."""
        raise NotImplementedError


class LinkEnd:
    """The common part of the ends of publishers and subscribers. One end may serve all attaches of its link, or only
    one."""

    role: ClassVar[Role]

    def __init__(self, node: EndNode, identity: LinkIdentity, lifetime: Lifetime, *, settles_first: bool) -> None:
        self.node = node
        self.identity = identity
        self.lifetime = lifetime
        """The lifetime that the next attach asks for."""
        self.settles_first = settles_first
        """Whether the link has receiver settle mode first. The router then settles a publisher's delivery when it sends
        the outcome, and a subscriber settles a delivery when it gives the outcome."""
        self.epoch: Epoch | None = None
        """The epoch of the last attach through this end; None before the first. It stays when the link moves or
        ends."""
        self.is_answered = False
        """Whether the core has answered the last attach, and the link is still connected."""
        self.is_detached = False
        """Whether the core has detached the link, because it is attached elsewhere or has ended."""

    @cached_property
    def index(self) -> Index:
        return self.role, link_name(self.identity)

    def known(self) -> LinkEntry | None:
        """The link's entry in the directory; None if there is none."""
        return self.node.topic.directory.entry(self.index)

    @property
    def is_current(self) -> bool:
        """Whether the link is still as this end left it. It is not if it has since been attached elsewhere, or has
        ended, as far as this router knows."""
        if self.epoch is None:
            return True
        known = self.known()
        return known is not None and known.live and known.epoch == self.epoch

    def claim(self, unsettled: Mapping[bytes, int] | None, *, complete: bool = True) -> Claim:
        """Make the `Claim` of an attach that takes the link over from its present owner. `unsettled`: the map with
        which the attach resumes; None to begin afresh."""
        known = self.known()
        generation = known.generation if known is not None and unsettled is not None else None
        return Claim(generation, unsettled, complete, known.epoch if known is not None else NOWHERE)

    @property
    def is_there(self) -> bool:
        """Whether the end can send on the link."""
        raise NotImplementedError

    def perform(self, action: LinkAction) -> None:
        """Perform an action that the core asks of this link."""
        raise NotImplementedError

    def leave(self, now: float, *, closed: bool) -> None:
        """Detach the link. `closed`: its terminus ends, too. If the core itself has detached the link, the core is not
        informed again."""
        raise NotImplementedError
