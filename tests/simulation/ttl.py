"""Messages of the model that expire if no subscriber has them in time (protocol 5, Time to live).

The judge is strict. If a home ends a message because its time is over, no subscriber has had it by then, and none gets
it later, unless its publisher did not read that outcome and transfers the message again, elsewhere.
`tests.simulation.queue_logs` judges what queues do with messages that expire.
"""

from collections.abc import Sequence
from math import inf
from random import Random
from typing import TYPE_CHECKING

from topic.delivery.record import Record
from topic.home.ttl import OVER

if TYPE_CHECKING:
    from tests.simulation.judge import Judge
    from tests.simulation.parties import Message
    from tests.simulation.publisher_link import PublisherLink
    from tests.simulation.router import Router

START_MS = 1_700_000_000_000
"""The wall clock at the beginning of a run, in milliseconds, if it is not skewed."""
EXPIRED = "its time was over before anybody had it"
"""The cause with which promises end when the publisher reads that the message has expired."""
LIVES = (0.0, 0.1, 0.5, 2.0, 5.0, 20.0)
"""Longest lives of messages, in seconds."""


def draw_until(random: Random, often: float, now: float) -> float:
    """The time at which a message expires that is sent now."""
    return now + random.random() * random.choice(LIVES) if often and random.random() < often else inf


def times_of(link: "PublisherLink", texts: Sequence[bytes]) -> list[float] | None:
    """The times in the form that the core gets with the messages."""
    judge, now = link.router.judge, link.router.schedule.now
    untils = [judge.messages[text].until for text in texts]
    return [until if until > now else OVER for until in untils] if min(untils) < inf else None


def left_ms(message: "Message", wall_ms: float) -> float:
    """The time that a message has left by this wall clock, in milliseconds. Every second message carries a duration,
    which counts from now on. The others carry the time at which they expire."""
    if message.until == inf:
        return inf
    lasts_ms, over_ms = (message.until - message.sent_at) * 1000, START_MS + message.until * 1000
    return max(lasts_ms, 1.0) if message.number % 2 else over_ms - wall_ms


def transferred(judge: "Judge", text: bytes) -> None:
    """A router transfers the message to a subscriber."""
    message = judge.messages[text]
    judge.check(not message.expired, f"2 expired: {text.decode()}, which a home has ended for its time, is given")
    message.was_given = True


def expired(home: "Router", keys: Sequence[bytes]) -> None:
    """A home ends deliveries because their time is over. If a zombie does so, its publisher does not read that."""
    judge = home.judge
    judge.learn_keys(home, keys)
    home.ended_at_once.update(key for key in keys if key not in judge.by_key)
    for message in [judge.by_key[key] for key in keys if key in judge.by_key]:
        if (message.home, message.incarnation) == (home.name, home.incarnation):
            label = message.text.decode()
            judge.check(not message.was_given, f"2 expired: {home.name} ends {label} for its time, which was given")
            judge.check(message.until <= judge.schedule.now, f"2 expired: {home.name} ends {label} before its time")
            message.expired = True


def taken(home: "Router", records: Sequence[Record], texts: Sequence[bytes]) -> None:
    """A home has taken transfers. If it has numbered the key of one of them, and ended this delivery at once, the judge
    learns only now which message has the key."""
    for record, text in zip(records, texts, strict=True) if home.ended_at_once else ():
        if record.key in home.ended_at_once:
            home.ended_at_once.remove(record.key)
            message = home.judge.by_key[record.key] = home.judge.messages[text]
            is_right = home.judge.lives.is_numbered(message, record.key)
            home.judge.check(is_right, f"1 key: {text.decode()} has another key")
            expired(home, [record.key])
    home.judge.check(not home.ended_at_once, f"2 expired: {home.name} ends what nobody has sent")


def informed(judge: "Judge", message: "Message") -> None:
    """The publisher reads the outcome of the message."""
    for name in sorted(message.promised) if message.expired else ():
        judge.ends(message, name, EXPIRED)
