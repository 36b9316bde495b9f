"""Judges the messages of queues by the entries that replicas of sets write about them (protocol 14)."""
