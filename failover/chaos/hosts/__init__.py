"""Gives each router of a run a host of its own in the network, with interfaces, cables, and packets that get lost."""
