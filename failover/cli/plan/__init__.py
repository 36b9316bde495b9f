"""The commands that change which routers and links a mesh has while it runs: apply, remove."""
