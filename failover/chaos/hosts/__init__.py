"""Gives each router of a run a host of its own in the network: interfaces, cables, packets that get lost."""
