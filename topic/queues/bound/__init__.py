"""The bindings of the queues of a set."""
