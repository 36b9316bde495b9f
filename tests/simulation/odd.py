"""Oddities, which weaken the world further. Half of the runs have only what `knobs.draw` gives; the others have some of
these.

Oddities are drawn separately from the other knobs. So a seed whose run has no oddity keeps its run when one is added
here.
"""

from collections.abc import Callable, Collection
from math import inf
from random import Random
from typing import Any

import attrs

from tests.simulation.knobs import Knobs
from topic.settings import BackOff

TWO_HOURS = 7200.0
GRACES = (0.0, 1.0, 5.0, 5.0)
"""Seconds; the last is the default of routers."""


def _batch(_: Knobs, random: Random) -> dict[str, Any]:
    return {"batch": random.choice((2, 3, 10))}


def _detach(knobs: Knobs, _: Random) -> dict[str, Any]:
    return {"pranks": (*knobs.pranks, "detach", "detach", "detach"), "restless": max(knobs.restless, 0.3)}


def _small_frames(_: Knobs, random: Random) -> dict[str, Any]:
    return {"room": random.choice((1, 2, 5)), "window": 10}


def _any_order(_: Knobs, random: Random) -> dict[str, Any]:
    return {"reorder": random.choice((0.3, 1.0))}


def _settles_again(_: Knobs, random: Random) -> dict[str, Any]:
    return {"settles_again": random.choice((0.3, 1.0))}


def _gives_up(_: Knobs, random: Random) -> dict[str, Any]:
    return {"gives_up": random.choice((0.3, 1.0)), "restless": 1.0}


def _lifetimes(_: Knobs, random: Random) -> dict[str, Any]:
    return {"lifetimes": random.choice((0.3, 1.0)), "timeouts": random.choice(((2, 5, 20), (20, 60)))}


def _modes(_: Knobs, random: Random) -> dict[str, Any]:
    return {"modes": random.choice((0.3, 1.0))}


def _late_null(_: Knobs, __: Random) -> dict[str, Any]:
    return {"late_null": True, "late": 0.3}


def _drains(_: Knobs, random: Random) -> dict[str, Any]:
    return {"drains": random.choice((0.1, 0.5))}


def _shared(_: Knobs, __: Random) -> dict[str, Any]:
    return {"shared": True}


def _twins(_: Knobs, __: Random) -> dict[str, Any]:
    return {"twins": True}


def _clocks(_: Knobs, random: Random) -> dict[str, Any]:
    return {"clocks": random.choice((0.0005, 0.005))}


def _far_clocks(_: Knobs, __: Random) -> dict[str, Any]:
    return {"skew": TWO_HOURS}


def _set_back(knobs: Knobs, random: Random) -> dict[str, Any]:
    return {"set_back": random.choice((0.5, 1.0)), "store_loss": max(knobs.store_loss, 0.3)}


def _old_stores(_: Knobs, random: Random) -> dict[str, Any]:
    return {"old_store": random.choice((0.3, 1.0)), "durable": random.choice((0.5, 1.0))}


def _deaf(_: Knobs, random: Random) -> dict[str, Any]:
    return {"answering": random.choice((0.0, 0.5))}


def _lingering(_: Knobs, __: Random) -> dict[str, Any]:
    return {"answering": 0.0, "lingering": 0.5}


def _slow(_: Knobs, random: Random) -> dict[str, Any]:
    return {"think": random.choice((5.0, 10.0)), "messages": 10}


def _many(_: Knobs, random: Random) -> dict[str, Any]:
    return {"publishers": random.choice((4, 5)), "subscribers": random.choice((4, 5, 6))}


def _big(_: Knobs, random: Random) -> dict[str, Any]:
    return {"routers": random.choice((6, 7, 8))}


def _long(knobs: Knobs, random: Random) -> dict[str, Any]:
    count = random.choice((10, 20))
    faults = tuple(random.choice(knobs.faults) for _ in range(count)) if knobs.faults else ()
    return {"turmoil": random.choice((20.0, 40.0)), "messages": random.choice((40, 80)), "faults": faults}


def _apart(_: Knobs, random: Random) -> dict[str, Any]:
    """Partitions that are longer than the termini's timeouts."""
    faults = "partition", "partition", random.choice(("stall", "one-sided", "cut silently", "kill"))
    return {"apart": (8.0, 20.0), "timeouts": (2, 5), "turmoil": 25.0, "messages": 25, "faults": faults}


def _narrow(knobs: Knobs, random: Random) -> dict[str, Any]:
    """Links of few bytes a second, and chunks of few bytes, as messages are small; often without another fault."""
    shape = {"rate": random.choice((2e3, 1e4)), "held": random.choice((100, 4000)), "chunk": random.choice((40, 200))}
    shape |= {"budget": random.choice((300, 1000, 1 << 20))}
    return shape | {"messages": 10, "faults": random.choice(((), (), knobs.faults))}


def _few_bytes(_: Knobs, random: Random) -> dict[str, Any]:
    """Windows and connections that hold the bytes of few messages, sometimes of less than one."""
    shape = {"window_bytes": random.choice((10, 20, 50, 100)), "unwritten": random.choice((10, 50, 1000))}
    return shape | {"message": 20, "window": 10, "budget": random.choice((100, 1000, 1 << 20))}


def _plain_cuts(_: Knobs, random: Random) -> dict[str, Any]:
    """Plain clients that stay where they are, and routers that lose each other."""
    faults = tuple(random.choice(("flap", "one-sided", "cut", "pause", "partition")) for _ in range(8))
    restless, pranks = random.choice((0.0, 0.0, 0.1)), ("close", "elsewhere", "again", "break")
    shape = {"messages": 25, "think": random.choice((0.001, 0.5)), "restless": restless, "pranks": pranks}
    return shape | {"plain": random.choice((0.5, 1.0)), "faults": faults}


def _grow(knobs: Knobs, random: Random) -> dict[str, Any]:
    """A plan that changes: routers join, leave and join again, and links change their costs. Each two routers have a
    wire, so no router is left without a link by the plans of two sides of a partition."""
    kinds = ("join", "join", "leave", "leave", "costs")
    changes = tuple(random.choice(kinds) for _ in range(random.choice((2, 4, 8))))
    shape = {"reserve": random.choice((1, 2, 3)), "changes": changes, "never_started": False, "links": 30}
    return shape | {"turmoil": max(knobs.turmoil, 8.0), "messages": max(knobs.messages, 25)}


def _pieces(knobs: Knobs, random: Random) -> dict[str, Any]:
    """Messages that go ahead in pieces, often between routers that have room for less than one message."""
    shape = {"piece": random.choice((3, 8)), "message": 25, "budget": random.choice((10, 50, 1 << 20))}
    return shape | {"rate": random.choice((2e3, 1e4, inf)), "held": 100, "messages": 10}


def _filters(_: Knobs, random: Random) -> dict[str, Any]:
    return {"filters": random.choice((0.01, 0.3, 1.0))}


def _ttl(_: Knobs, random: Random) -> dict[str, Any]:
    """Messages that expire. In half of the runs subscribers are mostly away, or slow."""
    shape = {"ttl": random.choice((0.3, 1.0)), "messages": 25}
    return shape | random.choice(({}, {"think": 2.0, "restless": 1.0, "timeouts": (60,)}))


def _reuse(knobs: Knobs, random: Random) -> dict[str, Any]:
    """Plain publishers with one or two tags, and subscribers that answer no echo."""
    shape = {"reuse": True, "tags": 0, "window": random.choice((1, 1, 2)), "messages": 25, "late": 0.0}
    return shape | {"plain": random.choice((0.3, 0.5, 0.7)), "restless": min(knobs.restless, 0.3)}


def _hasty(knobs: Knobs, random: Random) -> dict[str, Any]:
    """Subscribers that settle with their outcome, often of deliveries whose publisher uses few tags."""
    return {"hasty": random.choice((0.5, 1.0)), "tags": random.choice((0, knobs.tags)), "window": 2, "messages": 25}


def _wildcards(knobs: Knobs, random: Random) -> dict[str, Any]:
    publishers, subscribers = max(knobs.publishers, 3), max(knobs.subscribers, 3)
    return {"wildcards": random.choice((0.3, 0.7, 1.0)), "publishers": publishers, "subscribers": subscribers}


def _balanced(knobs: Knobs, random: Random) -> dict[str, Any]:
    return {"balanced": True, "subscribers": max(knobs.subscribers, random.choice((2, 3, 4)))}


def _rests(knobs: Knobs, random: Random) -> dict[str, Any]:
    """In addition to `balanced`: deliveries rest that subscribers give back."""
    back_off = BackOff(random.choice((0.05, 0.5, 2.0)), random.choice((1, 2, 3)), random.choice((2.0, 4.0)))
    shape = {"back_off": back_off, "refusing": random.choice((0.2, 0.5, 0.8))}
    shape |= {"plain": random.choice((0.0, 0.0, knobs.plain)), "restless": random.choice((0.1, knobs.restless))}
    return _balanced(knobs, random) | shape | {"redeliveries": random.choice((1, 3, 5, 20))}


def _sets(knobs: Knobs, random: Random) -> dict[str, Any]:
    """Replica sets, with clients that declare queues, and few other faults."""
    shape: dict[str, Any] = {"sets": random.choice((1, 1, 2, 3)), "asked": random.choice((5, 15, 40))}
    shape |= {
        "never_started": False,
        "disk": random.choice((0.002, 0.05, 0.2)),
        "disk_loss": random.choice((0.0, 0.0, 0.3, 1.0)),
    }
    kinds = (*knobs.faults, *random.choices(("disk hangs", "disk slows", "kill", "pause", "partition"), k=3))
    shape |= {"faults": kinds if random.random() < 0.9 else (), "turmoil": random.choice((5.0, 8.0, 15.0))}
    return shape | {"publishers": 1, "subscribers": 1, "messages": 10, "late": 0.0}


def _voters(_: Knobs, random: Random) -> dict[str, Any]:
    """In addition to `sets`: operators that choose voters and recover lost sets, and disks that come back."""
    shape: dict[str, Any] = {"voters": random.choice((1, 3, 10)), "rash": random.choice((0.0, 0.0, 0.5))}
    return shape | {"old_disks": random.choice((0.0, 0.3, 1.0))}


def _copies(knobs: Knobs, random: Random) -> dict[str, Any]:
    """In addition to `sets` or `queues`: asynchronous copies, which operators choose, and of which they make sets."""
    return {"copies": random.choice((1, 3, 10)), "faults": (*knobs.faults, "kill")}


def _queues(knobs: Knobs, random: Random) -> dict[str, Any]:
    """Replica sets, with publishers and consumers of their queues."""
    shape, queues = _sets(knobs, random), random.choice((1, 1, 2, 3))
    clients = {
        "publishers": max(queues, random.choice((2, 3, 4))),
        "subscribers": max(queues, random.choice((2, 3, 4))),
    }
    shape |= {"queues": queues, "late": knobs.late}
    shape |= clients | {"messages": random.choice((10, 10, 25)), "asked": random.choice((0, 5))}
    operators = {"purges": random.choice((0, 0, 2, 8)), "settings": random.choice((0, 0, 2, 8))}
    shape |= operators | {"ttl": random.choice((0.0, 0.0, 0.0, 0.3))}
    shape |= {"bound": random.choice((0.0, 0.0, 0.5, 1.0)), "dead_letters": 0.3}
    shape |= {"retries": 4, "single": 0.3, "annotated": 0.5}
    shape["publishers"] += shape["bound"] > 0
    return shape | {"refusing": random.choice((knobs.refusing, 0.1, 0.3, 0.7))}


def _moves(knobs: Knobs, random: Random) -> dict[str, Any]:
    """In addition to `sets` or `queues`: sets whose lead moves, and routers that are about to stop, which end."""
    return {"moves": True, "leaving": random.choice((0, 1, 3, 10)), "faults": (*knobs.faults, "kill")}


def _transactions(knobs: Knobs, random: Random) -> dict[str, Any]:
    """Queues, with consumers that have transactions."""
    return _queues(knobs, random) | {"transactions": random.choice((0.3, 0.7, 1.0))}


ODD: dict[str, Callable[[Knobs, Random], dict[str, Any]]] = {
    "batch": _batch,
    "detach": _detach,
    "small frames": _small_frames,
    "any order": _any_order,
    "settles again": _settles_again,
    "gives up": _gives_up,
    "lifetimes": _lifetimes,
    "modes": _modes,
    "late null": _late_null,
    "drains": _drains,
    "shared": _shared,
    "twins": _twins,
    "clocks": _clocks,
    "far clocks": _far_clocks,
    "set back": _set_back,
    "old stores": _old_stores,
    "deaf": _deaf,
    "lingering": _lingering,
    "slow": _slow,
    "many": _many,
    "big": _big,
    "long": _long,
    "apart": _apart,
    "narrow": _narrow,
    "few bytes": _few_bytes,
    "plain cuts": _plain_cuts,
    "grow": _grow,
    "filters": _filters,
    "ttl": _ttl,
    "pieces": _pieces,
    "reuse": _reuse,
    "hasty": _hasty,
    "wildcards": _wildcards,
    "balanced": _balanced,
    "rests": _rests,
    "sets": _sets,
    "voters": _voters,
    "copies": _copies,
    "moves": _moves,
    "queues": _queues,
    "transactions": _transactions,
}

LIMITS = ("far clocks", "set back")
"""Oddities that run only if they are named: they break a limit (protocol 10), which the judge cannot always tell from a
fault.
"""


LATER = (
    "settles again",
    "gives up",
    "plain cuts",
    "grow",
    "filters",
    "ttl",
    "pieces",
    "reuse",
    "hasty",
    "wildcards",
    "balanced",
    "rests",
    "sets",
    "voters",
    "copies",
    "moves",
    "queues",
    "transactions",
)
"""Oddities that run only if they are named, in tests of their own: so seeds that other tests name keep their runs."""


def weaken(knobs: Knobs, random: Random, names: Collection[str] = ()) -> Knobs:
    """on narrower links they need longer than `join` to send what they know of one attach"""
    drawn = [name for name in ODD if name not in (*LIMITS, *LATER)]
    for name in names or random.sample(drawn, random.choice((0, 0, 0, 0, 0, 1, 1, 1, 2, 4))):
        knobs = attrs.evolve(knobs, **ODD[name](knobs, random))
    if knobs.routers > 5:  # what so many routers send of an attach exceeds `join` on slow links
        knobs = attrs.evolve(knobs, rate=max(knobs.rate, 1e4))
    return attrs.evolve(knobs, grace=random.choice(GRACES))  # drawn last: the seeds that tests name keep their runs
