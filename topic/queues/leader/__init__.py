"""The links of a set's leader to its queues, and the entries that they propose (protocol 14)."""
