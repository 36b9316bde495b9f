"""`oncemesh bench`: puts a load on a mesh and measures the latencies. All clients run in one process, which also
measures its own processor time."""
