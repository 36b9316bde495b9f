"""Makes a router process follow the plan of the mesh (protocol 11): the neighbours that it dials, the routers that it
names to clients, and its own end."""
