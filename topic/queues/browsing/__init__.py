"""The requests of clients that browse queues."""
