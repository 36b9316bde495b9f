"""What goes from the queues of a set to other addresses."""
