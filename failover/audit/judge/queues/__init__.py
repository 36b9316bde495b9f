"""The messages of queues, by what replicas of sets tell of them (protocol 14)."""
