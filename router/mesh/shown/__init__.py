"""Shows the reports of a mesh's routers to people."""
