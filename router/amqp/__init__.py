"""AMQP 1.0 for the other packages: a sans-I/O `Connection` on proton's C engine, and the trio loop around it.

A leaf: it imports nothing of ours, and knows nothing of topics, records or meshes.
"""
