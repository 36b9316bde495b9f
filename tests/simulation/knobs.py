"""What one seed draws before the run begins: size, speed, and how often what goes wrong."""

from math import inf
from random import Random

import attrs

from linkstate.chunks import CHUNK

FORGET = 100.0
"""Seconds after which what is kept for a link is given up though routers are missing; longer than any partition."""


@attrs.frozen
class Knobs:
    routers: int
    links: int
    """Between routers, beyond those that hold the mesh together."""
    addresses: int
    publishers: int
    subscribers: int
    messages: int
    """Each publisher sends that many, all its lives together."""
    window: int
    redeliveries: int
    boot_wait: float
    delay: float
    """Longest time that bytes are under way between routers."""
    client_delay: float
    busy: float
    """How often a router handles more events before it flushes."""
    dead: float
    """Silence after which a neighbour is lost; HELLOs come four times as often."""
    skew: float
    """Wall clocks are off by at most this, in seconds."""
    think: float
    """Longest time a subscriber takes over a message."""
    patience: float
    """Longest pause between what a client does."""
    tags: int
    """A publisher draws its tags from a pool of that size beyond its window."""
    plain: float
    """How many clients are plain ones, which never resume."""
    durable: float
    """How many of the others keep their maps over a crash, and ask routers to."""
    silent: float
    """How many publishers echo neither generation nor epoch."""
    partial: float
    """How often a client's unsettled map does not fit into its attach (incomplete-unsettled)."""
    late: float
    """How often an attach with a map, and what follows it, is under way for seconds; its client goes elsewhere by then.
    Delivery-tags are not used again in such a run: the map may name what is forgotten when it is read (protocol 10)."""
    timeouts: tuple[int, ...]
    """What clients that resume ask for their termini, in seconds."""
    refusing: float
    """How often a subscriber does not accept."""
    presettled: float
    early: float
    """How often a publisher settles before the outcome."""
    first: float
    """How many links are of receiver settle mode first."""
    settled: float
    """How many subscribers take everything settled."""
    restless: float
    """How often a client closes, vanishes, crashes or moves, per second."""
    pranks: tuple[str, ...]
    """Which of these, by their share."""
    quitting: float
    """How often such a client does not come back."""
    faults: tuple[str, ...]
    """What happens to routers and their links."""
    restart: float
    """How often a killed router is started again before the faults stop."""
    store_loss: float
    """How often it has lost its store by then."""
    never_started: bool
    turmoil: float
    """Seconds until the faults stop."""

    # what is drawn apart, or set in some runs by `odd`

    grace: float = 0.0
    """Seconds for which homes wait for plain subscribers of a router out of contact."""

    batch: int = 1
    """A publisher settles so many at once, or what there is when it has waited for long enough."""
    room: int = 1000
    """So many entries of a router's unsettled map fit into its client's frames."""
    reorder: float = 0.0
    """How often a publisher transfers again in another order, or something new in between."""
    settles_again: float = 0.0
    """How often a publisher settles what it transfers again by that transfer."""
    gives_up: float = 0.0
    """How often a publisher aborts the transfer of a delivery of its map that the router does not list."""
    lifetimes: float = 0.0
    """How often a client that resumes asks for another timeout than on its last attach."""
    modes: float = 0.0
    """How many clients that resume change their settle modes between attaches."""
    late_null: bool = False
    """Attaches with a null map may be under way for seconds, too."""
    drains: float = 0.0
    """How often a subscriber that grants credit has its link drained, or takes credit back."""
    shared: bool = False
    """All clients are in one of two containers, whose links share a connection: what breaks one breaks all."""
    twins: bool = False
    """There are two of the first publisher and of the first subscriber: processes that go by one name."""
    clocks: float = 0.0
    """How often a router's wall clock is set anew, by event."""
    set_back: float = 0.0
    """How often a router that starts without its store finds its clock, and with that its incarnation, set back."""
    old_store: float = 0.0
    """How often a store that a router starts with is an older copy of itself."""
    answering: float = 1.0
    """How many publishers say that they answer echoes, and do. Of the others every other one does."""
    lingering: float = 0.0
    """How many of the others leave their socket open when they attach elsewhere (protocol 10)."""
    rate: float = inf
    """Bytes a second that a link between routers carries in each direction."""
    held: int = 1
    """Bytes that such a link is given at once."""
    chunk: int = CHUNK
    """Bytes of a payload that travel in one frame."""
    budget: int = 1 << 20
    """Bytes that may queue on their way to a router before it counts as full."""
    window_bytes: int = 1 << 20
    """So many bytes of a publisher's messages may be unsettled, or one message."""
    unwritten: int = 1 << 20
    """Bytes of messages that a router gives to a client's connection before that has written any; or one message."""
    piece: int = 65_000
    """Bytes in each of the pieces in which a message goes ahead that has more than two of them."""
    message: int = 1
    """Bytes that a message has at least."""
    reserve: int = 0
    """Routers that the mesh does not have, and may be given."""
    changes: tuple[str, ...] = ()
    """What operators do to the plan: join, leave, costs."""
    ttl: float = 0.0
    """How many messages have to be had by somebody in time."""
    filters: float = 0.0
    """How often a subscriber that attaches asks for another filter than before; without it, none has any."""
    wildcards: float = 0.0
    """How many subscribers are subscribed to a pattern; with it, addresses have two words."""
    balanced: bool = False
    """Addresses are balanced."""
    sets: int = 0
    """Hashed replica sets; without any, the mesh has no queues."""
    queues: int = 0
    """So many queues have clients. There are sets then."""
    purges: int = 0
    """How often an operator purges a queue that has clients."""
    settings: int = 0
    """How often an operator changes the settings of such a queue."""
    bound: float = 0.0
    """How many of these queues are bound to topics, now and then at least."""
    dead_letters: float = 0.0
    """In how many runs queues give their dead letters to each other, now and then at least."""
    retries: int = 0
    """How often, in such a run, an operator has dead letters of a queue go back."""
    single: float = 0.0
    """How many of these queues have a single active consumer, now and then at least."""
    annotated: float = 0.0
    """How often a consumer of a queue that modifies a message adds something to it."""
    asked: int = 0
    """How often clients ask for queues."""
    disk: float = 0.02
    """Longest time that a disk of replica sets takes for a write."""
    disk_loss: float = 0.0
    """How often a router that starts again has another disk for its replica sets, an empty one."""
    old_disks: float = 0.0
    """How often it has an older copy of that disk."""
    voters: int = 0
    """How often operators choose other voters for a set."""
    rash: float = 0.0
    """How often, by run with such operators, one recovers a set that is not lost."""
    apart: tuple[float, ...] = (2.0, 4.0, 8.0)
    """Longest times for which partitions last."""


FAULTS = ("kill", "pause", "cut", "cut silently", "stall", "one-sided", "partition", "flap", "slow", "kill all")
PRANKS = ("close", "vanish", "break", "elsewhere", "elsewhere", "stalled", "again", "crash", "sleep")


def draw(random: Random) -> Knobs:
    """A swarm: most runs are calm in most respects, so that one fault is seen with and without the others."""

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
