"""Messages that go from the queues of a set to other addresses."""
