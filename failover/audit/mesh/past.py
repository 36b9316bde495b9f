"""The facts about links and routers from control rows that the audit has forgotten, as far as the audit still needs
them. Only an audit that forgets rows (`follow.forgetting`) has a past."""

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from failover.audit.mesh.clients import NOBODY, KnownClients
from failover.audit.mesh.clocks import NO_CLOCKS, Clocks
from failover.audit.mesh.contacts import Heard
from failover.audit.mesh.presence import EndedLink, Partings
from failover.audit.read.inventory import ControlRow


@attrs.frozen
class Past:
    till: int = 0
    """Rows up to this hybrid clock are forgotten."""
    clients: KnownClients = NOBODY
    """All clients that the control rows have shown so far."""
    clocks: Clocks = NO_CLOCKS
    """The clocks of logs that have ended. For logs that have not ended, the differences between the clocks of two logs
    (`met`)."""
    told: Mapping[str, Mapping[int, Heard]] = attrs.field(factory=dict)
    """Maps each subscriber and its last life to the routers that may still know the subscriber. Each router comes with
    the hybrid clock at which it first logged that it knows the subscriber."""
    heard: Sequence[ControlRow] = ()
    """EXPIRED rows that no router wrote. The audit adds one for each ending of a link and each router that may have
    heard of the ending from other routers, because that router writes none itself."""
    partings: Partings = attrs.field(factory=dict)
    """Earlier partings of homes and subscribers. A parting is kept only if the home accepted a delivery without the
    subscriber during it, because a report may name the parting as the reason."""
    ended_in_use: Sequence[EndedLink] = ()


NO_PAST: Final = Past()
