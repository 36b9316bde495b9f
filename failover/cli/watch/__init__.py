"""The commands that look at a mesh from anywhere, as clients of `$management`: events, top, queue, forget and
status."""
