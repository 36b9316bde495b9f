"""Policies that say at which router the leader of a set should be (protocol 13.3)."""

from typing import Final

import attrs

PREFER: Final = "prefer"
"""The leader should be at the first router of the ring."""
FOLLOW: Final = "follow"
"""The leader should be at a router that has consumers."""
SHARE: Final = "share"
"""The leader should be at all voters that have consumers, in turn."""
POLICIES: Final = (PREFER, FOLLOW, SHARE)


@attrs.frozen(slots=True)
class MovePolicy:
    kind: str = PREFER
    hold_s: float = 10.0
    """Only for `SHARE`: the seconds for which a router leads before the turn of the next one."""


PREFERS: Final = MovePolicy()
"""The policy of hashed sets, and of named sets for which the topology gives none."""
