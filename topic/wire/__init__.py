"""The messages between topic cores, as bytes. Nothing here decides anything."""
