"""What the leader of a set does for its queues: its links, and the entries that these propose (protocol 14)."""
