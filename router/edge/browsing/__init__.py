"""The ends of clients that browse queues."""
