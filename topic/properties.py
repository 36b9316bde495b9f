"""Names of properties in which routers and clients exchange data that AMQP has no field for (protocol 2).

They are link properties unless a comment says otherwise. Routers and our own clients import them from here. Other
clients find them in the protocol's text.
"""

from typing import Final

GENERATION: Final = "oncemesh:generation"
EPOCH: Final = "oncemesh:epoch"
ANSWERS: Final = "oncemesh:answers"
TOLD: Final = "oncemesh:told"
SUBSCRIBERS: Final = "oncemesh:subscribers"  # of a flow
ALONE: Final = "oncemesh:alone"  # of a flow
DEAD: Final = "oncemesh:dead"  # of a router's open: milliseconds
SERVER_LIST: Final = "failover-server-list"  # of a router's open: alternative routers; other brokers use the same name
ROUTERS: Final = "$routers"  # the node that sends the present list of routers
ADDRESS: Final = "x-opt-oncemesh-address"  # message annotation, for subscribers with a pattern: the message's address
MOVE: Final = "oncemesh:move"  # of a message from that node: the client should move to the first router of the list
DEAD_FROM: Final = "x-opt-oncemesh-dead-from"  # of a dead letter: the queue that it is from
DEAD_WHY: Final = "x-opt-oncemesh-dead-why"  # of a dead letter: one of `topic.queues.outgoing.outbox.Why`
DEATHS: Final = "x-opt-oncemesh-deaths"  # of a dead letter: how often the message has been one
