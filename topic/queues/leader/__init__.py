"""The links that a set's leader has for its queues, and the log entries that they propose (protocol 14)."""
