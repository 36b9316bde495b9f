"""A mesh as its users see it: the topology file, the run directory, launching routers, and asking how they are."""
