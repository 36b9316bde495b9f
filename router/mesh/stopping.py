"""How a router process is told to end: at once, or when its clients have moved to other routers. For who asks and who
obeys.
"""

import signal
from typing import Final

STOP: Final = signal.SIGTERM
DRAIN: Final = signal.SIGUSR1
APPLY: Final = signal.SIGUSR2
"""Tells a router that the topology in its run directory is what its mesh is to be."""

STOP_S: Final = 5.0
"""For which whoever asked a router to stop waits for its end."""
DRAIN_S: Final = 10.0
"""For which a draining router waits for its clients to be attached elsewhere."""
