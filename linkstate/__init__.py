"""The routers that this router reaches, the next hop to each of them, and a reliable channel to each contact (protocol
3, layers 1 and 2).

Sans-I/O: the interface is `linkstate.mesh.Mesh`, its actions are in `linkstate.mesh_actions`.
"""
