"""A router's rules for the publishers attached to it: who is awaited, and when a publisher is answered."""
