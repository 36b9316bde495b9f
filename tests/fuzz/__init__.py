"""Random input of every kind that a router or a tool reads from strangers. It must crash nothing, make nothing grow,
and touch no other client.

    python -m tests.fuzz --seconds 60 --seed 1 frames maps queues shared odd wrong routers logs yaml

The seed alone determines a round, which runs in this process without a socket or a clock. So a number reproduces it.
Processes and kernels are tested elsewhere (`tests/processes/test_bad_input.py`).
"""

from tests import engine

engine.let_faults_through()
