"""The addresses of a queue (protocol 14). Clients name a queue by one address. The links of its publishers and of its
consumers have two others, inside the set that has the queue: `_sets/SET/in/QUEUE` and `_sets/SET/out/QUEUE`.
"""

from topic.settings import INSIDE, OUT


def ingress_address(set_: str, queue: str) -> str:
    """The address to which the publishers of a queue publish."""
    return f"{INSIDE}{set_}/in/{queue}"


def egress_address(set_: str, queue: str) -> str:
    """The address from which the consumers of a queue receive."""
    return f"{INSIDE}{set_}{OUT}{queue}"


def queue_of(address: str) -> tuple[str, str]:
    """The set and the queue that one of these addresses names. The name of a set has no slash."""
    _, set_, _, queue = address.split("/", 3)
    return set_, queue


def shown_address(address: str) -> str:
    """The address of a link, as clients name it."""
    return queue_of(address)[1] if address.startswith(INSIDE) else address
