"""Policies: where the leader of a set is to be, if it can choose (protocol 13.3)."""

from typing import Final

import attrs

PREFER: Final = "prefer"
"""At the first router of the ring."""
FOLLOW: Final = "follow"
"""Where consumers are."""
SHARE: Final = "share"
"""In turn at all voters where consumers are."""
POLICIES: Final = (PREFER, FOLLOW, SHARE)


@attrs.frozen(slots=True)
class MovePolicy:
    kind: str = PREFER
    hold_s: float = 10.0
    """`SHARE`: seconds for which a router leads."""


PREFERS: Final = MovePolicy()
"""The policy of hashed sets, and of named sets without another one."""
