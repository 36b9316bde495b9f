"""The names of the properties by which routers and clients tell each other what AMQP has no word for (protocol 2).

Of links, but where it says otherwise. Routers and our clients take them from here, other clients from the text.
"""

from typing import Final

GENERATION: Final = "oncemesh:generation"
EPOCH: Final = "oncemesh:epoch"
ANSWERS: Final = "oncemesh:answers"
TOLD: Final = "oncemesh:told"
SUBSCRIBERS: Final = "oncemesh:subscribers"  # of a flow
ALONE: Final = "oncemesh:alone"  # of a flow
DEAD: Final = "oncemesh:dead"  # of a router's open: milliseconds
