"""AMQP 1.0 for the other packages: a sans-I/O `Connection` on proton's C engine, and the trio loop around it.

It imports nothing else of this project but the kinds of events, and knows nothing of topics, records or meshes.
"""
