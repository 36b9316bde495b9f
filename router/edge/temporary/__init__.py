"""Queues that clients ask for, and that end with them."""
