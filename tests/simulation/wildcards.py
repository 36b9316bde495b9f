"""Subscribers of the model that are subscribed to patterns, among addresses of two words.

What a pattern covers is the judge's own word by word, not the core's.
"""

from random import Random

ADDRESSES = ("topic/eu.fr", "topic/eu.de", "topic/us.ny")
PATTERNS = ("topic/eu.*", "topic/*.fr", "topic/*.*", "topic/eu.#", "topic/#", "topic/us.*", "topic/us.ny.#")


def draw_address(random: Random) -> str:
    return random.choice(ADDRESSES)


def draw_subscription(random: Random, patterns: float) -> str:
    """A pattern, so often; else an address."""
    return random.choice(PATTERNS) if random.random() < patterns else random.choice(ADDRESSES)


def covers(subscription: str, address: str) -> bool:
    """Whether who is subscribed to the one is to get what is published to the other."""
    wanted, words = _words(subscription), _words(address)
    if wanted[-1] == "#":
        wanted, words = wanted[:-1], words[: len(wanted) - 1]
    same = (one in ("*", other) for one, other in zip(wanted, words, strict=False))
    return len(wanted) == len(words) and all(same)


def _words(address: str) -> list[str]:
    return address.replace("/", ".").split(".")
