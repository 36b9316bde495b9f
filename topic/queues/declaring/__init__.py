"""Queues that a router declares and deletes for its clients."""
