"""What links and routers did before the control rows that are here, as far as it still matters.

Only for an audit that forgets rows (`follow.forgetting`): one that has them all has no past.
"""

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
    """By hybrid clock."""
    clients: KnownClients = NOBODY
    """Everybody who was ever named."""
    clocks: Clocks = NO_CLOCKS
    """Of logs that have ended; and which others have met."""
    told: Mapping[str, Mapping[int, Heard]] = attrs.field(factory=dict)
    """By subscriber and life: since when routers can have known it, of those that may know it still."""
    heard: Sequence[ControlRow] = ()
    """The endings of links that routers can have heard of."""
    partings: Partings = attrs.field(factory=dict)
    """Those that were over, where something was accepted without the subscriber."""
    ended_in_use: Sequence[EndedLink] = ()


NO_PAST: Final = Past()
