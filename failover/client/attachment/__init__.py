"""One link kept attached to some router of a mesh: which router, until when, and why it has ended. No deliveries."""
