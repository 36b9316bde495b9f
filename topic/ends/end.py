"""The router's end of a link at a topic, for any protocol. It is the `link` of the core's actions (`topic.actions`).

The core names a delivery by its record. A client names it otherwise: by an AMQP handle, an MQTT identifier, or a
position of a queue. An end translates, and decides nothing about a delivery. `PublishingEnd` and `SubscribingEnd` are
the two kinds. Each has one method for each request of the core. The subclass for a protocol implements these methods.

If the end belongs to a client, the shell passes the core's actions to it, because the shell knows the client's
connection. An end inside the router (`InsideEnd`) has no connection: its node passes the actions to it.

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
    """The part of a node (`topic.node.Node`) that an end uses."""

    topic: Topic

    def now(self) -> float: ...
    def perform(self) -> None: ...
    def later(self, act: Callable[[], None]) -> None: ...


class InsideEnd:
    """An end of the router itself, without a client."""

    def perform(self, action: LinkAction) -> None:
        """Perform an action of the core."""
        raise NotImplementedError


class LinkEnd:
    """The common part of both kinds. A link may keep one end for all its attaches, or have one for each attach."""

    role: ClassVar[Role]

    def __init__(self, node: EndNode, identity: LinkIdentity, lifetime: Lifetime, *, settles_first: bool) -> None:
        self.node = node
        self.identity = identity
        self.lifetime = lifetime
        """The lifetime that the next attach asks for."""
        self.settles_first = settles_first
        """Receiver settle mode first: the client's link settles a delivery with its outcome."""
        self.epoch: Epoch | None = None
        """The epoch of the last attach through this end, even if the link has moved or ended since; None before the
        first."""
        self.is_answered = False
        """Whether the core has answered that attach, and the link is still connected."""
        self.is_detached = False
        """Whether the core has detached the link, because the link is attached elsewhere or has ended."""

    @cached_property
    def index(self) -> Index:
        return self.role, link_name(self.identity)

    def known(self) -> LinkEntry | None:
        """The directory's entry of the link, or None."""
        return self.node.topic.directory.entry(self.index)

    @property
    def is_current(self) -> bool:
        """Whether the link is still as this end left it: as far as this router knows, the link has not attached
        elsewhere since, and has not ended."""
        if self.epoch is None:
            return True
        known = self.known()
        return known is not None and known.live and known.epoch == self.epoch

    def claim(self, unsettled: Mapping[bytes, int] | None, *, complete: bool = True) -> Claim:
        """Return the claim of an attach that resumes the link from its present owner with this map. If the map is None,
        the attach begins afresh."""
        known = self.known()
        generation = known.generation if known is not None and unsettled is not None else None
        return Claim(generation, unsettled, complete, known.epoch if known is not None else NOWHERE)

    @property
    def is_there(self) -> bool:
        """Whether the end can send on the link."""
        raise NotImplementedError

    def perform(self, action: LinkAction) -> None:
        """Perform an action of the core."""
        raise NotImplementedError

    def leave(self, now: float, *, closed: bool) -> None:
        """The link is detached; with `closed` its terminus ends, too. After a `Detach` the core is not informed
        again."""
        raise NotImplementedError
