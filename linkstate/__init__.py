"""Finds the routers that this router can reach, and the next hop to each of them. It also keeps a reliable channel to
each contact (protocol 3, layers 1 and 2).

The package does no I/O. Its interface is `linkstate.mesh.Mesh`; `linkstate.mesh_actions` has the actions that it asks
for.
"""
