"""Clients of a mesh, trio-native: a publisher that is told what became of its messages, and a subscriber.

On the same engine as the routers (`router.amqp`), so that they can do what other clients cannot: settle mode second on
both sides, and delivery keys and logs for the audit.
"""

from failover.client.errors import ClientError
from failover.client.outcome import Outcome
from failover.client.publisher import Handle, Publisher
from failover.client.subscriber import Delivery, Subscriber

__all__ = ["ClientError", "Delivery", "Handle", "Outcome", "Publisher", "Subscriber"]
