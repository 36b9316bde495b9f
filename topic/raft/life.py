"""The name of a life of a set (protocol 13.1)."""

import reprlib
from typing import Any, Final

import attrs

MOST: Final = 2**63 - 1
"""The greatest number that a clock, a term or an index may have."""
MOST_NAME: Final = 255
"""The highest number of bytes of the name of a set, a router or a store."""


@attrs.frozen(order=True, slots=True)
class SetLife:
    """The name of a life. A later life has a higher name. Two routers may begin lives at the same clock, so the name
    also has the router."""

    clock: int
    """The hybrid clock at the beginning of the set, or at its recovery; 0 for no life."""
    router: str
    """The router that has begun or recovered the set; empty for no life."""

    @property
    def parts(self) -> tuple[int, str]:
        """The parts of the name, for msgpack (`read_life`)."""
        return self.clock, self.router

    def __bool__(self) -> bool:
        return self.clock > 0

    def __str__(self) -> str:
        return f"{self.clock:x}-{self.router}"

    @classmethod
    def parse(cls, text: str) -> "SetLife":
        """Read a life that `str` has written as text. Raises ValueError."""
        clock, _, router = text.partition("-")
        life = read_life([int(clock, 16), router])
        if str(life) != text:
            raise ValueError(f"{reprlib.repr(text)} is no life of a set")
        return life


NO_LIFE: Final = SetLife(0, "")
"""Stands for the life of a store that has accepted none. It is lower than all lives."""


def read_life(value: Any) -> SetLife:
    """Read a life from its parts, as msgpack has unpacked them. Raises ValueError."""
    if isinstance(value, list) and [type(part) for part in value] == [int, str]:
        clock, router = value
        if 0 <= clock <= MOST and len(router.encode()) <= MOST_NAME and bool(clock) is bool(router):
            return SetLife(clock, router)
    raise ValueError(f"the life of a set is {reprlib.repr(value)}, expected a clock and a router")
