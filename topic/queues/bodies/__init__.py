"""Messages as rows of the state of a set. A body may be on the disk alone (protocol 14.13)."""
