"""The scopes: the numbers of routers, clients and messages, their places, and the possible faults."""

import attrs

BREAKS = ("kill", "lose", "cut", "move")
"""In this order: a router dies, with the frames and batches that it sent and that are under way, to start again with
its store or without; a contact is lost, which one router notices first; a client's connection breaks and it comes back
to the same router; it breaks and the client moves to another one. In the last two the router notices later, or never.
"""
FAULTS = (*BREAKS, "expire", "partial")
"""Also: nothing happens for a whole timeout; a client that comes back leaves half of its map out, and attaches
again."""


@attrs.frozen
class Scope:
    name: str
    publishers: str
    """The router at which each publisher attaches first, one letter each."""
    subscribers: str
    routers: str = "ab"
    messages: int = 1
    """The number of messages of each publisher."""
    faults: int = 1
    """The number of faults in all."""
    kinds: tuple[tuple[str, int], ...] = tuple((kind, 9) for kind in BREAKS)
    """How often each kind of fault may happen."""
    victims: str = ""
    """The routers that may be killed, one letter each. Empty: any."""
    movers: str = "ps"
    """The clients that may move: p for publishers, s for subscribers."""
    early: str = ""
    """The clients that attach before the search begins: p for the publishers, s for the subscribers, in this order."""
    echoes: bool = True
    """Whether publishers echo their generation. Otherwise the mesh has to know it."""
    prompt: bool = False
    """Whether clients settle and answer echoes at once, unless cut off. Otherwise they do at any time."""
    restarts: bool = True
    """Whether dead routers come back, with or without their stores."""
    refusals: int = 0
    """How often each subscriber may reject or release a message."""
    boot_wait: bool = False
    """Whether a router may finish booting without the sections of all routers."""
    joins: str = ""
    """Routers that the mesh does not have at first. It grows by them at some time, once (protocol 11)."""

    balanced: bool = False
    """Whether each message is for one of the subscribers (protocol 12)."""

    @property
    def budget(self) -> tuple[int, ...]:
        limits = dict(self.kinds)
        return self.faults, *(min(limits.get(kind, 0), self.faults) for kind in FAULTS)


def _at_most(**kinds: int) -> tuple[tuple[str, int], ...]:
    return tuple(kinds.items())


MOVE_AND_KILL = _at_most(move=1, kill=1)


def _prompt(scope: Scope) -> Scope:
    """The same scope with prompt clients: a part of it, for every run of the tests."""
    return attrs.evolve(scope, name=f"{scope.name}-prompt", prompt=True)


def _grown(mover: str, victim: str) -> Scope:
    """A third router joins while the victim dies, and the publisher or the subscriber moves."""
    name = f"three-grow-{mover}-{victim}"
    scope = Scope(name, "a", "b", "abc", faults=2, kinds=MOVE_AND_KILL, early="sp", prompt=True, restarts=False)
    return attrs.evolve(scope, victims=victim, movers=mover, joins="c")


SCOPES = {
    scope.name: scope
    for scope in (
        # 1 publisher, 2 routers, 1 subscriber, 2 messages, 1 fault; no client is attached yet
        Scope("apart", "a", "b", messages=2),
        Scope("together", "a", "a", messages=2),
        # the first two with 1 message; with attached clients; and with 2 messages and prompt clients
        Scope("apart-one", "a", "b"),
        Scope("together-one", "a", "a"),
        Scope("together-attached", "a", "a", early="sp"),
        Scope("apart-prompt", "a", "b", messages=2, early="sp", prompt=True),
        Scope("together-prompt", "a", "a", messages=2, early="sp", prompt=True),
        Scope("forgetful", "a", "b", messages=2, echoes=False),
        # 1 publisher, 2 routers, 1 or 2 subscribers, 1 message, 2 faults
        Scope("apart-twice", "a", "b", faults=2, early="sp"),
        Scope("together-twice", "a", "a", faults=2, early="sp"),
        Scope("both-twice", "a", "ab", faults=2, early="sp", prompt=True),
        # 1 publisher, 3 routers, 1 subscriber, 1 message, a move and a kill
        Scope("three-apart", "a", "b", "abc", faults=2, kinds=MOVE_AND_KILL, early="sp", restarts=False),
        Scope("three-together", "a", "a", "abc", faults=2, kinds=MOVE_AND_KILL, early="sp", restarts=False),
        # a mesh of one router grows by another, at any time; a client moves, or a router dies
        Scope("grows", "a", "a", kinds=_at_most(move=1), early="sp", joins="b"),
        Scope("grows-killed", "a", "a", kinds=_at_most(kill=1), early="sp", joins="b"),
        # a mesh of two routers grows by a third: too large for every run of the tests, however few clients and messages
        Scope("three-grow-moved", "a", "b", "abc", kinds=_at_most(move=1), early="sp", prompt=True, joins="c"),
        Scope("three-grow-killed", "a", "b", "abc", kinds=_at_most(kill=1), early="sp", prompt=True, joins="c"),
        # the same with a move and a kill; each of these scopes is a part of that one
        *(_grown(mover, victim) for mover in "ps" for victim in "abc"),
        # 2 publishers, 2 routers, 1 subscriber, 1 message each, 1 fault
        Scope("two-publishers", "ab", "a", early="sp"),
        # a timeout runs out while a client is away, while the routers are apart, and while both are true
        Scope("away", "a", "b", faults=2, kinds=_at_most(cut=1, expire=1), early="sp"),
        Scope("away-moved", "a", "b", faults=2, kinds=_at_most(move=1, expire=1), early="sp"),
        Scope("away-together", "a", "a", faults=2, kinds=_at_most(cut=1, move=1, expire=1), early="sp"),
        Scope("out-of-reach", "a", "b", faults=2, kinds=_at_most(lose=1, expire=1), early="sp"),
        Scope("out-of-reach-cut", "a", "b", faults=3, kinds=_at_most(lose=1, cut=1, expire=1), early="sp"),
        Scope("out-of-reach-moved", "a", "b", faults=3, kinds=_at_most(lose=1, move=1, expire=1), early="sp"),
        # the subscriber rejects or releases, twice
        Scope("refused", "a", "b", early="sp", refusals=2),
        Scope("refused-together", "a", "a", messages=2, early="sp", refusals=2),
        # 1 publisher, 2 routers, 2 subscribers at a balanced address, 1 message, 1 fault or 2
        Scope("one-of-two", "a", "ab", early="sp", balanced=True),
        Scope("one-of-two-late", "a", "bb", balanced=True, prompt=True),
        Scope("one-of-two-refused", "a", "ab", early="sp", prompt=True, balanced=True, refusals=1),
        Scope("one-of-two-twice", "a", "ab", faults=2, early="sp", prompt=True, balanced=True),
        # a client leaves half of its map out
        Scope("partial", "a", "b", messages=2, faults=2, kinds=_at_most(cut=1, partial=1), early="sp"),
        Scope("partial-moved", "a", "b", messages=2, faults=2, kinds=_at_most(move=1, partial=1), early="sp"),
    )
}
"""The scopes that `make exhaustive` explores."""

SCOPES |= {scope.name: scope for scope in [_prompt(SCOPES[name]) for name in ("out-of-reach", "partial", "one-of-two")]}

QUICK = (
    "together-attached", "apart-prompt", "away", "away-moved", "out-of-reach-prompt", "refused", "partial-prompt",
    "grows", "one-of-two-prompt",
)  # fmt: skip
"""The scopes of every run of the tests. They have each kind of fault, and none takes ten seconds."""
