"""The commands apply and remove. They change the plan of a running mesh: its routers and links."""
