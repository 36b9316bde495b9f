"""Applies the plan of the mesh to a router process (protocol 11): whom it dials, which routers it names, when it
ends."""
