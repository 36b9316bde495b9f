"""The messages between topic cores, and their form as bytes. This package decides nothing."""
