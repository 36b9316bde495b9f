"""A mesh as its users see it: the topology file, the run directory, the start of routers, and their status."""
