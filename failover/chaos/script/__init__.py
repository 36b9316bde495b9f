"""A chaos script: its words, reading it, and the timeline that comes of it and a seed. Nothing is struck here."""
