"""Who is reachable, by which next hop, and a reliable channel to those who are (protocol 3, layers 1 and
2).

Sans-I/O: the interface is `linkstate.mesh.Mesh`, its actions are in `linkstate.events`.
"""
