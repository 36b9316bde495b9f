"""Commands that look at a mesh from anywhere, as clients of `$management`: events, top, and what of status does."""
