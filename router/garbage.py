"""Python's search for cycles of garbage, in processes that carry messages."""

import gc


def tame() -> None:
    """What comes and goes with messages is freed by reference counts alone; only connections leave cycles, and they are
    few. Looking for cycles every 700 objects costs a third of a message's time, and stalls of 100 ms."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
