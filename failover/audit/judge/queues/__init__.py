"""Judges the messages of queues by the entries that replicas of sets log about them (protocol 14)."""
