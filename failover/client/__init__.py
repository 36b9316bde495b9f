"""Clients of a mesh: a publisher, which learns the outcome of each message, and a subscriber.

`Publisher` and `Subscriber` are for trio. Programs without trio have the same clients with other faces
(`failover.client.threaded`): `AsyncioPublisher`, `BlockingPublisher` and so on.

Both resume: their links outlive routers, connections and, with a store, their own process. They use the same AMQP
engine as the routers (`router.amqp`). So they have features that other clients lack: unsettled maps, settle mode second
on both sides, and delivery keys and logs for the audit.
"""

from failover.client.delivery import Delivery
from failover.client.errors import ClientError, StateError
from failover.client.handle import Handle
from failover.client.link_events import MISSED, Abandoned, Connected, Event, Lost, Resumed, Searching
from failover.client.outcome import Outcome
from failover.client.publisher import Publisher
from failover.client.state.store import MemoryStore, SqliteStore, Store
from failover.client.subscriber import Subscriber
from failover.client.threaded.aio import AsyncioDelivery, AsyncioHandle, AsyncioPublisher, AsyncioSubscriber
from failover.client.threaded.blocking import (
    BlockingDelivery,
    BlockingHandle,
    BlockingPublisher,
    BlockingSubscriber,
)
from router.amqp.format.errors import AmqpError
from router.amqp.sasl.credentials import Credentials

__all__ = [
    "MISSED",
    "Abandoned",
    "AmqpError",
    "AsyncioDelivery",
    "AsyncioHandle",
    "AsyncioPublisher",
    "AsyncioSubscriber",
    "BlockingDelivery",
    "BlockingHandle",
    "BlockingPublisher",
    "BlockingSubscriber",
    "ClientError",
    "Connected",
    "Credentials",
    "Delivery",
    "Event",
    "Handle",
    "Lost",
    "MemoryStore",
    "Outcome",
    "Publisher",
    "Resumed",
    "Searching",
    "SqliteStore",
    "StateError",
    "Store",
    "Subscriber",
]
