"""The plan: the routers of a mesh and the links between them (protocol 11). All routers come to have the same plan."""
