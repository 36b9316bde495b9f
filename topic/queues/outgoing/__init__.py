"""The messages that a set sends from its queues to other addresses."""
