"""Which routers a mesh has, and which links between them (protocol 11): a value that all routers come to agree on."""
