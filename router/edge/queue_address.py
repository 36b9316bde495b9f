"""Maps the address of a client's link to a queue to the address inside the replica set that has the queue (protocol
14)."""

from router.amqp.format.errors import INVALID_FIELD, NOT_FOUND, NOT_IMPLEMENTED
from router.edge.attach import Refusal
from topic.directory.addresses import is_pattern
from topic.identity import egress_address, ingress_address
from topic.node import Node
from topic.queues.operations import MOST_NAME


def address_inside(node: Node, address: str, *, receives: bool) -> str:
    """The address in the mesh for a client's link to `address`. It differs from `address` only for queues. Raises
    `Refusal` if no queue can have this name."""
    if not node.topic.kinds.of(address).in_sets:
        return address
    assert node.sets is not None, "a mesh with such addresses has replica sets"
    if is_pattern(address):
        raise Refusal(NOT_IMPLEMENTED, f"{address!r} is a pattern, and a link is to one queue")
    if len(address.encode()) > MOST_NAME:
        raise Refusal(INVALID_FIELD, f"the name of a queue: expected {MOST_NAME} bytes at most")
    plan = node.sets.set_map.plan_of(address)
    if plan is None:
        prefixes = ", ".join(prefix + "…" for prefix in node.sets.set_map.prefixes)
        raise Refusal(NOT_FOUND, f"no replica set has a queue {address!r}: expected an address of {prefixes}")
    return (egress_address if receives else ingress_address)(plan.name, address)
