"""Keeps one link attached to some router of a mesh, and decides which router, for how long, and why the link has ended.
Handles no deliveries."""
