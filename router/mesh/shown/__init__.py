"""What the routers of a mesh say of themselves, as people read it."""
