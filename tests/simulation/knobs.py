"""What one seed draws before the run begins: size, speed, and how often what goes wrong."""

from random import Random

import attrs


@attrs.frozen
class Knobs:
    routers: int
    addresses: int
    publishers: int
    subscribers: int
    messages: int
    """Each publisher sends that many, all its lives together."""
    window: int
    redeliveries: int
    boot_wait: float
    delay: float
    """Longest time a batch is under way between routers."""
    client_delay: float
    busy: float
    """How often a router handles more events before it flushes."""
    greet: float
    """Longest time until routers that can reach each other greet."""
    dead: float
    """Longest time until a loss is noticed."""
    skew: float
    """Wall clocks are off by at most this, in seconds."""
    think: float
    """Longest time a subscriber takes over a message."""
    patience: float
    """Longest pause between what a client does."""
    tags: int
    """A publisher draws its tags from a pool of that size beyond its window."""
    refusing: float
    """How often a subscriber does not accept."""
    presettled: float
    early: float
    """How often a publisher settles before the outcome."""
    restless: float
    """How often a client closes, vanishes or moves, per second."""
    quitting: float
    """How often such a client does not come back."""
    kills: int
    partitions: int
    flaps: int
    slowdowns: int
    never_started: bool
    turmoil: float
    """Seconds until the faults stop."""


def draw(random: Random) -> Knobs:
    """A swarm: most runs are calm in most respects, so that one fault is seen with and without the others."""

    def often(value: float) -> float:
        return value if random.random() < 0.5 else 0.0

    def times(most: int) -> int:
        return random.randint(1, most) if random.random() < 0.4 else 0

    routers = random.choice((1, 2, 2, 3, 3, 3, 4))
    return Knobs(
        routers=routers,
        addresses=random.choice((1, 1, 1, 2)),
        publishers=random.randint(1, 3),
        subscribers=random.choice((1, 1, 2, 2, 3, 4, 8)),
        messages=random.choice((3, 8, 20, 40)),
        window=random.choice((1, 2, 3, 5, 10)),
        redeliveries=random.choice((1, 2, 5)),
        boot_wait=random.choice((0.5, 3.0, 10.0)),
        delay=random.choice((0.001, 0.02, 0.1, 0.4)),
        client_delay=random.choice((0.001, 0.02, 0.1)),
        busy=random.choice((0.0, 0.5, 0.9)),
        greet=random.choice((0.01, 0.2, 1.0)),
        dead=random.choice((0.05, 1.0)),
        skew=random.choice((0.0, 0.0, 0.5, 60.0)),
        think=random.choice((0.001, 0.05, 0.5, 2.0)),
        patience=random.choice((0.01, 0.1, 0.5)),
        tags=random.choice((0, 1, 1000)),
        refusing=often(0.3),
        presettled=often(0.3),
        early=often(0.2),
        restless=random.choice((0.0, 0.1, 0.3, 1.0)),
        quitting=often(0.2),
        kills=times(4),
        partitions=times(3),
        flaps=times(10),
        slowdowns=times(3),
        never_started=routers > 1 and random.random() < 0.1,
        turmoil=random.choice((2.0, 5.0, 10.0)),
    )
