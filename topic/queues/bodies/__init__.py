"""The messages of a set as rows of its state. The body of a message may be only on the disk (protocol 14.13)."""
