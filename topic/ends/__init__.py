"""Ends of links, whatever protocol their clients speak, if any."""
