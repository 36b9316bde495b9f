"""Transactions on the queues of one set (protocol 14.20)."""
