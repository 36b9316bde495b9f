"""Names of the properties in which routers and clients exchange data for which AMQP has no field (protocol 2).

They are link properties unless a comment says otherwise. Routers, and the clients of this project, import them from
here. Authors of other clients find them in docs/protocol.md.
"""

from typing import Final

GENERATION: Final = "oncemesh:generation"
EPOCH: Final = "oncemesh:epoch"
ANSWERS: Final = "oncemesh:answers"
TOLD: Final = "oncemesh:told"
SUBSCRIBERS: Final = "oncemesh:subscribers"  # a property of a flow frame: how many subscribers the address has
ALONE: Final = "oncemesh:alone"  # a property of a flow frame: how many deliveries were accepted without a subscriber
DEAD: Final = "oncemesh:dead"  # a property of the open frame of a router: `timing.dead` of its mesh, in milliseconds
# A property of the open frame of a router: the alternative routers. Other brokers use this name, too.
SERVER_LIST: Final = "failover-server-list"
ROUTERS: Final = "$routers"  # the address of the node that sends clients the list of routers
# A message annotation for subscribers with a pattern: the address of the message.
ADDRESS: Final = "x-opt-oncemesh-address"
# A property of a message from `$routers`: asks the client to move to the first router of the list.
MOVE: Final = "oncemesh:move"
# The capability of a queue that heeds `DELIVERY_TIME`.
DELAYED_DELIVERY: Final = "DELAYED_DELIVERY"
# A message annotation that other brokers use, too: the earliest time at which consumers get the message.
DELIVERY_TIME: Final = "x-opt-delivery-time"
# An annotation of a dead letter: the queue that gave it away.
DEAD_FROM: Final = "x-opt-oncemesh-dead-from"
# An annotation of a dead letter: the queue of which it first became a dead letter.
DEAD_FIRST: Final = "x-opt-oncemesh-dead-first"
# An annotation of a dead letter: the time at which its queue gave it away.
DEAD_AT: Final = "x-opt-oncemesh-dead-at"
# An annotation of a dead letter: the reason, one of `topic.queues.outgoing.outbox.Why`.
DEAD_WHY: Final = "x-opt-oncemesh-dead-why"
# Annotations of a dead letter that a consumer has rejected with an error: its condition and its description.
DEAD_ERROR: Final = "x-opt-oncemesh-dead-error"
DEAD_DESCRIPTION: Final = "x-opt-oncemesh-dead-description"
# An annotation of a dead letter: how often the message has become a dead letter.
DEATHS: Final = "x-opt-oncemesh-deaths"
