"""Each router of a run on a host of its own, as far as the network tells: interfaces, cables, packets that get lost."""
