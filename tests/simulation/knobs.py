"""The values that a seed draws before its run: sizes, speeds, and rates of faults."""

from math import inf
from random import Random

import attrs

from linkstate.chunks import CHUNK
from topic.settings import BackOff

FORGET = 100.0
"""Seconds after which a router gives up what it keeps for a link, even if routers are missing. Longer than any
partition.
"""


@attrs.frozen
class Knobs:
    routers: int
    links: int
    """Links between routers, beyond those that connect the mesh."""
    addresses: int
    publishers: int
    subscribers: int
    messages: int
    """The number of messages that each publisher sends, in all its lives together."""
    window: int
    redeliveries: int
    boot_wait: float
    delay: float
    """Longest time, in seconds, for which bytes are under way between routers."""
    client_delay: float
    busy: float
    """How often a router handles more events before it flushes."""
    dead: float
    """Silence after which a neighbour is lost; HELLOs come four times as often."""
    skew: float
    """Wall clocks are off by at most this, in seconds."""
    think: float
    """Longest time that a subscriber takes for a message, in seconds."""
    patience: float
    """Longest pause between two actions of a client, in seconds."""
    tags: int
    """The size of the pool, beyond its window, from which a publisher draws its tags."""
    plain: float
    """The share of plain clients, which never resume."""
    durable: float
    """The share of the other clients that keep their maps over a crash, and ask routers for durable termini."""
    silent: float
    """The share of publishers that echo neither generation nor epoch."""
    partial: float
    """How often a client's unsettled map does not fit into its attach (incomplete-unsettled)."""
    late: float
    """How often an attach with a map, and what follows it on the link, is under way for seconds while its client goes
    elsewhere. In a run with late attaches no delivery-tag is used again: when a router reads the map, it may name
    deliveries that are forgotten (protocol 10)."""
    timeouts: tuple[int, ...]
    """The timeouts, in seconds, that resuming clients ask for."""
    refusing: float
    """How often a subscriber does not accept."""
    presettled: float
    early: float
    """How often a publisher settles before the outcome."""
    first: float
    """The share of links with receiver settle mode first."""
    settled: float
    """The share of subscribers that take everything settled."""
    restless: float
    """How often a client closes, vanishes, crashes or moves, per second."""
    pranks: tuple[str, ...]
    """The pranks that clients draw from; a prank that is listed more often comes more often."""
    quitting: float
    """How often a client does not come back after a prank."""
    faults: tuple[str, ...]
    """The faults of routers and of their links."""
    restart: float
    """How often a killed router is started again before the faults stop."""
    store_loss: float
    """How often a killed router has lost its store when it starts again."""
    never_started: bool
    turmoil: float
    """Seconds until the faults stop."""

    # values that are drawn separately, or that `odd` sets in some runs

    grace: float = 0.0
    """Seconds for which homes wait for plain subscribers of a router out of contact."""

    batch: int = 1
    """How many deliveries a publisher settles at once; fewer if it has waited for long enough."""
    room: int = 1000
    """The most entries of a router's unsettled map that fit into the client's frames."""
    reorder: float = 0.0
    """How often a publisher transfers its deliveries again in another order, or sends something new in between."""
    settles_again: float = 0.0
    """How often a publisher settles a delivery by transferring it again settled."""
    gives_up: float = 0.0
    """How often a publisher aborts the transfer of a delivery of its map that the router does not list."""
    lifetimes: float = 0.0
    """How often a client that resumes asks for another timeout than on its last attach."""
    modes: float = 0.0
    """The share of resuming clients that change their settle modes between attaches."""
    late_null: bool = False
    """Attaches with a null map may be under way for seconds, too."""
    drains: float = 0.0
    """How often a subscriber that grants credit has its link drained, or takes credit back."""
    shared: bool = False
    """All clients are in one of two containers, whose links share a connection: a fault that breaks one link breaks
    all.
    """
    twins: bool = False
    """The first publisher and the first subscriber have a twin: a second process under the same name."""
    clocks: float = 0.0
    """How often a router's wall clock is set, for each event."""
    hasty: float = 0.0
    """The share of subscribers that settle each delivery with its outcome, although they may be in settle mode
    second."""
    reuse: bool = False
    """Plain publishers use a tag again as soon as they have settled its last delivery, and subscribers answer no echo
    until the faults stop."""
    set_back: float = 0.0
    """How often a router that starts without its store finds its clock, and so its incarnation, set back."""
    old_store: float = 0.0
    """How often a router starts with an older copy of its store."""
    answering: float = 1.0
    """The share of publishers that say that they answer echoes, and do. Every other one of the rest answers, too."""
    lingering: float = 0.0
    """The share of the other publishers that leave their socket open when they attach elsewhere (protocol 10)."""
    rate: float = inf
    """Bytes a second that a link between routers carries in each direction."""
    held: int = 1
    """The bytes that such a link takes at once."""
    chunk: int = CHUNK
    """The bytes of a payload in one frame."""
    budget: int = 1 << 20
    """The bytes that may queue on their way to a router before it counts as full."""
    window_bytes: int = 1 << 20
    """The bytes of a publisher's messages that may be unsettled. A single message may have any size."""
    unwritten: int = 1 << 20
    """The bytes of messages that a router gives to a client's connection before the connection has written any. One
    message may have any size.
    """
    piece: int = 65_000
    """The bytes of a piece. A message with more bytes than two pieces goes ahead in pieces."""
    message: int = 1
    """The least bytes of a message."""
    reserve: int = 0
    """Routers that may join the mesh later."""
    changes: tuple[str, ...] = ()
    """The changes that operators make to the plan: join, leave, costs."""
    ttl: float = 0.0
    """The share of messages that expire if no subscriber has them in time."""
    filters: float = 0.0
    """How often a subscriber that attaches asks for another filter than before. If 0, no subscriber has a filter."""
    wildcards: float = 0.0
    """The share of subscribers with a pattern. If it is not 0, addresses have two words."""
    balanced: bool = False
    """Addresses are balanced."""
    back_off: BackOff | None = None
    """The pauses of these addresses. If None, deliveries do not rest."""
    sets: int = 0
    """The number of hashed replica sets. If 0, the mesh has no queues."""
    queues: int = 0
    """The number of queues that have clients. A mesh with queues has sets."""
    purges: int = 0
    """How often an operator purges a queue that has clients."""
    settings: int = 0
    """How often an operator changes the settings of such a queue."""
    bound: float = 0.0
    """The share of these queues that are bound to topics, now and then at least."""
    dead_letters: float = 0.0
    """The share of runs in which queues give their dead letters to each other, now and then at least."""
    retries: int = 0
    """How often, in such a run, an operator sends dead letters of a queue back."""
    single: float = 0.0
    """The share of these queues that have a single active consumer, now and then at least."""
    annotated: float = 0.0
    """How often a consumer that modifies a message of a queue adds annotations to it."""
    transactions: float = 0.0
    """How often a consumer of a queue answers a message in a transaction."""
    asked: int = 0
    """How often clients ask for queues."""
    disk: float = 0.02
    """Longest time that a disk of replica sets takes for a write."""
    disk_loss: float = 0.0
    """How often a router that starts again has a new, empty disk for its replica sets."""
    old_disks: float = 0.0
    """How often a router that starts again has an older copy of that disk."""
    voters: int = 0
    """How often operators choose other voters for a set."""
    rash: float = 0.0
    """In a run with such operators: how often one recovers a set that is not lost."""
    copies: int = 0
    """How often operators choose other asynchronous copies of a set. If it is 0, no set has a copy."""
    leaving: int = 0
    """How often a router is about to stop, and hands over the sets that it leads."""
    moves: bool = False
    """Whether sets have policies by which their lead moves."""
    apart: tuple[float, ...] = (2.0, 4.0, 8.0)
    """Longest times for which partitions last."""


FAULTS = ("kill", "pause", "cut", "cut silently", "stall", "one-sided", "partition", "flap", "slow", "kill all")
PRANKS = ("close", "vanish", "break", "elsewhere", "elsewhere", "stalled", "again", "crash", "sleep")


def draw(random: Random) -> Knobs:
    """Draw the knobs. Most runs are calm in most respects, so each fault occurs both with and without the others."""

    def often(value: float) -> float:
        return value if random.random() < 0.3 else 0.0

    quitting = often(0.2)
    kinds = random.sample(FAULTS, random.choice((1, 2, 2, 3, 5)))
    return Knobs(
        routers=random.choice((3, 3, 3, 4, 4, 5)),
        links=random.choice((0, 1, 2, 10)),
        addresses=random.choice((1, 1, 1, 2)),
        publishers=random.choice((2, 2, 3)),
        subscribers=random.choice((2, 2, 3)),
        messages=random.choice((10, 10, 15, 25)),
        window=random.choice((1, 2, 3, 5, 10)),
        redeliveries=random.choice((1, 2, 5)),
        boot_wait=random.choice((0.5, 3.0, 10.0)),
        delay=random.choice((0.001, 0.01, 0.05, 0.2)),
        client_delay=random.choice((0.001, 0.02, 0.1)),
        busy=random.choice((0.0, 0.0, 0.5, 0.9)),
        dead=random.choice((1.0, 2.0)),
        skew=random.choice((0.0, 0.0, 0.5, 60.0)),
        think=random.choice((0.001, 0.05, 0.5, 2.0)),
        patience=random.choice((0.05, 0.2, 0.5)),
        tags=random.choice((0, 1, 1000)),
        plain=random.choice((0.0, 0.0, 0.3, 1.0)),
        durable=random.choice((0.0, 0.5, 1.0)),
        silent=random.choice((0.0, 0.0, 0.5)),
        timeouts=(2, 5) if quitting else random.choice(((2, 5, 20), (60,))),
        refusing=often(0.3),
        presettled=often(0.3),
        early=often(0.2),
        first=often(0.3),
        settled=often(0.2),
        pranks=PRANKS,
        restless=random.choice((0.0, 0.1, 0.3, 1.0)),
        quitting=quitting,
        faults=tuple(random.choice(kinds) for _ in range(random.choice((3, 3, 4, 6)))),
        restart=random.choice((0.5, 0.9)),
        store_loss=random.choice((0.0, 0.0, 0.3, 1.0)),
        never_started=random.random() < 0.05,
        turmoil=random.choice((3.0, 5.0, 8.0)),
        partial=often(0.5),
        late=often(0.3),
    )
