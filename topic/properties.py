"""Names of properties in which routers and clients exchange data that AMQP has no field for (protocol 2).

They are link properties unless a comment says otherwise. Routers and our own clients import them from here. Other
clients find them in the protocol's text.
"""

from typing import Final

GENERATION: Final = "oncemesh:generation"
EPOCH: Final = "oncemesh:epoch"
ANSWERS: Final = "oncemesh:answers"
TOLD: Final = "oncemesh:told"
SUBSCRIBERS: Final = "oncemesh:subscribers"  # property of a flow
ALONE: Final = "oncemesh:alone"  # property of a flow
DEAD: Final = "oncemesh:dead"  # property of a router's open: milliseconds
SERVER_LIST: Final = "failover-server-list"  # of a router's open: alternative routers; other brokers use this name, too
ROUTERS: Final = "$routers"  # the node that sends the present list of routers
ADDRESS: Final = "x-opt-oncemesh-address"  # message annotation, for subscribers with a pattern: the message's address
MOVE: Final = "oncemesh:move"  # property of a message from that node: the client should move to the list's first router
DELIVERY_TIME: Final = "x-opt-delivery-time"  # annotation, as at other brokers: consumers get the message no earlier
DEAD_FROM: Final = "x-opt-oncemesh-dead-from"  # annotation of a dead letter: the queue that it is from
DEAD_FIRST: Final = "x-opt-oncemesh-dead-first"  # annotation of a dead letter: the queue of its first death
DEAD_AT: Final = "x-opt-oncemesh-dead-at"  # annotation of a dead letter: when its queue gave it away
DEAD_WHY: Final = "x-opt-oncemesh-dead-why"  # annotation of a dead letter: one of `topic.queues.outgoing.outbox.Why`
DEATHS: Final = "x-opt-oncemesh-deaths"  # annotation of a dead letter: how often the message has been one
