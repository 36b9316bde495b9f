"""Random input of every kind that a router or a tool reads from strangers: nothing crashes, grows, or touches others.

    python -m tests.fuzz --seconds 60 --seed 1 frames maps odd wrong routers logs yaml

A round is drawn from its seed alone, and is played in this process without a socket or a clock; so a number says it
all. What is not here: processes and kernels (`tests/processes/test_bad_input.py`).
"""

from tests import engine

engine.let_faults_through()
