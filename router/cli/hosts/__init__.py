"""The commands for meshes of several hosts."""
