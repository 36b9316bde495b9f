"""The routers of a mesh and the links between them (protocol 11): a value on which all routers come to agree."""
