"""The commands that change the plan of a running mesh, that is its routers and links: apply, remove and join."""
