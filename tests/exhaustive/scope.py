"""The scopes: how many of everything, where they are, and which faults may happen."""

import attrs

FAULTS = ("kill", "lose", "cut", "move")
"""A router dies, to start again with its store or without; a contact is lost, noticed by one side first; a client's
connection breaks and it comes back to the same router; it breaks and the client moves to another one. In both cases the
router notices later, or never."""


@attrs.frozen
class Scope:
    name: str
    publishers: str
    """The router at which each of them attaches first: one letter each."""
    subscribers: str
    routers: str = "ab"
    messages: int = 1
    """Of each publisher."""
    faults: int = 1
    """In all."""
    kinds: tuple[tuple[str, int], ...] = tuple((kind, 9) for kind in FAULTS)
    """How often each may happen."""
    early: str = ""
    """Who is attached before anything is explored: p for the publishers, s for the subscribers."""
    boot_wait: bool = False
    """Whether booting may end without the sections of all routers."""

    @property
    def budget(self) -> tuple[int, ...]:
        limits = dict(self.kinds)
        return self.faults, *(min(limits.get(kind, 0), self.faults) for kind in FAULTS)


def _limits(**kinds: int) -> tuple[tuple[str, int], ...]:
    return tuple(kinds.items())


SCOPES = {
    scope.name: scope
    for scope in (
        Scope("calm", "a", "b", faults=0, messages=2),
        Scope("1-2-1-2", "a", "b", messages=2),
    )
}
