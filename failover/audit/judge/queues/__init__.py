"""The messages of queues, by the entries of replicas of sets (protocol 14)."""
