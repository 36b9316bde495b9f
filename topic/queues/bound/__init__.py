"""What the queues of a set are bound to."""
