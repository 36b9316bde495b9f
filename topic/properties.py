"""The names of the properties by which routers and clients exchange what AMQP has no field for (protocol 2).

They are link properties unless a comment says otherwise. Routers and our clients import them from here; other clients
take them from the protocol's text.
"""

from typing import Final

GENERATION: Final = "oncemesh:generation"
EPOCH: Final = "oncemesh:epoch"
ANSWERS: Final = "oncemesh:answers"
TOLD: Final = "oncemesh:told"
SUBSCRIBERS: Final = "oncemesh:subscribers"  # of a flow
ALONE: Final = "oncemesh:alone"  # of a flow
DEAD: Final = "oncemesh:dead"  # of a router's open: milliseconds
SERVER_LIST: Final = "failover-server-list"  # of a router's open: others to go to, as other makes have it, too
ROUTERS: Final = "$routers"  # the node that tells the same, as it is now
ADDRESS: Final = "x-opt-oncemesh-address"  # of a message, in its annotations: for who has subscribed to a pattern
MOVE: Final = "oncemesh:move"  # of a message from there: its reader is asked to go to the first of them
DEAD_FROM: Final = "x-opt-oncemesh-dead-from"  # of a dead letter: its queue
DEAD_WHY: Final = "x-opt-oncemesh-dead-why"  # one of `topic.queues.outgoing.outbox.Why`
DEATHS: Final = "x-opt-oncemesh-deaths"  # how often it was a dead letter
