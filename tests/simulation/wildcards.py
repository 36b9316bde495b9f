"""Subscribers of the model with patterns, among addresses of two words.

The judge decides itself, word by word, whether a pattern covers an address, without the core.
"""

from random import Random

ADDRESSES = ("topic/eu.fr", "topic/eu.de", "topic/us.ny")
PATTERNS = ("topic/eu.*", "topic/*.fr", "topic/*.*", "topic/eu.#", "topic/#", "topic/us.*", "topic/us.ny.#")


def draw_address(random: Random) -> str:
    return random.choice(ADDRESSES)


def draw_subscription(random: Random, patterns: float) -> str:
    """A pattern with this probability, else an address."""
    return random.choice(PATTERNS) if random.random() < patterns else random.choice(ADDRESSES)


def covers(subscription: str, address: str) -> bool:
    """Whether a subscriber with this subscription gets the messages of the address."""
    wanted, words = _words(subscription), _words(address)
    if wanted[-1] == "#":
        wanted, words = wanted[:-1], words[: len(wanted) - 1]
    same = (one in ("*", other) for one, other in zip(wanted, words, strict=False))
    return len(wanted) == len(words) and all(same)


def _words(address: str) -> list[str]:
    return address.replace("/", ".").split(".")
