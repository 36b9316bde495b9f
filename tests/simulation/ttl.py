"""Messages of the model that have to be had by somebody in time (protocol 5, Time to live).

The judge is strict: what a home ends for its time was given to nobody by then, and is given to nobody afterwards,
unless its publisher never read of that and transfers it again, elsewhere. What queues do with such messages, their
judge sees (`tests.simulation.queue_logs`).
"""

from collections.abc import Sequence
from math import inf
from random import Random
from typing import TYPE_CHECKING

from topic.home.ttl import OVER

if TYPE_CHECKING:
    from tests.simulation.judge import Judge
    from tests.simulation.parties import Message
    from tests.simulation.publisher_link import PublisherLink
    from tests.simulation.router import Router

START_MS = 1_700_000_000_000
"""The wall clock at the beginning of a run, where it is right, in milliseconds."""
EXPIRED = "its time was over before anybody had it"
"""Why promises end when the publisher reads that."""
LIVES = (0.0, 0.1, 0.5, 2.0, 5.0, 20.0)
"""Longest times of messages, in seconds."""


def draw_until(random: Random, often: float, now: float) -> float:
    """By when a message has to be had that is sent now."""
    return now + random.random() * random.choice(LIVES) if often and random.random() < often else inf


def times_of(link: "PublisherLink", texts: Sequence[bytes]) -> list[float] | None:
    """For the core, as the messages come to a router."""
    judge, now = link.router.judge, link.router.schedule.now
    untils = [judge.messages[text].until for text in texts]
    return [until if until > now else OVER for until in untils] if min(untils) < inf else None


def left_ms(message: "Message", wall_ms: float) -> float:
    """How long a message has still to live by this wall clock, in milliseconds. Each second message says how long it
    lives, which counts from now on. The others say when their time is over."""
    if message.until == inf:
        return inf
    lasts_ms, over_ms = (message.until - message.sent_at) * 1000, START_MS + message.until * 1000
    return max(lasts_ms, 1.0) if message.number % 2 else over_ms - wall_ms


def transferred(judge: "Judge", text: bytes) -> None:
    """A router gives the message to a subscriber."""
    message = judge.messages[text]
    judge.check(not message.expired, f"2 expired: {text.decode()}, which a home has ended for its time, is given")
    message.was_given = True


def expired(home: "Router", keys: Sequence[bytes]) -> None:
    """A home ends deliveries for their time; what a zombie does so, its publisher does not read."""
    judge = home.judge
    for message in [judge.by_key[key] for key in keys]:
        if (message.home, message.incarnation) == (home.name, home.incarnation):
            label = message.text.decode()
            judge.check(not message.was_given, f"2 expired: {home.name} ends {label} for its time, which was given")
            judge.check(message.until <= judge.schedule.now, f"2 expired: {home.name} ends {label} before its time")
            message.expired = True


def informed(judge: "Judge", message: "Message") -> None:
    """The publisher reads what became of the message."""
    for name in sorted(message.promised) if message.expired else ():
        judge.ends(message, name, EXPIRED)
