"""The replica sets of a router process: their store, and the thread that writes it (protocol 13.5)."""
